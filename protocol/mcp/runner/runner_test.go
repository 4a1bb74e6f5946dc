package runner_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/engine/ask"
	"toolpost/internal/kit"
	"toolpost/protocol/mcp/mcptest"
	"toolpost/protocol/mcp/runner"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// pyHTTP starts that server over HTTP, at a given port or any, and returns its address and a function that ends it.
func pyHTTP(t testing.TB, era, port string) (url string, end func()) {
	t.Helper()
	cmd := exec.Command(tooltest.Python(), "-B", "server.py", era, "http", port)
	cmd.Dir, cmd.Stderr = mcptest.Path(t, "py"), io.Discard
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	t.Cleanup(end)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	return "http://127.0.0.1:" + strings.TrimSpace(line) + "/mcp", end
}

// open opens a source, and closes it when the test ends.
func open(t testing.TB, fields string) *runner.Runner {
	t.Helper()
	r := kit.Must(runner.Open(t.Context(), sourceOf(t, t.TempDir(), fields, nil), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), kit.Hang)
		defer cancel()
		kit.Check(t, r.Close(ctx))
	})
	return r.(*runner.Runner)
}

// ways runs a test with a server of each era over each transport.
func ways(t *testing.T, more string, run func(t *testing.T, r *runner.Runner, modern bool)) {
	t.Helper()
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era+" over stdio", func(t *testing.T) {
			tooltest.NoLeaks(t)
			run(t, open(t, mcptest.Server(t, era)+more), era == "modern")
		})
		t.Run(era+" over http", func(t *testing.T) {
			tooltest.NoLeaks(t)
			url, _ := pyHTTP(t, era, "0")
			run(t, open(t, "url: '"+url+"'"+more), era == "modern")
		})
	}
}

// kept records events.
type kept struct {
	mu  sync.Mutex
	all []tool.Event
}

func (k *kept) Emit(e tool.Event) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.File != nil {
		text, _ := io.ReadAll(e.File)
		e.Data = append(e.Data, text...)
	}
	k.all = append(k.all, e)
	return nil
}

func (k *kept) of(kind tool.Kind) (datas []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.all {
		if e.Kind == kind {
			datas = append(datas, string(e.Data))
		}
	}
	return datas
}

func invoke(t testing.TB, r tool.Handler, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Hang)
	defer cancel()
	return r.Invoke(ctx, c, out)
}

// works makes a call that must succeed, and returns its output.
func works(t testing.TB, r tool.Handler, name, args string) string {
	t.Helper()
	res, err := invoke(t, r, &tool.Call{Tool: name, Args: json.RawMessage(args)}, tool.Discard)
	if err != nil || !res.OK {
		t.Fatalf("%s: %+v, %v", name, res, err)
	}
	return string(res.Output)
}

func fails(t testing.TB, r tool.Handler, c *tool.Call, code tool.Code, says string) {
	t.Helper()
	res, err := invoke(t, r, c, tool.Discard)
	if err == nil || tool.CodeOf(err) != code || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %+v, %v; want %s with %q", c.Tool, res, err, code, says)
	}
}

func list(t testing.TB, r *runner.Runner) map[string]*tool.Spec {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Hang)
	defer cancel()
	specs := kit.Must(r.Tools(ctx))(t)
	all := map[string]*tool.Spec{}
	for _, s := range specs {
		all[s.Name] = s
	}
	return all
}

func TestToolsAreListedAsTheyAre(t *testing.T) {
	ways(t, "", func(t *testing.T, r *runner.Runner, _ bool) {
		all := list(t, r)
		read := all["resources/read"]
		if read == nil || !read.Unlisted || read.Method != read.Name {
			t.Errorf("resources are read with %+v", read)
		}
		if self := all["initialize"]; self == nil || !self.Unlisted || !strings.Contains(string(self.Extra), `"capabilities"`) {
			t.Errorf("the server describes itself with %+v", self)
		}
		if len(all) != 31+2 || all["noschema"] != nil || all[""] != nil { // more than ten pages; four tools are invalid
			t.Errorf("%d tools", len(all))
		}
		deep := `{"type": "object", "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "number"}}}}, ` +
			`"properties": {"root": {"$ref": "#/$defs/node"}}, "x-mine": {"kept": [1.5, "\u00e9"]}}`
		kit.Equal(t, string(all["deep"].Input), deep, "the schema")
		if e := all["echo"]; e.Title != "Echo" || e.Description != "Says it again." || len(e.Output) == 0 {
			t.Errorf("echo is %+v", e)
		}
		if e := all["echo"].Effects; !e.Destructive || !e.Network || !e.Writes {
			t.Errorf("a hint of the server made its tool harmless: %+v", e)
		}
	})
}

func TestHintsCountOnlyIfTrusted(t *testing.T) {
	tooltest.NoLeaks(t)
	kit.Equal(t, list(t, open(t, mcptest.Server(t, "modern")+", effects: {reads: true}"))["echo"].Effects,
		tool.Effects{Reads: true}, "with effects of the config")
	all := list(t, open(t, mcptest.Server(t, "modern")+", trust_hints: true"))
	if e := all["echo"].Effects; !e.ReadOnly() {
		t.Errorf("a hint that is to be believed was not: %+v", e)
	}
	if e := all["deep"].Effects; !e.Destructive || !e.Network {
		t.Errorf("a tool that says nothing of itself is %+v", e)
	}
}

func TestResultsAndEvents(t *testing.T) {
	ways(t, "", func(t *testing.T, r *runner.Runner, modern bool) {
		res, err := invoke(t, r, &tool.Call{
			Tool: "echo", Args: json.RawMessage(`{"text":"é"}`), Trace: "0af76519-16cd-43dd-8448-eb211c80319c", Span: "b7ad6b7169203331",
		}, tool.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if out := string(res.Output); !strings.Contains(out, `"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331`) ||
			!strings.Contains(out, `"text": "\u00e9"`) {
			t.Errorf("the output is %s", out)
		}
		if era := res.Trace.Details["era"]; (era == "modern") != modern {
			t.Errorf("the trace says %v", res.Trace.Details)
		}
		res, err = invoke(t, r, &tool.Call{Tool: "fail"}, tool.Discard)
		if err != nil || res.OK || res.Failure.Message != "it did not work" {
			t.Errorf("fail: %+v, %v", res, err)
		}
		res, err = invoke(t, r, &tool.Call{Tool: "refuse"}, tool.Discard)
		if err != nil || res.OK || res.Failure.Message != "no such luck" {
			t.Errorf("refuse: %+v, %v", res, err)
		}
		var events kept
		if res, err = invoke(t, r, &tool.Call{Tool: "progress"}, &events); err != nil || string(res.Output) != `"counted"` {
			t.Errorf("progress: %+v, %v", res, err)
		}
		if got := events.of(tool.KindProgress); len(got) != 3 || got[2] != `{"progress":3,"total":3,"message":"step"}` {
			t.Errorf("progress is %q", got)
		}
		if got := events.of(tool.KindLog); len(got) != 3 || !strings.Contains(got[0], `"level":"warn","message":"careful"`) ||
			!strings.Contains(got[1], `"fields":{"a"`) || !strings.Contains(got[2], `"level":"info","message":"of a Toolpost","fields":{"b"`) {
			t.Errorf("logged %q", got)
		}
	})
}

// A legacy server has one level for all callers, and is told when the running calls want another.
func TestServersSendTheLevelsThatCallsWant(t *testing.T) {
	ways(t, "", func(t *testing.T, r *runner.Runner, modern bool) {
		for _, level := range []string{"", "debug", "debug", "alert"} {
			res, err := invoke(t, r, &tool.Call{Tool: "echo", Args: json.RawMessage(`{}`), LogLevel: level}, tool.Discard)
			kit.OK(t, err)
			want := fmt.Sprintf(`logLevel": %q`, map[bool]string{true: "debug", false: "info"}[level == "debug"])
			if modern && !strings.Contains(string(res.Output), want) {
				t.Errorf("for a call that wants %q the server got %s", level, res.Output)
			}
		}
		if seen := works(t, r, "seen", "{}"); !modern && !strings.Contains(seen, `\"info\", \"debug\", \"info\"]`) {
			t.Errorf("the server was told %s", seen)
		}
	})
	set := open(t, mcptest.Server(t, "modern")+", log_level: error")
	res, err := invoke(t, set, &tool.Call{Tool: "echo", Args: json.RawMessage(`{}`), LogLevel: "debug"}, tool.Discard)
	if err != nil || !strings.Contains(string(res.Output), `logLevel": "error"`) {
		t.Errorf("a level in the config: %+v, %v", res, err)
	}
}

func TestContentThatIsNotTextIsAssets(t *testing.T) {
	ways(t, "", func(t *testing.T, r *runner.Runner, _ bool) {
		var events kept
		res, err := invoke(t, r, &tool.Call{Tool: "media"}, &events)
		const links = `{\"type\": \"resource_link\", \"uri\": \"mem://linked\", \"name\": \"linked\"}\n{\"type\": \"resource_link\", \"uri\": \"mem://gone\", \"name\": \"gone\"}`
		if err != nil || string(res.Output) != `"one\n`+links+`\n{\"type\": \"hologram\"}\ntwo"` {
			t.Fatalf("%s, %v", res.Output, err)
		}
		got := events.of(tool.KindAsset)
		for i, want := range []string{"image/png", "audio/wav", "a,b"} { // and no link was read
			if len(got) != 3 || !strings.Contains(got[i], want) {
				t.Errorf("the assets are %q", got)
			}
		}
	})
}

// answers calls a tool that asks, answers its questions one after the other, and returns its final output.
func answers(t *testing.T, r tool.Handler, c *tool.Call, say func(*tool.Ask) string) string {
	t.Helper()
	for range 5 {
		res, err := invoke(t, r, c, tool.Discard)
		if err != nil {
			t.Fatalf("%s: %v", c.Tool, err)
		}
		if res.Ask == nil {
			return string(res.Output)
		}
		if strings.Contains(fmt.Sprintf("%+v", res.Ask), "secret-") {
			t.Errorf("what the server gave us to bring back is shown to the caller: %+v", res.Ask)
		}
		next := *c
		next.Resume, next.Answers = res.Ask.ID, json.RawMessage(say(res.Ask))
		c = &next
	}
	t.Fatalf("%s asks without end", c.Tool)
	return ""
}

func TestQuestionsGoToTheCallerAndBack(t *testing.T) {
	ways(t, "", func(t *testing.T, r *runner.Runner, modern bool) {
		each := func(name string, kinds []tool.NeedKind, answer string, want ...string) {
			t.Helper()
			got := answers(t, r, &tool.Call{Tool: name, Args: json.RawMessage(`{}`), Caller: tool.Principal{ID: "ada"}}, func(a *tool.Ask) string {
				var all []string
				for i, n := range a.Needs {
					if i < len(kinds) && n.Kind != kinds[i] {
						t.Errorf("%s asks %+v", name, a)
					}
					say := answer
					switch n.Kind {
					case tool.NeedModel:
						say = `{"role":"assistant","model":"m","content":{"type":"text","text":"four"}}`
					case tool.NeedRoots:
						say = `{"roots":[{"uri":"file:///a","name":"a"}]}`
					}
					all = append(all, fmt.Sprintf("%q:%s", n.Key, say))
				}
				return "{" + strings.Join(all, ",") + "}"
			})
			for _, w := range want {
				kit.Contains(t, got, w, name)
			}
		}
		form, link := []tool.NeedKind{tool.NeedForm}, []tool.NeedKind{tool.NeedLink}
		each("ask", form, `{"action":"accept","content":{"colour":"red"}}`, `accept`, `red`)
		each("ask", form, `{"action":"decline"}`, `decline`)
		each("asktwice", form, `{"action":"accept","content":{"colour":"blue"}}`, `blue`)
		each("visit", link, `{"action":"accept"}`, `accept`)
		each("sample", nil, `{"action":"cancel"}`, `four`)
		if modern {
			each("roots", []tool.NeedKind{tool.NeedRoots}, "", `file:///a`)
			each("ask", form, `{"action":"accept","content":{"colour":"red"}}`, `secret-ask`)
		} else {
			kit.Contains(t, works(t, r, "roots", `{}`), "-32601", "a server was told of roots that there are not")
			each("visitfirst", link, `{"action":"accept"}`, `welcome back`)
		}
	})
}

// The runner relies on the engine's stages for questions, which precede every runner.
func TestAnswerIsBoundToItsQuestion(t *testing.T) {
	ways(t, "", func(t *testing.T, runner *runner.Runner, _ bool) {
		q := ask.New(ask.Options{})
		r := q.Answers(nil)(q.Carry(nil)(runner))
		ada := tool.Principal{ID: "ada"}
		c := &tool.Call{Tool: "ask", Args: json.RawMessage(`{"a":1}`), Caller: ada}
		res, err := invoke(t, r, c, tool.Discard)
		if err != nil || res.Ask == nil {
			t.Fatalf("%+v, %v", res, err)
		}
		good := *c
		good.Resume = res.Ask.ID
		good.Answers = json.RawMessage(fmt.Sprintf(`{%q:{"action":"accept","content":{"colour":"red"}}}`, res.Ask.Needs[0].Key))
		for what, change := range map[string]func(*tool.Call){
			"another caller":   func(c *tool.Call) { c.Caller.ID = "eve" },
			"another tool":     func(c *tool.Call) { c.Tool = "asktwice" },
			"another session":  func(c *tool.Call) { c.Session = "s" },
			"other arguments":  func(c *tool.Call) { c.Args = json.RawMessage(`{"a":2}`) },
			"another question": func(c *tool.Call) { c.Resume = "MADEUP" },
			"no answer":        func(c *tool.Call) { c.Answers = nil },
			"an unknown action": func(c *tool.Call) {
				c.Answers = json.RawMessage(`{"answer":{"action":"maybe"},"q":{"action":"maybe"}}`)
			},
		} {
			bad := good
			change(&bad)
			kit.Refused(t, kit.Err(invoke(t, r, &bad, tool.Discard)), tool.CodeInvalidInput, "", what)
		}
		if res, err := invoke(t, r, &good, tool.Discard); err != nil || !strings.Contains(string(res.Output), "red") {
			t.Errorf("%+v, %v", res, err)
		}
		fails(t, r, &good, tool.CodeConflict, "answered already") // again
	})
}

func TestUnansweredQuestionEndsItsCall(t *testing.T) {
	tooltest.NoLeaks(t)
	r := open(t, mcptest.Server(t, "legacy")+", ask_timeout: 200ms")
	res, err := invoke(t, r, &tool.Call{Tool: "ask"}, tool.Discard)
	if err != nil || res.Ask == nil {
		t.Fatalf("%+v, %v", res, err)
	}
	kit.Eventually(t, "the server was told", func() bool {
		return strings.Contains(works(t, r, "seen", `{}`), "notifications/cancelled")
	})
	fails(t, r, &tool.Call{Tool: "ask", Resume: res.Ask.ID, Answers: json.RawMessage(`{"answer":{"action":"accept"}}`)},
		tool.CodeInvalidInput, "time is up")
}

func TestQuestionsThatWaitAreCounted(t *testing.T) {
	tooltest.NoLeaks(t)
	r := open(t, mcptest.Server(t, "modern"))
	for n := range 101 {
		res, err := invoke(t, r, &tool.Call{Tool: "ask", Caller: tool.Principal{ID: "ada"}}, tool.Discard)
		if n < 100 && (err != nil || res.Ask == nil) || n == 100 && tool.CodeOf(err) != tool.CodeQuotaExceeded {
			t.Fatalf("question %d: %+v, %v", n+1, res, err)
		}
	}
	if res, err := invoke(t, r, &tool.Call{Tool: "ask", Caller: tool.Principal{ID: "bob"}}, tool.Discard); err != nil || res.Ask == nil {
		t.Errorf("another caller is kept from asking: %+v, %v", res, err)
	}
}

func TestAWithdrawnQuestionIsNotWaitedFor(t *testing.T) {
	tooltest.NoLeaks(t)
	r := open(t, mcptest.Server(t, "legacy"))
	res, err := invoke(t, r, &tool.Call{Tool: "withdraw"}, tool.Discard)
	if err != nil || res.Ask == nil {
		t.Fatalf("%+v, %v", res, err)
	}
	kit.Eventually(t, "the server continues by itself", func() bool {
		return strings.Contains(works(t, r, "seen", `{}`), "withdrawn")
	})
	res, err = invoke(t, r, &tool.Call{
		Tool: "withdraw", Resume: res.Ask.ID, Answers: json.RawMessage(`{"answer":{"action":"decline"}}`),
	}, tool.Discard)
	if err != nil || string(res.Output) != `"went on without"` {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestTheConfigSaysWhichFoldersThereAre(t *testing.T) {
	ways(t, ", roots: [/srv/data]", func(t *testing.T, r *runner.Runner, _ bool) {
		kit.Contains(t, works(t, r, "roots", `{}`), "file:///srv/data")
	})
}

func TestCallsAreCancelled(t *testing.T) {
	ways(t, "", func(t *testing.T, r *runner.Runner, modern bool) {
		list(t, r)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		kit.Refused(t, kit.Err(r.Invoke(ctx, &tool.Call{Tool: "sleep"}, tool.Discard)), tool.CodeCancelled, "")
		if modern && strings.Contains(t.Name(), "http") {
			return // there the server sees its stream end
		}
		endless(t, r, &tool.Call{Tool: "sleep"}, "notifications/cancelled")
	})
}

// endless makes a call that exceeds its time limit, and checks that the server was told. It tries ever longer limits:
// on a busy machine the limit may expire before the server has the call.
func endless(t *testing.T, r *runner.Runner, c *tool.Call, heard string) {
	t.Helper()
	for limit := 300 * time.Millisecond; limit < kit.Hang; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := r.Invoke(ctx, c, tool.Discard)
		cancel()
		kit.Refused(t, err, tool.CodeTimeout, "")
		if strings.Contains(works(t, r, "seen", `{}`), heard) {
			return
		}
	}
	t.Error("the server was not told")
}

func TestChangesOfTheToolsAreHeardAtOnce(t *testing.T) {
	ways(t, "", func(t *testing.T, r *runner.Runner, modern bool) {
		list(t, r)
		if modern { // it must be asked to report changes, which takes a moment
			kit.Eventually(t, "the server was asked", func() bool {
				return strings.Contains(works(t, r, "seen", `{}`), "subscriptions/listen")
			})
		}
		for round := range 2 {
			changed := r.Changed()
			if round == 0 {
				works(t, r, "change", `{}`)
			} else {
				works(t, r, "listflood", `{}`)
				if modern {
					break
				}
			}
			kit.Receive(t, "the tools changed", changed)
			if all := list(t, r); all["late"] == nil || all["fail"] != nil {
				t.Errorf("the tools are %v", len(all))
			}
		}
		kit.Equal(t, works(t, r, "late", `{}`), `"late"`)
		fails(t, r, &tool.Call{Tool: "fail"}, tool.CodeNotFound, "no tool named")
	})
}

func TestTasksAreFollowedToTheirEnd(t *testing.T) {
	ways(t, "", func(t *testing.T, r *runner.Runner, modern bool) {
		kit.Contains(t, works(t, r, "task", `{}`), "task done")
		if !modern {
			return
		}
		got := answers(t, r, &tool.Call{Tool: "task", Args: json.RawMessage(`{"asks":true}`)}, func(*tool.Ask) string {
			return `{"k":{"action":"accept","content":{"colour":"green"}}}`
		})
		kit.Contains(t, got, "green")
		res, err := invoke(t, r, &tool.Call{Tool: "task", Args: json.RawMessage(`{"fails":true}`)}, tool.Discard)
		if err != nil || res.OK || res.Failure.Message != "task broke" {
			t.Errorf("%+v, %v", res, err)
		}
		endless(t, r, &tool.Call{Tool: "task", Args: json.RawMessage(`{"forever":true}`)}, "task cancelled")
	})
}

func TestCallsRunSideBySide(t *testing.T) {
	ways(t, "", func(t *testing.T, r *runner.Runner, _ bool) {
		list(t, r)
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() {
				var events kept
				res, err := r.Invoke(t.Context(), &tool.Call{Tool: "progress"}, &events)
				if err != nil || !res.OK || len(events.of(tool.KindProgress)) != 3 {
					t.Errorf("call %d: %+v, %v, %d events", n, res, err, len(events.of(tool.KindProgress)))
				}
			})
		}
		all.Wait()
	})
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// A source has all the time that its server has to introduce itself, and more to list its tools.
func TestStartTimeoutIsNotCutShort(t *testing.T) {
	for text, least := range map[string]time.Duration{"": 30 * time.Second, "start_timeout: 60s": time.Minute} {
		cfg, err := config.Parse("toolpost.yaml", []byte("sources: [{name: s, protocol: mcp, url: 'http://x.example', "+text+"}]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := runner.Opens(cfg.Sources[0]); got <= least {
			t.Errorf("%q: it may take %v to open", text, got)
		}
	}
}

// If a program introduces itself and then hangs, the error has its last output.
func TestFailedListingQuotesTheServersOutput(t *testing.T) {
	tooltest.NoLeaks(t)
	script := `import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m["method"] == "initialize":
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}}), flush=True)
    if m["method"] == "tools/list":
        print("waiting for the database", file=sys.stderr, flush=True)
        open("asked", "w").close()`
	dir := t.TempDir()
	r := open(t, fmt.Sprintf("command: [%q, -c, %q], era: legacy, dir: %q, walls: {write: [%q]}", tooltest.Python(), script, dir, dir))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		kit.Until(t, func() error { return kit.Err(os.Stat(filepath.Join(dir, "asked"))) })
	}()
	if _, err := r.Tools(ctx); err == nil || !strings.Contains(err.Error(), "tools/list was given up") ||
		!strings.Contains(err.Error(), "the last it wrote to stderr: waiting for the database") {
		t.Errorf("%v", err)
	}
}
