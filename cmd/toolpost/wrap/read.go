// Package wrap drafts a source of protocol command from a program's description of itself: its help, or its manual page. It
// knows the usual forms: those of GNU programs, git, argparse, Go's flag, cobra, clap and man.
package wrap

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"toolpost/wire/regex"
)

// A Program is the content of a help text.
type Program struct {
	Summary  string
	Options  []Option
	Operands []Operand
}

// An Option is an option of a command line.
type Option struct {
	Flag    string // in its best form: the long one, if there is one
	Value   string // what the help calls its value; empty if it has none
	Choices []string
	Doc     string
	Repeats bool
}

// An Operand is a word of a command line that is not an option.
type Operand struct {
	Name     string
	Doc      string
	Optional bool
	Repeats  bool
	Dashes   bool // a -- precedes it
}

// Useful reports whether there is anything to draft from.
func (p *Program) Useful() bool { return len(p.Options)+len(p.Operands) > 0 }

// How much of a help text is read: its lines, and the operands of its usage.
const (
	maxHelp     = 20_000
	maxOperands = 16
)

// Read reads the help text of a program, or of one of its commands, that is called by these words.
func Read(text string, words []string) *Program {
	lines := strings.Split(plain(text), "\n")
	lines = lines[:min(len(lines), maxHelp)]
	p := &Program{}
	p.readUsage(usageOf(lines, words))
	p.readOptions(lines)
	p.readOperandDocs(lines)
	p.Summary = summaryOf(lines, words)
	return p
}

var (
	overstrike = regex.Lazy(`.\x08`)
	escapes    = regex.Lazy(`\x1b\[[0-9;]*[A-Za-z]`)
)

// plain removes what is meant for terminals.
func plain(text string) string {
	text = escapes().ReplaceAllString(overstrike().ReplaceAllString(text, ""), "")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\t", "        ")
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}

func depth(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

var usageHead = regex.Lazy(`(?i)^\s*(usage|synopsis)\s*:?\s*(.*)$`)

// usageOf finds the first form of the command line, without the words that the program is called by.
func usageOf(lines []string, words []string) string {
	for i, l := range lines {
		m := usageHead().FindStringSubmatch(l)
		if m == nil {
			continue
		}
		usage, rest := strings.TrimSpace(m[2]), lines[i+1:]
		for len(rest) > 0 && usage == "" { // it is on a line below
			usage, rest = strings.TrimSpace(rest[0]), rest[1:]
		}
		if usage, ok := called(usage, words); ok {
			return usage + continued(rest, depth(l), words)
		}
	}
	return ""
}

// called removes the words that a program is called by from a usage. Programs name themselves differently, such as by a path
// or as python -m NAME; only the last of the words counts.
func called(usage string, words []string) (rest string, ok bool) {
	last := words[len(words)-1]
	last = last[strings.LastIndexByte(last, '/')+1:]
	fields := strings.Fields(usage)
	for i, f := range fields[:min(len(fields), len(words)+3)] {
		if strings.EqualFold(f[strings.LastIndexByte(f, '/')+1:], last) {
			return strings.Join(fields[i+1:], " "), true
		}
	}
	return "", false
}

// continued returns the lines that continue a usage: indented further, and not another form of it.
func continued(lines []string, outer int, words []string) (more string) {
	for _, l := range lines {
		text := strings.TrimSpace(l)
		_, another := called(text, words)
		if text == "" || depth(l) <= outer || another || strings.HasPrefix(text, "or:") || optionLine().MatchString(l) {
			break
		}
		more += " " + text
	}
	return more
}

// readUsage reads the operands of a usage. Brackets mean that something is optional, dots that it can be repeated.
func (p *Program) readUsage(line string) {
	u := &usage{text: line, p: p}
	u.group(false, 0)
}

type usage struct {
	text   string
	p      *Program
	dashes bool
}

// ofOptions matches the inside of brackets that is about options, such as [-n NUM] or [build flags]; these are described
// below the usage.
var ofOptions = regex.Lazy(`(?i)^(-[^\]-]|--[^\]]|[\w ]*\b(options?|flags?)\b)`)

var usageWord = regex.Lazy(`^(<[^<>]+>|[A-Za-z][\w:.+*/-]*)`)

// group reads to the closing bracket.
func (u *usage) group(optional bool, level int) {
	alternative := false
	first := len(u.p.Operands)
	for u.text != "" {
		word := usageWord().FindString(u.text)
		switch {
		case u.text[0] == ']' || u.text[0] == ')' || u.text[0] == '}':
			u.text = u.text[1:]
			return
		case strings.ContainsRune("[({", rune(u.text[0])) && level < 16:
			before := len(u.p.Operands)
			u.text = strings.TrimLeft(u.text[1:], " ")
			skip := alternative || ofOptions().MatchString(u.text)
			if u.group(true, level+1); skip {
				u.p.Operands = u.p.Operands[:before]
			}
		case strings.HasPrefix(u.text, "..."):
			u.text = u.text[3:]
			for i := max(first, len(u.p.Operands)-1); i < len(u.p.Operands); i++ {
				u.p.Operands[i].Repeats = true
			}
		case u.text[0] == '|':
			u.text, alternative = u.text[1:], true
		case strings.HasPrefix(u.text, "--]"), strings.HasPrefix(u.text, "-- "):
			u.text, u.dashes = u.text[2:], true
		case u.text[0] == '-': // an option of this form
			u.text = strings.TrimLeft(u.text, "-")
			u.text = u.text[len(usageWord().FindString(u.text)):]
			if strings.HasPrefix(u.text, "=") || strings.HasPrefix(u.text, " <") {
				u.text = u.text[1:]
				u.text = u.text[len(usageWord().FindString(u.text)):]
			}
		case word != "":
			u.text = u.text[len(word):]
			if !alternative {
				u.operand(strings.Trim(word, "<>"), optional)
			}
		default:
			if u.text[0] != ' ' {
				alternative = alternative && u.text[0] == '='
			}
			u.text = u.text[1:]
		}
	}
}

func (u *usage) operand(word string, optional bool) {
	if len(u.p.Operands) == maxOperands {
		return
	}
	name := strings.TrimSuffix(strings.TrimRight(word, ".,*+"), "...")
	repeats := strings.HasSuffix(word, "...")
	for _, kind := range []string{"option", "flag", "switch", "opts"} {
		if strings.Contains(strings.ToLower(name), kind) {
			return
		}
	}
	u.p.Operands = append(u.p.Operands, Operand{Name: name, Optional: optional, Repeats: repeats, Dashes: u.dashes})
	u.dashes = false
}

var optionLine = regex.Lazy(`^ {0,16}(-{1,2}[\[<]?[A-Za-z0-9])`)

// readOptions reads the lines that describe options: the option, two blanks, and what it does, or that on the lines below.
func (p *Program) readOptions(lines []string) {
	seen := map[string]bool{}
	for i, l := range lines {
		if !optionLine().MatchString(l) {
			continue
		}
		spec, doc, _ := strings.Cut(strings.TrimSpace(l), "  ")
		o, ok := optionOf(strings.TrimSpace(spec))
		if !ok || seen[o.Flag] || slices.Contains([]string{"--help", "--version", "-help", "-h", "-V", "-version", "-?"}, o.Flag) {
			continue
		}
		seen[o.Flag] = true
		o.Doc = sentence(strings.TrimSpace(doc), lines[i+1:], depth(l))
		if o.Choices == nil {
			o.Choices = choicesOf(doc)
		}
		p.Options = append(p.Options, o)
	}
}

// An option in its forms, such as -n NUM, --lines=[-]NUM or --[no-]color[=WHEN].
var (
	formsOf       = regex.Lazy(`\s*(?:,|\||/|\bor\b)\s*(-)`)
	oneForm       = regex.Lazy(`^(-{1,2})(?:\[no-\])?([A-Za-z0-9][\w.-]*)(.*)$`)
	valueOf       = regex.Lazy(`^(?:\[?[= ]\[?[+-]?\]?)(<[^<>]+>|\{[^{}]+\}|"?[A-Za-z][\w:|,./-]*"?|\([^()]+\))(\.\.\.|\[?,\s?\.\.\.\]?)?\]?(\.\.\.)?$`)
	firstSentence = regex.Lazy(`^(.{20,}?[a-z\])"'][.;])(\s|$)`)
)

func optionOf(spec string) (o Option, ok bool) {
	for _, form := range strings.Split(formsOf().ReplaceAllString(spec, "\n$1"), "\n") {
		m := oneForm().FindStringSubmatch(strings.TrimSuffix(form, ":"))
		if m == nil && strings.HasPrefix(form, "-<") { // the value itself, as in git log -3
			continue
		}
		if m == nil {
			return o, false
		}
		flag, had := m[1]+m[2], o.Value != ""
		if rest := strings.TrimRight(m[3], " "); rest != "" {
			value := valueOf().FindStringSubmatch(rest)
			switch {
			case strings.HasPrefix(rest, "[=...") || rest == "=...":
				o.Value = "value"
			case value == nil:
				return o, false // several values, or a sentence
			default:
				o.Value = strings.TrimRight(strings.Trim(value[1], `<>{}()"`), ".")
				o.Repeats = value[2] != "" || value[3] != "" || strings.HasSuffix(value[1], "...") || o.Value == "strings"
				if strings.ContainsAny(value[1][:1], "{(") || strings.Contains(o.Value, "|") {
					o.Choices = split(o.Value)
				}
			}
		}
		if o.Flag == "" || len(flag) > 2 && (len(o.Flag) <= 2 || o.Value != "" && !had) {
			o.Flag = flag
		}
	}
	return o, o.Flag != ""
}

var possible = regex.Lazy(`\[possible values: ([^\]]+)\]|\(("[^"()]+"(?:\|"[^"()]+")+)\)`)

func choicesOf(doc string) []string {
	m := possible().FindStringSubmatch(doc)
	if m == nil {
		return nil
	}
	return split(m[1] + m[2])
}

func split(list string) (words []string) {
	for _, w := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '|' || r == ' ' }) {
		words = append(words, strings.Trim(w, `"'`))
	}
	if len(words) < 2 {
		return nil
	}
	return words
}

// sentence returns the first sentence about an option, from its own line and those below that are indented further.
func sentence(doc string, below []string, outer int) string {
	for _, l := range below {
		if text := strings.TrimSpace(l); text == "" || depth(l) <= outer || optionLine().MatchString(l) && depth(l) < outer+8 || len(doc) > 300 {
			break
		}
		doc = strings.TrimSpace(doc + " " + strings.TrimSpace(l))
	}
	doc = strings.Join(strings.Fields(doc), " ")
	if m := firstSentence().FindStringSubmatch(doc); m != nil {
		doc = strings.TrimRight(m[1], ".;")
	}
	if short := []rune(doc); len(short) > 160 {
		doc = strings.TrimSpace(string(short[:157])) + "..."
	}
	return doc
}

// readOperandDocs finds the lines that describe operands, as argparse and clap write them.
func (p *Program) readOperandDocs(lines []string) {
	for i := range p.Operands {
		o := &p.Operands[i]
		described := regexp.MustCompile(`^ {1,8}<?` + regexp.QuoteMeta(o.Name) + `>?(?:\.\.\.)?(?:\s{2,}(\S.*)|\s*)$`)
		for j, l := range lines {
			if m := described.FindStringSubmatch(l); m != nil {
				o.Doc = sentence(m[1], lines[j+1:], depth(l))
				break
			}
		}
	}
}

var (
	named   = regex.Lazy(`^\s*\S+(?:, \S+)* [-–—] (.+)$`)
	version = regex.Lazy(`^\S+( version)? v?\d+(\.\d+)+`)
)

// summaryOf returns what the program is for: for a manual page the line below NAME, else the first sentence that is neither
// usage nor a heading.
func summaryOf(lines []string, words []string) string {
	for i, l := range lines {
		if l == "NAME" && i+1 < len(lines) {
			if m := named().FindStringSubmatch(lines[i+1]); m != nil {
				return strings.TrimSpace(m[1])
			}
		}
	}
	inUsage := false
	for i, l := range lines {
		text := strings.TrimSpace(l)
		inUsage = text != "" && (inUsage || usageHead().MatchString(l))
		_, usage := called(text, words)
		switch m := named().FindStringSubmatch(text); {
		case text == "", depth(l) > 3, inUsage && (depth(l) > 0 || usageHead().MatchString(l)):
		case m != nil && usage:
			return strings.TrimSpace(m[1])
		case usage, strings.HasSuffix(text, ":"), optionLine().MatchString(l), !strings.Contains(text, " "),
			strings.Contains(text, "@"), version().MatchString(text), !unicode.IsLetter([]rune(text)[0]):
		default:
			return sentence(text, lines[i+1:min(len(lines), i+3)], -1)
		}
	}
	return ""
}
