package grep

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Need is what every matching line contains, as far as the pattern shows. The zero value needs nothing.
type Need struct {
	Text string // this text; in lower case if Fold is set
	Fold bool   // in any mixture of ASCII cases
	All  []Need // each of these
	Any  []Need // at least one of these
}

// None reports whether every line satisfies the need.
func (n Need) None() bool { return n.Text == "" && len(n.All) == 0 && len(n.Any) == 0 }

// mentions reports whether a text of the need contains a byte.
func (n Need) mentions(b byte) bool {
	in := func(n Need) bool { return n.mentions(b) }
	return strings.IndexByte(n.Text, b) >= 0 || slices.ContainsFunc(n.All, in) || slices.ContainsFunc(n.Any, in)
}

const (
	maxTexts   = 24 // texts that one part of a pattern may expand to
	maxTextLen = 64
)

// needOf returns the need of a simplified pattern. Exact reports that every line that contains the need matches, so that
// no further check is necessary.
func needOf(re *syntax.Regexp) (n Need, exact bool) {
	p := partOf(re)
	n = p.all()
	return n, p.exact && !n.None()
}

// A part is what is known about a part of a pattern.
type part struct {
	texts []Need // if not nil, it matches only these texts
	exact bool   // and it matches each of them in any place
	needs []Need // otherwise, its needs
}

// all returns the part as one need.
func (p part) all() Need {
	if p.texts != nil {
		return anyOf(p.texts)
	}
	switch len(p.needs) {
	case 0:
		return Need{}
	case 1:
		return p.needs[0]
	}
	return Need{All: p.needs}
}

// anyOf returns the need of one of several alternatives. If one of them needs nothing, so does the result.
func anyOf(ns []Need) Need {
	switch {
	case slices.ContainsFunc(ns, Need.None):
		return Need{}
	case len(ns) == 1:
		return ns[0]
	}
	return Need{Any: ns}
}

func partOf(re *syntax.Regexp) part {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return part{texts: []Need{{}}, exact: true}
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText, syntax.OpWordBoundary,
		syntax.OpNoWordBoundary:
		return part{texts: []Need{{}}}
	case syntax.OpLiteral:
		return literalPart(re.Rune, re.Flags&syntax.FoldCase != 0)
	case syntax.OpCharClass:
		return classPart(re.Rune)
	case syntax.OpCapture:
		return partOf(re.Sub[0])
	case syntax.OpPlus:
		// One repetition is needed. More of the same may follow, so the text around it is not joined to it.
		p := partOf(re.Sub[0])
		return part{needs: needs(p.all())}
	case syntax.OpQuest:
		return alternatives(partOf(re.Sub[0]), part{texts: []Need{{}}, exact: true})
	case syntax.OpConcat:
		pieces := make([]part, len(re.Sub))
		for i, sub := range re.Sub {
			pieces[i] = partOf(sub)
		}
		return joinAll(pieces)
	case syntax.OpAlternate:
		p := partOf(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			p = alternatives(p, partOf(sub))
		}
		return p
	}
	return part{}
}

func needs(n Need) []Need {
	if n.None() {
		return nil
	}
	return []Need{n}
}

// literalPart returns the part of a literal. If case is ignored, a rune that also has a case outside ASCII (k is also the
// Kelvin sign) splits it: the runes on both sides are needed, and this rune is left to the machine.
func literalPart(runes []rune, fold bool) part {
	var pieces []part
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			pieces = append(pieces, part{texts: []Need{{Text: text.String(), Fold: fold}}, exact: true})
			text.Reset()
		}
	}
	for _, r := range runes {
		switch {
		case r == '\n': // no line contains it
			return part{}
		case !fold && r != utf8.RuneError: // an invalid byte matches RuneError as well
			text.WriteRune(r)
		case fold && r < utf8.RuneSelf && onlyASCII(r):
			text.WriteRune(unicode.ToLower(r))
		default:
			flush()
			pieces = append(pieces, part{})
		}
		if text.Len() >= maxTextLen {
			flush()
		}
	}
	flush()
	return joinAll(pieces)
}

// onlyASCII reports whether every case of r is ASCII.
func onlyASCII(r rune) bool {
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		if f >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// classPart expands a class of few runes to its texts.
func classPart(ranges []rune) part {
	var texts []Need
	for i := 0; i+1 < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			if r == '\n' { // no line contains it
				continue
			}
			if len(texts) == 4 || r == utf8.RuneError {
				return part{}
			}
			texts = append(texts, Need{Text: string(r)})
		}
	}
	if texts == nil { // a class without runes matches nothing
		return part{}
	}
	return part{texts: texts, exact: true}
}

func alternatives(a, b part) part {
	if a.texts != nil && b.texts != nil && len(a.texts)+len(b.texts) <= maxTexts {
		return part{texts: slices.Concat(a.texts, b.texts), exact: a.exact && b.exact}
	}
	return part{needs: needs(anyOf([]Need{a.all(), b.all()}))}
}

// joinAll joins consecutive parts. Their texts grow as long as there are not too many.
func joinAll(pieces []part) part {
	run := part{texts: []Need{{}}, exact: true}
	var all []Need
	whole := true // run covers everything so far
	for _, p := range pieces {
		if joined, ok := join(run, p); ok {
			run = joined
			continue
		}
		whole = false
		all = append(all, needs(run.all())...)
		if run = p; p.texts == nil {
			all = append(all, p.needs...)
			run = part{texts: []Need{{}}}
		}
	}
	if whole {
		return run
	}
	return part{needs: append(all, needs(run.all())...)}
}

// join returns the texts of a followed by those of b. A text that ignores case makes the whole text ignore it, which
// needs less than the pattern does.
func join(a, b part) (part, bool) {
	if a.texts == nil || b.texts == nil || len(a.texts)*len(b.texts) > maxTexts {
		return part{}, false
	}
	p := part{exact: a.exact && b.exact}
	for _, x := range a.texts {
		for _, y := range b.texts {
			n := Need{Text: x.Text + y.Text, Fold: x.Fold || y.Fold}
			if len(n.Text) > maxTextLen {
				return part{}, false
			}
			if x.Text != "" && y.Text != "" && x.Fold != y.Fold {
				p.exact = false
			}
			if n.Fold {
				n.Text = lowerASCII(n.Text)
			}
			p.texts = append(p.texts, n)
		}
	}
	return p, true
}

func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = lower(c)
	}
	return string(b)
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
