package matrix

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

const patience = 2 * time.Minute // only guards against a hang

// TestEachOfACrowdOfCallersGetsItsOwnAnswer makes a thousand calls at once, or ten thousand with TOOLPOST_LONG: no
// answer is lost or goes to another caller.
func TestEachOfACrowdOfCallersGetsItsOwnAnswer(t *testing.T) {
	tooltest.NoLeaks(t)
	h := newHouse(t)
	h.node, h.doors = h.open(t, "", "sources:\n- {name: builtin, protocol: builtin}\n")
	h.connect(t)
	for name, ask := range map[string]func(args string) ([]byte, error){
		"HTTP": h.askHTTP, "NATS": h.askNATS, "namel3ss service": h.askService,
	} {
		t.Run(name, func(t *testing.T) {
			problems := make([]error, rounds.Of(1000, 10_000))
			var callers sync.WaitGroup
			for i := range problems {
				callers.Go(func() { problems[i] = ownAnswer(i, ask) })
			}
			callers.Wait()
			kit.Check(t, errors.Join(problems...))
		})
	}
}

// ownAnswer makes a request that no other caller makes.
func ownAnswer(i int, ask func(string) ([]byte, error)) error {
	args := fmt.Sprintf(`{"value":{"caller":%d,"says":"%s"}}`, i, strings.Repeat(fmt.Sprint(i, " "), 8))
	output, err := ask(args)
	if err != nil {
		return fmt.Errorf("caller %d: %w", i, err)
	}
	want, _ := strictjson.Decode([]byte(args)) // written above
	if got, err := strictjson.Decode(output); err != nil || !reflect.DeepEqual(got, want) {
		return fmt.Errorf("caller %d got %.300s, %v", i, output, err)
	}
	return nil
}

func (h *house) askHTTP(args string) ([]byte, error) {
	return h.post(h.doors.http+"/v1/tools/echo/call", args, "output")
}

func (h *house) askService(args string) ([]byte, error) {
	return h.post(h.doors.service, `{"protocol_version":1,"tool_name":"echo","kind":"python","entry":"a:b","payload":`+args+`}`, "result")
}

func (h *house) post(url, body, member string) ([]byte, error) {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	answer, err := h.web.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	return memberOf(b, member)
}

func (h *house) askNATS(args string) ([]byte, error) {
	m, err := h.client.Request("tools.execute.echo", []byte(args), patience)
	if err != nil {
		return nil, err
	}
	return memberOf(m.Data, "data")
}

// memberOf returns one member of an object.
func memberOf(doc []byte, member string) (found []byte, err error) {
	err = strictjson.Object(doc, func(name, value []byte) error {
		if string(name) == member {
			found = value
		}
		return nil
	})
	if err == nil && found == nil {
		err = fmt.Errorf("no %s in %.300s", member, doc)
	}
	return found, err
}
