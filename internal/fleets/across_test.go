package fleets

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/internal/netns"
	"toolpost/internal/served"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

// A worker that can dial its hub through a device that hides it, and that no hub can dial, is a worker as any other.
func TestAWorkerThatCannotBeDialledWorks(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	tooltest.NoLeaks(t)
	s := open(t, "sqlite:hub.db", 1)
	inside := netns.Lonely(t)
	inside.Do(t, "address", "add", hubHost+"/32", "dev", "lo")
	inside.Relay(t, hubHost+":7422")
	w := s.work("inside", inside)
	kit.Equal(t, call(t.Context(), s.hubs[0], "quick", `{}`).said(), "inside")
	listens := 0
	for _, table := range []string{"tcp", "tcp6"} {
		for line := range strings.Lines(kit.Read(t, fmt.Sprintf("/proc/%d/net/%s", w.Pid(), table))) {
			if fields := strings.Fields(line); fields[3] == "0A" {
				listens++
			}
		}
	}
	kit.Equal(t, listens, 1, "only the relay listens there")
}

// stream makes a call whose events are streamed to the caller.
func stream(ctx context.Context, t *testing.T, hub *served.Server, name, args string, headers ...string) *http.Response {
	t.Helper()
	r := kit.Must(http.NewRequestWithContext(ctx, "POST", hub.URL()+"/v1/tools/"+name+"/call", strings.NewReader(args)))(t)
	headers = append(headers, "Authorization", "Bearer "+served.Token, "Content-Type", "application/json", "Accept", "text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return kit.Must(http.DefaultClient.Do(r))(t)
}

// What a tool tells arrives in its order, and whole: thousands of events, a file and an output of several MiB.
func TestWhatAToolTellsArrivesInOrderAndWhole(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	tooltest.NoLeaks(t)
	s := open(t, "sqlite:hub.db", 1)
	w := s.work("one", netns.New(t, 11))
	const lines, size = 3000, 5<<20 + 7
	answer := stream(t.Context(), t, s.hubs[0], "tales", fmt.Sprintf(`{"lines":%d,"file":%d}`, lines, size))
	body := string(kit.Must(io.ReadAll(answer.Body))(t))
	kit.OK(t, answer.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	told, id := 0, 0
	for line := range strings.Lines(body) {
		if n, ok := strings.CutPrefix(line, "id: "); ok {
			id++
			kit.MustEqual(t, strings.TrimSpace(n), strconv.Itoa(id), "the number of an event")
		}
		if n := regexp.MustCompile(`"n":(\d+)`).FindStringSubmatch(line); n != nil {
			kit.MustEqual(t, n[1], strconv.Itoa(told), "the number of a line")
			told++
		}
	}
	kit.Equal(t, told, lines)
	file := kit.Must(os.ReadFile(filepath.Join(w.dir, "out", "file")))(t)
	got := kit.Must(s.hubs[0].Ask(t.Context(), "GET", fmt.Sprintf("/v1/assets/%x", sha256.Sum256(file)), ""))(t)
	kit.Equal(t, got == string(file), true, "the file of %d bytes arrived as one of %d", len(file), len(got))
	text := kit.Must(strictjson.Marshal(strings.Repeat("Grüße 日本 🔥 \x01\n", 250_000)))(t)
	kit.Write(t, filepath.Join(w.dir, "large.json"), string(text))
	body = kit.Must(s.hubs[0].Raw(t.Context(), "large", `{}`))(t)
	kit.Equal(t, strings.Contains(body, string(text)), true, "%d bytes of output are unchanged", len(text))
}

// memory returns how much memory a process has, in bytes.
func memory(t *testing.T, pid int) int {
	t.Helper()
	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindStringSubmatch(kit.Read(t, fmt.Sprintf("/proc/%d/status", pid)))
	return kit.Must(strconv.Atoi(found[1]))(t) << 10
}

// running counts the processes below a worker whose command line has a text.
func (w *worker) running(text string) (count int) {
	for _, pid := range tooltest.Descendants(w.Pid()) {
		words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
		if bytes.Contains(bytes.ReplaceAll(words, []byte{0}, []byte(" ")), []byte(text)) {
			count++
		}
	}
	return count
}

// stands waits until the tool that tells goes on no more, because nothing reads it, and returns how many lines it has told.
func (w *worker) stands(t *testing.T) (last int) {
	t.Helper()
	kit.Eventually(t, "the tool stands", func() bool {
		n := w.told()
		stands := n > 100 && n == last
		last = n
		time.Sleep(500 * time.Millisecond)
		return stands
	})
	return last
}

// told is how many lines the tool has told.
func (w *worker) told() int {
	text, _ := os.ReadFile(filepath.Join(w.dir, "out", "told"))
	n, _ := strconv.Atoi(string(text)) // it is empty for a moment
	return n
}

// What a tool does, it does as a whole: if its hub is gone, nothing reads what it tells, and it goes on to its end.
func TestAToolGoesOnWithoutItsHub(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	tooltest.NoLeaks(t)
	s := open(t, "sqlite:hub.db", 1)
	w := s.work("one", netns.New(t, 11))
	answer := stream(t.Context(), t, s.hubs[0], "tales", `{"lines":20000,"filler":1000}`)
	if n := w.stands(t); n > 15_000 {
		t.Fatalf("the tool has told %d lines already", n)
	}
	s.hubs[0].Kill()
	kit.OK(t, answer.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	kit.Eventually(t, "the tool has told everything", func() bool { return w.told() == 20_000 })
}

// A caller that reads slowly slows the tool down: neither the hub nor the worker keeps what it has not taken. Once it goes away,
// the tool ends.
func TestACallerThatReadsSlowlySlowsTheToolDown(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	tooltest.NoLeaks(t)
	s := open(t, "sqlite:hub.db", 1)
	w := s.work("one", netns.New(t, 11))
	kit.Equal(t, call(t.Context(), s.hubs[0], "tales", `{"lines":10}`).OK, true)
	before := []int{memory(t, s.hubs[0].Pid()), memory(t, w.Pid())}
	answer := stream(t.Context(), t, s.hubs[0], "tales", `{"lines":300000,"filler":1000}`)
	last := w.stands(t)
	for i, pid := range []int{s.hubs[0].Pid(), w.Pid()} {
		more := memory(t, pid) - before[i]
		t.Logf("after %d lines of 300000, %s has %d KiB more", last, []string{"the hub", "the worker"}[i], more>>10)
		if more > 64<<20 {
			t.Errorf("a process has %d bytes more", more)
		}
	}
	if last > 100_000 {
		t.Errorf("the tool could tell %d lines that nothing reads", last)
	}
	kit.OK(t, answer.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	kit.Eventually(t, "the tool has ended", func() bool { return w.running("tell.py") == 0 })
}

// Cancelling a call at the hub ends the whole tree of processes at the worker.
func TestCancellingACallEndsItsProcessesAtTheWorker(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	tooltest.NoLeaks(t)
	s := open(t, "sqlite:hub.db", 1)
	w := s.work("one", netns.New(t, 11))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := calls(ctx, s.hubs[0], "tree", `{}`, 1)
	kit.Eventually(t, "the tree runs", func() bool { return w.running("sleep 987654") >= 2 })
	cancel()
	kit.Fails(t, kit.Receive(t, "the end of a call", got).err, "canceled")
	kit.Eventually(t, "the tree has ended", func() bool { return w.running("sleep 987654") == 0 })
}

// The answer to a question goes to the worker whose program asked it, and waits for it.
func TestAnAnswerGoesToTheWorkerThatAsked(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	tooltest.NoLeaks(t)
	s := open(t, "sqlite:hub.db", 1)
	s.work("one", netns.New(t, 11))
	s.work("two", netns.New(t, 12))
	asked := map[string]int{}
	for range 6 {
		body := kit.Must(s.hubs[0].Raw(t.Context(), "ask", `{}`))(t)
		var first struct {
			Ask struct {
				ID      string `json:"id"`
				Message string `json:"message"`
			} `json:"ask"`
		}
		kit.OK(t, strictjson.Unmarshal([]byte(body), &first), body)
		if asked[first.Ask.Message]++; first.Ask.ID == "" {
			t.Fatalf("nothing is asked: %s\n%s", body, s.logs())
		}
		body = kit.Must(s.hubs[0].Raw(t.Context(), "ask", `{}`, "Toolpost-Resume", first.Ask.ID,
			"Toolpost-Answers", `{"answer":{"action":"accept","content":{"colour":"blue"}}}`))(t)
		kit.Contains(t, body, first.Ask.Message+" got blue")
	}
	t.Logf("asked: %v", asked)
}

// Every record says which node ran the call, however it was made, and the trace of the caller reaches the tool.
func TestRecordsSayWhichNodeRanTheCall(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	tooltest.NoLeaks(t)
	s := open(t, "sqlite:hub.db", 1)
	s.work("one", netns.New(t, 11))
	ctx, trace := t.Context(), "0af7651916cd43dd8448eb211c80319c"
	kit.Contains(t, call(ctx, s.hubs[0], "trace", `{}`, "traceparent", "00-"+trace+"-b7ad6b7169203331-01").said(), "00-"+trace+"-")
	begun, _ := call(ctx, s.hubs[0], "startJob", `{"tool":"mark","arguments":{"id":"job"}}`).Output.(map[string]any)
	planned := call(ctx, s.hubs[0], "toolpost.plan.run",
		`{"plan":{"requestId":"r","tools":[{"toolId":"a","tool":"mark","input":{"id":"plan"}}]}}`)
	kit.Equal(t, planned.OK, true, planned)
	kit.Eventually(t, "the job has ended", func() bool {
		body, _ := s.hubs[0].Raw(ctx, "toolpost.showJob", fmt.Sprintf(`{"job":"%v"}`, begun["job"]))
		return strings.Contains(body, `"state":"done"`)
	})
	ran := map[string]int{} // by tool and node
	log, _ := call(ctx, s.hubs[0], "toolpost.audit.log", `{}`).Output.(map[string]any)
	records, _ := log["calls"].([]any)
	for _, r := range records {
		record, _ := r.(map[string]any)
		node, _ := record["node"].(string)
		if record["dry_run"] == true {
			continue
		}
		ran[fmt.Sprint(record["tool"], " ", node)]++
	}
	t.Logf("ran: %v", ran)
	for _, want := range []string{"trace one", "mark one", "startJob hub-1", "plan.run hub-1"} {
		if ran[want] == 0 {
			t.Errorf("no record says: %s", want)
		}
	}
	kit.Equal(t, ran["mark one"], 2)
	for what := range ran {
		if strings.HasSuffix(what, " ") {
			t.Errorf("a record of %sdoes not name its node", what)
		}
	}
}
