package workspace

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/bmatcuk/doublestar/v4"

	"toolpost/tool"
)

// Sensitive configures the names that are hidden from every caller, as files or as folders: they are neither opened nor
// listed nor indexed. Patterns are for names, without slashes: *, ?, [a-z] and {a,b} as in a shell; upper and lower case
// are the same.
type Sensitive struct {
	Add   []string `yaml:"add" doc:"more names to hide, such as *.kdbx"`
	Allow []string `yaml:"allow" doc:"names to show although they are hidden by default, such as .env.example"`
}

// TempPrefix is the prefix of the names of unfinished files, which are hidden.
const TempPrefix = ".toolpost-"

// sensitive decides about names.
type sensitive struct {
	ours    *names // our own state, which no config can expose: it holds the tokens of the doors
	denied  *names // secrets and private keys
	allowed *names
}

func newSensitive(o Sensitive) (*sensitive, error) {
	for _, p := range slices.Concat(o.Add, o.Allow) {
		if CheckGlob(p) != nil || strings.Contains(p, "/") {
			return nil, tool.Errorf(tool.CodeInvalidInput,
				"sensitive: %q is not a pattern of names; write one such as *.key", p)
		}
	}
	keys := []string{
		".env", ".env.*", "credentials.json", "*.key", "*.pem", "*.p12", "*.pfx",
		"id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh", ".netrc", ".git-credentials", ".pgpass",
	}
	ours := []string{".toolpost", TempPrefix + "*"}
	return &sensitive{newNames(ours), newNames(append(keys, o.Add...)), newNames(o.Allow)}, nil
}

// path reports whether any part of a path has a sensitive name.
func (s *sensitive) path(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if s.name(part) {
			return true
		}
	}
	return false
}

// name reports whether a name is sensitive, or looks like one that is: a file system may treat the two as the same, and
// so may people.
func (s *sensitive) name(name string) bool {
	if isPlain(name) {
		return s.folded(name)
	}
	folded := fold(name)
	return s.folded(folded) || slices.ContainsFunc(strings.FieldsFunc(folded, isSeparator), s.folded)
}

// isSeparator: some file systems accept more separators than the slash, and a colon before the name of a stream.
func isSeparator(r rune) bool { return r == '/' || r == '\\' || r == ':' }

func (s *sensitive) folded(name string) bool {
	return s.ours.match(name) || s.denied.match(name) && !s.allowed.match(name)
}

// names is a set of patterns, grouped by how they are looked up.
type names struct {
	exact              map[string]bool
	prefixes, suffixes []string
	others             []string
}

func newNames(patterns []string) *names {
	n := &names{exact: map[string]bool{}}
	for _, p := range patterns {
		p = strings.ToLower(p)
		switch special := strings.IndexAny(p, `*?[{\`); {
		case special < 0:
			n.exact[p] = true
		case special == len(p)-1 && p[special] == '*':
			n.prefixes = append(n.prefixes, p[:special])
		case p[0] == '*' && !strings.ContainsAny(p[1:], `*?[{\`):
			n.suffixes = append(n.suffixes, p[1:])
		default:
			n.others = append(n.others, p)
		}
	}
	return n
}

func (n *names) match(name string) bool {
	return n.exact[name] || // the others were checked to be patterns
		slices.ContainsFunc(n.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) ||
		slices.ContainsFunc(n.suffixes, func(s string) bool { return strings.HasSuffix(name, s) }) ||
		slices.ContainsFunc(n.others, func(p string) bool { return doublestar.MatchUnvalidated(p, name) })
}

// isPlain reports whether a name equals its folded form, as nearly all do.
func isPlain(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_', c == '-', c == '+', c == ',', c == '=', c == '@',
			c == '#', c == '%':
		case c == '.' && i+1 < len(name):
		default:
			return false
		}
	}
	return true
}

// fold returns the plain name that a name looks like, in lower case: without marks and invisible characters, with
// look-alike letters of other scripts and styles replaced by Latin ones, and without the trailing dots, spaces and tildes
// that some file systems and editors add.
func fold(name string) string {
	folded := strings.Map(foldRune, name)
	return strings.TrimRight(folded, ". ~")
}

func foldRune(r rune) rune {
	switch {
	case r < 0x80:
		return unicode.ToLower(r)
	case isInvisible(r) || unicode.In(r, unicode.Mn, unicode.Me):
		return -1
	case unicode.IsSpace(r):
		return ' '
	}
	r = unicode.ToLower(styled(r))
	if r < 0x80 {
		return r
	}
	for _, same := range lookAlikes() {
		if i := strings.IndexRune(same, r); i > 0 {
			return rune(same[0])
		}
	}
	return r
}

func isInvisible(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// styled returns the plain form of a character in another style, letters in lower case.
func styled(r rune) rune {
	for _, s := range []struct{ first, last, plain, each rune }{ // the plain characters repeat after each
		{0xFF01, 0xFF5E, '!', 94},   // full width
		{0x1D400, 0x1D6A3, 'a', 26}, // mathematical alphabets, of capitals and of small letters
		{0x1D7CE, 0x1D7FF, '0', 10},
		{0x249C, 0x24B5, 'a', 26}, {0x24B6, 0x24E9, 'a', 26}, // in parentheses, circled
		{0x1F110, 0x1F129, 'a', 26}, {0x1F130, 0x1F149, 'a', 26}, {0x1F150, 0x1F169, 'a', 26},
		{0x1F170, 0x1F189, 'a', 26}, {0x1F1E6, 0x1F1FF, 'a', 26}, // squared; regional indicators
	} {
		if s.first <= r && r <= s.last {
			return s.plain + (r-s.first)%s.each
		}
	}
	return r
}

// lookAlikes lists plain characters, each with others, in lower case, that look like it.
func lookAlikes() []string {
	return []string{
		".․﹒。｡·•∙⋅٠۰۔܁‧", "-‐‑‒–—―−﹘﹣➖", "_‿⁀︳︴﹍﹎﹏ˍ", "/∕⁄╱⧸", "\\∖⧵﹨⧹", ":∶ː˸﹕։׃",
		"aàáâãäåāăąǎǟǡǻȁȃȧḁạảấầẩẫậắằẳẵặаɑαªᵃₐ⍺", "bḃḅḇьᵇƅ", "cçćĉċčḉсϲᶜⅽℂ¢", "dďđḋḍḏḑḓԁᵈⅾɗ",
		"eèéêëēĕėęěȅȇȩḕḗḙḛḝẹẻẽếềểễệеєёҽᵉₑℯℰε", "fḟᶠƒ", "gĝğġģǧǵḡɡցᵍℊ", "hĥȟḣḥḧḩḫẖһհʰₕℎħℋ",
		"iìíîïĩīĭįıǐȉȋḭḯỉịіїιɩⁱᵢℹⅰ¡ӏ", "jĵǰјϳʲⱼ", "kķĸǩḱḳḵкκᵏₖ", "lĺļľŀłḷḹḻḽⅼˡₗℓ|ǀ∣", "mḿṁṃмᵐₘⅿ",
		"nñńņňŉǹṅṇṉṋпոηⁿₙ", "oòóôõöøōŏőơǒǫǭȍȏȫȭȯȱṍṏṑṓọỏốồổỗộớờởỡợоοσօᵒₒº", "pṕṗрρᵖₚ℘", "qԛգզ", "rŕŗřȑȓṙṛṝṟгʳᵣ",
		"sśŝşšșṡṣṥṧṩѕˢₛſꜱ", "tţťțŧṫṭṯṱтτᵗₜ", "uùúûüũūŭůűųưǔǖǘǚǜȕȗṳṵṷṹṻụủứừửữựυսᵘᵤцµ", "vṽṿνѵᵛᵥⅴ∨", "wŵẁẃẅẇẉẘωԝʷɯ",
		"xẋẍхχˣₓⅹ×", "yýÿŷȳẏẙỳỵỷỹуүγʸ", "zźżžẑẓẕᴢᶻ",
		"0°⁰₀", "1¹₁", "2²₂", "3³₃зӡ", "4⁴₄", "5⁵₅", "6⁶₆б", "7⁷₇", "8⁸₈", "9⁹₉",
	}
}

// Limits on the cost of patterns.
const (
	MaxGlob     = 256 // bytes of one
	MaxGlobs    = 64  // of one walk
	maxBranches = 16  // braces and commas of one: matching tries every combination of alternatives
)

// Globs select files of a tree by their paths below the start of a walk. The zero value selects all.
type Globs struct {
	include, exclude []glob
}

type glob struct {
	pattern string
	byPath  bool // it has a slash, so it matches the path below the start, not the name
}

// NewGlobs parses patterns; those that start with ! exclude what they match. A pattern with a slash matches the path,
// others match the name.
func NewGlobs(patterns []string) (*Globs, error) {
	if len(patterns) > MaxGlobs {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%d patterns are given; at most %d make sense", len(patterns),
			MaxGlobs)
	}
	g := &Globs{}
	for _, p := range patterns {
		p, exclude := strings.CutPrefix(p, "!")
		if err := CheckGlob(p); err != nil {
			return nil, err
		}
		one := glob{p, strings.Contains(p, "/") || strings.Contains(p, "**")}
		if exclude {
			g.exclude = append(g.exclude, one)
		} else {
			g.include = append(g.include, one)
		}
	}
	return g, nil
}

// CheckGlob returns an error if a pattern is malformed or too expensive.
func CheckGlob(p string) error {
	switch {
	case p == "":
		return tool.Errorf(tool.CodeInvalidInput, "a pattern is empty; write one such as *.go")
	case len(p) > MaxGlob || strings.Count(p, "{")+strings.Count(p, ",") > maxBranches:
		return tool.Errorf(tool.CodeInvalidInput,
			"the pattern is too long or has too many alternatives; use a shorter one")
	case !doublestar.ValidatePattern(p):
		return tool.Errorf(tool.CodeInvalidInput, "the pattern %q is malformed; close every bracket and brace", p)
	}
	return nil
}

// LeaveOut reports whether an entry is left out; a folder is left out with everything in it.
func (g *Globs) LeaveOut(below string) bool { return matchAny(g.exclude, below) }

// Want reports whether a file is selected.
func (g *Globs) Want(below string) bool {
	return (len(g.include) == 0 || matchAny(g.include, below)) && !g.LeaveOut(below)
}

func matchAny(list []glob, below string) bool {
	for _, g := range list {
		subject := below
		if !g.byPath {
			subject = path.Base(below)
		}
		if doublestar.MatchUnvalidated(g.pattern, subject) {
			return true
		}
	}
	return false
}
