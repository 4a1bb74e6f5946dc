package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"toolpost/engine/policy"
	"toolpost/node"
	"toolpost/tool"
)

// A replayed call is one that would be decided differently now.
type replayed struct {
	Line int `json:"line"`
	policy.Record
	Now   *policy.Decision `json:"now,omitempty"`
	Error *tool.Error      `json:"error,omitempty"` // why nothing was decided
}

func (a *app) policyReplayCommand() *cobra.Command {
	return a.withJSON("print the changes as JSON", &cobra.Command{
		Use: "replay FILE", Short: "Judge recorded calls again, and show what would change",
		Long: "Reads a file written by `policy.record` (- for stdin), judges each call with the current policy, at the time\n" +
			"the call was made, and shows those that would be decided differently. Nothing is run. Exit code 1: there\n" +
			"are some.",
		Args: words(1, 1),
		RunE: a.judging(func(_ context.Context, n *node.Node, args []string) error {
			in := a.in
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return cannotRead(args[0], err)
				}
				defer f.Close()
				in = f
			}
			count, changed, err := replay(n, args[0], in)
			if err != nil {
				return err
			}
			return a.conclude(map[string]any{"calls": count, "changed": changed},
				func() { a.showReplay(count, changed) }, len(changed) > 0)
		}),
	})
}

// maxChanges bounds how many changes are kept for a long record.
const maxChanges = 10_000

func replay(n *node.Node, name string, in io.Reader) (count int, changed []replayed, err error) {
	changed = []replayed{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxRecordLine)
	for line := 1; lines.Scan(); line++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		r, err := policy.ParseRecord(lines.Bytes())
		if err != nil {
			return 0, nil, tool.Errorf(tool.CodeInvalidInput, "%s:%d: %s", name, line, tool.AsError(err).Message)
		}
		count++
		if c, differs := rejudge(n, r); differs {
			if c.Line = line; len(changed) == maxChanges {
				return 0, nil, tool.Errorf(tool.CodeInvalidInput,
					"%s: more than %d calls would be decided differently; replay a part of it", name, maxChanges)
			}
			changed = append(changed, c)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, nil, cannotRead(name, err)
	}
	return count, changed, nil
}

const maxRecordLine = 1 << 20

func rejudge(n *node.Node, r policy.Record) (replayed, bool) {
	c := replayed{Record: r}
	if r.Args == nil {
		c.Error = tool.Errorf(tool.CodeUnsupported, "its arguments were too long to be recorded")
		return c, true
	}
	x, err := n.Explain(&tool.Call{
		Tool: r.Tool, Session: r.Session, Args: r.Args, Caller: n.Caller(r.Caller, r.Door),
	}, r.Time)
	if err != nil {
		c.Error = tool.AsError(err)
		return c, true
	}
	c.Now = &x.Decision
	// A refusal by the tool itself is not a decision of the policy.
	return c, x.Effect() != r.Decision && x.Rule != policy.ByTool
}

func (a *app) showReplay(count int, changed []replayed) {
	if len(changed) == 0 {
		fmt.Fprintf(a.out, "%s, all decided as before\n", plural(count, "call"))
		return
	}
	columns("line time caller tool was=decision now why", cells[replayed]{
		"time": func(c replayed) string { return c.Time.Format(time.RFC3339) },
		"now": func(c replayed) string {
			if c.Error != nil {
				return "-"
			}
			return string(c.Now.Effect())
		},
		"why": func(c replayed) string {
			if c.Error != nil {
				return c.Error.Message
			}
			return c.Now.Reason
		},
	}).print(a, "calls", changed)
	fmt.Fprintf(a.out, "%d of %s would be decided differently\n", len(changed), plural(count, "call"))
}
