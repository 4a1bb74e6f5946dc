package telemetry

import (
	"bufio"
	"io"
	"slices"
	"strconv"
	"strings"
)

// ContentType is that of what Metrics writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Metrics writes everything that is measured in the text format of Prometheus.
func (t *Telemetry) Metrics(w io.Writer) error {
	b := prometheus{bufio.NewWriter(w), t.env.Redact}
	for _, f := range t.snapshot() {
		b.family(f)
	}
	return b.Flush()
}

type prometheus struct {
	*bufio.Writer // remembers its first error
	redact        func(string) string
}

// nameOf is what a family is called, by the rules that OpenTelemetry has for Prometheus.
func (f *family) nameOf() string {
	name := strings.ReplaceAll(f.Name, ".", "_") + map[string]string{"s": "_seconds", "By": "_bytes"}[f.Unit]
	if f.Counter {
		name += "_total"
	}
	return name
}

func (f *family) histogram() bool { return len(f.points) > 0 && f.points[0].classes != nil }

func (b prometheus) family(f family) {
	name, kind := f.nameOf(), "gauge"
	switch {
	case len(f.points) == 0:
		return
	case f.Counter:
		kind = "counter"
	case f.histogram():
		kind = "histogram"
	}
	_, _ = b.WriteString("# HELP " + name + " " + f.Help + "\n# TYPE " + name + " " + kind + "\n")
	for _, p := range f.points {
		if p.classes == nil {
			b.line(name, p.labels, p.value)
			continue
		}
		b.classes(name, p)
	}
}

// classes writes a histogram: each class with all that is below it.
func (b prometheus) classes(name string, p point) {
	with := slices.Concat(p.labels, []Label{{}})
	le, below := &with[len(with)-1], int64(0)
	ends := bounds()
	for i, n := range p.classes {
		below += n
		*le = Label{"le", "+Inf"}
		if i < len(ends) {
			le.Value = strconv.FormatFloat(ends[i].Seconds(), 'g', -1, 64)
		}
		b.line(name+"_bucket", with, float64(below))
	}
	b.line(name+"_sum", p.labels, p.value)
	b.line(name+"_count", p.labels, float64(below))
}

func (b prometheus) line(name string, labels []Label, value float64) {
	_, _ = b.WriteString(name)
	for i, l := range labels {
		_ = b.WriteByte("{,"[min(i, 1)])
		_, _ = b.WriteString(l.Name + `="` + escape(b.redact(l.Value)) + `"`)
	}
	if len(labels) > 0 {
		_ = b.WriteByte('}')
	}
	_, _ = b.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}

// escape makes a text the value of a label. A name can be anything that its source thought of.
func escape(text string) string {
	if !strings.ContainsAny(text, "\\\"\n") {
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	return strings.NewReplacer("\\", `\\`, "\"", `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(text, "\uFFFD"))
}
