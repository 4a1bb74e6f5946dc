// Package curves draws how numbers change as other numbers grow.
package curves

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Panel is one curve of the picture.
type Panel struct {
	Title, Axis string
	Marks       []Mark // by size
	Limits      []float64
	Limit       string // what they are
	Log         bool   // the values grow by factors too
	Name        func(size float64) string
	Value       func(float64) string // on the axis
}

// A Mark is a point with its label.
type Mark struct {
	Size, Value float64
	Label       string
	Below       string
}

// Add adds a point to the curve.
func (p *Panel) Add(size int, value float64, label, below string, limit float64) {
	p.Marks = append(p.Marks, Mark{float64(size), value, label, below})
	p.Limits = append(p.Limits, limit)
}

// A Sheet is a picture of curves. The same curves result in the same picture.
type Sheet struct {
	Name, Title, Below string
	Panels             []Panel
}

// Draw writes the picture into a folder.
func (s Sheet) Draw(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, s.Name+".svg"), []byte(s.SVG()), 0o644)
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

// SVG returns the picture.
func (s Sheet) SVG() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="t d">`,
		pictureWide, pictureHigh)
	fmt.Fprintf(&b, "\n<title id=\"t\">%s</title>\n<desc id=\"d\">%s</desc>\n<style>%s</style>\n", s.Title, s.described(), style)
	fmt.Fprintf(&b, `<rect class="back" width="%d" height="%d" rx="12"/>`+"\n", pictureWide, pictureHigh)
	text(&b, "head", 24, 34, "start", s.Title)
	text(&b, "", 24, 53, "start", s.Below)
	for i, p := range s.Panels {
		x, y := panelsLeft+i%2*panelWide, panelsTop+i/2*(panelHigh+6)
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", x, y)
		p.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// described describes the picture in words, for readers who cannot see it.
func (s Sheet) described() string {
	var said []string
	for _, p := range s.Panels {
		for _, m := range p.Marks {
			said = append(said, fmt.Sprintf("%s, %s: %s", p.Title, p.Name(m.Size), m.Label))
		}
	}
	return strings.Join(said, "; ")
}

func (p Panel) draw(b *strings.Builder) {
	fmt.Fprintf(b, `<rect class="card" x="4" y="4" width="%d" height="%d" rx="8"/>`+"\n", panelWide-8, panelHigh-8)
	text(b, "title", 20, 30, "start", p.Title)
	text(b, "small", 20, 47, "start", p.Axis)
	if len(p.Marks) == 0 {
		text(b, "", panelWide/2, panelHigh/2, "middle", "not measured")
		return
	}
	p.grid(b)
	line := p.line(p.values())
	fmt.Fprintf(b, `<path class="under" d="M%s L%.1f,%d L%.1f,%d Z"/>`+"\n", line,
		p.x(p.Marks[len(p.Marks)-1].Size), plotTop+plotHigh, p.x(p.Marks[0].Size), plotTop+plotHigh)
	fmt.Fprintf(b, `<path class="limit" d="M%s"/>`+"\n", p.line(p.Limits))
	fmt.Fprintf(b, `<path class="curve" d="M%s"/>`+"\n", line)
	for i, m := range p.Marks {
		p.mark(b, m, p.Limits[i], anchor(i, len(p.Marks)))
	}
	p.legend(b)
}

// grid draws the lines at round values, and the axis below.
func (p Panel) grid(b *strings.Builder) {
	for _, v := range p.ticks() {
		y := p.y(v)
		fmt.Fprintf(b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`+"\n", plotLeft, plotLeft+plotWide, y, y)
		text(b, "small", plotLeft-8, y+4, "end", p.Value(v))
	}
	fmt.Fprintf(b, `<line class="axis" x1="%d" x2="%d" y1="%d" y2="%d"/>`+"\n", plotLeft, plotLeft+plotWide,
		plotTop+plotHigh, plotTop+plotHigh)
}

func (p Panel) mark(b *strings.Builder, m Mark, limit float64, anchor string) {
	x, y := p.x(m.Size), p.y(m.Value)
	fmt.Fprintf(b, `<circle class="dot" cx="%.1f" cy="%.1f" r="4.5"/>`+"\n", x, y)
	valueY := y - 12
	if at := p.y(limit); at < y && at > y-28 { // the target line is in the way; there is room above it
		valueY = at - 8
	}
	text(b, "value", x, valueY, anchor, m.Label)
	text(b, "value", x, plotTop+plotHigh+18, anchor, p.Name(m.Size))
	text(b, "small", x, plotTop+plotHigh+33, anchor, m.Below)
}

// legend explains the dashed line, in a corner that the curves leave free.
func (p Panel) legend(b *strings.Builder) {
	y := panelHigh - 22
	fmt.Fprintf(b, `<line class="limit" x1="%d" x2="%d" y1="%d" y2="%d"/>`+"\n", plotLeft, plotLeft+26, y, y)
	text(b, "small limits", plotLeft+33, float64(y+4), "start", p.Limit)
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

func (p Panel) values() (values []float64) {
	for _, m := range p.Marks {
		values = append(values, m.Value)
	}
	return values
}

// line returns the path through values at the sizes of the marks.
func (p Panel) line(values []float64) string {
	var at []string
	for i, v := range values {
		at = append(at, fmt.Sprintf("%.1f,%.1f", p.x(p.Marks[i].Size), p.y(v)))
	}
	return strings.Join(at, " L")
}

// x returns the position of a size: sizes grow by factors.
func (p Panel) x(size float64) float64 {
	from, to := p.Marks[0].Size, p.Marks[len(p.Marks)-1].Size
	if from == to {
		return plotLeft
	}
	return plotLeft + plotWide*math.Log(size/from)/math.Log(to/from)
}

// y returns the position of a value.
func (p Panel) y(v float64) float64 {
	ticks := p.ticks()
	from, to := ticks[0], ticks[len(ticks)-1]
	part := (v - from) / (to - from)
	if p.Log {
		part = math.Log(max(v, from)/from) / math.Log(to/from)
	}
	return plotTop + plotHigh*(1-part)
}

// ticks returns round values from the bottom of the plot to its top, above everything that is drawn.
func (p Panel) ticks() (ticks []float64) {
	most := max(slices.Max(p.values()), slices.Max(p.Limits))
	if p.Log {
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

// Count formats a number with separators.
func Count(n float64) string {
	digits := strconv.FormatInt(int64(n), 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// Thousands formats a number as it is said: 12.3 k.
func Thousands(n float64) string {
	if n >= 1000 {
		return strconv.FormatFloat(math.Round(n/100)/10, 'f', -1, 64) + " k"
	}
	if n >= 10 {
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	return strconv.FormatFloat(math.Round(n*10)/10, 'f', -1, 64)
}

// Bytes formats a number of bytes.
func Bytes(n float64) string {
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
