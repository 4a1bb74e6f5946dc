package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	approvaltools "toolpost/builtin/approval"
	"toolpost/builtin/define"
	"toolpost/cmd/toolpost/format"
	"toolpost/engine/approval"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// approvals is one of the tools for approvals.
func approvals(name string) own { return own{name, "decide about calls", store} }

func (a *app) approvalsCommand() *cobra.Command {
	var watch bool
	c := over[approvaltools.ListArgs](a, approvals(approvaltools.List), "--status=state --limit,n:100", &cobra.Command{
		Use: "approvals", Short: "List the calls that wait for an approval",
		Long: "Lists the calls that wait for an approval, because a policy rule has `effect: ask`. You see the calls\n" +
			"that you may approve; the owner and the user of the command line see all. Decide with `toolpost approve`\n" +
			"or `toolpost deny`. A call that is not approved in time is refused.",
		Example: "  toolpost approvals\n  toolpost approvals --watch\n  toolpost approvals --status remembered",
	}, func(l approvaltools.Listed) {
		columns("id tool caller asked until state what", cells[approval.Approval]{
			"until": func(p approval.Approval) string { return format.When(ends(p), time.Now()) }, "what": whatRuns,
		}).print(a, "approvals", l.Approvals)
	})
	list := c.RunE
	c.RunE = func(c *cobra.Command, words []string) error {
		most, _ := c.Flags().GetInt("limit")
		state, _ := c.Flags().GetString("status")
		switch {
		case most == 0:
			return tool.Errorf(tool.CodeInvalidInput, "--limit is from 1 to 1000, not 0")
		case watch:
			return a.watchApprovals(c.Context())
		}
		if err := list(c, words); err != nil || state != approval.Remembered || a.json {
			return err
		}
		return a.tellStanding()
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show each new waiting call, until Ctrl-C")
	c.AddCommand(a.aboutApproval(approvaltools.Show, "id", &cobra.Command{
		Use: "show ID", Short: "Show a call that waits, or waited, for an approval",
		Long: "Shows a call that waits, or waited, for an approval: its caller, its arguments, the files and commands\n" +
			"that it touches, and its walls.",
	}), a.aboutApproval(approvaltools.Revoke, "id", &cobra.Command{
		Use: "revoke ID", Short: "Revoke a remembered approval",
		Long: "Revokes an approval given for a session, for arguments or for an hour: further calls must be approved\n" +
			"again. `toolpost approvals --status remembered` lists these approvals. An approval with `--for\n" +
			"always` is an entry of the list `approved` in the config: remove the entry instead.",
	}))
	return c
}

// tellStanding lists the approvals that were given always, which are in the config and not in the store.
func (a *app) tellStanding() error {
	if a.away() {
		fmt.Fprintln(a.err, "approvals given always are not listed here: they are under `approved` in the config of the server")
		return nil
	}
	var given []approval.Standing
	cfg, err := a.load()
	if err == nil {
		err = cfg.Section(approval.Section().Name).Decode(&given)
	}
	if err == nil && len(given) > 0 {
		fmt.Fprintf(a.err, "%s given always, under `approved` in %s\n", define.Count(len(given), "approval"), clean(cfg.Path))
	}
	for _, one := range given {
		fmt.Fprintf(a.err, "  %s by %s, rule %s\n", clean(one.Tool), clean(one.Caller), clean(strings.Join(one.Rules, ", ")))
	}
	return err
}

func (a *app) approveCallCommand() *cobra.Command {
	var yes bool
	c := a.aboutApproval(approvaltools.Decide, "id approve=true --reason --for", &cobra.Command{
		Use: "approve ID", Short: "Approve a call",
		Long: "Approves a call. Its caller must then make the call again (a job does so by itself), and it runs once.\n" +
			"With --for, further calls of the tool by the same caller are approved too. The decision is a call of the\n" +
			"tool approvals.decide and is recorded, with the reason. Exit code 3: the call is already decided, or you\n" +
			"made it yourself. Exit code 4: the call does not exist, or you are not its approver.",
		Example: "  toolpost approvals\n" +
			"  toolpost approve apr_q2w3e4r5t6y7u2i3o4p5 --reason 'checked with Ada' --for session",
	})
	c.Flags().BoolVarP(&yes, "yes", "y", false, "with --for always: write the entry without asking")
	return first(c, func(c *cobra.Command, words []string) ([]string, error) {
		if way, _ := c.Flags().GetString("for"); way != approval.ForAlways || yes || len(words) != 1 { // the usage says so
			return words, nil
		}
		b, err := approvals(approvaltools.Show).open(c.Context(), a)
		if err != nil {
			return nil, err
		}
		defer b.close()
		return words, a.agreeAlways(c.Context(), b, words[0])
	})
}

// agreeAlways shows the entry that an approval for ever writes to the config, and asks.
func (a *app) agreeAlways(ctx context.Context, b *backend, id string) error {
	show := tool.Call{Args: raw(approvaltools.ShowArgs{ID: id})}
	p, err := use[approval.Approval](ctx, a, b, approvals(approvaltools.Show), show, tool.Discard)
	if err != nil || p.Always == "" {
		return err // the decision says why not
	}
	switch yes, asked, err := a.agreed(ctx, a.err, alwaysWords(&p)); {
	case err != nil:
		return err
	case !asked:
		fmt.Fprintln(a.err, alwaysWords(&p))
		return tool.Errorf(tool.CodeInvalidInput, "there is no terminal to ask at; `toolpost approve %s --for always --yes` "+
			"writes it", id)
	case !yes:
		return tool.Errorf(tool.CodeCancelled, "nothing was written, and the call still waits")
	}
	return nil
}

func (a *app) denyCallCommand() *cobra.Command {
	return a.aboutApproval(approvaltools.Decide, "id approve=false --reason", &cobra.Command{
		Use: "deny ID", Short: "Deny a call",
		Long: "Denies a call that waits for an approval: its caller is told your name and your reason. The decision is\n" +
			"a call of the tool approvals.decide and is recorded, with the reason. Exit code 3: the call is already\n" +
			"decided, or you made it yourself. Exit code 4: the call does not exist, or you are not its approver.",
		Example: "  toolpost deny apr_q2w3e4r5t6y7u2i3o4p5 --reason 'not on a Friday'",
	})
}

// aboutApproval makes a command that calls a tool for one approval.
func (a *app) aboutApproval(name, given string, c *cobra.Command) *cobra.Command {
	c.ValidArgsFunction = a.completeFrom(approvals(approvaltools.List), "id", "tool by caller", "")
	return over[approvaltools.DecideArgs](a, approvals(name), given, c, a.showApproval)
}

// ends returns when an approval ends. A remembered approval ends after its hour, or never; one that was used or denied has
// no end left.
func ends(p approval.Approval) time.Time {
	remembered := p.For != "" && p.For != approval.ForCall && p.Revoked.IsZero()
	switch {
	case remembered && p.State != approval.Expired:
		return p.Lasts
	case p.State == approval.Used || p.State == approval.Denied:
		return time.Time{}
	}
	return p.Until
}

// forWords describe how long an approval holds.
var forWords = map[string]string{
	approval.ForCall: "this call", approval.ForSession: "this session", approval.ForArguments: "these arguments",
	approval.ForHour: "an hour", approval.ForAlways: "always",
}

// whatRuns describes a call in one line.
func whatRuns(p approval.Approval) string {
	var about []string
	for _, argv := range p.Touches.Commands {
		about = append(about, "runs "+format.CommandLine(argv))
	}
	for _, path := range p.Touches.Writes {
		about = append(about, "writes "+path)
	}
	if len(about) == 0 && len(p.Args) > 0 {
		about = append(about, string(p.Args))
	}
	text := strings.Join(about, "; ")
	if len(text) > 100 {
		text = strings.ToValidUTF8(text[:100], "") + "..."
	}
	if p.For != "" && p.For != approval.ForCall {
		text = "for " + forWords[p.For] + "; " + text
	}
	return text
}

// showApproval shows everything that an approver needs to see.
func (a *app) showApproval(p approval.Approval) {
	now, state := time.Now(), a.out.amber(p.State)
	switch p.State {
	case approval.Approved, approval.Used:
		state = a.out.green(p.State)
	case approval.Denied, approval.Expired:
		state = a.out.red(p.State)
	}
	fmt.Fprintf(a.out, "%s  %s for %s at %s\n", state, a.out.bold(clean(p.Tool)), clean(p.Caller), clean(p.Door))
	a.out.facts("  ", 10, append(callFacts(p), decisionFacts(p, now)...))
	if p.State != approval.Waiting {
		return
	}
	for _, c := range p.Changes {
		fmt.Fprintf(a.out, "  %-10s %s\n", c.Kind+"s", tool.VisibleName(c.Path))
		a.out.diff("    ", slices.Collect(strings.Lines(c.Diff)))
	}
}

// callFacts are about the call. Facts that an approver decides by are shown verbatim.
func callFacts(p approval.Approval) [][2]string {
	args := tool.VisibleName(string(p.Args))
	if p.Omitted > 0 {
		args = fmt.Sprintf("(%d bytes, too long to be shown)", p.Omitted)
	}
	facts := [][2]string{
		{"id", clean(p.ID)}, {"arguments", args}, {"named", map[bool]string{true: byItself}[tool.SelfNamed(p.Caller)]}, {"session", tool.VisibleName(p.Session)}, {"run", clean(p.Run)},
		{"job", clean(p.Job)}, {"tier", fmt.Sprint(p.Tier)}, {"effects", clean(strings.Join(p.Effects, ", "))},
	}
	facts = append(facts, touchFacts(p.Touches)...)
	if p.More > 0 {
		facts = append(facts, [2]string{"and", fmt.Sprintf("%d more files or commands, too many to be shown", p.More)})
	}
	return append(facts, [2]string{"walls", clean(p.Walls)},
		[2]string{"cannot", clean(strings.Join(p.Guarantees.Asked(), ", "))})
}

// byItself explains the name of an agent that chose its own.
const byItself = "by itself: the agent was started without --caller"

// touchFacts are the files and commands that a call touches.
func touchFacts(t tool.Touches) (facts [][2]string) {
	for _, path := range t.Reads {
		facts = append(facts, [2]string{"reads", tool.VisibleName(path)})
	}
	for _, path := range t.Writes {
		facts = append(facts, [2]string{"writes", tool.VisibleName(path)})
	}
	for _, argv := range t.Commands {
		facts = append(facts, [2]string{"runs", format.CommandLine(argv)})
	}
	return facts
}

// decisionFacts are about the request for approval and the decision.
func decisionFacts(p approval.Approval, now time.Time) [][2]string {
	facts := [][2]string{{"asked", format.When(p.Asked, now)}, {"until", format.When(ends(p), now)}}
	for _, r := range p.Rules {
		facts = append(facts, [2]string{"rule", clean(strings.TrimSuffix(r.Name+": "+r.Reason, ": "))})
	}
	if p.By != "" {
		facts = append(facts, [2]string{"decided", format.When(p.Decided, now) + " by " + clean(p.By)},
			[2]string{"reason", clean(p.Reason)}, [2]string{"for", forWords[p.For]}, [2]string{"ran", ranWords(&p)})
	}
	if !p.Revoked.IsZero() {
		facts = append(facts, [2]string{"revoked", format.When(p.Revoked, now) + " by " + clean(p.RevokedBy)})
	}
	return facts
}

// watchApprovals shows calls as they start to wait.
func (a *app) watchApprovals(ctx context.Context) error {
	seen := map[string]bool{}
	return a.followOwn(ctx, following{own: approvals(approvaltools.Watch), args: map[string]any{}}, func(log tool.Log) (int64, error) {
		var now approvaltools.Listed
		if err := strictjson.Unmarshal(log.Fields, &now); err != nil {
			return 0, tool.Errorf(tool.CodeProtocol, "what waits cannot be read: %w", err)
		}
		for _, p := range slices.Backward(now.Approvals) { // oldest first
			if seen[p.ID] {
				continue
			}
			seen[p.ID] = true
			if err := a.tellWaiting(p); err != nil {
				return 0, err
			}
		}
		return 0, nil
	})
}

func (a *app) tellWaiting(p approval.Approval) error {
	if a.json {
		_, err := fmt.Fprintln(a.out, cleanLines(string(raw(p))))
		return err
	}
	a.showApproval(p)
	_, err := fmt.Fprintf(a.out, "  decide with: toolpost approve %s\n\n", p.ID)
	return err
}

// unapproved shows what a call waits for.
func (a *app) unapproved(q *tool.Ask) error {
	id := clean(q.ID)
	fmt.Fprintf(a.err, "%s %s\n", a.err.amber("toolpost:"), approvalWords(q))
	if q.Awaits != nil && q.Awaits.Self {
		fmt.Fprintf(a.err, "%s, make the same call again with\n  --resume %s\n"+
			"You may decide yourself, with the same call and\n  --answers '{\"approve\": true}' --resume %s\n",
			a.here("When it is approved (`toolpost approve "+id+"`)"), id, id)
		return exitAsks
	}
	own := ""
	if q.Awaits != nil && len(q.Awaits.Rules) > 0 && !a.away() {
		own = fmt.Sprintf(" To decide here yourself, add `self: true` to rule %s; calls of agents (`toolpost as mcp`) you can "+
			"approve without it.", clean(q.Awaits.Rules[0]))
	}
	fmt.Fprintf(a.err, "%s\nThen make the same call again, with\n  --resume %s\n",
		a.here("You cannot approve your own call: the console (`toolpost console`) or another approver (`toolpost approve "+
			id+"`) can."+own), id)
	return exitAsks
}

// approvalWords say who has to approve a call, and until when: the first sentence of its question. The rest of the question
// is for callers that do not see what this program adds.
func approvalWords(q *tool.Ask) string {
	w := q.Awaits
	if w == nil {
		return cleanLines(q.Message)
	}
	text := fmt.Sprintf("%s has to be approved by %s, until %s", w.Tool, strings.Join(w.Approvers, ", "),
		w.Until.UTC().Format(time.RFC3339))
	if w.Reason != "" {
		text += ": " + w.Reason
	}
	return clean(text)
}
