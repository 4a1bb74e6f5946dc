package telemetry

import (
	"bufio"
	"cmp"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/tool"
)

// Placeholders for names.
const (
	unknownTool = "unknown" // there is no tool of that name
	others      = "other"   // there are too many to count each
)

// Limits of what is counted separately: tools come and go.
const (
	maxSeries = 1000
	maxDoors  = 64
)

// labels are the properties by which calls are counted.
type labels struct {
	tool, source, protocol, door string

	outcome tool.Outcome
	code    tool.Code
}

func (l labels) compare(o labels) int {
	return cmp.Or(strings.Compare(l.tool, o.tool), strings.Compare(l.source, o.source), strings.Compare(l.protocol, o.protocol),
		strings.Compare(l.door, o.door), cmp.Compare(l.outcome, o.outcome), cmp.Compare(l.code, o.code))
}

func (l labels) list() []Label {
	return []Label{
		{"tool", l.tool}, {"source", l.source}, {"protocol", l.protocol}, {"door", l.door},
		{"outcome", string(l.outcome)}, {"code", string(l.code)},
	}
}

const limits = 15

// bounds returns the upper ends of the classes of durations; one more class is for longer calls.
func bounds() [limits]time.Duration {
	const ms = time.Millisecond
	return [...]time.Duration{
		ms / 2, ms, 5 * ms / 2, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms,
		time.Second, 2500 * ms, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	}
}

// A series counts the calls that have the same labels.
type series struct {
	classes  [limits + 1]atomic.Int64
	nanos    atomic.Int64
	in, size atomic.Int64 // bytes of arguments and of outputs
}

func (s *series) add(took time.Duration, in, out int) {
	ends := bounds()
	i := 0
	for i < len(ends) && took > ends[i] {
		i++
	}
	s.classes[i].Add(1)
	s.nanos.Add(int64(took))
	s.in.Add(int64(in))
	s.size.Add(int64(out))
}

// A table finds counters without a lock. To add one, the whole table is copied; that is rare, because their number is
// limited.
type table[K countable[K], V any] struct {
	most   int
	now    atomic.Pointer[map[K]*V]
	adding sync.Mutex
}

// A countable is a key of counters.
type countable[K any] interface {
	comparable
	// kept returns a copy that does not keep a larger text alive, or, if full, the key for everything that there is no
	// room for.
	kept(full bool) K
}

// all returns the counters.
func (t *table[K, V]) all() map[K]*V {
	if all := t.now.Load(); all != nil {
		return *all
	}
	return nil
}

// of returns the counter of k, and creates it if needed.
func (t *table[K, V]) of(k K) *V {
	if v := t.all()[k]; v != nil {
		return v
	}
	t.adding.Lock()
	defer t.adding.Unlock()
	was := t.all()
	k = k.kept(len(was) >= t.most)
	if v := was[k]; v != nil {
		return v
	}
	next := map[K]*V{k: new(V)}
	maps.Copy(next, was)
	t.now.Store(&next)
	return next[k]
}

func (l labels) kept(full bool) labels {
	for _, text := range []*string{&l.tool, &l.source, &l.protocol, &l.door} {
		if *text = strings.Clone(*text); full {
			*text = others
		}
	}
	return l
}

// A door is the key by which running calls are counted.
type door string

func (d door) kept(full bool) door {
	if full {
		return others
	}
	return door(strings.Clone(string(d)))
}

// A Sample is one measurement.
type Sample struct {
	Name    string // in OpenTelemetry's form, such as toolpost.sources
	Help    string
	Unit    string // s, By, or empty
	Counter bool   // it only grows
	Labels  []Label
	Value   float64
}

// A Label distinguishes samples of the same name.
type Label struct{ Name, Value string }

// A family is all samples of one name.
type family struct {
	Sample // without labels and value
	points []point
}

// A point is a number, or a histogram if it has classes.
type point struct {
	labels  []Label
	value   float64
	classes []int64
}

func (p point) count() (n int64) {
	for _, c := range p.classes {
		n += c
	}
	return n
}

// snapshot returns all present measurements.
func (t *Telemetry) snapshot() []family {
	var samples []Sample
	doors := t.running.all()
	for _, d := range slices.Sorted(maps.Keys(doors)) {
		samples = append(samples, Sample{
			Name: "toolpost.calls.running", Help: "Calls that run now.", Labels: []Label{{"door", string(d)}},
			Value: float64(doors[d].Load()),
		})
	}
	samples = append(samples, Sample{
		Name: "toolpost.info", Help: "This program.", Labels: []Label{{"version", t.env.Version}}, Value: 1,
	})
	samples = append(samples, t.env.Samples()...)
	if t.send != nil {
		samples = append(samples, t.send.samples()...)
	}
	list := t.snapshotCalls()
	for _, s := range samples {
		at := slices.IndexFunc(list, func(f family) bool { return f.Name == s.Name })
		if at < 0 {
			at, list = len(list), append(list, family{Sample: s})
		}
		list[at].points = append(list[at].points, point{labels: s.Labels, value: s.Value})
	}
	return list
}

func (t *Telemetry) snapshotCalls() []family {
	count := family{Sample: Sample{Name: "toolpost.calls", Help: "Calls that have ended.", Counter: true}}
	took := family{Sample: Sample{Name: "toolpost.call.duration", Help: "How long calls took.", Unit: "s"}}
	in := family{Sample: Sample{Name: "toolpost.call.in", Help: "Size of the arguments.", Unit: "By", Counter: true}}
	out := family{Sample: Sample{Name: "toolpost.call.out", Help: "Size of the outputs.", Unit: "By", Counter: true}}
	all := t.calls.all()
	for _, l := range slices.SortedFunc(maps.Keys(all), labels.compare) {
		s := all[l]
		p := point{labels: l.list(), classes: make([]int64, len(s.classes))}
		for i := range s.classes {
			p.classes[i] = s.classes[i].Load()
		}
		number := func(n int64) point { return point{labels: p.labels, value: float64(n)} }
		count.points = append(count.points, number(p.count()))
		in.points, out.points = append(in.points, number(s.in.Load())), append(out.points, number(s.size.Load()))
		p.value = time.Duration(s.nanos.Load()).Seconds()
		took.points = append(took.points, p)
	}
	return []family{count, took, in, out}
}

// ContentType is the content type of the output of Metrics.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Metrics writes all measurements in the text format of Prometheus.
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

// nameOf returns the name of a family, by OpenTelemetry's rules for Prometheus.
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

// classes writes a histogram: each class includes all below it.
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

// escape encodes a text as the value of a label. A name can contain any character that its source chose.
func escape(text string) string {
	if !strings.ContainsAny(text, "\\\"\n") {
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	return strings.NewReplacer("\\", `\\`, "\"", `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(text, "\uFFFD"))
}
