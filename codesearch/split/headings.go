package split

import (
	"bytes"
	"slices"
)

// findHeadings finds the sections of Markdown. A line that begins with # inside a fence is code.
func findHeadings(src []byte) []found {
	var defs []found
	var titles [7]string
	fence := byte(0)
	for i := 0; i < len(src); {
		end := lineEnd(src, i)
		line := bytes.TrimSpace(src[i:end])
		if len(line) >= 3 && (line[0] == '`' || line[0] == '~') && line[1] == line[0] && line[2] == line[0] {
			switch fence {
			case 0:
				fence = line[0]
			case line[0]:
				fence = 0
			}
		}
		if level := headingLevel(line); level > 0 && fence == 0 {
			if n := len(defs); n > 0 {
				defs[n-1].to = i
			}
			title := string(bytes.Trim(line[level:], " \t#"))
			titles[level] = title
			clear(titles[level+1:])
			defs = append(defs, found{
				kind: Section, name: title, owner: parent(titles[:level]), from: i, to: len(src), at: i,
			})
		}
		i = end + 1
	}
	return defs
}

// headingLevel counts the marks of a heading; 0: it is none.
func headingLevel(line []byte) int {
	n := len(line) - len(bytes.TrimLeft(line, "#"))
	if n == 0 || n > 6 || n == len(line) || line[n] != ' ' && line[n] != '\t' {
		return 0
	}
	return n
}

// parent returns the nearest heading above.
func parent(titles []string) string {
	for _, title := range slices.Backward(titles) {
		if title != "" {
			return title
		}
	}
	return ""
}
