package split

import "bytes"

// attachDocs gives each definition the comment that stands directly above it. Python and Elixir found theirs already.
func attachDocs(m *masked, l Language, defs []found) {
	next := 0
	for i := range defs {
		d := &defs[i]
		if d.doc.to > d.doc.from || l == Elixir || l == Python {
			continue
		}
		for next < len(m.comments) && m.comments[next].to <= d.from {
			next++
		}
		d.doc = commentsAbove(m, next, d.from)
	}
}

// commentsAbove joins the comments before n that reach down to a byte without a blank line.
func commentsAbove(m *masked, n, at int) span {
	doc := span{at, at}
	for n--; n >= 0; n-- {
		c := m.comments[n]
		if !adjacent(m.src[c.to:doc.from], m.src[c.from:c.to]) || !firstOfLine(m.src, c.from) {
			break
		}
		if doc.to == at && doc.from == at {
			doc.to = c.to
		}
		doc.from = c.from
		if bytes.HasPrefix(m.src[c.from:], []byte("/*")) {
			break
		}
	}
	if doc.from == at {
		return span{}
	}
	return doc
}

// adjacent reports whether nothing but blanks and a line break is between a comment and what follows it; after one
// that is marked as documentation there may be a blank line.
func adjacent(between, comment []byte) bool {
	most := 1
	if bytes.HasPrefix(comment, []byte("/**")) || bytes.HasPrefix(comment, []byte("/*!")) {
		most = 2
	}
	return len(between) < 200 && len(bytes.TrimSpace(between)) == 0 && bytes.Count(between, []byte{'\n'}) <= most
}
