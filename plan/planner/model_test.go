package planner_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// An act is one answer of the scripted server.
type act struct {
	status int
	header map[string]string
	body   string
}

// completion is an answer in the form of OpenAI's servers, including parts that planners ignore.
func completion(content string) act {
	text, _ := json.Marshal(content)
	return act{status: 200, body: fmt.Sprintf(`{"id":"chatcmpl-9","object":"chat.completion","created":1700000000,"model":"m",`+
		`"choices":[{"index":0,"message":{"role":"assistant","content":%s,"refusal":null},"logprobs":null,"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`, text)}
}

// A server plays a script, one act per request, and remembers the requests.
type server struct {
	*httptest.Server
	mu   sync.Mutex
	acts []act
	got  []string // bodies
	keys []string
}

func serve(t *testing.T, acts ...act) *server {
	t.Helper()
	s := &server{acts: acts}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.got, s.keys = append(s.got, string(body)), append(s.keys, r.Header.Get("Authorization"))
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions" ||
			r.Header.Get("Content-Type") != "application/json" || len(s.acts) == 0 {
			http.Error(w, "unexpected", http.StatusTeapot)
			return
		}
		next := s.acts[0]
		s.acts = s.acts[1:]
		for name, value := range next.header {
			w.Header().Set(name, value)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(next.status)
		_, _ = io.WriteString(w, next.body)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) asked() (bodies, keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got, s.keys
}

const goodPlan = `{"requestId":"x","narrative":"A click.","tools":[{"toolId":"a","tool":"light","input":{"steps":2}}]}`

func request(prompt string) plan.Request {
	return plan.Request{Prompt: prompt, State: json.RawMessage(`{"place":"gate"}`), Tools: []*tool.Spec{
		{Name: "light", Description: "Lights a torch.", Input: json.RawMessage(`{"type":"object","properties":{"steps":{"type":"integer"}}}`)},
	}}
}

// with returns a config with one model, which is at url.
func with(url, more string) string {
	return fmt.Sprintf("models: [{name: demo, url: %q, key: KEY, model: m-1}]\nplanners: [{name: ai, model: demo%s}]", url, more)
}

func TestAModelIsAskedInTheWordsOfChatCompletions(t *testing.T) {
	tooltest.NoLeaks(t)
	s := serve(t, completion(goodPlan), completion("```json\n"+goodPlan+"\n```"))
	b := readPlanners(t, t.TempDir(), with(s.URL+"/v1/", ", style: Write like a Norse saga."))
	for range 2 {
		p, err := ask(t, b, request("open it"))
		if err != nil || p.Narrative != "A click." || p.RequestID != "r1" || string(p.Tools[0].Input) != `{"steps":2}` {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	bodies, keys := s.asked()
	kit.Equal(t, keys[0], "Bearer the-key-itself", keys)
	var sent struct {
		Model    string
		Messages []struct{ Role, Content string }
		Stream   *bool
	}
	if err := json.Unmarshal([]byte(bodies[0]), &sent); err != nil || sent.Model != "m-1" || sent.Stream == nil || *sent.Stream ||
		len(sent.Messages) != 2 || sent.Messages[0].Role != "system" || sent.Messages[1].Role != "user" {
		t.Fatalf("%v: %s", err, bodies[0])
	}
	if c := sent.Messages[0].Content; !strings.Contains(c, "${toolId.output.path}") || !strings.HasSuffix(c, "Write like a Norse saga.") {
		t.Error(c)
	}
	var asked struct {
		Prompt string
		State  json.RawMessage
		Tools  []struct {
			Tool, Description string
			Input             json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(sent.Messages[1].Content), &asked); err != nil || asked.Prompt != "open it" ||
		string(asked.State) != `{"place":"gate"}` || asked.Tools[0].Description != "Lights a torch." || len(asked.Tools[0].Input) < 20 {
		t.Errorf("%v: %s", err, sent.Messages[1].Content)
	}
}

func TestAnAnswerThatIsNoPlanIsRepairedOnce(t *testing.T) {
	unknown := `{"requestId":"x","tools":[{"toolId":"a","tool":"fly"}]}`
	s := serve(t, completion("Sure, here is a plan!"), completion(goodPlan), completion(unknown), completion(unknown))
	b := readPlanners(t, t.TempDir(), with(s.URL+"/v1", ""))
	kit.MustEqual(t, kit.Must(ask(t, b, request("go")))(t).Narrative, "A click.")
	bodies, _ := s.asked()
	if len(bodies) != 2 || !strings.Contains(bodies[1], "Sure, here is a plan!") || !strings.Contains(bodies[1], "no Plan JSON") {
		t.Errorf("%q", bodies)
	}
	_, err := ask(t, b, request("go"))
	if tool.CodeOf(err) != tool.CodeProtocol || !strings.Contains(err.Error(), `"fly"`) || !strings.Contains(err.Error(), "twice") {
		t.Error(err)
	}
	if bodies, _ := s.asked(); len(bodies) != 4 {
		t.Errorf("asked %d times", len(bodies))
	}
}

func TestABusyServerIsAskedAgainAndNotForever(t *testing.T) {
	busy := act{status: 429, header: map[string]string{"Retry-After": "0"}, body: `{"error":{"message":"slow down","type":"requests"}}`}
	s := serve(t, busy, act{status: 503}, completion(goodPlan))
	kit.Check(t, kit.Err(ask(t, readPlanners(t, t.TempDir(), with(s.URL+"/v1", "")), request("go"))))
	// If the server asks for a longer pause than there is time, the error comes at once.
	busy.header = map[string]string{"Retry-After": "3600"}
	s = serve(t, busy, completion(goodPlan))
	_, err := ask(t, readPlanners(t, t.TempDir(), with(s.URL+"/v1", "")), request("go"))
	if e := tool.AsError(err); e.Code != tool.CodeQuotaExceeded || !strings.Contains(e.Message, "slow down") || string(e.Details) != `{"retry_after_ms":3600000}` {
		t.Errorf("%v %s", err, e.Details)
	}
	trouble := act{status: 500, header: map[string]string{"Retry-After": time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat)}, body: "<html>oops"}
	s = serve(t, trouble, trouble, act{status: 502}, trouble, completion(goodPlan))
	_, err = ask(t, readPlanners(t, t.TempDir(), with(s.URL+"/v1", "")), request("go"))
	if bodies, _ := s.asked(); tool.CodeOf(err) != tool.CodeUnavailable || len(bodies) != 4 {
		t.Errorf("%v after %d", err, len(bodies))
	}
}

func TestServerErrorsAreExplained(t *testing.T) {
	elsewhere := serve(t, completion(goodPlan))
	for name, c := range map[string]struct {
		act  act
		want string
	}{
		"key": {act{status: 401, body: `{"error":{"message":"bad key the-key-itself\u001b[31m"}}`},
			"; check the key"},
		"not there": {act{status: 404, body: `{}`}, "ends in /v1"},
		"redirect":  {act{status: 307, header: map[string]string{"Location": elsewhere.URL + "/v1/chat/completions"}}, "not followed"},
		"not JSON":  {act{status: 200, body: `<html>`}, "no chat completion"},
		"nothing":   {act{status: 200, body: `{"choices":[]}`}, "no choices"},
		"null":      {act{status: 200, body: `{"choices":[{"message":{"content":null}}]}`}, "no content"},
		"refusal":   {act{status: 200, body: `{"choices":[{"message":{"content":null,"refusal":"I cannot"}}]}`}, "refused: I cannot"},
		"cut":       {act{status: 200, body: `{"choices":[{"message":{"content":"{"},"finish_reason":"length"}]}`}, "cut off"},
		"endless":   {act{status: 200, body: strings.Repeat(" ", 2<<20)}, "longer than 1048576 bytes"},
	} {
		s := serve(t, c.act, completion(goodPlan))
		_, err := ask(t, readPlanners(t, t.TempDir(), with(s.URL+"/v1", "")), request("go"))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "the-key-itself") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if bodies, _ := elsewhere.asked(); len(bodies) != 0 {
		t.Error("the key was sent elsewhere")
	}
	long := request("go")
	long.State = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	kit.Refused(t, kit.Err(ask(t, readPlanners(t, t.TempDir(), with(elsewhere.URL+"/v1", "")), long)), tool.CodeInvalidInput, "")
}

func TestUnreachableOrSilentServerIsAnError(t *testing.T) {
	tooltest.NoLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never answers
	kit.OK(t, err)
	_, err = ask(t, readPlanners(t, t.TempDir(), with("http://"+l.Addr().String()+"/v1", ", timeout: 200ms")), request("go"))
	kit.Refused(t, err, tool.CodeTimeout, "did not answer within 200ms")
	l.Close()
	b := readPlanners(t, t.TempDir(), with("http://"+l.Addr().String()+"/v1", ""))
	if _, err = ask(t, b, request("go")); tool.CodeOf(err) != tool.CodeUnavailable || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
	b = readPlanners(t, t.TempDir(), "models: [{name: demo, url: 'http://x/v1', key: OTHER}]\nplanners: [{name: ai, model: demo}]")
	if _, err = ask(t, b, request("go")); err == nil || !strings.Contains(err.Error(), "no secret") || len(b.Problems()) != 1 {
		t.Error(err, b.Problems())
	}
}
