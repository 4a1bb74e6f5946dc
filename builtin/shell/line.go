package shell

import (
	"context"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	"toolpost/tool"
)

const maxCommands = 100

// planLine parses a shell line and judges every command in it. No shell runs it: the plan is run, and syntax that a plan
// cannot express is refused. So nothing is expanded, and what was judged is what runs.
func (t *Tools) planLine(ctx context.Context, c *tool.Call, args lineArgs) (*plan, error) {
	if len(args.Line) > maxLine || !utf8.ValidString(args.Line) || strings.ContainsRune(args.Line, 0) {
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"the line has %d bytes; at most %d are taken, of valid UTF-8 without NUL", len(args.Line), maxLine)
	}
	file, err := syntax.NewParser().Parse(strings.NewReader(args.Line), "")
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the line cannot be parsed: %v", err)
	}
	return t.makePlan(ctx, c, args.Cwd, args.TimeoutMS, func(p *planner) (*node, error) {
		p.plan.shown, p.plan.stdin = "the line", strings.NewReader("")
		return p.statements(file.Stmts)
	})
}

func refuseSyntax(node syntax.Node, what string) error {
	pos := node.Pos()
	return tool.Errorf(tool.CodeAccessDenied,
		"%s at column %d of line %d is not allowed: what it does cannot be judged before it runs", what, pos.Col(),
		pos.Line()).
		Because("command_denied")
}

func (p *planner) statements(stmts []*syntax.Stmt) (*node, error) {
	var all *node
	for _, stmt := range stmts {
		n, err := p.statement(stmt, true)
		if err != nil {
			return nil, err
		}
		all = join(";", all, n)
	}
	if all == nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the line has no command")
	}
	return all, nil
}

// join connects two nodes; either may be nil, because a cd leaves none.
func join(op string, x, y *node) *node {
	switch {
	case x == nil:
		return y
	case y == nil:
		return x
	}
	return &node{op: op, x: x, y: y}
}

// statement plans one statement. It is sure if it runs whatever happens before it, which cd requires.
func (p *planner) statement(stmt *syntax.Stmt, sure bool) (*node, error) {
	if stmt.Background || stmt.Coprocess || stmt.Disown {
		return nil, refuseSyntax(stmt, "a command in the background")
	}
	switch cmd := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		n, err := p.call(stmt, cmd, sure && !stmt.Negated)
		if err == nil && stmt.Negated {
			n = &node{op: "!", x: n}
		}
		return n, err
	case *syntax.BinaryCmd:
		if stmt.Negated || len(stmt.Redirs) > 0 {
			return nil, refuseSyntax(stmt, "a ! or a redirection of several commands")
		}
		return p.binary(cmd, sure)
	}
	return nil, refuseSyntax(stmt, "this construct")
}

func (p *planner) binary(cmd *syntax.BinaryCmd, sure bool) (*node, error) {
	op := map[syntax.BinCmdOperator]string{syntax.AndStmt: "&&", syntax.OrStmt: "||", syntax.Pipe: "|"}[cmd.Op]
	if op == "" {
		return nil, refuseSyntax(cmd, cmd.Op.String())
	}
	x, err := p.statement(cmd.X, sure && op != "|")
	if err != nil {
		return nil, err
	}
	if x == nil && op == "||" {
		return nil, refuseSyntax(cmd, "cd with ||")
	}
	y, err := p.statement(cmd.Y, sure && x == nil)
	if err != nil {
		return nil, err
	}
	return join(op, x, y), nil
}

// call plans a simple command. A cd is done while planning, and leaves no node: the folder is open from then on, and later
// commands start there.
func (p *planner) call(stmt *syntax.Stmt, call *syntax.CallExpr, sure bool) (*node, error) {
	if len(call.Assigns) > 0 || len(call.Args) == 0 {
		return nil, refuseSyntax(stmt, "a variable")
	}
	if p.commands++; p.commands > maxCommands {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the line has more than %d commands", maxCommands)
	}
	var argv []string
	for _, w := range call.Args {
		word, err := literal(w)
		if err != nil {
			return nil, err
		}
		argv = append(argv, word)
	}
	if argv[0] == "cd" {
		if len(argv) != 2 || strings.HasPrefix(argv[1], "-") || !sure || len(stmt.Redirs) > 0 {
			return nil, refuseSyntax(stmt, "a cd that is not the first thing of a statement, or without exactly one folder,")
		}
		return nil, p.enter(argv[1])
	}
	cmd, err := p.command(argv[0], argv[1:])
	if err != nil {
		return nil, err
	}
	err = each(stmt.Redirs, func(r *syntax.Redirect) error { return p.redirect(cmd, r) })
	return &node{command: cmd}, err
}

// literal returns the text of a word in which nothing is expanded.
func literal(w *syntax.Word) (string, error) {
	var text strings.Builder
	for i, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			if hasMeta(part.Value) || i == 0 && strings.HasPrefix(part.Value, "~") {
				return "", refuseSyntax(w, "an unquoted wildcard or ~ (quote it, or write the names)")
			}
			text.WriteString(unescape(part.Value, ""))
		case *syntax.SglQuoted:
			if part.Dollar {
				return "", refuseSyntax(w, "$''")
			}
			text.WriteString(part.Value)
		case *syntax.DblQuoted:
			inner, ok := plain(part.Parts)
			if part.Dollar || !ok {
				return "", refuseSyntax(w, "an expansion in quotes")
			}
			text.WriteString(unescape(inner, "$`\"\\\n"))
		default:
			return "", refuseSyntax(w, "an expansion or a substitution")
		}
	}
	if copied := *w; syntax.SplitBraces(&copied) {
		return "", refuseSyntax(w, "an unquoted {}")
	}
	return text.String(), nil
}

// plain returns the text of parts that are only text.
func plain(parts []syntax.WordPart) (string, bool) {
	var text strings.Builder
	for _, p := range parts {
		lit, ok := p.(*syntax.Lit)
		if !ok {
			return "", false
		}
		text.WriteString(lit.Value)
	}
	return text.String(), true
}

// unescape removes the backslashes that a shell removes: before any character, or before those named. A backslash before a
// newline is removed with it.
func unescape(s, only string) string {
	var text strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && (only == "" || strings.IndexByte(only, s[i+1]) >= 0) {
			if i++; s[i] == '\n' {
				continue
			}
		}
		text.WriteByte(s[i])
	}
	return text.String()
}

// hasMeta reports whether a shell would take an unquoted text for a pattern.
func hasMeta(lit string) bool {
	for i := 0; i < len(lit); i++ {
		switch lit[i] {
		case '\\':
			i++
		case '*', '?':
			return true
		case '[':
			if strings.Contains(lit[i:], "]") {
				return true
			}
		}
	}
	return false
}

// redirect plans a redirection. Its files are judged like those of arguments.
func (p *planner) redirect(c *command, r *syntax.Redirect) error {
	d, err := direction(r)
	if err != nil {
		return err
	}
	switch {
	case r.Hdoc != nil:
		d.text, err = document(r)
	case r.Op == syntax.WordHdoc:
		d.text, err = literal(r.Word)
		d.text += "\n"
	case d.same == 0:
		d.path, err = p.file(c, r, d.fd != 0)
	}
	c.redirects = append(c.redirects, d)
	return err
}

// direction reads the operator of a redirection.
func direction(r *syntax.Redirect) (redirect, error) {
	d, known := map[syntax.RedirOperator]redirect{
		syntax.RdrIn: {fd: 0}, syntax.Hdoc: {fd: 0}, syntax.WordHdoc: {fd: 0},
		syntax.RdrOut: {fd: 1}, syntax.RdrClob: {fd: 1}, syntax.AppOut: {fd: 1, append: true}, syntax.DplOut: {fd: 1},
		syntax.RdrAll: {fd: 1, both: true}, syntax.AppAll: {fd: 1, both: true, append: true},
	}[r.Op]
	if !known {
		return d, refuseSyntax(r, "the redirection "+r.Op.String())
	}
	if r.Op == syntax.DplOut {
		to, err := literal(r.Word)
		if err != nil || to != "1" && to != "2" {
			return d, refuseSyntax(r, "a redirection to another descriptor than 1 and 2")
		}
		d.same = int(to[0] - '0')
	}
	if r.N != nil {
		n := r.N.Value
		if d.fd == 0 && n != "0" || d.fd != 0 && n != "1" && n != "2" || d.both {
			return d, refuseSyntax(r, "a redirection of this descriptor")
		}
		d.fd = int(n[0] - '0')
	}
	return d, nil
}

// file judges the file of a redirection.
func (p *planner) file(c *command, r *syntax.Redirect, write bool) (string, error) {
	name, err := literal(r.Word)
	if err != nil {
		return "", err
	}
	j := &judging{verdict: c.verdict, ground: p.ground, bases: []string{p.dir.Abs()}}
	if err := j.path(name, write); err != nil || name == "/dev/null" {
		return "", err
	}
	return j.absolute(name), nil
}

// document returns the text of a here-document in which nothing is expanded.
func document(r *syntax.Redirect) (string, error) {
	text, ok := plain(r.Hdoc.Parts)
	word, bare := plain(r.Word.Parts)
	quoted := !bare || strings.Contains(word, `\`)
	if !ok || !quoted && strings.Contains(text, `\`) {
		return "", refuseSyntax(r, "an expansion or a backslash in a here-document (quote its word, as in <<'EOF')")
	}
	return text, nil
}
