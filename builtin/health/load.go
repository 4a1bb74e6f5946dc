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
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Load is what the program is doing at one moment, and has done since the previous one.
type Load struct {
	Time     time.Time       `json:"time"`
	Up       float64         `json:"up_s"`     // since the start of the program
	Window   float64         `json:"window_s"` // the time that the rates cover; 0 if there are none yet
	InFlight int             `json:"in_flight"`
	Calls    []calls.Running `json:"calls"` // those in flight, the oldest first, at most 100
	All      Rate            `json:"all"`
	Tools    []Rate          `json:"tools"` // called within the window, the most called first, at most 100
	Sources  []Source        `json:"sources"`
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
}

func (o Options) load(ctx context.Context, c *define.Call, a LoadArgs, f *follow.Follower) (w watched, err error) {
	every := time.Duration(cmp.Or(a.Interval, 1000)) * time.Millisecond
	var before moment
	for more := true; more; {
		now := moment{time.Now(), o.Counts()}
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
	at     time.Time
	counts telemetry.Counts
}

// at measures everything once.
func (o Options) at(ctx context.Context, c *define.Call, now, before moment) Load {
	l := Load{
		Time: now.at, Up: now.at.Sub(o.Started).Seconds(), Calls: []calls.Running{}, Tools: []Rate{},
		Sources: o.Sources(ctx, c.Caller), All: Rate{Total: now.counts.All().Calls},
	}
	for _, one := range o.Calls.List(c.Caller) {
		if one.Kind == tool.OperatorCall { // such as this very call
			continue
		}
		if l.InFlight++; l.InFlight <= most {
			l.Calls = append(l.Calls, one)
		}
	}
	if before.at.IsZero() {
		return l
	}
	l.Window = now.at.Sub(before.at).Seconds()
	between := now.counts.Since(before.counts)
	l.All = rate("", "", between.All(), l.Window, l.All.Total)
	for of, n := range between {
		l.Tools = append(l.Tools, rate(of.Tool, of.Source, n, l.Window, now.counts[of].Calls))
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
