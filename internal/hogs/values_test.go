package hogs

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/served"
	"toolpost/wire/strictjson"
)

// A bulk is a body for a route, with as many small values as one likes.
type bulk struct {
	path, before, item, after string // item may have a verb for its number
	most                      int    // items that are still taken
}

// members is how many members of one object are still taken.
const members = 130_000

// bulks are the places in which a caller may put values, at every route that reads JSON.
func bulks() map[string]bulk {
	const chat, responses, messages, mcp = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/mcp"
	const objects, texts = 55_000, 50_000
	ask := func(model, member string) string { return `{"model":"` + model + `","max_tokens":9,"` + member + `":` }
	said := `,"messages":[{"role":"user","content":"x"}]}`
	block := `{"type":"text","text":"%d"}`
	return map[string]bulk{
		"blocks":                    {messages, ask("chat", "messages") + `[{"role":"user","content":[`, `{}`, `]}]}`, objects},
		"blocks for the same API":   {messages, ask("claude", "messages") + `[{"role":"user","content":[`, `{}`, `]}]}`, objects},
		"blocks passed on":          {messages, ask("bare-claude", "messages") + `[{"role":"user","content":[`, `{}`, `]}]}`, objects},
		"text blocks":               {messages, ask("chat", "messages") + `[{"role":"user","content":[`, block, `]}]}`, texts},
		"blocks of an answer":       {messages, ask("chat", "messages") + `[{"role":"assistant","content":[`, block, `]}]}`, texts},
		"system blocks":             {messages, ask("chat", "messages") + `[{"role":"user","content":"x"}],"system":[`, block, `]}`, texts},
		"results":                   {messages, ask("chat", "messages") + `[{"role":"user","content":[`, `{"type":"tool_result"}`, `]}]}`, texts},
		"messages":                  {messages, ask("chat", "messages") + `[`, `{}`, `]}`, objects},
		"chat messages":             {chat, ask("chat", "messages") + `[`, `{}`, `]}`, objects},
		"chat texts":                {chat, ask("claude", "messages") + `[`, `{"role":"user","content":"%d"}`, `]}`, texts},
		"chat parts":                {chat, ask("claude", "messages") + `[{"role":"user","content":[`, block, `]}]}`, texts},
		"chat numbers":              {chat, ask("chat", "messages") + `[`, `1`, `]}`, 500_000},
		"chat tools":                {chat, ask("chat", "tools") + `[`, `{}`, `]` + said, objects},
		"chat tools with names":     {chat, ask("chat", "tools") + `[`, `{"name":"t%d"}`, `]` + said, objects},
		"settings":                  {chat, `{"model":"claude",`, `"k%06d":1`, said, members},
		"items":                     {responses, ask("chat", "input") + `[`, `{}`, `]}`, objects},
		"items that are calls":      {responses, ask("chat", "input") + `[`, `{"type":"function_call","name":"f"}`, `]}`, texts},
		"items that are numbers":    {responses, ask("chat", "input") + `[`, `1`, `]}`, 500_000},
		"tool calls":                {"/v1/openai/tool_calls", `{"tool_calls":[`, `{}`, `]}`, objects},
		"tool calls with ids":       {"/v1/openai/tool_calls", `{"tool_calls":[`, `{"id":"%d","function":{"name":"f"}}`, `]}`, 25_000},
		"embeddings":                {"/v1/embeddings", ask("chat", "input") + `[`, `1`, `]}`, 500_000},
		"_meta":                     {mcp, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{`, `"k%06d":1`, `}}}`, members},
		"envelopes":                 {mcp, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{`, `"toolpost/%06d":"x"`, `}}}`, members},
		"params":                    {mcp, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`, `"k%06d":1`, `}}`, members},
		"arguments over MCP":        {mcp, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"readFile","arguments":{`, `"k%06d":1`, `}}}`, members},
		"arguments":                 {"/v1/tools/readFile/call", `{`, `"k%06d":1`, `}`, members},
		"a plan":                    {"/v1/tools/plan.check/call", `{"plan":{`, `"k%06d":1`, `}}`, members},
		"a plan's tools":            {"/v1/tools/plan.check/call", `{"plan":{"requestId":"x","narrative":"x","tools":[`, `{}`, `]}}`, objects},
		"a job's arguments":         {"/v1/tools/startJob/call", `{"tool":"readFile","arguments":{`, `"k%06d":1`, `}}`, members},
		"a body that is not wanted": {"/v1/responses/compact", ask("chat", "input") + `[`, `{}`, `]}`, objects},
	}
}

// body has n items, or as many as fit in so many bytes.
func (b bulk) body(n, bytes int) string {
	var s strings.Builder
	s.WriteString(b.before)
	for i := 0; i < n && s.Len() < bytes; i++ {
		if i > 0 {
			s.WriteByte(',')
		}
		if strings.Contains(b.item, "%") {
			fmt.Fprintf(&s, b.item, i)
		} else {
			s.WriteString(b.item)
		}
	}
	return s.String() + b.after
}

func (s *server) post(t *testing.T, path, body string) (status int, text string) {
	t.Helper()
	r := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+path, strings.NewReader(body)))(t)
	r.Header.Set("Authorization", "Bearer "+served.Token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(b)
}

// settled waits until the server has returned the memory of earlier requests, forgets its peak, and returns what is left.
func (s *server) settled(t *testing.T, base int64) int64 {
	t.Helper()
	kit.Until(t, func() error {
		if kept := s.memory(t, "VmRSS") - base; base > 0 && kept > 48<<20 {
			return fmt.Errorf("%d MiB are not given back", kept>>20)
		}
		return nil
	})
	kit.OK(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.Pid()), []byte("5"), 0o600))
	return s.memory(t, "VmRSS")
}

// TestNoRouteBuildsTooManyValues sends each bulk with as many values as are taken, and with far more, which are refused
// before anything is made of them.
func TestNoRouteBuildsTooManyValues(t *testing.T) {
	s := serveModels(t, "http://127.0.0.1:9")
	base := s.settled(t, 0)
	for name, b := range bulks() {
		many := 1 << 30
		if b.most == members {
			many = strictjson.MaxMembers - 1000
		}
		bodies := map[string]string{"most": b.body(b.most, 31<<20), "7 MiB": b.body(many, 7<<20)}
		if name == "chat messages" {
			bodies["30 MiB"] = b.body(1<<30, 30<<20)
		}
		for size, body := range bodies {
			t.Run(name+"/"+size, func(t *testing.T) {
				before := s.settled(t, base)
				status, text := s.post(t, b.path, body)
				grown := (s.memory(t, "VmHWM") - before) >> 20
				t.Logf("%d bytes: %d MiB, %d %.200s", len(body), grown, status, text)
				if grown > 100 {
					t.Errorf("the server's memory grew by %d MiB", grown)
				}
				refused := status == http.StatusBadRequest && strings.Contains(text, "too many values")
				if status == 0 || status == http.StatusInternalServerError || refused != (size != "most") {
					t.Errorf("%d %.300s", status, text)
				}
			})
		}
	}
	s.settled(t, base)
	s.Stop(t)
}

// TestManyRequestsOfOneCallerAreWeighed sends many requests with as many values as one may have, to a model that does not
// answer: the caller may have four of them at a time.
func TestManyRequestsOfOneCallerAreWeighed(t *testing.T) {
	asked, leave := make(chan struct{}, 99), make(chan struct{})
	end := sync.OnceFunc(func() { close(leave) })
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		<-leave
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(func() { end(); slow.Close() })
	s := serveModels(t, slow.URL)
	base := s.settled(t, 0)
	b := bulks()["text blocks"]
	var mu sync.Mutex
	answers := map[int]int{}
	var all sync.WaitGroup
	send := func() {
		all.Go(func() {
			status, _ := s.post(t, b.path, b.body(b.most, 31<<20))
			mu.Lock()
			defer mu.Unlock()
			answers[status]++
		})
	}
	const atOnce, total = 4, 12
	for range atOnce {
		send()
		kit.Receive(t, "the model is asked", asked)
	}
	for range total - atOnce {
		send()
	}
	kit.Until(t, func() error {
		mu.Lock()
		defer mu.Unlock()
		if answers[http.StatusTooManyRequests] != total-atOnce {
			return fmt.Errorf("of %d requests at once these were answered: %v", total, answers)
		}
		return nil
	})
	if grown := (s.memory(t, "VmHWM") - base) >> 20; grown > atOnce*100 {
		t.Errorf("the server's memory grew by %d MiB", grown)
	} else {
		t.Logf("%d at once: %d MiB", total, grown)
	}
	end()
	all.Wait()
	s.settled(t, base)
	if status, text := s.post(t, b.path, b.body(9, 1<<20)); status == http.StatusTooManyRequests {
		t.Errorf("after them: %s", text)
	}
	s.Stop(t)
}

// serveModels starts a server with models of two APIs.
func serveModels(t *testing.T, url string) *server {
	t.Helper()
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), fmt.Appendf(nil, `
sources: [{name: files, protocol: builtin, roots: [{path: .}]}]
models:
  - {name: chat, url: "%[1]s/v1", tools: offer}
  - {name: claude, url: "%[1]s/v1", api: anthropic, tools: offer}
  - {name: bare-claude, url: "%[1]s/v1", api: anthropic}
store: {}
`, url), 0o600))
	s := &server{served.Start(t, served.Build(t), dir)}
	s.post(t, "/v1/chat/completions", `{"model":"chat","messages":[]}`)
	return s
}
