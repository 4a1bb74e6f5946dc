package command

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"toolpost/tool"
	"toolpost/wire/regex"
)

// A Piece is a part of a command line as the config writes it. A text is always used; a list only if all of the arguments
// that it names are given.
type Piece []Word

// UnmarshalText implements encoding.TextUnmarshaler, for a piece that is a text.
func (p *Piece) UnmarshalText(b []byte) error {
	*p = Piece{{always: true}}
	return (*p)[0].UnmarshalText(b)
}

// always reports whether the piece is used whatever the arguments.
func (p Piece) always() bool { return len(p) == 1 && p[0].always }

// names lists the arguments that the piece names.
func (p Piece) names() (all []string) {
	for _, w := range p {
		for _, part := range w.parts {
			if part.name != "" {
				all = append(all, part.name)
			}
		}
	}
	return all
}

// A Word is one element of a command line, with placeholders. {name} is replaced by an argument. {name?} is replaced by
// nothing, and makes its piece depend on the argument, which must be given and neither false nor empty. A literal brace is
// written twice.
type Word struct {
	parts  []part
	always bool // it is a piece of its own
}

// A part is text, or a placeholder if it has a name.
type part struct {
	text string
	name string
	only bool // {name?}
}

// everything is the placeholder for all arguments, as JSON, on standard input.
const everything = "*"

var placeholder = regex.Lazy(`^\{([A-Za-z_][A-Za-z0-9_-]*|\*)(\?)?\}`)

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *Word) UnmarshalText(b []byte) error {
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			w.parts = append(w.parts, part{text: text.String()})
			text.Reset()
		}
	}
	for rest := string(b); rest != ""; {
		switch m := placeholder().FindStringSubmatch(rest); {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			text.WriteByte(rest[0])
			rest = rest[2:]
		case m != nil:
			flush()
			w.parts = append(w.parts, part{name: m[1], only: m[2] != ""})
			rest = rest[len(m[0]):]
		case rest[0] == '{', rest[0] == '}':
			return fmt.Errorf("%q has a brace that belongs to no {argument}; write it twice to mean the brace itself", b)
		case rest[0] == 0:
			return fmt.Errorf("%q has a NUL byte, which no command line can have", b)
		default:
			text.WriteByte(rest[0])
			rest = rest[1:]
		}
	}
	flush()
	return nil
}

// literal returns the text of a word that contains no value of an argument.
func (w Word) literal() (text string, ok bool) {
	for _, p := range w.parts {
		if p.name != "" && !p.only {
			return "", false
		}
		text += p.text
	}
	return text, true
}

// condition reports whether the word is nothing but {name?}: it adds no element to the command line.
func (w Word) condition() bool {
	return len(w.parts) > 0 && !slices.ContainsFunc(w.parts, func(p part) bool { return !p.only })
}

// before returns the text before the first argument.
func (w Word) before() (text string) {
	for _, p := range w.parts {
		if p.name != "" && !p.only {
			break
		}
		text += p.text
	}
	return text
}

// String returns the word as the config has it.
func (w Word) String() string {
	var b strings.Builder
	for _, p := range w.parts {
		switch {
		case p.name == "":
			b.WriteString(strings.NewReplacer("{", "{{", "}", "}}").Replace(p.text))
		case p.only:
			b.WriteString("{" + p.name + "?}")
		default:
			b.WriteString("{" + p.name + "}")
		}
	}
	return b.String()
}

// words returns all words of a template, in order.
func words(template []Piece) []Word { return slices.Concat(template...) }

// literals returns the words of a template that name no argument: all of them, or those before the first that does.
func literals(template []Piece, all bool) (list []string) {
	for _, p := range template {
		text, ok := "", false
		if p.always() {
			text, ok = p[0].literal()
		}
		if ok {
			list = append(list, text)
		} else if !all {
			break
		}
	}
	return list
}

// check refuses templates in which an argument could become more than an argument, whatever its value.
func check(template []Piece, about map[string]*argument) error {
	if len(template) == 0 || len(literals(template[:1], false)) == 0 || literals(template[:1], false)[0] == "" {
		return tool.Errorf(tool.CodeInvalidInput,
			"command begins with the program, as a text of its own: an argument cannot choose what is run")
	}
	for _, p := range template {
		if err := p.check(about); err != nil {
			return err
		}
	}
	return checkCode(words(template))
}

func (p Piece) check(about map[string]*argument) error {
	if len(p) == 0 {
		return tool.Errorf(tool.CodeInvalidInput, "command has an empty list; a list is a piece that is optional")
	}
	names := p.names()
	if !p.always() && len(names) == 0 {
		return tool.Errorf(tool.CodeInvalidInput, "the list [%s] of command names no argument, so nothing says when it is there; "+
			"write its words without the list, or put \"{argument?}\" in front of them", p)
	}
	for _, name := range names {
		if about[name] == nil {
			return tool.Errorf(tool.CodeInvalidInput, "{%s} is not an argument; declare it under arguments, or write {{%s}} for the text",
				name, name)
		}
	}
	for _, w := range p {
		if err := w.check(about); err != nil {
			return err
		}
	}
	return nil
}

// String returns the piece as the config has it, without brackets.
func (p Piece) String() string {
	var all []string
	for _, w := range p {
		all = append(all, w.String())
	}
	return strings.Join(all, ", ")
}

var shortOption = regex.Lazy(`^[-+][^-=]$`)

func (w Word) check(about map[string]*argument) error {
	lists := 0
	for _, p := range w.parts {
		switch {
		case p.name == "":
			continue
		case p.only && w.always:
			return tool.Errorf(tool.CodeInvalidInput, "%q must be in a list: {%s?} says when the list is there", w, p.name)
		case !p.only && about[p.name].Items != nil:
			lists++
		}
	}
	if lists > 1 {
		return tool.Errorf(tool.CodeInvalidInput, "%q has two lists; only one can be spread over the command line", w)
	}
	name := w.first()
	switch before := w.before(); {
	case name == "":
	case before != "" && onlySigns(before) && !about[name].closed():
		return tool.Errorf(tool.CodeInvalidInput, "%q lets {%s} choose an option; write the option out: [\"{%s?}\", \"%sname\"]",
			w, name, name, before)
	case shortOption().MatchString(before) && !about[name].closed():
		return tool.Errorf(tool.CodeInvalidInput, "%q: what stands behind a short option can be more options; "+
			"write the long one, \"--name={%s}\", or make it two words: [\"%s\", \"{%s}\"]", w, name, before, name)
	}
	return nil
}

// first returns the first argument in the word, or "".
func (w Word) first() string {
	for _, p := range w.parts {
		if p.name != "" && !p.only {
			return p.name
		}
	}
	return ""
}

// An interpreter describes how a program takes code, or another program, on its command line.
type interpreter struct {
	code    string // letters of short options, then names of long ones, whose value is code; may be empty
	valued  string // further options that have a value of their own
	starts  bool   // its first operand is a program, with its own arguments; otherwise it is code, or names a script
	assigns bool   // NAME=value may come before it
	behind  int    // how many operands come before the program, such as a duration or a machine
	more    bool   // options with code may follow its code
	again   bool   // and after its operands
	remote  bool   // all following words form one line for a shell
}

// interpreters returns the programs whose command lines we know. Version numbers after their names do not count.
func interpreters() map[string]interpreter {
	language := interpreter{code: "eEpr eval print", valued: "-W -X -I -M -C -L --require --import", more: true}
	all := map[string]interpreter{
		"env":   {code: "S split-string", valued: "-u -C", starts: true, assigns: true},
		"ssh":   {valued: "-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w", behind: 1, remote: true},
		"watch": {valued: "-n --interval -q --equexit", remote: true},
	}
	for names, kind := range map[string]interpreter{
		"sh bash dash zsh ksh mksh ash fish rbash": {
			code: "cC command init-command", valued: "-o +o -O +O --rcfile --init-file",
		},
		"python pypy":                       {code: "c", valued: "-W -X"},
		"perl ruby node nodejs bun php lua": language,
		"deno Rscript":                      language,
		"awk gawk mawk nawk sed gsed": {
			code: "ef expression file source exec", valued: "-v -F -i -l", more: true, again: true,
		},
		"xargs":                           {valued: "-I -P -L -d -E -s -a -n", starts: true},
		"sudo doas":                       {valued: "-u -g -h -p -C -D -R -T -U -r -t", starts: true},
		"nice ionice":                     {valued: "-n -c", starts: true},
		"time stdbuf strace":              {valued: "-f -o -i -e", starts: true},
		"nohup setsid busybox toybox":     {starts: true},
		"timeout gtimeout taskset chroot": {valued: "-k -s --kill-after --signal", starts: true, behind: 1},
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = kind
		}
	}
	return all
}

// isCode reports whether an option takes code, given all of the option or its beginning.
func (in interpreter) isCode(option string) bool {
	letters, names, _ := strings.Cut(in.code, " ")
	name, long := strings.CutPrefix(option, "--")
	switch {
	case in.code == "" || !strings.HasPrefix(option, "-"):
		return false
	case long:
		name, _, _ = strings.Cut(name, "=")
		return slices.Contains(strings.Fields(names), name)
	case slices.Contains(strings.Fields(in.valued), option[:min(len(option), 2)]): // its value is glued to it
		return false
	}
	return strings.ContainsAny(cluster(option), letters)
}

// hasValue reports whether the word after an option is its value, and not code.
func (in interpreter) hasValue(option string) bool {
	valued := strings.Fields(in.valued)
	if short := cluster(option); len(short) > 1 && len(short) == len(option)-1 { // -euo pipefail
		option = option[:1] + short[len(short)-1:]
	}
	return slices.Contains(valued, option)
}

// cluster returns the letters of combined short options.
func cluster(option string) string {
	rest := strings.TrimLeft(option[1:], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	return option[1 : len(option)-len(rest)]
}

// checkCode refuses an argument in a place where it would be code: we would have to quote it, and no quoting is right for
// every interpreter. A shell counts anywhere on the command line.
func checkCode(all []Word) error {
	known := interpreters()
	for i, w := range all {
		text, literal := w.literal()
		name := path.Base(text)
		in, ok := known[strings.TrimRight(name, "0123456789.")]
		if !literal || !ok {
			continue
		}
		if w := in.codeOf(all[i+1:]); w != nil {
			return tool.Errorf(tool.CodeInvalidInput, "%q would be code, or the name of a program, that %s runs; "+
				"write that out, and give it the argument: [sh, -c, 'grep -e \"$1\" notes.txt', sh, \"{%s}\"]", w, name, w.first())
		}
		if !in.starts {
			return nil // the rest are the arguments of its code
		}
	}
	return nil
}

// codeOf returns the word with an argument that would be code, among the words after the interpreter's name. The words after
// its code or its script are arguments, unless there may be more code.
func (in interpreter) codeOf(rest []Word) *Word {
	// The next word can be the value of an option, code that an option announced, or an operand after those that select what
	// runs.
	value, announced, settled, before := false, false, false, in.behind
	for i, w := range rest {
		text, literal := w.literal()
		option := strings.HasPrefix(w.before(), "-") || strings.HasPrefix(w.before(), "+")
		switch {
		case w.condition():
		case !literal && in.remote && settled:
			return &rest[i]
		case value:
			value = false
		case !literal && (announced || option && in.isCode(w.before())):
			return &rest[i]
		case option && literal:
			announced = announced || in.isCode(text) && !strings.Contains(text, "=")
			settled = settled || in.isCode(text) && strings.Contains(text, "=")
			value = in.hasValue(text)
		case option, in.assigns && strings.Contains(w.before(), "="):
		case before > 0:
			before--
			settled = in.remote
		case !literal && !settled:
			return &rest[i]
		case !in.again && !in.remote && !(announced && in.more):
			return nil
		default:
			announced, settled = false, true
		}
	}
	return nil
}

// Bounds of a command line. The kernel allows 128 KiB for one element, and a quarter of the stack for all.
const (
	maxElement = 128<<10 - 1
	maxLine    = 1 << 20
)

// render makes the command line of a call.
func render(template []Piece, v *values) (argv []string, err error) {
	size, open := 0, false // open means that the options have ended
	for _, p := range template {
		there, err := v.has(p)
		if err != nil {
			return nil, err
		}
		if !there {
			continue
		}
		for _, w := range p {
			elements, err := v.elements(w, open)
			if err != nil {
				return nil, err
			}
			for _, e := range elements {
				size += len(e) + 1
			}
			argv = append(argv, elements...)
			text, literal := w.literal()
			open = open || literal && text == "--"
		}
	}
	if size > maxLine {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the command line would have %d bytes, and can have %d; "+
			"give it less, or have its source send the largest argument on stdin", size, maxLine)
	}
	return argv, nil
}

// elements returns the elements for one word: one, or as many as a list in it has items.
func (v *values) elements(w Word, open bool) ([]string, error) {
	if w.condition() {
		return nil, nil
	}
	all := []string{""}
	for _, p := range w.parts {
		if p.only {
			continue
		}
		texts := []string{p.text}
		if p.name != "" {
			var err error
			if texts, err = v.texts(p.name); err != nil {
				return nil, err
			}
		}
		if len(all) > 1 && len(texts) > 1 { // arguments of any type, which no schema reveals as lists
			return nil, tool.Errorf(tool.CodeInvalidInput, "the argument %s is a second list in %q; only one can be spread", p.name, w)
		}
		all = product(all, texts)
	}
	for _, e := range all {
		if err := mayStand(e, w, open); err != nil {
			return nil, err
		}
		if err := staysBelow(e, w); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func product(fronts, ends []string) (all []string) {
	for _, front := range fronts {
		for _, end := range ends {
			all = append(all, front+end)
		}
	}
	return all
}

// mayStand refuses an element that the program would take for something other than the value of an argument.
func mayStand(element string, w Word, open bool) error {
	name := w.first()
	switch {
	case name == "":
		return nil
	case strings.ContainsRune(element, 0):
		return tool.Errorf(tool.CodeInvalidInput, "the argument %s has a NUL byte, which no command line can have; leave it out", name)
	case len(element) > maxElement:
		return tool.Errorf(tool.CodeInvalidInput, "the argument %s has %d bytes; on a command line it can have %d. "+
			"Give it less, or have its source send it on stdin", name, len(element), maxElement)
	}
	value, signed := strings.CutPrefix(element, w.before())
	if !open && signed && onlySigns(w.before()) && value != "" && onlySigns(value[:1]) {
		return tool.Errorf(tool.CodeInvalidInput, "the argument %s begins with %q and could be taken for an option: %.40q; "+
			"remove it or, if the program supports it, write \"--\" before \"%s\" in its source",
			name, value[:1], value, w).Because("option")
	}
	return nil
}

// staysBelow refuses an element that leads out of the folder before its argument, such as notes/{name}.
func staysBelow(element string, w Word) error {
	plain, folder := "", false
	for i, p := range w.parts {
		switch {
		case p.name == "":
			plain += p.text
		case !p.only:
			folder = folder || i > 0 && strings.HasSuffix(w.parts[i-1].text, "/")
			plain += "x"
		}
	}
	ups := func(path string) (n int) {
		for name := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune("/=:?#", r) }) {
			if name == ".." {
				n++
			}
		}
		return n
	}
	if folder && ups(element) > ups(plain) {
		return tool.Errorf(tool.CodeAccessDenied, "the argument %s leads out of the folder in %q: %.80q; "+
			"give a name that is in it", w.first(), w, element).Because("outside")
	}
	return nil
}

// onlySigns reports whether a text consists of nothing but the signs that begin options.
func onlySigns(text string) bool { return strings.Trim(text, "-+") == "" }
