package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	approvaltools "toolpost/builtin/approval"
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
	tools   *backend
	me      tool.Principal
	asked   map[string]bool
	decided map[string]bool // here, and not run yet
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
	h := &approver{a, newPrompter(in, a.out), &backend{Handler: as, Catalog: as}, who, map[string]bool{}, map[string]bool{}}
	watch := tool.Call{Args: raw(approvaltools.WatchArgs{State: approval.All})}
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, time.Minute) {
		_, err := use[approvaltools.Watched](ctx, a, h.tools, approvals(approvaltools.Watch), watch, tool.SinkFunc(func(ev tool.Event) error {
			var log tool.Log
			var now approvaltools.Listed
			if strictjson.Unmarshal(ev.Data, &log) == nil && strictjson.Unmarshal(log.Fields, &now) == nil {
				h.see(ctx, now.Approvals)
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

// see asks about the calls that wait, the oldest first, and says what became of those that were approved here.
func (h *approver) see(ctx context.Context, list []approval.Approval) {
	for _, p := range slices.Backward(list) {
		own := p.Caller == h.me.ID && slices.ContainsFunc(p.Rules, func(r tool.ConsentRule) bool { return !r.Self })
		switch {
		case h.decided[p.ID] && p.Ran != nil:
			delete(h.decided, p.ID)
			fmt.Fprintf(h.app.out, "%s  %s for %s\n", ranWords(&p), clean(p.Tool), clean(p.Caller))
		case p.State == approval.Waiting && !h.asked[p.ID] && !own && inFront(h.in.(*os.File)):
			h.asked[p.ID] = true
			h.ask(ctx, p)
		}
	}
}

// inFront reports whether this program may read from its terminal: in the background, reading would stop it.
func inFront(tty *os.File) bool {
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// ask puts one call to the person.
func (h *approver) ask(ctx context.Context, p approval.Approval) {
	h.Fresh()
	h.showApproval(p)
	fmt.Fprintf(h.app.out, "approve it? type %s, or no and a reason; Enter leaves it for later\n", strings.Join(p.Ways, ", "))
	line, err := h.Line(ctx)
	word, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
	if err != nil || word == "" {
		return
	}
	h.decide(ctx, p, strings.ToLower(word), strings.TrimSpace(reason))
}

// decide does what the person typed.
func (h *approver) decide(ctx context.Context, p approval.Approval, word, reason string) {
	args := approvaltools.DecideArgs{ID: p.ID, Reason: reason, Approve: true, For: word}
	switch {
	case word == "y" || word == "yes":
		args.For = approval.ForCall
	case word == "n" || word == "no":
		args.Approve, args.For = false, approval.ForCall
	case !slices.Contains(p.Ways, word):
		fmt.Fprintf(h.app.out, "%q is none of these; the call still waits\n", clean(word))
		return
	case word == approval.ForAlways:
		h.Fresh()
		if yes, err := h.Agreed(ctx, alwaysWords(&p)); err != nil || !yes {
			fmt.Fprintln(h.app.out, "nothing was written; the call still waits")
			return
		}
	}
	done, err := use[approval.Approval](ctx, h.app, h.tools, approvals(approvaltools.Decide), tool.Call{Args: raw(args)}, tool.Discard)
	if err != nil {
		h.complain(err)
		return
	}
	fmt.Fprintf(h.app.out, "%s", clean(done.State))
	if h.decided[p.ID] = args.Approve; args.Approve {
		fmt.Fprintf(h.app.out, "; it runs when %s makes the call again", clean(p.Caller))
	}
	fmt.Fprintln(h.app.out)
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
	return clean(strings.TrimSpace(fmt.Sprintf("%s %s", p.Ran.Outcome, p.Ran.Code))) + " in " + tidy(time.Duration(p.Ran.Millis)*time.Millisecond)
}
