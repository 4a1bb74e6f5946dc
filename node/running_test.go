package node_test

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
)

// A hanging source has a tool that runs until its call is cancelled.
type hanging struct{ began chan string }

func (h hanging) protocol() []node.Protocol {
	return []node.Protocol{{Name: "hanging", Open: func(context.Context, config.Source, *slog.Logger) (tool.Runner, error) { return h, nil }}}
}

func (h hanging) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{{Name: "hang", Input: []byte(`{"type":"object"}`)}}, nil
}

func (h hanging) Close(context.Context) error { return nil }

func (h hanging) Invoke(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	h.began <- c.Caller.Door
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// cancelThrough cancels a call by the protocol of a door, or by the tool if the protocol cannot.
func cancelThrough(t *testing.T, door node.Listening, id string) {
	t.Helper()
	switch door.Door {
	case "nats":
		nc, err := nats.Connect(door.URL, nats.Token(envelopeToken), nats.Timeout(time.Minute))
		if err == nil {
			defer nc.Close()
			err = cmp.Or(nc.Publish("toolpost.cancel", []byte(id)), nc.Flush())
		}
		kit.Check(t, err)
	case "http":
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodDelete, door.URL+"/v1/calls/"+id, nil)
		req.Header.Set("Authorization", "Bearer "+envelopeToken)
		req.Close = true
		resp := kit.Must(http.DefaultClient.Do(req))(t)
		_ = resp.Body.Close()
		kit.Equal(t, resp.StatusCode, http.StatusNoContent)
	default:
		kit.Contains(t, post(t, door, "cancelCall", `{"call":"`+id+`"}`, nil), `"call":"`+id+`"`)
	}
}

func TestACallIsSeenAndCancelledThroughAnyDoor(t *testing.T) {
	h := hanging{make(chan string)}
	doors := withHeaders(t, h.protocol())
	for _, in := range doors {
		for _, by := range doors {
			answer := make(chan string, 1)
			go func() {
				defer close(answer)
				answer <- post(t, in, "hang", `{}`, map[string][]string{"Toolpost-Call": {"c1"}})
			}()
			select {
			case door := <-h.began:
				kit.MustEqual(t, door, in.Door)
			case got := <-answer:
				t.Fatalf("%s, to be cancelled through %s, is answered before it began: %s", in.Door, by.Door, got)
			}
			if got := post(t, by, "listCalls", `{}`, nil); !strings.Contains(got, `"call":"c1","caller":"owner","door":"`+in.Door+`","tool":"hang"`) {
				t.Errorf("%s, seen through %s: %s", in.Door, by.Door, got)
			}
			if got := post(t, by, "hang", `{}`, map[string][]string{"Toolpost-Call": {"c1"}}); !strings.Contains(got, "a call c1 is running already") {
				t.Errorf("%s, and the same id through %s: %s", in.Door, by.Door, got)
			}
			cancelThrough(t, by, "c1")
			if got := <-answer; !strings.Contains(got, "the call was cancelled by its caller") {
				t.Errorf("%s, cancelled through %s, is answered %s", in.Door, by.Door, got)
			}
		}
	}
}

func TestRefusalOfADuplicateIDIsRecorded(t *testing.T) {
	const text = `
sources: [{name: s, protocol: hanging}]
doors: {http: {listen: "127.0.0.1:0"}}
policy: {rules: [{name: no, effect: deny, tools: cancelCall}]}
`
	h, dir, ready := hanging{make(chan string)}, t.TempDir(), make(chan node.Listening, 8)
	n := open(t, parse(t, dir, text), node.Options{
		Protocols: h.protocol(), Token: envelopeToken, Ready: func(l node.Listening) { ready <- l },
	})
	stop := serve(t, n)
	door := <-ready
	named, answer := map[string][]string{"Toolpost-Call": {"c1"}}, make(chan string, 1)
	go func() {
		defer close(answer)
		answer <- post(t, door, "hang", `{}`, named)
	}()
	<-h.began
	kit.Contains(t, post(t, door, "hang", `{}`, named), "duplicate_call")
	cancelThrough(t, door, "c1") // a caller's own call, whatever the policy says of the tool
	<-answer
	stop()
	shut(t, n)
	var reasons []string
	for _, r := range records(t, dir, text) {
		reasons = append(reasons, r.Call+" "+string(r.Code)+" "+r.Reason)
	}
	if got := strings.Join(reasons, ", "); !strings.Contains(got, "c1 conflict duplicate_call") || len(reasons) != 2 {
		t.Errorf("on record are: %s", got)
	}
}
