package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The curves of growth.
const (
	curveTools    = "tools"
	curveSessions = "sessions"
	curveRecord   = "rows"
	curveOutput   = "outputs"
)

// A panel is one curve of the picture.
type panel struct {
	title, axis string
	marks       []mark // by size
	limits      []float64
	limit       string // the label of the limits
	log         bool   // the values grow by factors too
	name        func(size float64) string
	value       func(float64) string // on the axis
}

// A mark is a point with its label.
type mark struct {
	size, value float64
	label       string
	below       string
}

// draw writes the curves of growth as a picture. The same points result in the same picture.
func draw(path string, points []point) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(picture(points)), 0o644)
}

// The sizes of the picture: four panels, two by two, each with a plot in it.
const (
	panelWide, panelHigh     = 480, 290
	plotLeft, plotTop        = 64, 64
	plotWide, plotHigh       = 372, 156
	pictureWide, pictureHigh = 2*panelWide + 16, 2*panelHigh + 84
	panelsLeft, panelsTop    = 8, 62
)

// style has light colours and, if the reader's system is dark, dark ones.
const style = `
  .card { fill: #ffffff; stroke: #d8dee6; } .back { fill: #f6f8fa; }
  text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #59636e; }
  .head { font-size: 20px; font-weight: 650; fill: #1f2328; }
  .title { font-size: 14px; font-weight: 650; fill: #1f2328; }
  .value { font-weight: 600; fill: #1f2328; } .small { font-size: 11px; }
  .grid { stroke: #e6eaef; } .axis { stroke: #9aa4af; }
  .curve { fill: none; stroke: #0969da; stroke-width: 2.5; stroke-linejoin: round; }
  .under { fill: #0969da; opacity: 0.09; }
  .dot { fill: #ffffff; stroke: #0969da; stroke-width: 2.5; }
  .limit { fill: none; stroke: #bc4c00; stroke-width: 1.5; stroke-dasharray: 5 4; } .limits { fill: #bc4c00; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #161b22; stroke: #30363d; } .back { fill: #0d1117; }
    text { fill: #9198a1; } .head, .title, .value { fill: #f0f6fc; }
    .grid { stroke: #262c34; } .axis { stroke: #656d76; }
    .curve { stroke: #58a6ff; } .under { fill: #58a6ff; opacity: 0.14; } .dot { fill: #161b22; stroke: #58a6ff; }
    .limit { stroke: #f0883e; } .limits { fill: #f0883e; }
  }
`

func picture(points []point) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="t d">`,
		pictureWide, pictureHigh)
	fmt.Fprintf(&b, "\n<title id=\"t\">Growth</title>\n<desc id=\"d\">%s</desc>\n<style>%s</style>\n",
		described(points), style)
	fmt.Fprintf(&b, `<rect class="back" width="%d" height="%d" rx="12"/>`+"\n", pictureWide, pictureHigh)
	text(&b, "head", 24, 34, "start", "What a call costs as everything else grows")
	text(&b, "", 24, 53, "start", fmt.Sprintf(
		"readFile over HTTP with the record on, %d callers; each size by turns with the smallest one, in one run",
		growthCallers))
	for i, p := range panels(points) {
		x, y := panelsLeft+i%2*panelWide, panelsTop+i/2*(panelHigh+6)
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", x, y)
		p.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// described describes the picture in words, for readers who cannot see it.
func described(points []point) string {
	var said []string
	for _, p := range panels(points) {
		for _, m := range p.marks {
			said = append(said, fmt.Sprintf("%s, %s: %s", p.title, p.name(m.size), m.label))
		}
	}
	return strings.Join(said, "; ")
}

// panels sorts the points into curves.
func panels(points []point) (all []panel) {
	for _, one := range []struct{ curve, title, axis string }{
		{curveTools, "Tools in the catalogue", "calls per second, by the number of tools"},
		{curveSessions, "Sessions, each with a state", "calls per second, by the number of sessions"},
		{curveRecord, "Rows in the store", "calls per second, by the number of records"},
	} {
		p := panel{
			title: one.title, axis: one.axis, limit: fmt.Sprintf("%g of the first", flat), name: count, value: thousands,
		}
		for _, at := range merged(points, one.curve) {
			p.marks = append(p.marks, mark{
				float64(at.size), at.rate, thousands(at.rate) + "/s", fmt.Sprintf("p99 %.1f ms", at.p99),
			})
		}
		for range p.marks {
			p.limits = append(p.limits, flat*p.marks[0].value)
		}
		all = append(all, p)
	}
	out := panel{
		title: "Size of an output", axis: "memory of the server beyond that for a few bytes, by the bytes of an output", log: true,
		limit: "twice the output + 16 MiB", name: bytesOf, value: bytesOf,
	}
	for _, at := range merged(points, curveOutput) {
		taken := float64(at.memory)
		out.marks = append(out.marks, mark{float64(at.size), taken, bytesOf(taken), thousands(at.rate) + "/s"})
		out.limits = append(out.limits, float64(outputLimit(at.size)))
	}
	return append(all, out)
}

// merged returns the points of a curve by size, one for each. The smallest size was measured beside every other one, and
// the machine may have been faster at one time than at another, so only the ratio to it counts.
func merged(points []point, curve string) (list []point) {
	bySize := map[int][]point{}
	var firsts []float64
	for _, p := range points {
		if p.curve == curve {
			bySize[p.size] = append(bySize[p.size], p)
			firsts = append(firsts, p.first)
		}
	}
	first := mean(firsts)
	for _, same := range bySize {
		sum := point{curve: curve, size: same[0].size}
		n := float64(len(same))
		for _, p := range same {
			if p.first > 0 {
				p.rate *= first / p.first
			}
			sum.rate += p.rate / n
			sum.p99 += p.p99 / n
			sum.memory = max(sum.memory, p.memory)
		}
		list = append(list, sum)
	}
	slices.SortFunc(list, func(a, b point) int { return cmp.Compare(a.size, b.size) })
	return list
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

func (p panel) draw(b *strings.Builder) {
	fmt.Fprintf(b, `<rect class="card" x="4" y="4" width="%d" height="%d" rx="8"/>`+"\n", panelWide-8, panelHigh-8)
	text(b, "title", 20, 30, "start", p.title)
	text(b, "small", 20, 47, "start", p.axis)
	if len(p.marks) == 0 {
		text(b, "", panelWide/2, panelHigh/2, "middle", "not measured")
		return
	}
	p.grid(b)
	line := p.line(p.values())
	fmt.Fprintf(b, `<path class="under" d="M%s L%.1f,%d L%.1f,%d Z"/>`+"\n", line,
		p.x(p.marks[len(p.marks)-1].size), plotTop+plotHigh, p.x(p.marks[0].size), plotTop+plotHigh)
	fmt.Fprintf(b, `<path class="limit" d="M%s"/>`+"\n", p.line(p.limits))
	fmt.Fprintf(b, `<path class="curve" d="M%s"/>`+"\n", line)
	for i, m := range p.marks {
		p.mark(b, m, p.limits[i], anchor(i, len(p.marks)))
	}
	p.legend(b)
}

// grid draws the lines at round values, and the axis below.
func (p panel) grid(b *strings.Builder) {
	for _, v := range p.ticks() {
		y := p.y(v)
		fmt.Fprintf(b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`+"\n", plotLeft, plotLeft+plotWide, y, y)
		text(b, "small", plotLeft-8, y+4, "end", p.value(v))
	}
	fmt.Fprintf(b, `<line class="axis" x1="%d" x2="%d" y1="%d" y2="%d"/>`+"\n", plotLeft, plotLeft+plotWide,
		plotTop+plotHigh, plotTop+plotHigh)
}

func (p panel) mark(b *strings.Builder, m mark, limit float64, anchor string) {
	x, y := p.x(m.size), p.y(m.value)
	fmt.Fprintf(b, `<circle class="dot" cx="%.1f" cy="%.1f" r="4.5"/>`+"\n", x, y)
	valueY := y - 12
	if at := p.y(limit); at < y && at > y-28 { // the target line is in the way; there is room above it
		valueY = at - 8
	}
	text(b, "value", x, valueY, anchor, m.label)
	text(b, "value", x, plotTop+plotHigh+18, anchor, p.name(m.size))
	text(b, "small", x, plotTop+plotHigh+33, anchor, m.below)
}

// legend explains the dashed line, in a corner that the curves leave free.
func (p panel) legend(b *strings.Builder) {
	y := panelHigh - 22
	fmt.Fprintf(b, `<line class="limit" x1="%d" x2="%d" y1="%d" y2="%d"/>`+"\n", plotLeft, plotLeft+26, y, y)
	text(b, "small limits", plotLeft+33, float64(y+4), "start", "target: "+p.limit)
}

// anchor keeps the labels at the ends of a curve inside the panel.
func anchor(i, n int) string {
	switch i {
	case 0:
		return "start"
	case n - 1:
		return "end"
	}
	return "middle"
}

func (p panel) values() (values []float64) {
	for _, m := range p.marks {
		values = append(values, m.value)
	}
	return values
}

// line returns the path through values at the sizes of the marks.
func (p panel) line(values []float64) string {
	var at []string
	for i, v := range values {
		at = append(at, fmt.Sprintf("%.1f,%.1f", p.x(p.marks[i].size), p.y(v)))
	}
	return strings.Join(at, " L")
}

// x returns the position of a size: sizes grow by factors.
func (p panel) x(size float64) float64 {
	from, to := p.marks[0].size, p.marks[len(p.marks)-1].size
	if from == to {
		return plotLeft
	}
	return plotLeft + plotWide*math.Log(size/from)/math.Log(to/from)
}

// y returns the position of a value.
func (p panel) y(v float64) float64 {
	ticks := p.ticks()
	from, to := ticks[0], ticks[len(ticks)-1]
	part := (v - from) / (to - from)
	if p.log {
		part = math.Log(max(v, from)/from) / math.Log(to/from)
	}
	return plotTop + plotHigh*(1-part)
}

// ticks returns round values from the bottom of the plot to its top, above everything that is drawn.
func (p panel) ticks() (ticks []float64) {
	most := max(slices.Max(p.values()), slices.Max(p.limits))
	if p.log {
		for v := float64(1 << 20); ; v *= 8 {
			if ticks = append(ticks, v); v > 1.5*most {
				return ticks
			}
		}
	}
	step := math.Pow(10, math.Floor(math.Log10(most))-1)
	for _, next := range []float64{2, 2.5, 2, 2} { // 1, 2, 5, 10, 20 times it, until four steps are enough
		if 4*step >= 1.2*most {
			break
		}
		step *= next
	}
	for v := 0.0; ; v += step {
		if ticks = append(ticks, v); v >= 1.2*most {
			return ticks
		}
	}
}

func text(b *strings.Builder, class string, x, y float64, anchor, words string) {
	fmt.Fprintf(b, `<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor, words)
}

// count formats a number with separators.
func count(n float64) string {
	digits := strconv.FormatInt(int64(n), 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

func thousands(n float64) string {
	if n >= 1000 {
		return strconv.FormatFloat(math.Round(n/100)/10, 'f', -1, 64) + " k"
	}
	if n >= 10 {
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	return strconv.FormatFloat(math.Round(n*10)/10, 'f', -1, 64)
}

func bytesOf(n float64) string {
	for _, u := range []struct {
		of   float64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.of {
			return strconv.FormatFloat(math.Round(n/u.of*10)/10, 'f', -1, 64) + " " + u.name
		}
	}
	return fmt.Sprintf("%.0f B", n)
}
