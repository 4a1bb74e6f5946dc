package fleet

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"

	"toolpost/fleet/lent"
	"toolpost/internal/kit"
	"toolpost/tool"
)

const canary = "canary-key-of-ada"

// telling returns a machine whose tools tell the keys of their calls, and name the hosts that got them.
func telling(effects tool.Effects, uses ...string) *toolbox {
	return &toolbox{
		Handler: tool.HandlerFunc(func(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
			text := ""
			for _, k := range c.Credentials {
				value, err := k.Value(ctx)
				if err != nil {
					return nil, err
				}
				text += k.Connection + k.Hosts[0] + k.Methods[0] + k.Paths[0] + value
			}
			c.Record.Connected(uses)
			return &tool.Result{OK: true, Summary: text}, nil
		}),
		specs: []*tool.Spec{{Name: "list", Effects: effects, Connections: []string{"api"}}},
	}
}

// keyed makes a call of the tool list with a key, and returns the hosts that its record has of it.
func (f *fleetTest) keyed(t *testing.T, value string) (r *tool.Result, hosts []string, err error) {
	t.Helper()
	spec := kit.Must(f.source().Tools(t.Context()))(t)[0]
	kit.EqualSlices(t, spec.Connections, []string{"api"})
	var mu sync.Mutex
	key := &tool.Credential{
		Connection: "api", Hosts: []string{"api.example"}, Methods: []string{"GET"}, Paths: []string{"/v1/*"},
		Value: func(context.Context) (string, error) { return value, nil },
		Used: func(host string) {
			mu.Lock()
			defer mu.Unlock()
			hosts = append(hosts, host)
		},
	}
	r, err = f.source().Invoke(t.Context(), &tool.Call{
		ID: tool.NewID(), Tool: "list", Spec: spec, Args: []byte(`{}`),
		Notes: tool.Notes{Record: &tool.Record{}, Credentials: []*tool.Credential{key}},
	}, tool.Discard)
	return r, hosts, err
}

func TestKeysOfACallReachItsNode(t *testing.T) {
	for _, effects := range []tool.Effects{{Reads: true}, {Writes: true}} {
		f := open(t)
		f.work("worker", telling(effects, "api api.example", "other api.example", "api two words", "api"))
		r, hosts, err := f.keyed(t, canary)
		kit.OK(t, err)
		kit.Equal(t, r.Summary, "apiapi.exampleGET/v1/*"+canary)
		kit.EqualSlices(t, hosts, []string{"api.example"}, "what a node says of other connections, and what is no host, is not noted")
	}
}

// What goes over the wire has no key, and can be opened for its call alone.
func TestKeysAreSealedForOneCall(t *testing.T) {
	f, box := open(t), kit.Must(lent.NewBox())(t)
	var got []*request
	l := &liar{seal: box.Public(), offers: telling(tool.Effects{Reads: true})}
	l.answer = func(_ *liar, r *request, args []byte, put func(kind, []byte)) {
		got = append(got, r)
		if bytes.Contains(l.frame, []byte(canary)) || !bytes.Contains(l.frame, []byte(`"keys"`)) {
			t.Errorf("the frame is %q", l.frame)
		}
		put(kindUses, bytes.Repeat([]byte("api x.example\n"), 1<<10))
		put(kindResult, kit.Must(encodeResult(&tool.Result{OK: true}))(t))
	}
	l.join(f, "liar")
	for range 2 {
		_, hosts, err := f.keyed(t, canary)
		kit.OK(t, err)
		kit.Equal(t, len(hosts) < lent.Most && slices.Contains(hosts, "x.example"), true)
	}
	kit.Equal(t, kit.Must(kit.Must(box.Open(got[0].Keys, got[0].purpose()))(t)[0].Value(t.Context()))(t), canary)
	for what, change := range map[string]func(r *request){
		"another call": func(r *request) { r.Call = "x" }, "another stream": func(r *request) { r.Reply = got[1].Reply },
		"another run": func(r *request) { r.To = "x" }, "the keys of another call": func(r *request) { r.Keys = got[1].Keys },
		"altered": func(r *request) { r.Keys = append(r.Keys[:len(r.Keys)-1:len(r.Keys)-1], r.Keys[len(r.Keys)-1]^1) },
	} {
		r := *got[0]
		change(&r)
		kit.Refused(t, kit.Err(box.Open(r.Keys, r.purpose())), tool.CodeAccessDenied, "not sealed for it", what)
	}
	_, err := kit.Must(lent.NewBox())(t).Open(got[0].Keys, got[0].purpose())
	kit.Refused(t, err, tool.CodeAccessDenied, "not sealed for it", "another node")
}

func TestNodeOfAnEarlierVersionGetsNoKeys(t *testing.T) {
	f := open(t)
	l := &liar{offers: telling(tool.Effects{Writes: true}), answer: func(_ *liar, r *request, _ []byte, _ func(kind, []byte)) {
		t.Errorf("it got %+v", r)
	}}
	l.join(f, "liar")
	_, _, err := f.keyed(t, canary)
	kit.Refused(t, err, tool.CodeUnavailable, "earlier version")
	kit.Equal(t, tool.NotRun(err), true)
}
