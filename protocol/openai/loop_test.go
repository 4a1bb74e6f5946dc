package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/scripted"
	"toolpost/tool"
)

func TestAModelReadsAFileAndAnswersUnderOneRun(t *testing.T) {
	m := scripted.New(t, calls(readFile("c1")), says("It is called demo."))
	h := serve(t, m, "")
	a := h.Do("POST", "/v1/chat/completions", chat(""), "Toolpost-Run", "run-7", "Toolpost-Session", "s-1")
	if a.Status != 200 || dig(a.Doc, "choices", 0, "message", "content") != "It is called demo." ||
		dig(a.Doc, "choices", 0, "finish_reason") != "stop" || dig(a.Doc, "usage", "total_tokens") != 220.0 || dig(a.Doc,
		"model") != "demo" {
		t.Fatal(a.Status, a.Text)
	}
	asked := m.Asked()
	if len(asked) != 2 || !slices.Contains(asked[0].Tools(), "readFile") || !slices.Contains(asked[0].Tools(),
		"dotted_name") ||
		asked[0].Header.Get("Authorization") != "Bearer the-key-itself" || asked[0].Body["model"] != "m-1" {
		t.Fatal(asked)
	}
	kit.Equal(t, dig(asked[1].Body, "messages", 2, "content"), `{"name": "demo"}`)
	log := h.Records()
	if len(log) != 1 || log[0].Tool != "readFile" || log[0].Run != "run-7" || log[0].Session != "s-1" ||
		log[0].Caller != "owner" ||
		log[0].Door != "openai" || log[0].Outcome != tool.OutcomeOK {
		t.Errorf("%+v", log)
	}
}

func TestToolErrorsReachTheModelAndTheAuditLog(t *testing.T) {
	m := scripted.New(t, calls(
		scripted.Call{ID: "bad", Name: "readFile", Args: `{"path":`},
		scripted.Call{ID: "none", Name: "launchRocket", Args: `{}`},
		scripted.Call{ID: "no", Name: "fail", Args: `{"message":"x"}`},
		scripted.Call{ID: "outside", Name: "readFile", Args: `{"path":"/etc/passwd"}`},
		scripted.Call{ID: "died", Name: "crash", Args: ``},
		scripted.Call{ID: "ask", Name: "asker", Args: `{}`},
		scripted.Call{ID: "choose", Name: "chooser", Args: `{}`},
		readFile("good"),
	), says("I see."))
	h := serve(t, m, "")
	a := h.Do("POST", "/v1/chat/completions", chat(""))
	if a.Status != 200 || dig(a.Doc, "choices", 0, "message", "content") != "I see." {
		t.Fatal(a.Status, a.Text)
	}
	contents := map[string]string{}
	for _, one := range m.Asked()[1].Body["messages"].([]any)[2:] {
		contents[dig(one, "tool_call_id").(string)] = dig(one, "content").(string)
	}
	for id, want := range map[string]string{
		"bad": "Error: ", "none": "Error: ", "no": "nobody fails here", "outside": "not allowed",
		"died": "died without an answer",
		"ask":  "Which colour?", "good": "demo",
		"choose": "You stand at a gate.\n[choices; what the user chooses is the next prompt:\n1. Go north\n2. Go south (it is cold)]",
	} {
		kit.Contains(t, contents[id], want, "%s was told as", id)
	}
	log := h.Records()
	codes := map[string]tool.Code{}
	runs := map[string]bool{}
	for _, r := range log {
		codes[r.Tool+r.Asked+string(r.Outcome)] = r.Code
		runs[r.Run] = true
	}
	if len(log) != 8 || len(runs) != 1 || runs[""] || codes["launchRocketerror"] != tool.CodeNotFound {
		t.Errorf("%d records, %d runs: %v", len(log), len(runs), codes)
	}
}

// The tools of one answer run concurrently: both hang at the same time.
func TestConcurrentCallsEndWhenTheClientLeaves(t *testing.T) {
	m := scripted.New(t, calls(scripted.Call{ID: "a", Name: "hang", Args: "{}"}, scripted.Call{ID: "b", Name: "hang",
		Args: "{}"}))
	h := serve(t, m, "")
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		req, _ := http.NewRequestWithContext(ctx, "POST", h.URL+"/v1/chat/completions", strings.NewReader(chat("")))
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	kit.Eventually(t, "both run", func() bool { return h.Hung.Load() == 2 })
	cancel()
	<-gone
	kit.Eventually(t, "neither runs", func() bool { return h.Hung.Load() == 0 })
	for _, r := range h.Records() {
		kit.Equal(t, r.Code, tool.CodeCancelled, r)
	}
	kit.Equal(t, len(m.Asked()), 1, "the model was asked again")
}

func TestModelRequestEndsWhenTheClientLeaves(t *testing.T) {
	m := scripted.New(t, scripted.Step{Hold: make(chan struct{})})
	h := serve(t, m, "")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		kit.Eventually(t, "the model is asked", func() bool { return len(m.Asked()) == 1 })
		cancel()
	}()
	req, _ := http.NewRequestWithContext(ctx, "POST", h.URL+"/v1/messages",
		strings.NewReader(chat(`,"max_tokens":10,"stream":true`)))
	req.Header.Set("X-Api-Key", token)
	req.Header.Set("Content-Type", "application/json")
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Error("it was answered: ", resp.Status)
	}
	kit.Eventually(t, "the model's server sees that the caller has gone", func() bool { return m.Gone() == 1 })
}

func TestEveryLimitEndsARequestInTheWordsOfItsWire(t *testing.T) {
	for name, c := range map[string]struct {
		limits, stopped, reason, stop string
		rounds                        int
	}{
		"rounds": {"rounds: 3", "rounds", "asked 3 times", "pause_turn", 3},
		"calls":  {"calls: 2", "calls", "2 calls were made", "pause_turn", 3},
		"tokens": {"tokens: 200", "tokens", "220 tokens were used", "max_tokens", 2},
		"cost":   {"cost: 200", "cost", "has cost 220", "max_tokens", 2},
	} {
		t.Run(name, func(t *testing.T) {
			for _, wire := range []string{"chat/completions", "responses", "messages"} {
				if wire == "messages" && name == "cost" {
					continue // its model has no price
				}
				m := scripted.New(t).Always(scripted.Step{Text: "Once more.", Calls: []scripted.Call{readFile("c")}})
				h := serve(t, m, ", openai: {"+c.limits+"}")
				body := map[string]string{
					"chat/completions": chat(""), "responses": `{"model":"demo","input":"go"}`,
					"messages": strings.Replace(chat(`,"max_tokens":100`), "demo", "claude", 1),
				}[wire]
				a := h.Do("POST", "/v1/"+wire, body)
				if a.Status != 200 || !strings.Contains(a.Text, c.reason) || !strings.Contains(a.Text,
					`"stopped":"`+c.stopped+`"`) || len(m.Asked()) != c.rounds {
					t.Errorf("%s: %d %s after %d", wire, a.Status, a.Text, len(m.Asked()))
				}
				if got := fmt.Sprintf("%v %v %v", dig(a.Doc, "choices", 0, "finish_reason"), dig(a.Doc, "status"), dig(a.Doc,
					"stop_reason")); got !=
					map[string]string{"chat/completions": "length <nil> <nil>", "responses": "<nil> incomplete <nil>",
						"messages": "<nil> <nil> " + c.stop}[wire] {
					t.Errorf("%s ended with %s", wire, got)
				}
				h.Stop()
			}
		})
	}
}

func TestTimeLimitEndsARequest(t *testing.T) {
	hold := make(chan struct{})
	for name, c := range map[string]struct {
		step scripted.Step
		more string
	}{
		"a model that says nothing": {scripted.Step{Hold: hold}, ""},
		"a tool that hangs":         {calls(scripted.Call{ID: "a", Name: "hang", Args: "{}"}), ""},
		"in a stream":               {scripted.Step{Hold: hold}, `,"stream":true`},
	} {
		t.Run(name, func(t *testing.T) {
			m := scripted.New(t, c.step)
			h := serve(t, m, ", openai: {time: 300ms}")
			a := h.Do("POST", "/v1/chat/completions", chat(c.more))
			if a.Status != 200 || !strings.Contains(a.Text, "has used up its 300ms") || !strings.Contains(a.Text,
				`"finish_reason":"length"`) {
				t.Errorf("%d %s", a.Status, a.Text)
			}
		})
	}
}

func TestTheCallersOwnToolsAreLeftToTheCaller(t *testing.T) {
	mixed := scripted.Step{Text: "Both.", Calls: []scripted.Call{readFile("ours"), {ID: "theirs", Name: "paint",
		Args: `{"colour":"red"}`}}}
	own := `,"tools":[{"type":"function","function":{"name":"paint","description":"Paints.","parameters":{"type":"object"}}},
		{"type":"function","function":{"name":"readFile"}}]`
	m := scripted.New(t, mixed, says("Done."))
	h := serve(t, m, "")
	a := h.Do("POST", "/v1/chat/completions", chat(own))
	message, _ := dig(a.Doc, "choices", 0, "message").(map[string]any)
	list, _ := message["tool_calls"].([]any)
	if len(list) != 1 || dig(list, 0, "id") != "theirs" || dig(list, 0, "function", "arguments") != `{"colour":"red"}` ||
		dig(a.Doc, "choices", 0, "finish_reason") != "tool_calls" || message["content"] != "Both." {
		t.Fatal(a.Text)
	}
	kit.EqualSlices(t, m.Asked()[0].Tools(), []string{"paint", "readFile"}, "offered")
	// The message that the caller sends back carries our call, so that the model remembers what it read.
	back := mustJSON(t, map[string]any{"model": "demo", "messages": []any{
		map[string]any{"role": "user", "content": "Read and paint"}, message,
		map[string]any{"role": "tool", "tool_call_id": "theirs", "content": "painted"},
	}})
	if a := h.Do("POST", "/v1/chat/completions", back); dig(a.Doc, "choices", 0, "message", "content") != "Done." {
		t.Fatal(a.Text)
	}
	if last := m.Asked()[1]; !strings.Contains(last.Text, `\"name\": \"demo\"`) ||
		len(last.Body["messages"].([]any)) != 5 {
		t.Error(last.Text)
	}
}

func TestOnlySelectedToolsRun(t *testing.T) {
	m := scripted.New(t, calls(scripted.Call{ID: "1", Name: "dotted_name", Args: `{"x":1}`}, scripted.Call{ID: "2",
		Name: "echo", Args: `{"x":1}`}), says("ok"))
	h := serve(t, m, "")
	a := h.Do("POST", "/v1/chat/completions", chat(`,"tools":{"dotted.name":{}},"tool_choice":{"type":"function","function":{"name":"dotted.name"}}`))
	asked := m.Asked()
	if a.Status != 200 || !slices.Equal(asked[0].Tools(), []string{"dotted_name"}) || dig(asked[0].Body, "tool_choice",
		"function", "name") != "dotted_name" {
		t.Fatal(a.Text, asked)
	}
	kit.Equal(t, dig(asked[1].Body, "tool_choice"), "auto", "it is told to call a tool again and again")
	if first, second := dig(asked[1].Body, "messages", 2, "content"), dig(asked[1].Body, "messages", 3,
		"content"); first != "dotted" ||
		!strings.HasPrefix(second.(string), "Error: ") {
		t.Error(first, second)
	}
	refused := 0
	for _, r := range h.Records() {
		if r.Code == tool.CodeNotFound {
			refused++
		}
	}
	kit.Equal(t, refused, 1, "there is no record of the call that was refused")
}

// A server may ignore tool_choice. A call that a caller has ruled out is neither run nor left to the caller.
func TestToolChoiceIsEnforced(t *testing.T) {
	echo, paint := scripted.Call{ID: "e", Name: "echo", Args: `{"x":1}`}, scripted.Call{ID: "p", Name: "paint", Args: `{}`}
	once := func(list ...scripted.Call) []scripted.Step { // and then another time
		return []scripted.Step{calls(list...), calls(scripted.Call{ID: "e2", Name: "echo", Args: `{"x":2}`}), says("The end.")}
	}
	for name, c := range map[string]struct {
		chat, responses, messages string // each API's form
		script                    []scripted.Step
		ran                       map[string]int
		received                  []string // by a server of OpenAI's API
	}{
		"none": {`"none"`, `"none"`, `{"type":"none"}`, once(echo, readFile("r"), paint), map[string]int{},
			[]string{`"none"`, `"none"`, `"none"`}},
		"a name": {
			`{"type":"function","function":{"name":"readFile"}}`, `{"type":"function","name":"readFile"}`, `{"type":"tool","name":"readFile"}`,
			once(echo, readFile("r"), paint), map[string]int{"readFile": 1, "echo": 1},
			[]string{`{"function":{"name":"readFile"},"type":"function"}`, `"auto"`, `"auto"`},
		},
		"a name that is not called": {
			`{"type":"function","function":{"name":"readFile"}}`, `{"type":"function","name":"readFile"}`, `{"type":"tool","name":"readFile"}`,
			once(echo), map[string]int{}, nil,
		},
		"one of the caller's own": {
			`{"type":"function","function":{"name":"paint"}}`, `{"type":"function","name":"paint"}`, `{"type":"tool","name":"paint"}`,
			once(echo, readFile("r")), map[string]int{}, nil,
		},
		"any": {`"required"`, `"required"`, `{"type":"any"}`, once(echo, readFile("r")), map[string]int{"readFile": 1, "echo": 2},
			[]string{`"required"`, `"auto"`, `"auto"`}},
		"auto": {`"auto"`, `"auto"`, `{"type":"auto"}`, once(echo, readFile("r")), map[string]int{"readFile": 1, "echo": 2},
			[]string{`"auto"`, `"auto"`, `"auto"`}},
	} {
		for path, body := range map[string]string{
			"/v1/chat/completions": chat(`,"tool_choice":` + c.chat),
			"/v1/responses":        `{"model":"demo","input":"go","tool_choice":` + c.responses + `}`,
			"/v1/messages":         chat(`,"max_tokens":100,"tool_choice":` + c.messages),
		} {
			for _, stream := range []string{"false", "true"} {
				t.Run(name+path+stream, func(t *testing.T) {
					m := scripted.New(t, c.script...)
					h := serve(t, m, "")
					a := h.Do("POST", path, strings.TrimSuffix(body, "}")+`,"tools":{"readFile":{},"echo":{},"paint":{}},"stream":`+stream+`}`)
					if a.Status != 200 || !strings.Contains(strings.ReplaceAll(joined(a.Text), "\n", ""), "The end.") ||
						strings.Contains(a.Text, `"type":"tool_use"`) || strings.Contains(a.Text, `"type":"function_call"`) {
						t.Fatal(a.Status, a.Text)
					}
					for i, want := range c.received {
						if got := mustJSON(t, m.Asked()[i].Body["tool_choice"]); got != want {
							t.Errorf("request %d has the choice %s, want %s", i+1, got, want)
						}
					}
					ran := map[string]int{}
					for _, r := range h.Records() {
						if r.Outcome == tool.OutcomeOK {
							ran[r.Tool]++
						} else if r.Code != tool.CodeNotFound {
							t.Errorf("%+v", r)
						}
					}
					if !maps.Equal(ran, c.ran) {
						t.Errorf("%v ran, want %v", ran, c.ran)
					}
				})
			}
		}
	}
}

// choicesNotUnderstood are choices that only servers may understand, for each API and for models that speak it.
func choicesNotUnderstood() map[string]map[string][]string {
	openai := []string{`{"type":"none"}`, `"NONE"`, `{"name":"readFile"}`, `["none"]`, `7`, `true`, `{"type":"custom","name":"readFile"}`,
		`{"type":"allowed_tools"}`, `{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp","server_label":"toolpost"}]}`,
		`{"type":"allowed_tools","mode":"some","tools":[{"type":"function","name":"readFile"}]}`, `{"type":7}`,
		`{"type":"mcp","server_label":"toolpost","name":"readFile"}`, `{"type":"web_search"}`}
	return map[string]map[string][]string{
		"/v1/chat/completions": {"demo": openai, "claude": openai},
		"/v1/responses":        {"newer": openai, "demo": openai},
		"/v1/messages": {"claude": {`{"type":"tool"}`, `{"type":"none","name":"readFile"}`, `{"type":"some"}`, `"none"`, `["none"]`, `{"type":7}`},
			"demo": {`{"type":"tool"}`, `{"type":"none","name":"readFile"}`, `{"type":"some"}`}},
	}
}

// asking begins a request for a model.
func asking(path, model string) string {
	said := `"messages":[{"role":"user","content":"go"}]`
	switch path {
	case "/v1/responses":
		said = `"input":"go"`
	case "/v1/messages":
		said += `,"max_tokens":9`
	}
	return `{"model":"` + model + `",` + said
}

// A choice that is not understood might rule out a tool of ours, so it is refused if the model gets one. Otherwise the
// server is sent it as it came.
func TestToolChoiceThatIsNotUnderstoodIsRefusedWithOurTools(t *testing.T) {
	bare := map[string]string{"/v1/chat/completions": "bare-openai", "/v1/responses": "bare-responses", "/v1/messages": "bare-anthropic"}
	for path, models := range choicesNotUnderstood() {
		for name, choices := range models {
			t.Run(path+name, func(t *testing.T) {
				m := scripted.New(t, slices.Repeat([]scripted.Step{calls(scripted.Call{ID: "e", Name: "echo", Args: `{"x":1}`})}, 99)...)
				h := serve(t, m, "")
				for i, choice := range choices {
					for _, tools := range []string{``, `,"tools":{}`, `,"tools":{"readFile":{}}`} {
						a := h.Do("POST", path, asking(path, name)+`,"tool_choice":`+choice+tools+`}`)
						if a.Status != 400 || !strings.Contains(a.Text, `"param":"tool_choice"`) {
							t.Errorf("%s with %q: %d %s", choice, tools, a.Status, a.Text)
						}
					}
					h.Do("POST", path, asking(path, bare[path])+`,"tool_choice":`+choice+`}`)
					if asked := m.Asked(); len(asked) != i+1 || !strings.Contains(asked[i].Text, `"tool_choice":`+choice) {
						t.Fatalf("%s without tools of ours: the server got %d requests", choice, len(asked))
					}
				}
				if ran := h.Records(); len(ran) > 0 {
					t.Errorf("%d calls were made", len(ran))
				}
			})
		}
	}
}

// A list of allowed tools holds for all of the request, whichever API the model's server speaks.
func TestOnlyAllowedToolsRun(t *testing.T) {
	for list, want := range map[string][]string{`readFile`: {"readFile"}, `readFile echo`: {"echo", "readFile"}, ``: nil} {
		var flat, nested []string
		for _, name := range strings.Fields(list) {
			flat = append(flat, `{"type":"function","name":"`+name+`"}`)
			nested = append(nested, `{"type":"function","function":{"name":"`+name+`"}}`)
		}
		for path, choice := range map[string]string{
			"/v1/chat/completions": `{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[` + strings.Join(nested, ",") + `]}}`,
			"/v1/responses":        `{"type":"allowed_tools","mode":"required","tools":[` + strings.Join(flat, ",") + `]}`,
		} {
			for _, name := range []string{"demo", "newer", "claude"} {
				for _, tools := range []string{`{}`, `{"readFile":{},"echo":{},"paint":{}}`} {
					t.Run(list+path+name+tools, func(t *testing.T) {
						step := func(n string) scripted.Step {
							return calls(scripted.Call{ID: "e" + n, Name: "echo", Args: `{"x":1}`}, readFile("r"+n))
						}
						m := scripted.New(t, step("1"), step("2"), says("The end."))
						h := serve(t, m, "")
						a := h.Do("POST", path, asking(path, name)+`,"tools":`+tools+`,"tool_choice":`+choice+`}`)
						ran := map[string]bool{}
						for _, r := range h.Records() {
							if r.Outcome == tool.OutcomeOK {
								ran[r.Tool] = true
							}
						}
						kit.MustEqual(t, a.Status, 200, a.Text)
						if got := m.Asked()[0].Tools(); !slices.Equal(slices.Sorted(slices.Values(got)), want) ||
							!slices.Equal(slices.Sorted(maps.Keys(ran)), want) {
							t.Errorf("%d; offered %v, ran %v, want %v: %s", a.Status, got, ran, want, a.Text)
						}
					})
				}
			}
		}
	}
}

// A call that the model had no room to finish may be wrong: it is not made.
func TestTruncatedToolCallIsNotRun(t *testing.T) {
	m := scripted.New(t, scripted.Step{Text: "I read", Finish: "length", Calls: []scripted.Call{readFile("c")}})
	h := serve(t, m, "")
	a := h.Do("POST", "/v1/chat/completions", chat(""))
	if a.Status != 200 || dig(a.Doc, "choices", 0, "finish_reason") != "length" || dig(a.Doc, "choices", 0, "message",
		"tool_calls") != nil ||
		dig(a.Doc, "choices", 0, "message", "content") != "I read" {
		t.Error(a.Text)
	}
	if log := h.Records(); len(log) != 0 {
		t.Errorf("%+v", log)
	}
}

func TestLongToolOutputIsTruncatedForTheModel(t *testing.T) {
	long := `{"x":"` + strings.Repeat("ä", 200<<10) + `"}`
	m := scripted.New(t, calls(scripted.Call{ID: "c", Name: "echo", Args: long}), says("Much."))
	h := serve(t, m, "")
	if a := h.Do("POST", "/v1/chat/completions", chat("")); a.Status != 200 {
		t.Fatal(a.Text)
	}
	content := dig(m.Asked()[1].Body, "messages", 2, "content").(string)
	if len(content) > 257<<10 || !strings.Contains(content, "more bytes; ask for less at a time") {
		t.Errorf("%d bytes: %s", len(content), content[len(content)-100:])
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	return string(kit.Must(json.Marshal(v))(t))
}
