package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The inputs and outputs of the tools.
const (
	nested = `{"value":{"text":"Grüße, 日本語, 🔥, \u2028, \"quoted\" \\ back","list":[1,-2.5,true,false,null,[],{}],` +
		`"deep":{"a":{"b":[[{"c":"é"}]]}},"big":9007199254740993,"empty":"","ключ":"значение","control":"\u0001\n\t"}}`
	badArgs = `{"value":1,"n":"not a number"}`
	noTorch = `no torch: "große" 日本 🔥`
	halfWay = "half way"
	hangFor = "300ms"
	oneMiB  = 1 << 20

	which      = "Which colour?"
	colourForm = `{"type":"object","properties":{"colour":{"type":"string"}},"required":["colour"]}`

	choosing = "narrative_choice"
	choices  = `{"choices":["Go north",{"id":"s","label":"Go south","hint":"it is cold"}]}`
)

// A request is one call of the matrix.
type request struct {
	tool    string
	args    string
	session string // for doors that have sessions

	ctx     context.Context // ends when the caller cancels
	resume  string          // the question to answer
	answers string
}

// gone reports whether the caller has cancelled: then errors do not count.
func (r request) gone() bool { return r.ctx.Err() != nil }

// A check makes one call and checks the result.
type check struct {
	request
	features []feature // those that it proves
	look     func(t *testing.T, d *door, r *runner, out *outcome)
}

func checks() []check {
	return []check{
		{request{tool: "echo", args: nested}, []feature{output}, lookOutput},
		{request{tool: "large", args: `{}`}, []feature{large}, lookLarge},
		{request{tool: "fail", args: `{"message":` + quoted(noTorch) + `}`}, []feature{failure, reason}, lookFailure},
		{request{tool: "hang", args: `{}`}, []feature{timeout}, lookTimeout},
		{request{tool: "echo", args: badArgs}, []feature{invalid}, lookInvalid},
		{request{tool: "danger", args: `{}`}, []feature{lease}, lookLease},
		{request{tool: "report", args: `{}`}, []feature{progress, logs}, lookProgress},
		{request{tool: "patch", args: `{}`}, []feature{state}, lookState},
		{request{tool: "asset", args: `{}`}, []feature{asset}, lookAsset},
		{request{tool: "choose", args: `{}`}, []feature{choice}, lookChoice},
		{request{tool: "ask", args: `{}`}, []feature{question}, lookQuestion},
	}
}

func quoted(s string) string {
	b, _ := strictjson.Marshal(s) // a string can always be marshalled
	return string(b)
}

// TestEveryDoorReachesEveryRunner is the matrix.
func TestEveryDoorReachesEveryRunner(t *testing.T) {
	h := openHouse(t)
	t.Run("in one plan", func(t *testing.T) { onePlanOfAll(t, h) })
	for i, d := range doors() {
		reachAll(t, h, d, i)
	}
}

// reachAll makes the calls of one door.
func reachAll(t *testing.T, h *house, d *door, i int) {
	t.Run(d.name, func(t *testing.T) {
		cancelAll(t, h, d)
		hung := hangAll(t, h, d)
		for j, r := range h.runners {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel() // each runner has its own sources
				everyCheck(t, h, d, r, hung[r.name], i+j)
			})
		}
	})
}

// made reports whether a pair makes a check. Every pair makes those that reach no tool, and the echo, the cancelled call
// and the one that times out. Every third pair makes each of the others, and every thirteenth the large one. In the long round
// every pair makes all of them.
func (c check) made(pair int) bool {
	switch c.tool {
	case "large":
		return pair%rounds.Of(13, 1) == 0
	case "fail", "report", "patch", "asset", "choose", "ask":
		return pair%rounds.Of(3, 1) == 0
	}
	return true
}

// TestEveryDoorAndEveryRunnerMakesEveryCheck holds even though only few pairs make a check.
func TestEveryDoorAndEveryRunnerMakesEveryCheck(t *testing.T) {
	for n, c := range checks() {
		made := map[string]int{}
		for j, r := range runners() {
			for i, d := range doors() {
				if r.has(c.tool) && c.made(i+j+n) {
					made["the door "+d.name]++
					made["the runner "+r.name]++
				}
			}
			if r.has(c.tool) && made["the runner "+r.name] == 0 {
				t.Errorf("%s is never asked of the runner %s", c.tool, r.name)
			}
		}
		for _, d := range doors() {
			if made["the door "+d.name] == 0 {
				t.Errorf("%s is never asked through the door %s", c.tool, d.name)
			}
		}
	}
}

// hangAll makes the calls that time out, all at once, because they only wait.
func hangAll(t *testing.T, h *house, d *door) map[string]*outcome {
	var mu sync.Mutex
	hung := map[string]*outcome{}
	hang := func(r *runner) {
		out := d.call(t, h, r, request{tool: "hang", args: `{}`, session: "hang-" + r.name, ctx: t.Context()})
		mu.Lock()
		defer mu.Unlock()
		hung[r.name] = out
	}
	var calls sync.WaitGroup
	for _, r := range h.runners {
		calls.Go(func() { hang(r) })
	}
	calls.Wait()
	return hung
}

// cancelAll makes calls that would run for a long time, all at once, and cancels them. They must end in the engine of
// every node that takes part, and so in its runners.
func cancelAll(t *testing.T, h *house, d *door) {
	var calls sync.WaitGroup
	defer calls.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, r := range h.runners {
		calls.Go(func() {
			d.call(t, h, r, request{tool: "wait", args: `{}`, session: "wait-" + r.name, ctx: ctx})
		})
	}
	begun := func() bool { return len(waiting(t, h.node)) == len(h.runners) }
	within(t, begun, func() string { return fmt.Sprintf("not all have begun: %q", waiting(t, h.node)) })
	cancel()
	calls.Wait()
	ended := func() bool { return len(waiting(t, h.node))+len(waiting(t, h.far))+h.atWorker(t) == 0 }
	within(t, ended, func() string {
		return fmt.Sprintf("cancelled, and still there: %q, and on the other node %q", waiting(t, h.node), waiting(t, h.far))
	})
}

// waiting lists the calls of a node that wait to be cancelled.
func waiting(t *testing.T, n *node.Node) (names []string) {
	t.Helper()
	res := kit.Must(n.Handler().Invoke(t.Context(), &tool.Call{
		Tool: "toolpost.listCalls", Args: json.RawMessage(`{}`), Caller: tool.Principal{ID: "matrix", Operates: true},
	}, tool.Discard))(t)
	list := read[struct {
		Calls []struct {
			Tool string `json:"tool"`
		} `json:"calls"`
	}](t, res.Output)
	for _, c := range list.Calls {
		if strings.HasSuffix(c.Tool, "wait") {
			names = append(names, c.Tool)
		}
	}
	return names
}

func within(t *testing.T, ok func() bool, otherwise func() string) {
	t.Helper()
	kit.Until(t, func() error {
		if ok() {
			return nil
		}
		return errors.New(otherwise())
	})
}

// answer calls again with the answer to a question.
func answer(t *testing.T, h *house, d *door, r *runner, req request, ask *tool.Ask) *outcome {
	said := `{"colour":"blue"}`
	message := ask.Message
	if len(ask.Needs) > 0 {
		message = ask.Needs[0].Message
		said = `{` + quoted(ask.Needs[0].Key) + `:{"action":"accept","content":` + said + `}}`
	}
	req.resume, req.answers = ask.ID, said
	out := d.call(t, h, r, req)
	out.asked = message
	return out
}

func everyCheck(t *testing.T, h *house, d *door, r *runner, hung *outcome, pair int) {
	for n, c := range checks() {
		t.Run(string(c.features[0]), func(t *testing.T) {
			if !r.has(c.tool) {
				return // the table of the runner gives the reason, as TestEveryLossHasAReason checks
			}
			if !c.made(pair + n) {
				return
			}
			c.session, c.ctx = d.name+"-"+r.name, t.Context()
			out := hung
			if c.tool != "hang" {
				out = d.call(t, h, r, c.request)
			}
			if out.ask != nil {
				out = answer(t, h, d, r, c.request, out.ask)
			}
			c.look(t, d, r, out)
			if t.Failed() {
				t.Logf("the caller got: %v", out)
			}
		})
	}
}

func lookOutput(t *testing.T, d *door, r *runner, out *outcome) {
	wantOutput(t, out, between(d, r, output), decode(t, []byte(nested)))
}

func lookLarge(t *testing.T, d *door, r *runner, out *outcome) {
	way := between(d, r, large)
	if way.last() == asError {
		wantRefusal(t, d, out, tool.CodeProtocol)
		return
	}
	wantOutput(t, out, way, map[string]any{"text": strings.Repeat("x", oneMiB)})
}

func wantOutput(t *testing.T, out *outcome, way route, want any) {
	t.Helper()
	if !out.ok {
		t.Fatalf("the call failed: %s: %s", out.class, out.message)
	}
	if got := way.opened(t, decode(t, out.output)); !reflect.DeepEqual(got, want) {
		t.Errorf("the output is not the same:\ngot  %.500s\nwant %.500s", encode(t, got), encode(t, want))
	}
}

func lookFailure(t *testing.T, d *door, r *runner, out *outcome) {
	said := out.message == noTorch
	if between(d, r, failure).last() == asWords {
		said = strings.HasSuffix(out.message, ": "+noTorch)
	}
	if out.ok || !said {
		t.Errorf("got ok %v and %q; want a failure that says %q", out.ok, out.message, noTorch)
	}
	named := between(d, r, reason).last() == same
	kit.Equal(t, out.reason == "NoTorch", named, "the tool's name for its failure is %q; is it carried?", out.reason)
	for _, c := range []tool.Code{tool.CodeTimeout, tool.CodeInvalidInput, tool.CodeLeaseRequired, tool.CodeProtocol} {
		if word := d.word(c); out.class == word && word != d.word(tool.CodeToolError) {
			t.Errorf("a tool's failure is called %q, which means %s", word, c)
		}
	}
}

func lookTimeout(t *testing.T, d *door, _ *runner, out *outcome) {
	wantRefusal(t, d, out, tool.CodeTimeout)
}
func lookInvalid(t *testing.T, d *door, _ *runner, out *outcome) {
	wantRefusal(t, d, out, tool.CodeInvalidInput)
}
func lookLease(t *testing.T, d *door, _ *runner, out *outcome) {
	wantRefusal(t, d, out, tool.CodeLeaseRequired)
}

// wantRefusal expects a call without an outcome, with an error of a class and a message.
func wantRefusal(t *testing.T, d *door, out *outcome, code tool.Code) {
	t.Helper()
	if out.ok || out.class != d.word(code) || out.message == "" {
		t.Errorf("want %s, which this door calls %q, with a message", code, d.word(code))
	}
}

// contract(singularity): **Progress updates** - Publish progress messages during long operations
func lookProgress(t *testing.T, d *door, r *runner, out *outcome) {
	if !out.ok {
		t.Fatalf("the call failed: %s: %s", out.class, out.message)
	}
	whole := func(e event) bool {
		return e.kind == tool.KindProgress && e.data["message"] == halfWay &&
			e.data["progress"] == json.Number("1") && e.data["total"] == json.Number("2")
	}
	arrived(t, out, between(d, r, progress), tool.KindProgress, halfWay, whole)
}

func lookState(t *testing.T, d *door, r *runner, out *outcome) {
	way := between(d, r, state)
	if way.last() == same {
		if want := decode(t, []byte(r.patch)); !out.ok || !reflect.DeepEqual(any(out.state), want) {
			t.Errorf("the state became %s, want %s", encode(t, out.state), r.patch)
		}
		return
	}
	if out.state != nil {
		t.Errorf("the table says that no state arrives, but here is %v", out.state)
	}
	arrived(t, out, way, tool.KindStatePatch, "lit", nil)
}

func lookAsset(t *testing.T, d *door, r *runner, out *outcome) {
	way := between(d, r, asset)
	whole := func(e event) bool {
		path, _ := e.data["path"].(string)
		content, has := e.data["content"].(string)
		if !has {
			b, _ := os.ReadFile(path) // a file without content is not the one we look for
			content = string(b)
		}
		return e.kind == tool.KindAsset && (e.data["assetId"] == "torch" || way.last() == unnamed) &&
			e.data["mediaType"] == "text/plain" && content == "a torch"
	}
	arrived(t, out, way, tool.KindAsset, "text/plain", whole)
}

// lookChoice expects a call that succeeded, and the choices at its caller: nothing is asked, and nothing is run again.
//
// contract(narratoria): It is an event like any other: the call goes on and ends as its `done` says, patches are merged; nothing is asked and nothing is run again.
func lookChoice(t *testing.T, d *door, r *runner, out *outcome) {
	if !out.ok || out.asked != "" {
		t.Fatalf("the call did not succeed; asked %q", out.asked)
	}
	offered := decode(t, []byte(choices))
	asEvent := slices.ContainsFunc(out.events, func(e event) bool {
		return e.kind == tool.KindUIEvent && e.data["event"] == choosing && reflect.DeepEqual(e.data["payload"], offered)
	})
	line := slices.ContainsFunc(out.lines, func(l string) bool { return strings.Contains(l, "Go south") })
	last := between(d, r, choice).last()
	if asEvent != (last == same || last == asWords) || line != (last == asLine || last == asWords) {
		t.Errorf("the choices should arrive as %q; as an event: %v, as a line: %v", last, asEvent, line)
	}
}

// lookQuestion expects the question at the caller, and the answer at the tool.
func lookQuestion(t *testing.T, d *door, r *runner, out *outcome) {
	if between(d, r, question).last() == asError {
		if wantRefusal(t, d, out, tool.CodeUnsupported); !strings.Contains(out.message, which) {
			t.Errorf("the error does not say what was asked: %q", out.message)
		}
		return
	}
	if !out.ok || out.asked != which || !strings.Contains(string(out.output), "blue") {
		t.Errorf("asked %q, and then got %v", out.asked, out)
	}
}

// arrived expects an event in the form that its route determines, and in no other.
func arrived(t *testing.T, out *outcome, way route, kind tool.Kind, says string, whole func(event) bool) {
	t.Helper()
	asEvent := whole != nil && slices.ContainsFunc(out.events, whole)
	logged := slices.ContainsFunc(out.events, func(e event) bool {
		text, _ := e.data["message"].(string)
		return e.kind == tool.KindLog && strings.Contains(text, says)
	})
	line := slices.ContainsFunc(out.lines, func(l string) bool { return strings.Contains(l, says) })
	last := way.last()
	log := last == asLog || last == same && logged // Narratoria's progress is a log event too
	if asEvent != (last == same || last == unnamed) || logged != log || line != (last == asLine) {
		t.Errorf("%s should arrive as %q; as an event: %v, as a log event: %v, as a line: %v", kind, last, asEvent, logged, line)
	}
}

// TestEveryLossHasAReason checks that the tables give a reason for every loss.
func TestEveryLossHasAReason(t *testing.T) {
	for name, c := range tables() {
		for f, lost := range c {
			if lost.way != same && len(lost.why) < 20 {
				t.Errorf("%s does not carry %s the same, and the table does not say why", name, f)
			}
		}
	}
	for _, r := range runners() {
		for _, c := range checks() {
			lost := r.carries.of(c.features[0]).way
			if r.has(c.tool) == (lost == never) {
				t.Errorf("%s has the tool %s: %v; its table says %q", r.name, c.tool, r.has(c.tool), lost)
			}
		}
	}
}

func tables() map[string]carries {
	all := map[string]carries{}
	for _, d := range doors() {
		all["the door "+d.name] = d.carries
	}
	for _, r := range runners() {
		all["the runner "+r.name] = r.carries
	}
	return all
}
