package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolpost/builtin/trust"
	"toolpost/cmd/toolpost/format"
	"toolpost/tool"
	"toolpost/wire/textdiff"
)

// reviewHint names the command for tools that are held back.
const reviewHint = "toolpost tools review"

// shownDigest is how much of a digest is shown: enough that a second text with the same prefix is hard to find.
const shownDigest = 16

var reviewsTools = own{trust.Review, "review tools", sources}

func (a *app) reviewCommand() *cobra.Command {
	return over[trust.ReviewArgs](a, reviewsTools, "tools...", &cobra.Command{
		Use: "review [NAME ...]", Short: "Show what changed in tools that are held back",
		Long: "Shows the tools of upstream servers that are held back: the definition of each tool when it was approved\n" +
			"or first seen, and its definition now, with the words that differ in brackets. Invisible characters are\n" +
			"shown as escapes. A tool that is held back is not listed and cannot be called. Only operators may use\n" +
			"it: the owner and the user of the command line.",
		Example: "  toolpost tools review\n  toolpost tools review weather.forecast",
	}, a.showHeld)
}

func (a *app) approveCommand() *cobra.Command {
	approve := own{trust.Approve, "approve tools", sources}
	return first(over[trust.ApproveArgs](a, approve, "tools... --all=source", &cobra.Command{
		Use: "approve NAME ... | --all SOURCE", Short: "Approve tools that are held back",
		Long: "Approves tools of upstream servers as they are now: from then on they are held back only if they change\n" +
			"again. NAME is the name that `toolpost tools review` shows. With NAME@DIGEST, as the review shows it, a\n" +
			"tool that changed since then is not approved. With --all, every held-back tool of a source is approved,\n" +
			"and tools that the source no longer has are forgotten. The command calls the tool tools.approve: the\n" +
			"policy applies, and the call is recorded.",
		Example: "  toolpost tools approve weather.forecast\n  toolpost tools approve --all weather",
	}, a.showApproved), func(c *cobra.Command, names []string) ([]string, error) {
		if len(names) == 0 && !c.Flags().Changed("all") {
			return nil, tool.Errorf(tool.CodeInvalidInput,
				"which tools? Say their names, or --all SOURCE; `%s` lists those that are held back", reviewHint)
		}
		return names, nil
	})
}

// heldBack returns the tools that are held back, as entries of the catalogue.
func (a *app) heldBack(ctx context.Context, b *backend) (list []listed, err error) {
	out, err := use[trust.Reviewed](ctx, a, b, reviewsTools, tool.Call{}, tool.Discard)
	for _, h := range out.Held {
		list = append(list, listed{
			&tool.Spec{Name: h.Tool, Source: h.Source, Protocol: "-"},
			&tool.Error{Code: tool.CodeUnavailable, Reason: h.Reason, Message: h.Why},
		})
	}
	return list, err
}

func (a *app) showHeld(out trust.Reviewed) {
	if len(out.Held) == 0 {
		fmt.Fprintln(a.err, "no tool is held back")
	}
	held := map[string]int{}
	for _, h := range out.Held {
		fmt.Fprintf(a.out, "%s  %s\n", a.out.bold(clean(h.Tool)), clean(strings.TrimSuffix(h.Why, ": "+reviewHint)))
		a.out.facts("  ", 11, [][2]string{
			{"first seen", format.When(h.Seen, time.Now())}, {"approved", approvedWhen(h)},
		})
		for _, c := range h.Changes {
			fmt.Fprintf(a.out, "  %s\n", clean(c.Part))
			runs := textdiff.Words(cleanLines(c.Was), cleanLines(c.Now))
			a.showSide('-', runs, a.out.red)
			a.showSide('+', runs, a.out.green)
		}
		if h.Digest != "" {
			held[h.Source]++
			fmt.Fprintf(a.out, "  approve it with: toolpost tools approve %s\n", format.ShellWord(h.Tool+"@"+digestOf(h)))
		}
		fmt.Fprintln(a.out)
	}
	for _, source := range slices.Sorted(maps.Keys(held)) {
		if held[source] > 1 {
			fmt.Fprintf(a.out, "approve all %d of %s with: toolpost tools approve --all %s\n", held[source], source, source)
		}
	}
	a.notLasting(out.Lasting)
}

func digestOf(h trust.Held) string { return h.Digest[:min(shownDigest, len(h.Digest))] }

func approvedWhen(h trust.Held) string {
	if h.Approved.IsZero() {
		return ""
	}
	return format.When(h.Approved, time.Now()) + " by " + clean(h.By)
}

func (a *app) showApproved(out trust.Approved) {
	for _, h := range out.Approved {
		fmt.Fprintf(a.out, "%s  %s (%s)\n", a.out.green("approved"), clean(h.Tool), digestOf(h))
	}
	for _, name := range out.Forgotten {
		fmt.Fprintf(a.out, "%s  %s\n", a.out.dim("forgotten"), clean(name))
	}
	if len(out.Approved) == 0 {
		fmt.Fprintln(a.err, "no tool of it is held back")
	}
	a.notLasting(out.Lasting)
}

// notLasting warns if decisions end with the program that made them.
func (a *app) notLasting(lasting bool) {
	if !lasting {
		fmt.Fprintln(a.err, "there is no store: what is known of upstream tools lasts as long as the program that knows it")
	}
}

// showSide shows one of two texts, line by line, with the words that the other lacks in brackets.
func (a *app) showSide(sign byte, runs []textdiff.Run, color func(string) string) {
	var b strings.Builder
	for _, r := range runs {
		text := strings.Join(r.Pieces, "")
		if words := strings.TrimSpace(text); r.Sign == sign && words != "" { // brackets enclose words, not the blanks around them
			text = strings.Replace(text, words, color("["+words+"]"), 1)
		}
		if r.Sign == sign || r.Sign == ' ' {
			b.WriteString(text)
		}
	}
	if b.Len() == 0 {
		b.WriteString(a.out.dim("(nothing)"))
	}
	for line := range strings.SplitSeq(b.String(), "\n") {
		fmt.Fprintf(a.out, "    %c %s\n", sign, line)
	}
}
