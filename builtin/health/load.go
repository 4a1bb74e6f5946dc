package health

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolpost/builtin/define"
	"toolpost/engine/calls"
	"toolpost/engine/follow"
	"toolpost/engine/telemetry"
	"toolpost/fleet"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Load is what the program is doing at one moment, and has done since the previous one. That of a hub covers the calls of all
// hubs of its fleet.
type Load struct {
	Time     time.Time       `json:"time"`
	Up       float64         `json:"up_s"`     // since the start of the program
	Window   float64         `json:"window_s"` // the time that the rates cover; 0 if there are none yet
	InFlight int             `json:"in_flight"`
	Calls    []calls.Running `json:"calls"` // those in flight, the oldest first, at most 100
	All      Rate            `json:"all"`
	Tools    []Rate          `json:"tools"` // called within the window, the most called first, at most 100
	Sources  []Source        `json:"sources"`
	Missing  []string        `json:"missing,omitzero"` // hubs of the fleet that did not answer: their calls are not in it
}

// A Rate is how many calls ended within a window, and how long they took.
type Rate struct {
	Tool   string  `json:"tool,omitzero"`
	Source string  `json:"source,omitzero"`
	Calls  int64   `json:"calls"`
	Bad    int64   `json:"bad"` // ended neither in success nor with a question
	Rate   float64 `json:"per_s"`
	Mean   float64 `json:"mean_ms"`
	P50    float64 `json:"p50_ms"`
	P95    float64 `json:"p95_ms"`
	P99    float64 `json:"p99_ms"`
	Total  int64   `json:"total"` // calls since the start of the program
}

// most bounds the lists of a load.
const most = 100

// LoadArgs are the arguments of watchLoad.
type LoadArgs struct {
	Interval int `json:"interval_ms,omitzero" schema:"minimum=200 maximum=60000" doc:"time between two reports; default: 1000"`
	Count    int `json:"count,omitzero" schema:"minimum=0" doc:"number of reports after which to end; default: end after an hour. The first report comes at once and has no rates"`
}

type watched struct {
	Seen int `json:"seen"` // how many were sent
	// For another hub, which asks once for each of its own reports:
	Calls  []calls.Running     `json:"calls,omitzero"`
	Counts []telemetry.Counted `json:"counts,omitzero"`
}

func (o Options) load(ctx context.Context, c *define.Call, a LoadArgs, f *follow.Follower) (w watched, err error) {
	if c.FromHub {
		return watched{Calls: o.running(c), Counts: o.Counts().List()}, nil
	}
	every := time.Duration(cmp.Or(a.Interval, 1000)) * time.Millisecond
	var before moment
	for more := true; more; {
		now := o.measure(ctx, c)
		l := o.at(ctx, c, now, before)
		fields, err := strictjson.Marshal(l)
		if err != nil {
			return w, err
		}
		ev := tool.NewEvent(tool.KindLog, tool.Log{Level: "info", Message: l.String(), Fields: fields})
		if err := c.Out.Emit(ev); err != nil {
			return w, err
		}
		if w.Seen++; w.Seen == a.Count {
			return w, nil
		}
		before = now
		if more, err = f.Wait(ctx, nil, every); err != nil {
			return w, err
		}
	}
	return w, err
}

// A moment holds the measurements of one time.
type moment struct {
	at      time.Time
	counts  map[string]telemetry.Counts // by the hub
	calls   []calls.Running
	missing []string
}

// measure measures this program and the other hubs.
func (o Options) measure(ctx context.Context, c *define.Call) moment {
	m := moment{at: time.Now(), calls: o.running(c), counts: map[string]telemetry.Counts{"": o.Counts()}}
	for _, answer := range o.Fleet.Node().AskHubs(ctx, fleet.Ask(c.Call, "watchLoad")) {
		var w watched
		if answer.Err != nil || strictjson.Unmarshal(answer.Output, &w) != nil {
			m.missing = append(m.missing, answer.Node)
			continue
		}
		m.calls, m.counts[answer.Node] = append(m.calls, w.Calls...), telemetry.CountsOf(w.Counts)
	}
	slices.SortStableFunc(m.calls, func(a, b calls.Running) int { return a.Since.Compare(b.Since) })
	return m
}

// running lists the calls that run here, without those such as this very call.
func (o Options) running(c *define.Call) []calls.Running {
	return slices.DeleteFunc(o.Calls.List(c.Caller), func(one calls.Running) bool { return one.Kind == tool.OperatorCall })
}

// at measures everything once.
func (o Options) at(ctx context.Context, c *define.Call, now, before moment) Load {
	total, between := telemetry.Counts{}, telemetry.Counts{}
	for hub, counts := range now.counts {
		total = total.Add(counts)
		if was, ok := before.counts[hub]; ok {
			between = between.Add(counts.Since(was))
		}
	}
	l := Load{
		Time: now.at, Up: now.at.Sub(o.Started).Seconds(), InFlight: len(now.calls), Tools: []Rate{}, Missing: now.missing,
		Calls: append([]calls.Running{}, now.calls[:min(most, len(now.calls))]...), Sources: o.Sources(ctx, c.Caller), All: Rate{Total: total.All().Calls},
	}
	if before.at.IsZero() {
		return l
	}
	l.Window = now.at.Sub(before.at).Seconds()
	l.All = rate("", "", between.All(), l.Window, l.All.Total)
	for of, n := range between {
		l.Tools = append(l.Tools, rate(of.Tool, of.Source, n, l.Window, total[of].Calls))
	}
	slices.SortFunc(l.Tools, func(a, b Rate) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Tool, b.Tool), strings.Compare(a.Source, b.Source))
	})
	l.Tools = l.Tools[:min(most, len(l.Tools))]
	return l
}

func rate(name, source string, n telemetry.Count, window float64, total int64) Rate {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return Rate{
		Tool: name, Source: source, Calls: n.Calls, Bad: n.Bad, Rate: float64(n.Calls) / window,
		Mean: ms(n.Took / time.Duration(max(n.Calls, 1))), P50: ms(n.Quantile(0.5)), P95: ms(n.Quantile(0.95)),
		P99: ms(n.Quantile(0.99)), Total: total,
	}
}

// String describes the load in a line.
func (l *Load) String() string {
	failed, alive, busy := 0, 0, 0
	for _, s := range l.Sources {
		if s.State == StateFailed {
			failed++
		}
		if s.Workers != nil {
			alive, busy = alive+s.Workers.Alive, busy+s.Workers.Busy
		}
	}
	return fmt.Sprintf("in flight %d, calls/s %.1f, bad %d, p50 %.1fms, p95 %.1fms, "+
		"workers %d/%d busy, sources %d (%d failed)",
		l.InFlight, l.All.Rate, l.All.Bad, l.All.P50, l.All.P95, busy, alive, len(l.Sources), failed)
}
