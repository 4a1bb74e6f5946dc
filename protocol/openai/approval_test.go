package openai

import (
	"context"
	"testing"
	"time"

	"toolpost/host/model"
	"toolpost/tool"
)

// approvals counts how often somebody was waited for.
type approvals struct{ waited []string }

func (a *approvals) Wait(_ context.Context, ask string) error {
	a.waited = append(a.waited, ask)
	return nil
}

// A call that has to be approved is made again until it is decided; with the loop's own patience where nobody tells when.
func TestACallThatWaitsForApprovalIsMadeAgainUntilItIsDecided(t *testing.T) {
	for name, told := range map[string]*approvals{"told": {}, "by asking again": nil} {
		t.Run(name, func(t *testing.T) {
			var resumed []string
			h := tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
				if resumed = append(resumed, c.Resume); len(resumed) < 3 {
					return &tool.Result{Ask: &tool.Ask{ID: "ask-1", Kind: tool.AskApproval, Message: "may it?"}}, nil
				}
				return &tool.Result{OK: true, Summary: "done"}, nil
			})
			s := &server{handler: h}
			if told != nil {
				s.Wait = told.Wait
			}
			c := &crew{server: s, base: &tool.Call{}, find: func(context.Context, string) (string, bool) { return "x", true }}
			done := c.all(t.Context(), []model.Call{{ID: "1", Name: "x"}}, nil)
			if done[0].result.Text() != "done" || len(resumed) != 3 || resumed[0] != "" || resumed[2] != "ask-1" ||
				told != nil && len(told.waited) != 2 {
				t.Errorf("%+v after %q", done, resumed)
			}
		})
	}
}

func TestNobodyWaitsForApprovalLongerThanTheRequestHas(t *testing.T) {
	h := tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return &tool.Result{Ask: &tool.Ask{ID: "ask-1", Kind: tool.AskApproval, Message: "may it?"}}, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c := &crew{server: &server{handler: h}, base: &tool.Call{}, find: func(context.Context, string) (string,
		bool) {
		return "x", true
	}}
	if done := c.all(ctx, []model.Call{{ID: "1", Name: "x"}}, nil); done[0].code != tool.CodeTimeout ||
		!done[0].result.Failed {
		t.Errorf("%+v", done)
	}
}
