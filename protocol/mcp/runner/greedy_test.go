package runner_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"toolpost/internal/kit"
	"toolpost/protocol/mcp/runner"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// A notebook records the log.
type notebook struct {
	mu sync.Mutex
	bytes.Buffer
}

func (n *notebook) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Buffer.Write(b)
}

func (n *notebook) count(words string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Count(n.String(), words)
}

// greedy opens a modern server whose answers the test decides: the whole body of a stream, or a result.
func greedy(t *testing.T, answer func(method, cursor string) (before, result string)) (*runner.Runner, *notebook) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Cursor string }
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		before, result := answer(m.Method, m.Params.Cursor)
		if m.Method == "server/discover" {
			result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "%sdata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", before, m.ID, result)
	}))
	t.Cleanup(s.Close)
	log := &notebook{}
	r, err := runner.Open(t.Context(), sourceOf(t, t.TempDir(), "url: '"+s.URL+"'", nil), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(t.Context()) })
	return r.(*runner.Runner), log
}

func TestToolListAndItsLogLinesAreBounded(t *testing.T) {
	tooltest.NoLeaks(t)
	pages := 0
	r, _ := greedy(t, func(string, string) (string, string) {
		pages++
		return "", fmt.Sprintf(`{"resultType":"complete","nextCursor":"%d","tools":[{"name":"t%d","description":"%s","inputSchema":{}}]}`,
			pages, pages, strings.Repeat("x", 4<<20))
	})
	if _, err := r.Tools(t.Context()); err == nil || !strings.Contains(err.Error(), "MiB") || pages > 20 {
		t.Errorf("after %d pages: %v", pages, err)
	}
	r, _ = greedy(t, func(string, string) (string, string) {
		return "", `{"resultType":"complete","tools":[` + strings.Repeat("1,", 30_000) + `1]}`
	})
	kit.Fails(t, kit.Err(r.Tools(t.Context())), "more than", "a list of numbers")
	r, log := greedy(t, func(string, string) (string, string) {
		return "", `{"resultType":"complete","tools":[` + strings.Repeat("1,", 500) + `{"name":"good","inputSchema":{}}]}`
	})
	if list, err := r.Tools(t.Context()); err != nil || len(list) != 2 || log.count("is not offered") > 20 {
		t.Errorf("%d tools, %v, and %d lines in the log", len(list), err, log.count("is not offered"))
	}
}

func TestChattyServerDoesNotFillTheLog(t *testing.T) {
	tooltest.NoLeaks(t)
	const said = `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"blah"}}` + "\n\n"
	r, log := greedy(t, func(method, _ string) (string, string) {
		if method != "tools/list" {
			return "", ""
		}
		return strings.Repeat(said, 5000), `{"resultType":"complete","tools":[]}`
	})
	kit.OK(t, kit.Err(r.Tools(t.Context())))
	if n := log.count("blah"); n > 60 {
		t.Errorf("%d lines in the log", n)
	}
}

// The state of a question is kept here until it is answered, and a thousand questions may be open.
func TestAQuestionThatIsHugeIsNotKept(t *testing.T) {
	tooltest.NoLeaks(t)
	huge := strings.Repeat("x", 1<<20)
	form := `{"q":{"method":"elicitation/create","params":{"message":"%s","requestedSchema":{"type":"object"}}}}`
	for name, result := range map[string]string{
		"what it wants to have back": fmt.Sprintf(`{"resultType":"input_required","requestState":%q,"inputRequests":`+form+`}`, huge, "?"),
		"the question":               fmt.Sprintf(`{"resultType":"input_required","requestState":"s","inputRequests":`+form+`}`, huge),
	} {
		r, _ := greedy(t, func(method, _ string) (string, string) {
			if method == "tools/list" {
				return "", `{"resultType":"complete","tools":[{"name":"t","inputSchema":{}}]}`
			}
			return "", result
		})
		kit.Refused(t, kit.Err(r.Invoke(t.Context(), &tool.Call{Tool: "t"}, tool.Discard)), tool.CodeProtocol, "", name)
	}
}
