package job_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"toolpost/builtin/job"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// A desk notes its requests, and has one job, whose events are a state patch and a line.
type desk struct {
	started *tool.Call
	asked   []string
}

func (d *desk) Start(_ context.Context, c *tool.Call) (json.RawMessage, error) {
	d.started = c
	return json.RawMessage(`{"job":"j"}`), nil
}

func (d *desk) Show(_ context.Context, p tool.Principal, id string) (json.RawMessage, error) {
	d.asked = append(d.asked, "show "+p.ID+" "+id)
	return json.RawMessage(`{"job":"j"}`), nil
}

func (d *desk) List(_ context.Context, p tool.Principal, state string, most int) (json.RawMessage, error) {
	d.asked = append(d.asked, "list "+p.ID+" "+state+strings.Repeat("+", most))
	return json.RawMessage(`{}`), nil
}

func (d *desk) All(_ context.Context, state string, most int) (json.RawMessage, error) {
	d.asked = append(d.asked, "all "+state+strings.Repeat("+", most))
	return json.RawMessage(`{}`), nil
}

func (d *desk) Of(context.Context, string) (string, error) { return "bob", nil }

func (d *desk) Answer(_ context.Context, p tool.Principal, id string, answers json.RawMessage, lease string) (json.RawMessage, error) {
	d.asked = append(d.asked, "answer "+p.ID+" "+id+" "+string(answers)+" "+lease)
	return json.RawMessage(`{"job":"j"}`), nil
}

func (d *desk) Cancel(_ context.Context, p tool.Principal, id string) (json.RawMessage, error) {
	d.asked = append(d.asked, "cancel "+p.ID+" "+id)
	return json.RawMessage(`{"job":"j"}`), nil
}

func (d *desk) Watch(_ context.Context, p tool.Principal, id string, after int64, asked bool, out tool.Sink) (json.RawMessage, error) {
	if asked {
		id += "?"
	}
	d.asked = append(d.asked, "watch "+p.ID+" "+id+strings.Repeat("+", int(after)))
	for _, ev := range []tool.Event{{Kind: tool.KindStatePatch, Data: json.RawMessage(`{"a":1}`)}, tool.LogEvent("info", "line")} {
		if err := out.Emit(ev); err != nil {
			return nil, err
		}
	}
	return json.RawMessage(`{}`), nil
}

func TestJobToolsPassTheirArgumentsOn(t *testing.T) {
	d := &desk{}
	r := job.New(d, d)
	for _, c := range []tool.Call{
		{Tool: "showJob", Args: json.RawMessage(`{"job":"a"}`)},
		{Tool: "listJobs", Args: json.RawMessage(`{"state":"lost","limit":2}`)},
		{Tool: "cancelJob", Args: json.RawMessage(`{"job":"b"}`)},
		{Tool: "watchJob", Args: json.RawMessage(`{"job":"c","after":3}`)},
		{Tool: "watchJob", Args: json.RawMessage(`{"job":"c","asked":true}`)},
		{Tool: "answerJob", Args: json.RawMessage(`{"job":"d","answers":[1]}`), Lease: "l"},
	} {
		c.Caller.ID = "ada"
		if got, err := r.Invoke(t.Context(), &c, tool.Discard); err != nil || !got.OK {
			t.Errorf("%s: %v, %v", c.Tool, got, err)
		}
	}
	kit.Equal(t, strings.Join(d.asked, ", "), "show ada a, list ada lost++, cancel ada b, watch ada c+++, watch ada c?, answer ada d [1] l")
	specs, err := r.Tools(t.Context())
	names := []string{"answerJob", "cancelJob", "listJobs", "showJob", "startJob", "watchJob"}
	if err != nil || len(specs) != len(names) {
		t.Fatalf("%d tools, %v", len(specs), err)
	}
	for i, s := range specs {
		if s.Name != names[i] || !json.Valid(s.Input) || s.Description == "" {
			t.Errorf("%+v", s)
		}
	}
}

func TestOperatorSeesAllJobs(t *testing.T) {
	d := &desk{}
	for _, c := range []struct{ name, args, want string }{
		{"listJobs", `{"all":true,"limit":1}`, `{}`},
		{"showJob", `{"job":"a","all":true}`, `{"caller":"bob","job":"j"}`},
		{"cancelJob", `{"job":"b","all":true}`, `{"caller":"bob","job":"j"}`},
	} {
		call := &tool.Call{Tool: c.name, Args: json.RawMessage(c.args), Caller: tool.Principal{ID: "local", Operates: true}}
		kit.Equal(t, string(kit.Must(job.New(d, d).Invoke(t.Context(), call, tool.Discard))(t).Output), c.want, c.name)
		call.Caller = tool.Principal{ID: "ada"}
		kit.Refused(t, kit.Err(job.New(d, d).Invoke(t.Context(), call, tool.Discard)),
			tool.CodeAccessDenied, "", "%s of somebody else", c.name)
	}
	kit.Equal(t, strings.Join(d.asked, ", "), "all +, show bob a, cancel bob b")
}

func TestJobInheritsTheContextOfItsStartingCall(t *testing.T) {
	d := &desk{}
	c := &tool.Call{Tool: "startJob", Trace: "t", Span: "s", Run: "r", Session: "here", Lease: "l1", Key: "k", Caller: tool.Principal{ID: "ada"}}
	for args, want := range map[string][2]string{
		`{"tool":"x","arguments":{"a":1}}`:                                {"here", "l1"},
		`{"tool":"x","arguments":{"a":1},"session":"there","lease":"l2"}`: {"there", "l2"},
	} {
		c.Args = json.RawMessage(args)
		kit.Must(job.New(d, d).Invoke(t.Context(), c, tool.Discard))(t)
		got := d.started
		if got.Tool != "x" || string(got.Args) != `{"a":1}` || got.Caller.ID != "ada" || got.Trace != "t" || got.Span != "s" || got.Run != "r" || got.Key != "" || got.ID != "" {
			t.Errorf("%+v", got)
		}
		if got.Session != want[0] || got.Lease != want[1] {
			t.Errorf("%s: session %s, lease %s", args, got.Session, got.Lease)
		}
	}
}

// Otherwise the session stage would patch the state of the watcher's session with the job's patches.
func TestWatchingAJobDoesNotPatchTheWatchersSession(t *testing.T) {
	for session, want := range map[string]tool.Kind{"": tool.KindStatePatch, "s": tool.KindLog} {
		var kinds []tool.Kind
		c := &tool.Call{Tool: "watchJob", Args: json.RawMessage(`{"job":"j"}`), Session: session}
		_, err := job.New(&desk{}, &desk{}).Invoke(t.Context(), c, tool.SinkFunc(func(ev tool.Event) error { kinds = append(kinds, ev.Kind); return nil }))
		if err != nil || len(kinds) != 2 || kinds[0] != want || kinds[1] != tool.KindLog {
			t.Errorf("in session %q: %v, %v", session, kinds, err)
		}
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r := job.New(&desk{}, &desk{})
	for _, c := range []struct{ name, args string }{
		{"showJob", `{"job":1}`}, {"showJob", `{"job":"a","job":"b"}`}, {"startJob", `{"tool":"x","when":"now"}`}, {"listJobs", `[]`}, {"watchJob", `{"after":1.5}`},
	} {
		if _, err := r.Invoke(t.Context(), &tool.Call{Tool: c.name, Args: json.RawMessage(c.args)}, tool.Discard); tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("%s %s: %v", c.name, c.args, err)
		}
	}
	kit.Refused(t, kit.Err(r.Invoke(t.Context(), &tool.Call{Tool: "stealJob"}, tool.Discard)), tool.CodeNotFound, "")
	kit.Refused(t, kit.Err(r.Invoke(ended, &tool.Call{Tool: "listJobs", Args: json.RawMessage(`{}`)}, tool.Discard)), tool.CodeCancelled, "")
}
