package policy

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// Bounds on a condition as it is written.
const (
	maxCondition = 4096 // bytes
	maxNesting   = 100
)

// A Condition is the expression of a rule. The language is a small part of CEL; docs/06-policy.md has all
// of it. It differs in three points, each of them stricter: values of different kinds cannot be compared,
// the pattern of matches is a text in quotes, and numbers are exact.
type Condition struct {
	text string
	run  expr // nil: there is none
	uses uses
}

// uses says which of the costly inputs a condition reads.
type uses struct{ args, touches bool }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Condition) UnmarshalText(b []byte) error {
	parsed, err := parseCondition(string(b))
	if err != nil {
		return fmt.Errorf("the condition cannot be read: %w", err)
	}
	*c = parsed
	return nil
}

func parseCondition(text string) (Condition, error) {
	if len(text) > maxCondition {
		return Condition{}, fmt.Errorf("it is longer than %d bytes", maxCondition)
	}
	tokens, err := lex(text)
	if err != nil {
		return Condition{}, err
	}
	p := &parser{tokens: tokens}
	root, err := p.parse()
	if err != nil {
		return Condition{}, err
	}
	return Condition{text: text, run: root.run, uses: p.uses}, nil
}

// A node is a part of a condition, compiled: how to get its value, and what kind that is.
type node struct {
	run  expr
	kind kind
	// of a field: what has asks for
	object expr
	field  string
	// of a text in quotes
	text *string
}

// A parser compiles as it goes.
type parser struct {
	tokens []lexeme
	at     int
	depth  int
	locals []string // names of the elements in the exists and all around us
	uses   uses
}

// fault is a mistake in the condition. It travels as a panic within this file alone.
type fault struct{ error }

func (p *parser) fail(at lexeme, format string, args ...any) {
	panic(fault{fmt.Errorf("at %d: %s", at.at+1, fmt.Sprintf(format, args...))})
}

func (p *parser) parse() (n node, err error) {
	defer func() {
		switch f := recover().(type) {
		case nil:
		case fault:
			err = f.error
		default:
			panic(f)
		}
	}()
	first := p.peek()
	n = p.choice()
	if l := p.peek(); l.kind != tokenEnd {
		p.fail(l, "%s is not expected here", l)
	}
	p.want(first, n, kindBool)
	return n, nil
}

func (p *parser) peek() lexeme { return p.tokens[p.at] }

func (p *parser) next() lexeme {
	l := p.tokens[p.at]
	if l.kind != tokenEnd {
		p.at++
	}
	return l
}

// took reads a sign if it comes next.
func (p *parser) took(sign string) bool {
	l := p.peek()
	if l.kind != tokenSign || l.text != sign {
		return false
	}
	p.at++
	return true
}

func (p *parser) expect(sign string) {
	if l := p.peek(); !p.took(sign) {
		p.fail(l, "%s is wanted, not %s", sign, l)
	}
}

// want refuses a part whose kind is known to be another one.
func (p *parser) want(at lexeme, n node, kinds ...kind) {
	if n.kind == kindAny {
		return
	}
	var names []string
	for _, k := range kinds {
		if n.kind == k {
			return
		}
		names = append(names, k.String())
	}
	p.fail(at, "%s is wanted, not %s", strings.Join(names, " or "), n.kind)
}

// choice is the whole expression: a ? b : c and what binds tighter.
func (p *parser) choice() node {
	if p.depth++; p.depth > maxNesting {
		p.fail(p.peek(), "it is nested deeper than %d levels", maxNesting)
	}
	defer func() { p.depth-- }()
	first := p.peek()
	n := p.or()
	if !p.took("?") {
		return n
	}
	p.want(first, n, kindBool)
	yes := p.choice()
	p.expect(":")
	no := p.choice()
	k := yes.kind
	if no.kind != k {
		k = kindAny
	}
	return node{run: ifElse(n.run, yes.run, no.run), kind: k}
}

func (p *parser) or() node {
	return p.chain(p.and, []string{"||"}, func(_ string, a, b node) node { return node{run: either(a.run, b.run), kind: kindBool} }, kindBool)
}

func (p *parser) and() node {
	return p.chain(p.relation, []string{"&&"}, func(_ string, a, b node) node { return node{run: both(a.run, b.run), kind: kindBool} }, kindBool)
}

// chain reads operands of one level with the signs between them, from left to right. With kinds both sides
// have to be of one of them.
func (p *parser) chain(operand func() node, signs []string, join func(sign string, a, b node) node, kinds ...kind) node {
	first := p.peek()
	n := operand()
	for {
		sign := p.sign(signs)
		if sign == "" {
			return n
		}
		second := p.peek()
		m := operand()
		if len(kinds) > 0 {
			p.want(first, n, kinds...)
			p.want(second, m, kinds...)
		}
		if n.kind != m.kind && n.kind != kindAny && m.kind != kindAny && n.kind != kindNull && m.kind != kindNull && sign != "in" {
			p.fail(second, "%s and %s cannot be compared or joined", n.kind, m.kind)
		}
		n = join(sign, n, m)
	}
}

// sign reads one of the signs, or the word in.
func (p *parser) sign(signs []string) string {
	l := p.peek()
	if l.kind == tokenEnd || l.kind == tokenText {
		return ""
	}
	for _, s := range signs {
		if l.text == s {
			p.at++
			return s
		}
	}
	return ""
}

func (p *parser) relation() node {
	return p.chain(p.sum, []string{"==", "!=", "<=", ">=", "<", ">", "in"}, p.compare)
}

func (p *parser) compare(sign string, a, b node) node {
	at := p.tokens[p.at-1]
	switch sign {
	case "==", "!=":
		return node{run: equality(a.run, b.run, sign == "=="), kind: kindBool}
	case "in":
		p.want(at, b, kindList, kindObject)
		return node{run: within(a.run, b.run), kind: kindBool}
	}
	p.want(at, a, kindNumber, kindText, kindTime)
	p.want(at, b, kindNumber, kindText, kindTime)
	return node{run: ordered(a.run, b.run, sign), kind: kindBool}
}

func (p *parser) sum() node {
	return p.chain(p.product, []string{"+", "-"}, func(sign string, a, b node) node {
		if sign == "-" {
			return node{run: arithmetic(a.run, b.run, (*big.Rat).Sub), kind: kindNumber}
		}
		k := a.kind
		if b.kind != k {
			k = kindAny
		}
		return node{run: plus(a.run, b.run), kind: k}
	}, kindNumber, kindText)
}

func (p *parser) product() node {
	return p.chain(p.unary, []string{"*"}, func(_ string, a, b node) node {
		return node{run: arithmetic(a.run, b.run, (*big.Rat).Mul), kind: kindNumber}
	}, kindNumber)
}

func (p *parser) unary() node {
	if p.depth++; p.depth > maxNesting {
		p.fail(p.peek(), "it is nested deeper than %d levels", maxNesting)
	}
	defer func() { p.depth-- }()
	at := p.peek()
	switch {
	case p.took("!"):
		n := p.unary()
		p.want(at, n, kindBool)
		return node{run: not(n.run), kind: kindBool}
	case p.took("-"):
		n := p.unary()
		p.want(at, n, kindNumber)
		return node{run: arithmetic(constant(new(big.Rat)), n.run, (*big.Rat).Sub), kind: kindNumber}
	}
	return p.member()
}

// member is a primary with fields, elements and methods of it.
func (p *parser) member() node {
	n := p.primary()
	for {
		at := p.peek()
		switch {
		case p.took("."):
			name := p.next()
			if name.kind != tokenName {
				p.fail(name, "the name of a field or a function is wanted, not %s", name)
			}
			if p.took("(") {
				n = p.method(name, n)
			} else {
				n = p.fieldOf(at, n, name.text)
			}
		case p.took("["):
			index := p.choice()
			p.expect("]")
			p.want(at, n, kindList, kindObject)
			if index.text != nil && n.kind != kindList {
				n = p.fieldOf(at, n, *index.text)
			} else {
				n = node{run: element(n.run, index.run)}
			}
		default:
			return n
		}
	}
}

func (p *parser) fieldOf(at lexeme, n node, name string) node {
	p.want(at, n, kindObject)
	return node{run: field(n.run, name), object: n.run, field: name}
}

func (p *parser) primary() node {
	l := p.next()
	switch l.kind {
	case tokenNumber:
		r, ok := new(big.Rat).SetString(l.text)
		if !ok || len(l.text) > maxDigits {
			p.fail(l, "%s is not a number", l.text)
		}
		return node{run: constant(r), kind: kindNumber}
	case tokenText:
		return node{run: constant(l.text), kind: kindText, text: &l.text}
	case tokenName:
		return p.name(l)
	case tokenSign, tokenEnd:
	}
	switch l.text {
	case "(":
		n := p.choice()
		p.expect(")")
		return node{run: n.run, kind: n.kind}
	case "[":
		return p.list()
	}
	p.fail(l, "a value is wanted, not %s", l)
	return node{}
}

func (p *parser) list() node {
	var items []expr
	for !p.took("]") {
		if len(items) > 0 {
			p.expect(",")
		}
		items = append(items, p.choice().run)
	}
	return node{run: listOf(items), kind: kindList}
}

func (p *parser) name(l lexeme) node {
	switch l.text {
	case "true", "false":
		return node{run: constant(l.text == "true"), kind: kindBool}
	case "null":
		return node{run: constant(nil), kind: kindNull}
	}
	if p.took("(") {
		return p.function(l)
	}
	for i := len(p.locals) - 1; i >= 0; i-- {
		if p.locals[i] == l.text {
			return node{run: local(i)}
		}
	}
	for _, v := range variables() {
		if v.name == l.text {
			p.uses.args = p.uses.args || v.uses.args
			p.uses.touches = p.uses.touches || v.uses.touches
			return node{run: v.run, kind: v.kind}
		}
	}
	p.fail(l, "there is no %s here; known are %s", l.text, strings.Join(variableNames(), ", "))
	return node{}
}

// function is a call such as size(x), after its opening bracket.
func (p *parser) function(name lexeme) node {
	args := p.arguments()
	switch name.text {
	case "size":
		p.count(name, args, 1)
		return p.size(name, args[0])
	case "has":
		p.count(name, args, 1)
		if args[0].object == nil {
			p.fail(name, "has wants a field, such as has(args.path)")
		}
		return node{run: hasField(args[0].object, args[0].field), kind: kindBool}
	case "timestamp":
		p.count(name, args, 1)
		if args[0].text == nil {
			p.fail(name, "timestamp wants a text in quotes, such as timestamp(\"2026-01-31T00:00:00Z\")")
		}
		t, err := parseTime(*args[0].text)
		if err != nil {
			p.fail(name, "%v", err)
		}
		return node{run: constant(t), kind: kindTime}
	}
	p.fail(name, "there is no function %s; known are size, has, timestamp", name.text)
	return node{}
}

func (p *parser) arguments() []node {
	var args []node
	for !p.took(")") {
		if len(args) > 0 {
			p.expect(",")
		}
		args = append(args, p.choice())
	}
	return args
}

func (p *parser) count(name lexeme, args []node, want int) {
	if len(args) != want {
		p.fail(name, "%s takes %d, not %d", name.text, want, len(args))
	}
}

func (p *parser) size(name lexeme, n node) node {
	p.want(name, n, kindText, kindList, kindObject)
	return node{run: size(n.run), kind: kindNumber}
}

// method is a call such as x.startsWith("a"), after its opening bracket.
func (p *parser) method(name lexeme, n node) node {
	switch name.text {
	case "exists", "all":
		return p.each(name, n)
	}
	args := p.arguments()
	if test, ok := textTests()[name.text]; ok {
		p.count(name, args, 1)
		p.want(name, n, kindText)
		p.want(name, args[0], kindText)
		return node{run: compareTexts(n.run, args[0].run, test), kind: kindBool}
	}
	if part, ok := timeParts()[name.text]; ok {
		return p.timePart(name, n, args, part)
	}
	switch name.text {
	case "size":
		p.count(name, args, 0)
		return p.size(name, n)
	case "matches":
		p.count(name, args, 1)
		p.want(name, n, kindText)
		if args[0].text == nil {
			p.fail(name, "matches wants a pattern in quotes")
		}
		run, err := matches(n.run, *args[0].text)
		if err != nil {
			p.fail(name, "%v", err)
		}
		return node{run: run, kind: kindBool}
	}
	p.fail(name, "there is no function %s; known are %s", name.text, strings.Join(methodNames(), ", "))
	return node{}
}

// each is x.exists(v, test) or x.all(v, test), after the opening bracket.
func (p *parser) each(name lexeme, n node) node {
	p.want(name, n, kindList, kindObject)
	v := p.next()
	if v.kind != tokenName {
		p.fail(v, "%s wants a name for the element first, such as x.%s(e, e > 0)", name.text, name.text)
	}
	p.expect(",")
	p.locals = append(p.locals, v.text)
	at := p.peek()
	test := p.choice()
	p.locals = p.locals[:len(p.locals)-1]
	p.want(at, test, kindBool)
	p.expect(")")
	return node{run: quantified(n.run, test.run, name.text == "exists"), kind: kindBool}
}

func (p *parser) timePart(name lexeme, n node, args []node, part timePart) node {
	p.want(name, n, kindTime)
	zone := "UTC"
	if len(args) > 0 {
		p.count(name, args, 1)
		if args[0].text == nil {
			p.fail(name, "%s wants a time zone in quotes, such as \"Europe/Berlin\"", name.text)
		}
		zone = *args[0].text
	}
	loc, err := location(zone)
	if err != nil {
		p.fail(name, "%v", err)
	}
	return node{run: timeOf(n.run, loc, part), kind: kindNumber}
}

var errCost = errors.New("it takes too long")
