// Package audit has the tools that query the log of calls: audit.log, audit.watch, audit.series, audit.top, audit.paths,
// audit.errors, audit.latency and audit.verify. The log covers every caller, so only operators may use them. A query is a
// call like any other, and is recorded too.
package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"toolpost/builtin/define"
	"toolpost/engine/audit"
	"toolpost/engine/follow"
	"toolpost/tool"
)

// Rows are the records of the calls that were made.
type Rows interface {
	// Log visits the calls that match a filter, the newest or the oldest first. An error of visit ends it, and is returned.
	Log(ctx context.Context, f audit.Filter, newestFirst bool, visit func(*tool.Record) error) error
	// VerifyTelling checks every row for changes, and reports how many it has checked. The points must be in the log.
	VerifyTelling(ctx context.Context, tell func(rows, all int64) error, points ...audit.Point) (*audit.Report, error)
	// Head returns the number of the last row. Next returns the rows after one, the oldest first, up to a limit. Changed
	// signals that this program has added rows, see tool.Changing.
	Head(ctx context.Context) (int64, error)
	Next(ctx context.Context, after int64, most int) ([]*tool.Record, error)
	tool.Changing
}

// Statistics summarises the calls that match a filter.
type Statistics interface {
	// Uses reports what is called most, and History how much on each day.
	Uses(ctx context.Context, f audit.Filter, by audit.Group) ([]audit.Use, error)
	History(ctx context.Context, f audit.Filter) ([]audit.Moment, error)
	// Paths reports which files are accessed, Failures what goes wrong, and Latencies how long calls take.
	Paths(ctx context.Context, f audit.Filter) ([]audit.Path, error)
	Failures(ctx context.Context, f audit.Filter) ([]audit.Failure, error)
	Latencies(ctx context.Context, f audit.Filter) ([]audit.Latency, error)
	// Series reports calls over time, in at most this many steps; if the filter has no end, until now.
	Series(ctx context.Context, f audit.Filter, now time.Time, most int) (*audit.Series, error)
}

// longest bounds a scan of the whole log: some have many millions of rows.
const longest = time.Hour

// New makes the tools over the rows of a log and the statistics of the same log.
func New(rows Rows, statistics Statistics, followers *follow.Followers) *define.Set {
	t := tools{rows, statistics}
	return define.NewSet(
		define.New(tool.Spec{
			Name: "audit.watch", Effects: tool.Effects{Reads: true}, Timeout: follow.Timeout,
			Description: "Sends the records of calls as they are added to the log, by any program, as log events: " +
				"the record is in their fields. It ends after an hour.",
		}, define.ForOperators(asks, define.Following(followers, t.watch))),
		question("log", "Lists the records of calls, in pages.", t.page),
		question("top", "Counts the calls by tool, caller, door or source, with their outcomes and the calls of each day.", t.top),
		question("paths", "Lists the files that calls access, as far as their arguments tell.", t.paths),
		question("errors", "Counts the errors of each tool, and their share of its calls.", t.failures),
		question("latency", "Measures how long the calls of each tool take, the slowest first.", t.latency),
		question("series", "Counts calls over time, in steps of equal length: their outcomes, how long they took "+
			"(milliseconds), and the bytes in and out. For plots.", t.series),
		question("verify", "Verifies the whole log of calls, and reports any change that it finds.", t.verify),
	)
}

// asks completes the error "you may not …".
const asks = "ask about the calls of all callers"

// question defines a tool. None of them changes anything, and each may have to scan the whole log.
func question[A, O any](name, description string, run func(context.Context, *define.Call, A) (O, error)) define.Tool {
	return define.New(tool.Spec{
		Name: "audit." + name, Description: description, Effects: tool.Effects{Reads: true}, Timeout: longest,
	}, define.ForOperators(asks, run))
}

type tools struct {
	rows       Rows
	statistics Statistics
}

// LogArgs are the arguments of audit.log.
type LogArgs struct {
	audit.Filter
	Oldest bool  `json:"oldest_first,omitzero" doc:"the oldest first; default: the newest first"`
	After  int64 `json:"after,omitzero" schema:"minimum=0" doc:"continue after the row with this number: the next of the previous page"`
}

// A Page is the outcome of audit.log. Next is 0 if nothing follows. Head is the number of the last row of the log, so that a
// client can show its progress.
type Page struct {
	Calls []json.RawMessage `json:"calls"`
	Next  int64             `json:"next,omitzero"`
	Head  int64             `json:"head"`
}

// The bounds of a page. A client that wants more asks again, so that no query holds the store, or much memory, for a long
// time.
const (
	pageRows  = 1000
	pageBytes = 1 << 20
)

// errFull ends the visit of a page.
var errFull = errors.New("the page is full")

func (t tools) page(ctx context.Context, c *define.Call, a LogArgs) (Page, error) {
	rows := pageRows
	if a.Limit > 0 {
		rows = min(a.Limit, pageRows)
	}
	f := a.Counted()
	f.After, f.Limit = a.After, rows+1 // one more shows whether there is another page
	p, size, last, columns := Page{Calls: []json.RawMessage{}}, 0, int64(0), audit.Columns()
	var err error
	if p.Head, err = t.rows.Head(ctx); err != nil {
		return p, err
	}
	err = t.rows.Log(ctx, f, !a.Oldest, func(r *tool.Record) error {
		if r.Seq > p.Head { // added since: a client that continues after Head gets it then
			return nil
		}
		if len(p.Calls) == rows || size > pageBytes {
			p.Next = last
			return errFull
		}
		doc, err := columns.Marshal(r)
		p.Calls, size, last = append(p.Calls, doc), size+len(doc), r.Seq
		return err
	})
	if errors.Is(err, errFull) {
		err = nil
	}
	c.Summary = define.Count(len(p.Calls), "call")
	return p, err
}

// TopArgs are the arguments of audit.top.
type TopArgs struct {
	audit.Filter
	By audit.Group `json:"by,omitzero" schema:"enum=tool|caller|door|source" doc:"what to group calls by; default: tool"`
}

// Top is the outcome of audit.top.
type Top struct {
	By   audit.Group    `json:"by"`
	Days []audit.Moment `json:"days"`
	Uses []audit.Use    `json:"uses"`
}

func (t tools) top(ctx context.Context, _ *define.Call, a TopArgs) (Top, error) {
	if a.By == "" {
		a.By = audit.ByTool
	}
	uses, err := t.statistics.Uses(ctx, a.Counted(), a.By)
	if err != nil {
		return Top{}, err
	}
	days, err := t.statistics.History(ctx, a.Counted())
	return Top{a.By, append([]audit.Moment{}, days...), uses}, err
}

// Paths is the outcome of audit.paths.
type Paths struct {
	Paths []audit.Path `json:"paths"`
}

func (t tools) paths(ctx context.Context, _ *define.Call, f audit.Filter) (Paths, error) {
	paths, err := t.statistics.Paths(ctx, f.Counted())
	return Paths{paths}, err
}

// Failures is the outcome of audit.errors.
type Failures struct {
	Errors []audit.Failure `json:"errors"`
}

func (t tools) failures(ctx context.Context, _ *define.Call, f audit.Filter) (Failures, error) {
	failures, err := t.statistics.Failures(ctx, f.Counted())
	return Failures{failures}, err
}

// Latencies is the outcome of audit.latency.
type Latencies struct {
	Tools []audit.Latency `json:"tools"`
}

func (t tools) latency(ctx context.Context, _ *define.Call, f audit.Filter) (Latencies, error) {
	tools, err := t.statistics.Latencies(ctx, f.Counted())
	return Latencies{tools}, err
}

// SeriesArgs are the arguments of audit.series.
type SeriesArgs struct {
	audit.Filter
	Buckets int `json:"buckets,omitzero" schema:"minimum=1 maximum=500" doc:"maximum number of steps; default: 120. They have the shortest round length that gives no more steps"`
}

// A hundred and twenty bars can be told apart on a small screen.
const defaultBuckets = 120

func (t tools) series(ctx context.Context, c *define.Call, a SeriesArgs) (*audit.Series, error) {
	if a.Limit != 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "a series is of all calls of the filter; leave out limit")
	}
	if a.Buckets < 0 || a.Buckets > audit.MaxBuckets {
		return nil, tool.Errorf(tool.CodeInvalidInput, "buckets is %d; it must be 1 to %d", a.Buckets, audit.MaxBuckets)
	}
	s, err := t.statistics.Series(ctx, a.Counted(), time.Now(), cmp.Or(a.Buckets, defaultBuckets))
	if err == nil {
		c.Summary = define.Count(int(s.Totals.Calls()), "call") + " in " + define.Count(len(s.Buckets), "step")
	}
	return s, err
}

// VerifyArgs are the arguments of audit.verify.
type VerifyArgs struct {
	Expect []string `json:"expect,omitzero" schema:"maxItems=100" doc:"points, NUMBER:HASH, that earlier verifications reported (in JSON as head); repeatable"`
}

func (t tools) verify(ctx context.Context, c *define.Call, a VerifyArgs) (*audit.Report, error) {
	var points []audit.Point
	for _, text := range a.Expect {
		p, err := audit.ParsePoint(text)
		if err != nil {
			return nil, err
		}
		points = append(points, p)
	}
	r, err := t.rows.VerifyTelling(ctx, func(rows, all int64) error {
		return c.Out.Emit(tool.NewEvent(tool.KindProgress, tool.Progress{Progress: float64(rows), Total: float64(all)}))
	}, points...)
	if err == nil {
		c.Summary = fmt.Sprintf("%d rows, %d findings", r.Rows, len(r.Findings))
	}
	return r, err
}
