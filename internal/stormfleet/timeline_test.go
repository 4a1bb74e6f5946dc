package stormfleet

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"time"
)

// A span is a fault as it happened.
type span struct {
	fault
	begun, ended time.Time
}

// A timeline is the picture of a storm: calls by how they ended, how long answers took, and what was broken when.
type timeline struct {
	title    string
	began    time.Time
	ended    time.Time
	attempts []attempt
	faults   []span
	rows     []string // one for each node, and for what is between them
	findings []string
}

const (
	left, width = 110, 1180
	callsHeight = 160
	rowHeight   = 22
)

func colours() map[string]string {
	return map[string]string{ran: "#2e7d32", failed: "#6a1b9a", refused: "#f9a825", unknown: "#ef6c00", silent: "#c62828"}
}

func outcomes() []string { return []string{ran, failed, refused, unknown, silent} }

// x is the place of a moment.
func (l timeline) x(at time.Time) float64 {
	return left + width*float64(at.Sub(l.began))/float64(l.ended.Sub(l.began))
}

// svg draws the timeline.
func (l timeline) svg() string {
	var b strings.Builder
	shown := l.findings[:min(len(l.findings), 20)]
	height := 60 + callsHeight + 80 + rowHeight*len(l.rows) + 40 + 16*len(shown)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		left+width+30, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="10" y="22" font-size="16">%s</text>`+"\n", html.EscapeString(l.title))
	for i, how := range outcomes() {
		fmt.Fprintf(&b, `<rect x="%d" y="32" width="12" height="12" fill="%s"/><text x="%d" y="43">%s</text>`+"\n",
			left+i*100, colours()[how], left+i*100+17, how)
	}
	l.calls(&b, 60)
	l.waits(&b, 60+callsHeight+10)
	y := 60 + callsHeight + 80
	for i, row := range l.rows {
		l.row(&b, row, y+i*rowHeight)
	}
	y += rowHeight * len(l.rows)
	step := max(time.Second, l.ended.Sub(l.began)/20).Round(time.Second)
	for at := time.Duration(0); at < l.ended.Sub(l.began); at += step {
		x := l.x(l.began.Add(at))
		fmt.Fprintf(&b, `<path d="M%.1f 60V%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%v</text>`+"\n", x, y, x, y+16, at)
	}
	for i, text := range shown {
		fmt.Fprintf(&b, `<text x="10" y="%d" fill="#c62828">%s</text>`+"\n", y+40+16*i, html.EscapeString(text[:min(len(text), 200)]))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// calls draws how many calls ended in each second, by how.
func (l timeline) calls(b *strings.Builder, y int) {
	seconds := make([]map[string]int, int(l.ended.Sub(l.began)/time.Second)+1)
	most := 1
	for _, a := range l.attempts {
		i := int(a.ended.Sub(l.began) / time.Second)
		if i < 0 || i >= len(seconds) {
			continue
		}
		if seconds[i] == nil {
			seconds[i] = map[string]int{}
		}
		seconds[i][a.how]++
		sum := 0
		for _, n := range seconds[i] {
			sum += n
		}
		most = max(most, sum)
	}
	fmt.Fprintf(b, `<text x="10" y="%d">calls a second</text><text x="%d" y="%d" text-anchor="end">%d</text>`+"\n", y+callsHeight/2, left-6, y+10, most)
	for i, n := range seconds {
		from := l.x(l.began.Add(time.Duration(i) * time.Second))
		to := l.x(l.began.Add(time.Duration(i+1) * time.Second))
		bottom := float64(y + callsHeight)
		for _, how := range outcomes() {
			tall := float64(callsHeight) * float64(n[how]) / float64(most)
			if bottom -= tall; tall > 0 {
				fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", from, bottom, max(1, to-from-0.5), tall, colours()[how])
			}
		}
	}
}

// waits draws the slowest answer of each second.
func (l timeline) waits(b *strings.Builder, y int) {
	const tall = 50
	slowest := map[int]time.Duration{}
	for _, a := range l.attempts {
		i := int(a.ended.Sub(l.began) / time.Second)
		slowest[i] = max(slowest[i], a.ended.Sub(a.begun))
	}
	fmt.Fprintf(b, `<text x="10" y="%d">slowest answer</text><text x="%d" y="%d" text-anchor="end">%v</text>`+"\n", y+tall/2, left-6, y+10, patience)
	var points []string
	for i := range int(l.ended.Sub(l.began)/time.Second) + 1 {
		part := min(1, float64(slowest[i])/float64(patience))
		points = append(points, fmt.Sprintf("%.1f,%.1f", l.x(l.began.Add(time.Duration(i)*time.Second)), float64(y+tall)-tall*part))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="#1565c0"/>`+"\n", strings.Join(points, " "))
}

// row draws the faults that befell a node, or what is between them.
func (l timeline) row(b *strings.Builder, name string, y int) {
	fmt.Fprintf(b, `<text x="10" y="%d">%s</text><path d="M%d %dH%d" stroke="#ddd"/>`+"\n", y+15, name, left, y+rowHeight, left+width)
	for _, f := range l.faults {
		on := slices.Contains(f.nodes, name) || len(f.nodes) == 0 && (name == "network") == (f.kind == "loss")
		if !on || len(f.nodes) == 0 && name == "postgres" {
			continue
		}
		from, to := l.x(f.begun), l.x(f.ended)
		fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#b0bec5"/><text x="%.1f" y="%d" font-size="10">%s</text>`+"\n",
			from, y+3, max(2, to-from), rowHeight-5, from+2, y+15, f.kind)
	}
}
