package telemetry

import (
	"context"
	"io"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

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
	operator                     bool // see tool.OperatorCall

	outcome tool.Outcome
	code    tool.Code
}

func (l labels) bad() bool { return l.outcome != tool.OutcomeOK && l.outcome != tool.OutcomeAsked }

func (l labels) list() map[string]string {
	return map[string]string{
		"tool": l.tool, "source": l.source, "protocol": l.protocol, "door": l.door,
		"outcome": string(l.outcome), "code": string(l.code),
	}
}

// kept returns labels apart from the texts that they were cut out of, which may be large. If the table is full, they
// become those that stand for all that there is no room for.
func (l labels) kept(full bool) labels {
	for _, text := range []*string{&l.tool, &l.source, &l.protocol, &l.door} {
		*text = kept(*text, full)
	}
	return l
}

func kept(text string, full bool) string {
	if full {
		return others
	}
	return strings.Clone(text)
}

const limits = 15

// bounds are the upper ends of the classes of durations; one more class is for longer ones.
func bounds() [limits]time.Duration {
	const ms = time.Millisecond
	return [...]time.Duration{
		ms / 2, ms, 5 * ms / 2, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms,
		time.Second, 2500 * ms, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	}
}

// A series counts the calls that have the same labels. The histogram and the counters of the library would take twice
// as long.
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

// A table finds counters without a lock. To add one the whole table is copied, which ends soon: there are only so many.
type table[K comparable, V any] struct {
	most   int
	kept   func(k K, full bool) K
	now    atomic.Pointer[map[K]*V]
	adding sync.Mutex
}

// all returns the counters that there are.
func (t *table[K, V]) all() map[K]*V {
	if all := t.now.Load(); all != nil {
		return *all
	}
	return nil
}

// of returns the counter of k, a new one if there is none.
func (t *table[K, V]) of(k K) *V {
	if v := t.all()[k]; v != nil {
		return v
	}
	t.adding.Lock()
	defer t.adding.Unlock()
	was := t.all()
	k = t.kept(k, len(was) >= t.most)
	if v := was[k]; v != nil {
		return v
	}
	next := map[K]*V{k: new(V)}
	maps.Copy(next, was)
	t.now.Store(&next)
	return next[k]
}

// A Sample is one thing that was measured.
type Sample struct {
	Name   string // as Prometheus has it, such as toolpost_sources; that of a counter ends in _total
	Help   string
	Labels map[string]string // tell samples of one name apart
	Value  float64
}

// Describe implements prometheus.Collector. It says nothing: there is nothing to measure before the program has started.
func (t *Telemetry) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector: it returns everything that is measured, as it is now.
func (t *Telemetry) Collect(out chan<- prometheus.Metric) {
	list := append(t.env.Samples(), t.send.samples()...)
	list = append(list, Sample{"toolpost_info", "This program.", map[string]string{"version": t.env.Version}, 1})
	for door, n := range t.running.all() {
		by := map[string]string{"door": door}
		list = append(list, Sample{"toolpost_calls_running", "Calls that run now.", by, float64(n.Load())})
	}
	for l, s := range t.calls.all() {
		c, by, within := s.count(), l.list(), map[float64]uint64{}
		name, of := "toolpost_call", ""
		if l.operator {
			name, of = "toolpost_operator_call", " These calls only look at what Toolpost does."
		}
		for i, end := range bounds() {
			within[end.Seconds()] = uint64(c.Within[i])
		}
		out <- prometheus.MustNewConstHistogram(t.desc(name+"_duration_seconds", "How long calls took."+of, by),
			uint64(c.Calls), c.Took.Seconds(), within)
		list = append(list, Sample{name + "s_total", "Calls that have ended." + of, by, float64(c.Calls)},
			Sample{name + "_in_bytes_total", "Size of the arguments." + of, by, float64(s.in.Load())},
			Sample{name + "_out_bytes_total", "Size of the outputs." + of, by, float64(s.size.Load())})
	}
	for _, s := range list {
		kind := prometheus.GaugeValue
		if strings.HasSuffix(s.Name, "_total") {
			kind = prometheus.CounterValue
		}
		out <- prometheus.MustNewConstMetric(t.desc(s.Name, s.Help, s.Labels), kind, s.Value)
	}
}

func (t *Telemetry) desc(name, help string, by map[string]string) *prometheus.Desc {
	clean := prometheus.Labels{}
	for name, value := range by {
		clean[name] = t.clean(value)
	}
	return prometheus.NewDesc(name, help, nil, clean)
}

// gather returns everything that is measured, in order. Of two series that differ in a secret alone there is one.
func (t *Telemetry) gather() []*dto.MetricFamily {
	registry := prometheus.NewRegistry()
	registry.MustRegister(t)
	families, _ := registry.Gather()
	return families
}

// Metrics writes all measurements in the text format of Prometheus.
func (t *Telemetry) Metrics(w io.Writer) error {
	for _, f := range t.gather() {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return err
		}
	}
	return nil
}

// Produce implements the SDK's Producer: it returns everything that is measured in the words of OpenTelemetry.
func (t *Telemetry) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	scope := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: "toolpost", Version: t.clean(t.env.Version)}}
	for _, f := range t.gather() {
		scope.Metrics = append(scope.Metrics, t.metric(f))
	}
	return []metricdata.ScopeMetrics{scope}, nil
}

// metric takes the unit out of a name, which is what distinguishes the names of OpenTelemetry from those of Prometheus.
func (t *Telemetry) metric(f *dto.MetricFamily) metricdata.Metrics {
	m := metricdata.Metrics{Description: f.GetHelp(), Name: strings.TrimSuffix(f.GetName(), "_total")}
	for end, unit := range map[string]string{"_seconds": "s", "_bytes": "By"} {
		if name, ok := strings.CutSuffix(m.Name, end); ok {
			m.Name, m.Unit = name, unit
		}
	}
	m.Name = strings.ReplaceAll(m.Name, "_", ".")
	var points []metricdata.DataPoint[float64]
	var histograms []metricdata.HistogramDataPoint[float64]
	for _, one := range f.Metric {
		var by []attribute.KeyValue
		for _, l := range one.Label {
			by = append(by, attribute.String("toolpost."+l.GetName(), l.GetValue()))
		}
		p := metricdata.DataPoint[float64]{Attributes: attribute.NewSet(by...), StartTime: t.started, Time: time.Now()}
		p.Value = one.GetCounter().GetValue() + one.GetGauge().GetValue() // one of the two
		if f.GetType() == dto.MetricType_GAUGE {
			p.StartTime = time.Time{}
		}
		points = append(points, p)
		histograms = append(histograms, histogram(p, one.GetHistogram()))
	}
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		m.Data = metricdata.Sum[float64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}
	case dto.MetricType_HISTOGRAM:
		m.Data = metricdata.Histogram[float64]{DataPoints: histograms, Temporality: metricdata.CumulativeTemporality}
	default:
		m.Data = metricdata.Gauge[float64]{DataPoints: points}
	}
	return m
}

// histogram makes of a histogram of Prometheus, whose classes have all that is below them, one of OpenTelemetry.
func histogram(p metricdata.DataPoint[float64], h *dto.Histogram) metricdata.HistogramDataPoint[float64] {
	to := metricdata.HistogramDataPoint[float64]{
		Attributes: p.Attributes, StartTime: p.StartTime, Time: p.Time, Count: h.GetSampleCount(), Sum: h.GetSampleSum(),
	}
	below := uint64(0)
	for _, b := range h.GetBucket() {
		to.Bounds = append(to.Bounds, b.GetUpperBound())
		to.BucketCounts = append(to.BucketCounts, b.GetCumulativeCount()-below)
		below = b.GetCumulativeCount()
	}
	to.BucketCounts = append(to.BucketCounts, h.GetSampleCount()-below)
	return to
}
