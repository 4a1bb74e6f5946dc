package matrix

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// What the tools are asked, and what they say.
const (
	nested = `{"value":{"text":"Grüße, 日本語, 🔥, \u2028, \"quoted\" \\ back","list":[1,-2.5,true,false,null,[],{}],` +
		`"deep":{"a":{"b":[[{"c":"é"}]]}},"big":9007199254740993,"empty":"","ключ":"значение","control":"\u0001\n\t"}}`
	badArgs = `{"value":1,"n":"not a number"}`
	noTorch = `no torch: "große" 日本 🔥`
	halfWay = "half way"
	hangFor = "300ms"
	oneMiB  = 1 << 20
)

// A request is one call of the matrix.
type request struct {
	tool    string
	args    string
	session string // for doors that have some
}

// A check makes one call and looks at what comes back.
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
	}
}

func quoted(s string) string {
	b, _ := strictjson.Marshal(s) // a string always can be
	return string(b)
}

// TestEveryDoorReachesEveryRunner is the matrix.
func TestEveryDoorReachesEveryRunner(t *testing.T) {
	h := openHouse(t)
	for _, d := range doors() {
		t.Run(d.name, func(t *testing.T) {
			hung := hangAll(t, h, d)
			for _, r := range h.runners {
				t.Run(r.name, func(t *testing.T) {
					t.Parallel() // each runner has sources of its own
					everyCheck(t, h, d, r, hung[r.name])
				})
			}
		})
	}
}

// hangAll makes the calls that time out, all at once: nothing but time passes in them.
func hangAll(t *testing.T, h *house, d *door) map[string]*outcome {
	var mu sync.Mutex
	hung := map[string]*outcome{}
	hang := func(r *runner) {
		out := d.call(t, h, r, request{tool: "hang", args: `{}`, session: "hang-" + r.name})
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

func everyCheck(t *testing.T, h *house, d *door, r *runner, hung *outcome) {
	for _, c := range checks() {
		t.Run(string(c.features[0]), func(t *testing.T) {
			if !r.has(c.tool) {
				return // the table of the runner says why; TestEveryLossHasAReason holds it to that
			}
			c.session = d.name + "-" + r.name
			out := hung
			if c.tool != "hang" {
				out = d.call(t, h, r, c.request)
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
	if out.ok || out.message != noTorch {
		t.Errorf("got ok %v and %q; want a failure that says %q", out.ok, out.message, noTorch)
	}
	named := between(d, r, reason).last() == same
	if got := out.reason == "NoTorch"; got != named {
		t.Errorf("the tool's name for its failure is %q; is it carried? %v", out.reason, named)
	}
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

// wantRefusal wants a call without an outcome, of a class, with words.
func wantRefusal(t *testing.T, d *door, out *outcome, code tool.Code) {
	t.Helper()
	if out.ok || out.class != d.word(code) || out.message == "" {
		t.Errorf("want %s, which this door calls %q, with a message", code, d.word(code))
	}
}

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
	whole := func(e event) bool {
		path, _ := e.data["path"].(string)
		content, err := os.ReadFile(path)
		return e.kind == tool.KindAsset && e.data["assetId"] == "torch" && e.data["mediaType"] == "text/plain" &&
			err == nil && string(content) == "a torch"
	}
	arrived(t, out, between(d, r, asset), tool.KindAsset, "text/plain", whole)
}

// arrived wants an event in the way that its route says, and in no other.
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
	if asEvent != (last == same) || logged != log || line != (last == asLine) {
		t.Errorf("%s should arrive as %q; as an event: %v, as a log event: %v, as a line: %v", kind, last, asEvent, logged, line)
	}
}

// TestEveryLossHasAReason holds the tables to what they are for.
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
