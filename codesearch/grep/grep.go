// Package grep finds the lines of files that match a regular expression, about as fast as the files can be read. It looks
// for texts that every match must contain. At each of these, or everywhere if the pattern has none, it runs a machine
// that reads each byte once.
//
// The expressions are those of package regexp. The lines are those of bufio.ScanLines. A match never crosses the end of
// its line, and ^ and $ match at the two ends.
package grep

import (
	"errors"
	"regexp/syntax"
	"slices"

	"toolpost/tool"
)

const (
	// MaxPattern is the maximum length of a pattern in bytes.
	MaxPattern = 1000
	// maxProgram is the maximum number of instructions of a pattern: nested repetitions grow fast.
	maxProgram = 5_000
)

// A Pattern is a compiled expression. It is safe for concurrent use.
type Pattern struct {
	expr     string
	prog     *syntax.Prog
	alphabet *alphabet
	need     Need
	exact    bool // every line that contains the need matches
}

// Compile compiles an expression.
func Compile(expr string, ignoreCase bool) (*Pattern, error) {
	if expr == "" || len(expr) > MaxPattern {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the pattern has %d bytes; give 1 to %d", len(expr), MaxPattern)
	}
	if ignoreCase {
		expr = "(?i)" + expr
	}
	parsed, err := parse(expr)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the pattern %w; write it in the syntax of RE2", err)
	}
	prog, err := syntax.Compile(parsed)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the pattern: %w", err)
	}
	p := &Pattern{expr: expr, prog: prog, alphabet: newAlphabet(prog)}
	if p.alphabet == nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the pattern tells too many characters apart; use fewer classes")
	}
	p.need, p.exact = needOf(parsed)
	p.exact = p.exact && !p.need.mentions('\r') // at the end of a line it is not part of the line
	return p, nil
}

// Need returns what every matching line contains.
func (p *Pattern) Need() Need { return p.need }

// parse parses an expression and simplifies it.
func parse(expr string) (*syntax.Regexp, error) {
	re, err := syntax.Parse(expr, syntax.Perl)
	var bad *syntax.Error
	switch {
	case errors.As(err, &bad):
		return nil, errors.New("is malformed: " + bad.Code.String() + ": " + bad.Expr)
	case err != nil:
		return nil, err
	case breaksLine(re):
		return nil, errors.New("asks for a line break, and a match is within one line")
	case size(re) > maxProgram:
		return nil, errors.New("is too large; use fewer or smaller repetitions")
	}
	return re.Simplify(), nil
}

// breaksLine reports whether the expression names a line break outside of a class.
func breaksLine(re *syntax.Regexp) bool {
	return re.Op == syntax.OpLiteral && slices.Contains(re.Rune, '\n') || slices.ContainsFunc(re.Sub, breaksLine)
}

// size estimates the number of instructions of an expression, with its repetitions expanded.
func size(re *syntax.Regexp) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		n = min(n+size(sub), 2*maxProgram)
	}
	if re.Op == syntax.OpRepeat {
		n = min(n*max(re.Min, re.Max, 1), 2*maxProgram)
	}
	return n
}
