// Package approval has the tools by which people decide about calls that wait for an approval: approvals.list,
// approvals.show and approvals.watch show what would run, approvals.decide approves or denies it, and approvals.revoke
// revokes a remembered approval. A caller that the rules do not name sees nothing. Each is a call like any other, so that
// the record shows who decided what, and why.
package approval

import (
	"context"
	"fmt"
	"slices"
	"time"

	"toolpost/builtin/define"
	"toolpost/engine/approval"
	"toolpost/engine/follow"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The names of the tools.
const (
	List   = "approvals.list"
	Show   = "approvals.show"
	Decide = "approvals.decide"
	Revoke = "approvals.revoke"
	Watch  = "approvals.watch"
)

// Approvals are what the tools decide about.
type Approvals interface {
	List(ctx context.Context, p tool.Principal, state string, most int) ([]approval.Approval, error)
	Show(ctx context.Context, p tool.Principal, id string) (approval.Approval, error)
	Decide(ctx context.Context, p tool.Principal, id string, d approval.Decision) (approval.Approval, error)
	Revoke(ctx context.Context, p tool.Principal, id string) (approval.Approval, error)
	// Changed returns a channel that is closed when this program asks for or decides an approval.
	Changed() <-chan struct{}
}

// New makes the tools.
func New(a Approvals, followers *follow.Followers) *define.Set {
	t := tools{a}
	return define.NewSet(
		define.New(tool.Spec{
			Name: List, Effects: tool.Effects{Reads: true},
			Description: "Lists the calls that wait for your approval, the newest first: what would run, for whom, with " +
				"which arguments, files, commands and walls.",
		}, t.list),
		define.New(tool.Spec{
			Name: Show, Effects: tool.Effects{Reads: true},
			Description: "Shows one call that waits, or waited, for your approval.",
		}, t.show),
		define.New(tool.Spec{
			Name:        Decide,
			Description: "Approves or denies a call that waits for your approval, with a reason, once or for further calls.",
		}, t.decide),
		define.New(tool.Spec{
			Name: Revoke, Description: "Revokes a remembered approval: further calls have to be approved again.",
		}, t.revoke),
		define.New(tool.Spec{
			Name: Watch, Effects: tool.Effects{Reads: true}, Timeout: follow.Timeout,
			Description: "Gives the calls that wait for your approval, now and at every change, as log events: all " +
				"that wait are in the fields, or with a state those in it. It ends after an hour.",
		}, define.Following(followers, t.watch)),
	)
}

type tools struct{ of Approvals }

// The number of approvals in a list.
const (
	defaultList = 100
	maxList     = 1000
)

// ListArgs are the arguments of approvals.list.
type ListArgs struct {
	State string `json:"state" schema:"enum=waiting|approved|used|denied|expired|remembered|all default=waiting" doc:"only approvals in this state; remembered: approvals that also cover further calls"`
	Limit int    `json:"limit" schema:"minimum=0 maximum=1000" doc:"maximum number of approvals; default 100"`
}

// Listed is the output of approvals.list.
type Listed struct {
	Approvals []approval.Approval `json:"approvals"`
}

func (t tools) list(ctx context.Context, c *define.Call, a ListArgs) (Listed, error) {
	if a.State == "" {
		a.State = approval.Waiting
	}
	if a.Limit <= 0 || a.Limit > maxList {
		a.Limit = defaultList
	}
	all, err := t.of.List(ctx, c.Caller, a.State, a.Limit)
	c.Summary = define.Count(len(all), "approval")
	return Listed{all}, err
}

// ShowArgs are the arguments of approvals.show and approvals.revoke.
type ShowArgs struct {
	ID string `json:"id" schema:"required minLength=1 maxLength=64" doc:"the id of the approval"`
}

func (t tools) show(ctx context.Context, c *define.Call, a ShowArgs) (approval.Approval, error) {
	return t.of.Show(ctx, c.Caller, a.ID)
}

// DecideArgs are the arguments of approvals.decide.
type DecideArgs struct {
	ID      string `json:"id" schema:"required minLength=1 maxLength=64" doc:"the id of the approval"`
	Approve bool   `json:"approve" schema:"required" doc:"true: the call may run; false: it is denied"`
	Reason  string `json:"reason" schema:"maxLength=1000" doc:"reason, for the caller and the record"`
	For     string `json:"for" schema:"enum=call|session|arguments|hour|always default=call" doc:"calls to approve: this call, or also further calls of the tool by the same caller in this session, with these arguments, within an hour, or always; always adds an entry to the config"`
}

func (t tools) decide(ctx context.Context, c *define.Call, a DecideArgs) (approval.Approval, error) {
	done, err := t.of.Decide(ctx, c.Caller, a.ID, approval.Decision{Approve: a.Approve, Reason: a.Reason, For: a.For})
	if err == nil {
		c.Summary = done.Tool + " by " + done.Caller + " is " + done.State
	}
	return done, err
}

func (t tools) revoke(ctx context.Context, c *define.Call, a ShowArgs) (approval.Approval, error) {
	return t.of.Revoke(ctx, c.Caller, a.ID)
}

// Watched is the output of approvals.watch.
type Watched struct {
	Seen int `json:"seen" doc:"how often the list was sent"`
}

// lookEvery is how often a watcher checks the store: another program may ask and decide too.
const lookEvery = time.Second

// WatchArgs are the arguments of approvals.watch.
type WatchArgs struct {
	State string `json:"state" schema:"enum=waiting|all default=waiting" doc:"all: also the latest decisions, and how the calls ended"`
}

func (t tools) watch(ctx context.Context, c *define.Call, a WatchArgs, f *follow.Follower) (w Watched, err error) {
	var last []string
	state, most := approval.Waiting, maxList
	if a.State == approval.All {
		state, most = approval.All, defaultList
	}
	for more := true; more; {
		changed := t.of.Changed() // before the look: nothing is missed in between
		all, err := t.of.List(ctx, c.Caller, state, most)
		if err != nil {
			return w, err
		}
		var ids []string
		for _, a := range all {
			ids = append(ids, fmt.Sprint(a.ID, a.State, a.Ran != nil))
		}
		if w.Seen == 0 || !slices.Equal(ids, last) {
			w.Seen, last = w.Seen+1, ids
			if err := tell(c.Out, state, all); err != nil {
				return w, err
			}
		}
		if more, err = f.Wait(ctx, changed, lookEvery); err != nil {
			return w, err
		}
	}
	return w, nil
}

func tell(out tool.Sink, state string, all []approval.Approval) error {
	fields, err := strictjson.Marshal(Listed{all})
	if err != nil {
		return err
	}
	text := define.Count(len(all), "call") + " to be approved"
	if state == approval.All {
		text = define.Count(len(all), "approval")
	}
	return out.Emit(tool.NewEvent(tool.KindLog, tool.Log{Level: "info", Message: text, Fields: fields}))
}
