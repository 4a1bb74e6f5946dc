package split

import (
	"bytes"
	"sort"
)

// docAbove joins the comments that reach down to a byte without a blank line.
func (m *masked) docAbove(at int) span {
	doc := span{at, at}
	n := sort.Search(len(m.comments), func(i int) bool { return m.comments[i].to > at })
	for n--; n >= 0; n-- {
		c := m.comments[n]
		if !adjacent(m.src[c.to:doc.from], m.src[c.from:c.to]) || !firstOfLine(m.src, c.from) {
			break
		}
		if doc.empty() {
			doc.to = c.to
		}
		doc.from = c.from
		if startsWith(m.src[c.from:], "/*") {
			break
		}
	}
	return doc
}

// adjacent reports whether nothing but blanks and a line break is between a comment and what follows it; after one
// that is marked as documentation there may be a blank line.
func adjacent(between, comment []byte) bool {
	most := 1
	if startsWith(comment, "/**", "/*!") {
		most = 2
	}
	return len(between) < 200 && len(bytes.TrimSpace(between)) == 0 && bytes.Count(between, []byte{'\n'}) <= most
}
