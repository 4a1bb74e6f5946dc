package main

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolpost/builtin/trust"
	"toolpost/tool"
)

// reviewHint names the command for tools that are held back.
const reviewHint = "toolpost tools review"

// shownDigest is how much of a digest is shown: enough that a second text with the same prefix is hard to find.
const shownDigest = 16

var reviewsTools = own{trust.Review, "review tools", sources}

func (a *app) reviewCommand() *cobra.Command {
	return over[trust.ReviewArgs](a, reviewsTools, "tools...", &cobra.Command{
		Use: "review [NAME ...]", Short: "Show what changed in tools that are held back",
		Long: "Shows the tools of upstream servers that are held back: what each said about itself when it was approved\n" +
			"or first seen, and what it says now, with the words that differ in brackets. Invisible characters are\n" +
			"shown as escapes. A tool that is held back is not listed and cannot be called. For operators.",
		Example: "  toolpost tools review\n  toolpost tools review weather.forecast",
	}, a.showHeld)
}

func (a *app) approveCommand() *cobra.Command {
	approve := own{trust.Approve, "approve tools", sources}
	return first(over[trust.ApproveArgs](a, approve, "tools... --all=source", &cobra.Command{
		Use: "approve NAME ... | --all SOURCE", Short: "Approve tools that are held back",
		Long: "Approves tools of upstream servers as they are now: from then on they are held back only if they change\n" +
			"again. NAME is the name that `toolpost tools review` shows. With the digest, as shown there, a tool that\n" +
			"has changed since is not approved. With --all, every held-back tool of a source is approved, and tools\n" +
			"that the source no longer has are forgotten. The command calls the tool tools.approve: the policy applies,\n" +
			"and the call is recorded.",
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
			{"first seen", when(h.Seen, time.Now())}, {"approved", approvedWhen(h)},
		})
		for _, c := range h.Changes {
			was, now := diffWords(c.Was, c.Now)
			fmt.Fprintf(a.out, "  %s\n", clean(c.Part))
			a.showSide("-", was, a.out.red)
			a.showSide("+", now, a.out.green)
		}
		if h.Digest != "" {
			held[h.Source]++
			fmt.Fprintf(a.out, "  approve it with: toolpost tools approve %s\n", shellWord(h.Tool+"@"+digestOf(h)))
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
	return when(h.Approved, time.Now()) + " by " + clean(h.By)
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

// A stretch is a run of words that the other text also has, or does not have.
type stretch struct {
	text  string
	other bool
}

// showSide shows one of two texts, line by line, with the words that the other lacks in brackets.
func (a *app) showSide(mark string, side []stretch, color func(string) string) {
	var b strings.Builder
	for _, s := range side {
		text := strings.TrimSpace(s.text)
		if s.other && text != "" { // brackets enclose words, not the newlines and blanks around them
			s.text = strings.Replace(s.text, text, color("["+text+"]"), 1)
		}
		b.WriteString(s.text)
	}
	if b.Len() == 0 {
		b.WriteString(a.out.dim("(nothing)"))
	}
	for line := range strings.SplitSeq(b.String(), "\n") {
		fmt.Fprintf(a.out, "    %s %s\n", mark, line)
	}
}

// diffWords compares two texts word by word.
func diffWords(was, now string) (before, after []stretch) {
	a, b := pieces(cleanLines(was)), pieces(cleanLines(now))
	start := 0
	for start < min(len(a), len(b)) && a[start] == b[start] {
		start++
	}
	end := 0
	for end < min(len(a), len(b))-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	head, tail := a[:start], a[len(a)-end:]
	inA, inB := inCommon(a[start:len(a)-end], b[start:len(b)-end])
	return stretches(head, a[start:len(a)-end], inA, tail), stretches(head, b[start:len(b)-end], inB, tail)
}

// pieces splits a text into words and the blanks between them.
func pieces(text string) []string { return regexp.MustCompile(`\s+|\S+`).FindAllString(text, -1) }

// maxCompared bounds a comparison. A longer text is shown as changed from the first word that differs to the last.
const maxCompared = 4_000_000

// inCommon marks the words of a longest common subsequence.
func inCommon(a, b []string) (inA, inB []bool) {
	inA, inB = make([]bool, len(a)), make([]bool, len(b))
	if len(a)*len(b) > maxCompared {
		return inA, inB
	}
	long := make([][]int32, len(a)+1) // of the rest after i and j
	for i := range long {
		long[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				long[i][j] = long[i+1][j+1] + 1
			} else {
				long[i][j] = max(long[i+1][j], long[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			inA[i], inB[j] = true, true
			i, j = i+1, j+1
		case long[i+1][j] >= long[i][j+1]:
			i++
		default:
			j++
		}
	}
	return inA, inB
}

// stretches joins the words of one text into stretches.
func stretches(head, words []string, common []bool, tail []string) (list []stretch) {
	add := func(text string, other bool) {
		if n := len(list); n > 0 && list[n-1].other == other {
			list[n-1].text += text
		} else if text != "" {
			list = append(list, stretch{text, other})
		}
	}
	add(strings.Join(head, ""), false)
	for i, w := range words {
		add(w, !common[i])
	}
	add(strings.Join(tail, ""), false)
	return list
}
