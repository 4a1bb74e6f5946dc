package matrix

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/config"
	"toolpost/engine/cassette"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

// A played is a caller's view of a call, without the parts that differ between runs.
type played struct {
	Result *cassette.Result
	Code   tool.Code
	Reason string
	Error  string
	Events []told
}

type told struct {
	Kind tool.Kind
	Data json.RawMessage
}

// TestRecordedCallsReplayForEveryRunner records calls of every runner, and plays them in a node that has only the
// cassette.
func TestRecordedCallsReplayForEveryRunner(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.jsonl")
	recorder := kit.Must(cassette.Create(file, "test"))(t)
	h := openTaped(t, recorder, nil)
	type one struct{ name, args string }
	var calls []one
	for _, r := range h.runners {
		for _, c := range checks() {
			if slices.Contains([]string{"echo", "fail", "report", "patch", "asset", "choose", "ask"}, c.tool) && r.has(c.tool) &&
				c.args != badArgs {
				calls = append(calls, one{r.where(c.tool) + "." + c.tool, c.args})
			}
		}
	}
	var recorded, again []played
	for _, c := range calls {
		recorded = append(recorded, playOnce(t, h.node, c.name, c.args)...)
	}
	kit.MustEqual(t, kit.Must(recorder.Close())(t), len(recorded), "calls recorded")
	n := openCassette(t, file)
	for _, c := range calls {
		again = append(again, playOnce(t, n, c.name, c.args)...)
	}
	if len(recorded) < 60 {
		t.Errorf("only %d calls were made", len(recorded))
	}
	for i := range recorded {
		kit.Equal(t, cmp.Diff(recorded[i], again[i], meaning), "", "what was recorded, and what is played")
	}
	for _, c := range calls { // each recorded call is played once
		_, err := n.Handler().Invoke(t.Context(), &tool.Call{Tool: c.name, Args: json.RawMessage(c.args), Caller: local()}, tool.Discard)
		if e := tool.AsError(err); err == nil || e.Reason != cassette.NotRecorded {
			t.Errorf("%s is played once more: %v", c.name, err)
		}
	}
}

// meaning compares JSON by value: a cassette does not keep its formatting.
var meaning = cmp.Transformer("meaning", func(doc json.RawMessage) any {
	v, err := strictjson.Decode(doc)
	if err != nil {
		return string(doc)
	}
	return v
})

func local() tool.Principal { return tool.Principal{ID: "local", Door: "cli"} }

// playOnce makes a call and, if it asks, makes it again with the answer.
func playOnce(t *testing.T, n *node.Node, name, args string) (all []played) {
	t.Helper()
	c := tool.Call{Tool: name, Args: json.RawMessage(args), Caller: local(), Session: "taped " + strings.ReplaceAll(name, ".", " ")}
	for range 2 {
		heard := &tooltest.Collect{}
		r, err := n.Handler().Invoke(t.Context(), &c, heard)
		p := played{}
		if e := tool.AsError(err); err != nil {
			p.Code, p.Reason, p.Error = e.Code, e.Reason, e.Message
		} else {
			p.Result = &cassette.Result{OK: r.OK, Output: r.Output, Summary: r.Summary, Failure: r.Failure}
		}
		for _, ev := range heard.Events() {
			p.Events = append(p.Events, told{ev.Kind, said(t, ev)})
		}
		all = append(all, p)
		if err != nil || r.Ask == nil {
			return all
		}
		p.Result.Ask = &tool.Ask{Message: r.Ask.Message, Schema: r.Ask.Schema, Needs: r.Ask.Needs} // the id is sealed anew
		c.Resume, c.Answers = r.Ask.ID, json.RawMessage(`{"colour":"blue"}`)
	}
	return all
}

// said returns the data of an event. It clears the path of an asset, which differs between runs.
func said(t *testing.T, ev tool.Event) json.RawMessage {
	if ev.Kind != tool.KindAsset {
		return ev.Data
	}
	a := read[tool.Asset](t, ev.Data)
	a.Path = ""
	b, err := strictjson.Marshal(a)
	kit.Check(t, err)
	return b
}

// openCassette opens a node whose sources are those of a cassette.
func openCassette(t *testing.T, file string) *node.Node {
	t.Helper()
	f := kit.Must(os.Open(file))(t)
	defer f.Close()
	tape := kit.Must(cassette.Read(f))(t)
	text := "sources:\n"
	for _, name := range tape.Sources() {
		text += fmt.Sprintf("- {name: %s, protocol: cassette, file: '%s'}\n", name, file)
	}
	cfg := kit.Must(config.Parse(filepath.Join(t.TempDir(), config.FileName), []byte(text)))(t)
	n := kit.Must(node.Open(t.Context(), cfg, node.Options{}))(t)
	t.Cleanup(func() { _ = n.Close(t.Context()) })
	return n
}
