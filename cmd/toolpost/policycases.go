package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"toolpost/config"
	"toolpost/engine/policy"
	"toolpost/host/offlimits"
	"toolpost/node"
	"toolpost/tool"
)

// A policyCase is a line of the table for `policy test`.
type policyCase struct {
	Name    string      `yaml:"name"`
	Caller  string      `yaml:"caller"`
	Door    string      `yaml:"door"`
	Session string      `yaml:"session"`
	Tool    string      `yaml:"tool"`
	Args    config.JSON `yaml:"args"`
	Time    string      `yaml:"time"`
	Want    string      `yaml:"want"`
	Rule    string      `yaml:"rule"`

	at time.Time
}

// Validate implements config's validator.
func (p *policyCase) Validate() error {
	switch {
	case p.Tool == "":
		return errors.New("a case has no tool")
	case p.Want != "allow" && p.Want != "ask" && p.Want != "deny":
		return errors.New("a case says `want: allow`, `want: ask` or `want: deny`")
	case p.Time == "":
		p.at = time.Now()
		return nil
	}
	var err error
	if p.at, err = time.Parse(time.RFC3339, p.Time); err != nil {
		return fmt.Errorf("%q is not a time such as 2026-01-31T08:00:00Z", p.Time)
	}
	return nil
}

// A caseResult is the outcome of a case.
type caseResult struct {
	Name  string           `json:"name"`
	OK    bool             `json:"ok"`
	Want  string           `json:"want"`
	Rule  string           `json:"rule,omitempty"` // the expected rule
	Got   *policy.Decision `json:"got,omitempty"`
	Error *tool.Error      `json:"error,omitempty"` // why nothing was decided
}

func (a *app) policyTestCommand() *cobra.Command {
	return a.withJSON("print every case as JSON", &cobra.Command{
		Use: "test FILE", Short: "Run a table of cases against the policy",
		Long: "Judges each case in a YAML file and compares the decision with the expected one. Nothing is run. Exit\n" +
			"code 1: a case differs.\n\n" +
			"  cases:\n" +
			"    - {name: no writes from outside, door: http, tool: writeFile, args: {path: a, content: b}, want: deny,\n" +
			"       rule: read-only}\n\n" +
			"caller defaults to local and door to cli; time, such as 2026-01-31T08:00:00Z, is now.",
		Args: words(1, 1),
		RunE: a.judging(func(_ context.Context, n *node.Node, args []string) error {
			cases, err := readCases(args[0])
			if err != nil {
				return err
			}
			results := []caseResult{}
			for _, p := range cases {
				results = append(results, runCase(n, p))
			}
			return a.showCases(results)
		}),
	})
}

func readCases(path string) ([]policyCase, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, cannotRead(path, err)
	}
	var file struct {
		Cases []policyCase `yaml:"cases"`
	}
	if err := config.DecodeYAML(path, data, &file); err != nil {
		return nil, err
	}
	if len(file.Cases) == 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s has no cases; see `toolpost policy test --help`", path)
	}
	return file.Cases, nil
}

func cannotRead(path string, err error) error {
	return tool.Errorf(tool.CodeInvalidInput, "%s cannot be read: %w", path, offlimits.Plain(err))
}

func runCase(n *node.Node, p policyCase) caseResult {
	res := caseResult{Name: cmp.Or(p.Name, p.Tool), Want: p.Want, Rule: p.Rule}
	x, err := n.Explain(&tool.Call{
		Tool: p.Tool, Session: p.Session, Args: []byte(cmp.Or(string(p.Args), "{}")),
		Caller: n.Caller(cmp.Or(p.Caller, me().ID), cmp.Or(p.Door, me().Door)), // with the roles that the config gives it
	}, p.at)
	if err != nil {
		res.Error = tool.AsError(err)
		return res
	}
	res.Got = &x.Decision
	res.OK = string(x.Effect()) == p.Want && (p.Rule == "" || p.Rule == x.Rule)
	return res
}

func (a *app) showCases(results []caseResult) error {
	failed := slices.DeleteFunc(slices.Clone(results), func(r caseResult) bool { return r.OK })
	return a.conclude(map[string]any{"cases": results, "failed": len(failed)}, func() {
		for _, r := range failed {
			want := r.Want
			if r.Rule != "" {
				want += " by " + clean(r.Rule)
			}
			fmt.Fprintf(a.out, "%s %s\n  want  %s\n  got   %s\n", a.out.red("FAIL"), clean(r.Name), want, actual(r))
		}
		fmt.Fprintf(a.out, "%d of %s as wanted\n", len(results)-len(failed), plural(len(results), "case"))
	}, len(failed) > 0)
}

func actual(r caseResult) string {
	if r.Error != nil {
		return "no decision: " + clean(r.Error.Message)
	}
	return fmt.Sprintf("%s by %s: %s", r.Got.Effect(), clean(r.Got.Rule), clean(r.Got.Reason))
}
