package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	approvaltools "toolpost/builtin/approval"
	"toolpost/engine/approval"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// doesApprovals completes the error "you may not …".
const doesApprovals = "decide about calls"

func (a *app) approvalsCommand() *cobra.Command {
	var state string
	var most int
	var watch bool
	states := append(approval.States(), approval.Remembered, approval.All)
	c := &cobra.Command{
		Use: "approvals", Short: "List the calls that wait for your approval", Args: words(0, 0),
		Long: "Lists the calls that wait for your approval: those of which a policy rule says `effect: ask` and names\n" +
			"you, or a role of yours, among its approvers. `toolpost approve` and `toolpost deny` decide about one. A\n" +
			"call that is not approved in time is refused.",
		Example: "  toolpost approvals\n  toolpost approvals --watch\n  toolpost approvals --state remembered",
		RunE: func(c *cobra.Command, _ []string) error {
			if most < 1 || most > 1000 {
				return tool.Errorf(tool.CodeInvalidInput, "--limit is from 1 to 1000, not %d", most)
			}
			if err := oneOf("--state", state, states); err != nil {
				return err
			}
			if watch {
				return a.watchApprovals(c.Context())
			}
			got, err := kept[approvaltools.Listed](c.Context(), a, approvaltools.List,
				map[string]any{"state": state, "limit": most}, doesApprovals)
			if err != nil {
				return err
			}
			head := []string{"ID", "TOOL", "CALLER", "ASKED", "UNTIL", "STATE", "WHAT"}
			return list(a, "approvals", got.Approvals, head, approvalRow)
		},
	}
	c.Flags().StringVar(&state, "state", approval.Waiting,
		"list those that are waiting, approved, used, denied or expired, remembered, or all")
	c.Flags().IntVarP(&most, "limit", "n", 100, "list at most this many")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show calls as they come to wait, until interrupted")
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	c.AddCommand(a.aboutApproval(approvaltools.Show, &cobra.Command{
		Use: "show ID", Short: "Show what would run",
		Long: "Shows a call that waits, or waited, for your approval: who makes it, with which arguments, the files and\n" +
			"commands that it touches, and the walls around it.",
	}), a.aboutApproval(approvaltools.Revoke, &cobra.Command{
		Use: "revoke ID", Short: "Revoke an approval that is remembered",
		Long: "Revokes an approval that holds for a session, for arguments or for an hour: further calls have to be\n" +
			"approved again. `toolpost approvals --state remembered` lists them.",
	}))
	return a.withServer(a.withJSON("print JSON", c))
}

func approvalRow(p approval.Approval) []string {
	now := time.Now()
	what := whatRuns(p)
	if p.For != "" && p.For != approval.ForCall {
		what = "for " + forWords[p.For] + "; " + what
	}
	return []string{p.ID, p.Tool, p.Caller, when(p.Asked, now), when(ends(p), now), p.State, what}
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
	approval.ForHour: "an hour",
}

// whatRuns describes a call in one line.
func whatRuns(p approval.Approval) string {
	var about []string
	for _, argv := range p.Touches.Commands {
		about = append(about, "runs "+commandLine(argv))
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
	return text
}

// aboutApproval makes a command that calls a tool for one approval.
func (a *app) aboutApproval(name string, c *cobra.Command) *cobra.Command {
	c.Args, c.ValidArgsFunction = words(1, 1), a.completeApproval()
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.decideBy(c.Context(), name, map[string]any{"id": args[0]})
	}
	return a.withServer(a.withJSON("print it as JSON", c))
}

// decideBy calls a tool for one approval, and shows the approval afterwards.
func (a *app) decideBy(ctx context.Context, name string, args map[string]any) error {
	p, err := kept[approval.Approval](ctx, a, name, args, doesApprovals)
	if e := tool.AsError(err); err != nil && e.Reason == approval.OwnCall && a.server.url == "" {
		more := *e
		more.Message += ". The owner is another caller than you on this command line: " +
			"with its token and --server URL, you can decide"
		return &more
	}
	if err != nil {
		return err
	}
	return a.conclude(p, func() { a.showApproval(p) }, false)
}

func (a *app) approveCallCommand() *cobra.Command {
	var reason, way string
	ways := []string{approval.ForCall, approval.ForSession, approval.ForArguments, approval.ForHour}
	c := &cobra.Command{
		Use: "approve ID", Short: "Approve a call that waits", Args: words(1, 1), ValidArgsFunction: a.completeApproval(),
		Long: "Approves a call that waits: its caller makes it again, and it runs, once. With --for session, arguments or\n" +
			"hour further calls of the tool by the same caller are approved too: in the same session, with the same\n" +
			"arguments, or for an hour. Deciding is a call of the tool approvals.decide: it is on record, with the\n" +
			"reason. Exit code 3: it was decided before, or it is your own call; 4: there is no such call, or not for you.",
		Example: "  toolpost approvals\n" +
			"  toolpost approve apr_q2w3e4r5t6y7u2i3o4p5 --reason 'checked with Ada' --for session",
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("--for", way, ways); err != nil {
				return err
			}
			return a.decideBy(c.Context(), approvaltools.Decide,
				map[string]any{"id": args[0], "approve": true, "reason": reason, "for": way})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	c.Flags().StringVar(&way, "for", approval.ForCall, "how long it holds: call, session, arguments or hour")
	_ = c.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(ways, cobra.ShellCompDirectiveNoFileComp))
	return a.withServer(a.withJSON("print the decision as JSON", c))
}

func (a *app) denyCallCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "deny ID", Short: "Deny a call that waits for an approval", Args: words(1, 1),
		ValidArgsFunction: a.completeApproval(),
		Long: "Denies a call that waits: its caller is told by whom, and why. Deciding is a call of the tool\n" +
			"approvals.decide: it is on record, with the reason. Exit code 3: it was decided before, or it is your own\n" +
			"call; 4: there is no such call, or not for you.",
		Example: "  toolpost deny apr_q2w3e4r5t6y7u2i3o4p5 --reason 'not on a Friday'",
		RunE: func(c *cobra.Command, args []string) error {
			return a.decideBy(c.Context(), approvaltools.Decide,
				map[string]any{"id": args[0], "approve": false, "reason": reason})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why; the caller is told")
	return a.withServer(a.withJSON("print the decision as JSON", c))
}

// completeApproval completes the ids of waiting calls.
func (a *app) completeApproval() cobra.CompletionFunc {
	return completeIDs(func(ctx context.Context) ([]approval.Approval, error) {
		got, err := kept[approvaltools.Listed](ctx, a, approvaltools.List, map[string]any{}, doesApprovals)
		return got.Approvals, err
	}, func(p approval.Approval) (id, about string, ok bool) { return p.ID, p.Tool + " by " + p.Caller, true })
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
}

// callFacts are about the call. Facts that an approver decides by are shown verbatim.
func callFacts(p approval.Approval) [][2]string {
	args := tool.VisibleName(string(p.Args))
	if p.Omitted > 0 {
		args = fmt.Sprintf("(%d bytes, too long to be shown)", p.Omitted)
	}
	facts := [][2]string{
		{"id", clean(p.ID)}, {"arguments", args}, {"session", tool.VisibleName(p.Session)}, {"run", clean(p.Run)},
		{"job", clean(p.Job)}, {"tier", fmt.Sprint(p.Tier)}, {"effects", clean(strings.Join(p.Effects, ", "))},
	}
	for _, path := range p.Touches.Reads {
		facts = append(facts, [2]string{"reads", tool.VisibleName(path)})
	}
	for _, path := range p.Touches.Writes {
		facts = append(facts, [2]string{"writes", tool.VisibleName(path)})
	}
	for _, argv := range p.Touches.Commands {
		facts = append(facts, [2]string{"runs", commandLine(argv)})
	}
	if p.More > 0 {
		facts = append(facts, [2]string{"and", fmt.Sprintf("%d more files or commands, too many to be shown", p.More)})
	}
	return append(facts, [2]string{"walls", clean(p.Walls)},
		[2]string{"cannot", clean(strings.Join(p.Guarantees.Asked(), ", "))})
}

// decisionFacts are about the request for approval and the decision.
func decisionFacts(p approval.Approval, now time.Time) [][2]string {
	facts := [][2]string{{"asked", when(p.Asked, now)}, {"until", when(ends(p), now)}}
	for _, r := range p.Rules {
		facts = append(facts, [2]string{"rule", clean(strings.TrimSuffix(r.Name+": "+r.Reason, ": "))})
	}
	if p.By != "" {
		facts = append(facts, [2]string{"decided", when(p.Decided, now) + " by " + clean(p.By)},
			[2]string{"reason", clean(p.Reason)}, [2]string{"for", forWords[p.For]})
	}
	if !p.Revoked.IsZero() {
		facts = append(facts, [2]string{"revoked", when(p.Revoked, now) + " by " + clean(p.RevokedBy)})
	}
	return facts
}

// watchApprovals shows calls as they start to wait.
func (a *app) watchApprovals(ctx context.Context) error {
	b, err := a.openKept(ctx, node.Options{Own: true})
	if err != nil {
		return err
	}
	defer b.close()
	seen := map[string]bool{}
	return a.followOwn(ctx, b, approvaltools.Watch, doesApprovals, func(*int64) any { return struct{}{} },
		func(log tool.Log) (int64, error) {
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
	fmt.Fprintf(a.err, "%s. Then make the same call again, with\n  --resume %s\n",
		a.here("Somebody else has to approve it (`toolpost approve "+id+"`)"), id)
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
