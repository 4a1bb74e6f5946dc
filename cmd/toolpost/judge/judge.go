// Package judge asks the policy of a node about calls that are not made: the cases of a table, and calls of a record.
package judge

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"toolpost/config"
	"toolpost/engine/policy"
	"toolpost/node"
	"toolpost/tool"
)

// A Case is a line of the table for `policy test`.
type Case struct {
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
func (p *Case) Validate() error {
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

// A Result is the outcome of a case.
type Result struct {
	Name  string           `json:"name"`
	OK    bool             `json:"ok"`
	Want  string           `json:"want"`
	Rule  string           `json:"rule,omitempty"` // the expected rule
	Got   *policy.Decision `json:"got,omitempty"`
	Error *tool.Error      `json:"error,omitempty"` // why nothing was decided
}

// ReadCases reads the table in a file.
func ReadCases(path string) ([]Case, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, CannotRead(path, err)
	}
	var file struct {
		Cases []Case `yaml:"cases"`
	}
	if err := config.DecodeYAML(path, data, &file); err != nil {
		return nil, err
	}
	if len(file.Cases) == 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s has no cases; see `toolpost policy test --help`", path)
	}
	return file.Cases, nil
}

// Run judges the case with the policy of a node; who is the caller of a case that names none.
func (p Case) Run(n *node.Node, who tool.Principal) Result {
	res := Result{Name: cmp.Or(p.Name, p.Tool), Want: p.Want, Rule: p.Rule}
	x, err := n.Explain(&tool.Call{
		Tool: p.Tool, Session: p.Session, Args: []byte(cmp.Or(string(p.Args), "{}")),
		Caller: n.Caller(cmp.Or(p.Caller, who.ID), cmp.Or(p.Door, who.Door)), // with the roles that the config gives it
	}, p.at)
	if err != nil {
		res.Error = tool.AsError(err)
		return res
	}
	res.Got = &x.Decision
	res.OK = string(x.Effect()) == p.Want && (p.Rule == "" || p.Rule == x.Rule)
	return res
}

// CannotRead is the error for a file that cannot be read.
func CannotRead(path string, err error) error {
	return tool.Errorf(tool.CodeInvalidInput, "%s cannot be read: %w", path, tool.WithoutPath(err))
}

// A Replayed call is one that would be decided differently now.
type Replayed struct {
	Line int `json:"line"`
	policy.Record
	Now   *policy.Decision `json:"now,omitempty"`
	Error *tool.Error      `json:"error,omitempty"` // why nothing was decided
}

// maxChanges bounds how many changes are kept for a long record.
const maxChanges = 10_000

// Replay judges the calls of a record again, and returns how many there are, and those that would be decided differently.
func Replay(n *node.Node, name string, in io.Reader) (count int, changed []Replayed, err error) {
	changed = []Replayed{}
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
		return 0, nil, CannotRead(name, err)
	}
	return count, changed, nil
}

const maxRecordLine = 1 << 20

func rejudge(n *node.Node, r policy.Record) (Replayed, bool) {
	c := Replayed{Record: r}
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
