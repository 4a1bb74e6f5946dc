package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	approvaltools "toolpost/builtin/approval"
	"toolpost/cmd/toolpost/format"
	"toolpost/cmd/toolpost/terminal"
	"toolpost/engine/approval"
	"toolpost/identity"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// An approver puts the calls that wait for an approval to the person at the terminal of `toolpost serve`.
type approver struct {
	*app
	*prompter
	tools *backend
	me    tool.Principal
	news  tool.Changes

	mu      sync.Mutex
	list    []approval.Approval // the latest, the newest first
	decided map[string]bool     // here: whether it was approved and has not run yet
	asked   string              // about which the person is asked now; "" if none
	settled func()              // ends the question
}

// approveHere asks until ctx ends. It asks nothing if no person is at the terminal.
func (a *app) approveHere(ctx context.Context, n *node.Node) {
	in, ok := a.in.(*os.File)
	if !ok || a.logJSON || !a.out.terminal || !newScreen(in).terminal {
		return
	}
	who, err := n.Admit(ctx, identity.Credentials{Door: me().Door, Peer: identity.Self()})
	if err != nil { // the config gives this user nothing
		return
	}
	as := &admitted{n.Handler(), n.Catalog(), who}
	h := &approver{
		app: a, prompter: newPrompter(in, a.out), tools: &backend{Handler: as, Catalog: as}, me: who, decided: map[string]bool{},
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { h.askAll(ctx, in) })
	watch := tool.Call{Args: raw(approvaltools.WatchArgs{State: approval.All})}
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, time.Minute) {
		_, err := use[approvaltools.Watched](ctx, a, h.tools, approvals(approvaltools.Watch), watch, tool.SinkFunc(func(ev tool.Event) error {
			var log tool.Log
			var now approvaltools.Listed
			if strictjson.Unmarshal(ev.Data, &log) == nil && strictjson.Unmarshal(log.Fields, &now) == nil {
				h.see(now.Approvals)
			}
			return ctx.Err()
		}))
		if tool.CodeOf(err) == tool.CodeAccessDenied { // policy lets this user see no approvals
			return
		}
		if err == nil { // an hour is over
			wait = time.Second
		}
		tool.Sleep(ctx, wait) // otherwise the store is away
	}
}

// see keeps the approvals as they are now, and says what became of those that were approved here. If the one that the person
// is asked about does not wait any more, the question is over.
func (h *approver) see(list []approval.Approval) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = list
	for _, p := range slices.Backward(list) {
		if h.decided[p.ID] && p.Ran != nil {
			h.decided[p.ID] = false
			fmt.Fprintf(h.app.out, "%s  %s for %s\n", ranWords(&p), clean(p.Tool), clean(p.Caller))
		}
		if p.ID == h.asked && p.State != approval.Waiting {
			h.settled()
		}
	}
	h.news.Tell()
}

// askAll asks about the calls that wait, one at a time and the oldest first, until ctx or the input ends.
func (h *approver) askAll(ctx context.Context, tty *os.File) {
	for ctx.Err() == nil {
		news := h.news.Changed()
		if p := h.first(); p != nil && terminal.InFront(tty) {
			if !h.ask(ctx, *p) {
				return
			}
			continue
		}
		select {
		case <-news:
		case <-time.After(time.Second): // this program may be in front again
		case <-ctx.Done():
		}
	}
}

// first returns the oldest call that waits for this person, or nil if there is none.
func (h *approver) first() *approval.Approval {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, p := range slices.Backward(h.list) {
		own := p.Caller == h.me.ID && slices.ContainsFunc(p.Rules, func(r tool.ConsentRule) bool { return !r.Self })
		if _, done := h.decided[p.ID]; p.State == approval.Waiting && !done && !own {
			return &h.list[i]
		}
	}
	return nil
}

// ask puts one call to the person until it is decided, here or elsewhere. It returns false if the input or ctx ended.
func (h *approver) ask(ctx context.Context, p approval.Approval) bool {
	asking, settled := context.WithCancel(ctx)
	defer settled()
	h.setAsked(p.ID, settled)
	defer h.setAsked("", nil)
	h.Fresh()
	h.showApproval(p)
	for {
		fmt.Fprintf(h.app.out, "approve it? type %s, or no and a reason; Enter shows it again\n", strings.Join(p.Ways, ", "))
		line, err := h.Line(asking)
		word, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case err != nil && asking.Err() != nil && ctx.Err() == nil:
			h.tellSettled(p.ID)
			return true
		case err != nil:
			return false
		case word == "":
			h.showApproval(p)
		case h.decide(asking, p, strings.ToLower(word), strings.TrimSpace(reason)):
			return true
		}
	}
}

func (h *approver) setAsked(id string, settled func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked, h.settled = id, settled
}

// tellSettled says what became of a call that was decided elsewhere.
func (h *approver) tellSettled(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.list {
		if by := ""; p.ID == id {
			if p.By != "" {
				by = " by " + clean(p.By)
			}
			fmt.Fprintf(h.app.out, "\n%s elsewhere%s: %s for %s\n", clean(p.State), by, clean(p.Tool), clean(p.Caller))
		}
	}
}

// decide does what the person typed, and reports whether the question is over.
func (h *approver) decide(ctx context.Context, p approval.Approval, word, reason string) bool {
	args := approvaltools.DecideArgs{ID: p.ID, Reason: reason, Approve: true, For: word}
	switch {
	case word == "y" || word == "yes":
		args.For = approval.ForCall
	case word == "n" || word == "no":
		args.Approve, args.For = false, approval.ForCall
	case !slices.Contains(p.Ways, word):
		fmt.Fprintf(h.app.out, "%q is no answer; the call still waits\n", clean(word))
		return false
	case word == approval.ForAlways:
		h.Fresh()
		if yes, err := h.Agreed(ctx, alwaysWords(&p)); err != nil || !yes {
			fmt.Fprintln(h.app.out, "nothing was written; the call still waits")
			return false
		}
	}
	done, err := use[approval.Approval](ctx, h.app, h.tools, approvals(approvaltools.Decide), tool.Call{Args: raw(args)}, tool.Discard)
	h.mu.Lock()
	h.decided[p.ID] = err == nil && args.Approve
	h.mu.Unlock()
	switch {
	case err != nil:
		h.complain(err)
	case args.Approve:
		fmt.Fprintf(h.app.out, "%s; it runs when %s makes the call again\n", clean(done.State), clean(p.Caller))
	default:
		fmt.Fprintln(h.app.out, clean(done.State))
	}
	return true
}

// alwaysWords show the entry that an approval for ever writes, and ask for consent.
func alwaysWords(p *approval.Approval) string {
	return fmt.Sprintf("this is written to %s, below `approved:`\n  %s\nwrite it", clean(p.Config), clean(p.Always))
}

// ranWords describe what became of an approved call.
func ranWords(p *approval.Approval) string {
	if p.Ran == nil {
		return ""
	}
	return clean(strings.TrimSpace(fmt.Sprintf("%s %s", p.Ran.Outcome, p.Ran.Code))) + " in " + format.Tidy(time.Duration(p.Ran.Millis)*time.Millisecond)
}
