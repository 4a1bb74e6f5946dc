package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	audittools "toolpost/builtin/audit"
	"toolpost/cmd/toolpost/progress"
	record "toolpost/engine/audit"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/duration"
)

// An audit is one query of the log of calls.
type audit struct {
	*app
	tools        *backend // the target of the query
	filter       record.Filter
	calls        callFilter
	since, until string
	csv          bool
	shown        *progress.Line // progress of an export; nil if it is not shown
}

func (a *app) auditCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "audit", Short: "Ask what was called, by whom, and how it ended",
		Long: "Every call leaves a record in a log that cannot be changed unnoticed: what was called, by whom, through\n" +
			"which door, what was decided, what it touched, and how it ended.",
		Example: "  toolpost audit log --since 1h\n  toolpost audit top --by caller\n" +
			"  toolpost audit errors --tool execShell\n  toolpost audit verify",
	}, a.auditLogCommand(), a.auditSeriesCommand(), a.auditTopCommand(), a.auditPathsCommand(), a.auditErrorsCommand(), a.auditLatencyCommand(),
		a.auditExportCommand(), a.auditVerifyCommand())
}

// question makes a command that queries the log.
func (a *app) question(use, short, long string, limit int, run func(context.Context, *audit) error) *cobra.Command {
	q := &audit{app: a}
	c := &cobra.Command{Use: use, Short: short, Long: long, Args: words(0, 0)}
	f := c.Flags()
	f.StringVar(&q.since, "since", "",
		"only calls since a time (2026-01-31, 2026-01-31T08:00:00Z) or within the last 90m, 7d")
	f.StringVar(&q.until, "until", "", "only calls before a time")
	q.calls.add(f)
	f.StringVar(&q.filter.Parent, "parent", "", "only calls that the call with this id made, as a plan does")
	f.StringVar(&q.filter.Source, "source", "", "only calls of tools of a source")
	f.StringVar(&q.filter.Door, "door", "", "only calls that came in by a door, such as http")
	f.StringVar((*string)(&q.filter.Code), "code", "", "only calls that ended with an error code, such as timeout")
	f.IntVarP(&q.filter.Limit, "limit", "n", limit, "show at most this many rows; 0: all")
	f.BoolVar(&q.csv, "csv", false, "print CSV; times are in milliseconds")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if err := q.read(time.Now()); err != nil {
			return err
		}
		if q.tools, err = a.openKept(c.Context(), node.Options{Own: true}); err != nil {
			return err
		}
		defer q.tools.close()
		return run(c.Context(), q)
	}
	return a.withServer(a.withJSON("print JSON", c))
}

const asksLog = "ask about calls"

// ask calls one of the audit tools.
func (q *audit) ask(ctx context.Context, name string, args, into any) error {
	return q.callOwn(ctx, q.tools, tool.Call{Tool: "audit." + name, Args: raw(args)}, asksLog, into)
}

// each visits the calls that match the filter, page by page. A limit of 0 means no limit.
func (q *audit) each(ctx context.Context, oldest bool, visit func(doc json.RawMessage, r *tool.Record) error) error {
	args, columns := audittools.LogArgs{Filter: q.filter, Oldest: oldest}, record.Columns()
	var first, last int64
	seen := 0
	for left := q.filter.Limit; ; {
		var page audittools.Page
		if err := q.ask(ctx, "log", args, &page); err != nil {
			return err
		}
		for _, doc := range page.Calls {
			var r tool.Record
			if err := columns.Unmarshal(doc, &r); err != nil {
				return tool.Errorf(tool.CodeProtocol, "what came back is no record of a call: %w", err)
			}
			if err := visit(doc, &r); err != nil {
				return err
			}
			first, last = cmp.Or(first, r.Seq), r.Seq
		}
		seen += len(page.Calls)
		q.exported(first, last, page.Head, seen)
		left -= len(page.Calls)
		if page.Next == 0 || q.filter.Limit > 0 && left <= 0 {
			return nil
		}
		args.After, args.Limit = page.Next, max(left, 0)
	}
}

func (q *audit) read(now time.Time) (err error) {
	if q.filter.Since, err = moment(q.since, now); err != nil {
		return err
	}
	if q.filter.Until, err = moment(q.until, now); err != nil {
		return err
	}
	if err := q.calls.check(); err != nil {
		return err
	}
	c := &q.calls
	q.filter.Tool, q.filter.Caller, q.filter.Session = c.tool, c.caller, c.session
	q.filter.Run, q.filter.Outcome = c.run, tool.Outcome(c.outcome)
	if q.filter.Limit < 0 {
		return tool.Errorf(tool.CodeInvalidInput, "a limit cannot be negative")
	}
	return nil
}

// moment reads a time, or how long ago it was. An empty text is the zero time.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := duration.Parse(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	layouts := []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, time.DateOnly}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, tool.Errorf(tool.CodeInvalidInput,
		"%q is neither a time such as 2026-01-31 or 2026-01-31T08:00:00Z nor an age such as 90m or 7d", text)
}

// show prints a table, or the data for programs.
func (q *audit) show(head []string, rows [][]string, found any) error {
	switch {
	case q.json:
		return q.printJSON(found)
	case q.csv:
		for _, r := range rows {
			formulaSafe(r)
		}
		return csv.NewWriter(q.out).WriteAll(append([][]string{head}, rows...))
	case len(rows) == 0:
		fmt.Fprintln(q.err, "no calls")
		return nil
	}
	for i, name := range head {
		head[i] = strings.ToUpper(strings.ReplaceAll(name, "_", " "))
	}
	q.out.table(head, rows)
	return nil
}

// tabled calls an audit tool and shows what it found, a row for each item.
func tabled[T any](name string, head []string, rows func(*audit, T) [][]string) func(context.Context, *audit) error {
	return func(ctx context.Context, q *audit) error {
		var found T
		if err := q.ask(ctx, name, q.filter, &found); err != nil {
			return err
		}
		return q.show(head, rows(q, found), found)
	}
}

// formulaSafe keeps a spreadsheet from treating text that a caller chose as a formula.
func formulaSafe(row []string) []string {
	for i, cell := range row {
		if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
			if _, err := strconv.ParseFloat(cell, 64); err != nil {
				row[i] = "'" + cell
			}
		}
	}
	return row
}

func (a *app) auditLogCommand() *cobra.Command {
	var follow bool
	c := a.question("log", "Show calls, newest first",
		"Shows calls, newest first. With --follow it shows the last ones, the oldest of them first, and then each that\n"+
			"is recorded, by whichever program shares the store, until Ctrl-C: a line for each, or with --json an object on\n"+
			"each line.", 20,
		func(ctx context.Context, q *audit) error {
			if follow {
				return q.followLog(ctx)
			}
			calls, rows := []json.RawMessage{}, [][]string{}
			err := q.each(ctx, false, func(doc json.RawMessage, r *tool.Record) error {
				calls, rows = append(calls, doc), append(rows, q.logRow(r))
				return nil
			})
			if err != nil {
				return err
			}
			return q.show(logHead(), rows, map[string]any{"calls": calls})
		})
	c.Example = "  toolpost audit log --since 1h --caller ada\n" +
		"  toolpost audit log -f --outcome refused --server http://127.0.0.1:8700"
	c.Flags().BoolVarP(&follow, "follow", "f", false,
		"go on with the calls to come; -n says how many of the last it begins with")
	return c
}

func logHead() []string {
	return []string{"time", "tool", "caller", "door", "outcome", "code", "took", "about"}
}

// logRow returns a call as a row of the table.
func (q *audit) logRow(r *tool.Record) []string {
	return []string{
		r.Time.Local().Format(time.DateTime), cmp.Or(r.Tool, "? "+r.Asked), r.Caller, r.Door, string(r.Outcome),
		string(r.Code), q.took(r.Duration), aboutCall(r),
	}
}

// followLog shows calls as they are recorded. Columns are as wide as most calls need: later calls are not known yet.
func (q *audit) followLog(ctx context.Context) error {
	columns, lines := record.Columns(), csv.NewWriter(q.out)
	if q.csv {
		_ = lines.Write(logHead())
		lines.Flush()
	}
	args := func(after *int64) any { return audittools.WatchArgs{Filter: q.filter, After: after} }
	return q.followOwn(ctx, q.tools, "audit.watch", asksLog, args, func(log tool.Log) (int64, error) {
		var r tool.Record
		if len(log.Fields) == 0 { // a remark about the log, not a row of it
			fmt.Fprintln(q.err, clean(log.Message))
			return 0, nil
		}
		if err := columns.Unmarshal(log.Fields, &r); err != nil {
			return 0, tool.Errorf(tool.CodeProtocol, "what came is no record of a call: %w", err)
		}
		switch row := q.logRow(&r); {
		case q.json:
			_, err := fmt.Fprintln(q.out, cleanLines(string(log.Fields)))
			return r.Seq, err
		case q.csv:
			_ = lines.Write(formulaSafe(row))
			lines.Flush()
			return r.Seq, lines.Error()
		default:
			_, err := fmt.Fprintln(q.out, q.out.painted(log.Level, q.out.row([]int{19, 16, 10, 5, 7, 0, 0}, row)))
			return r.Seq, err
		}
	})
}

// aboutCall describes in a few words what a call was about.
func aboutCall(r *tool.Record) string {
	var about []string
	for _, argv := range r.Touches.Commands {
		about = append(about, "runs "+strings.Join(argv, " "))
	}
	for _, p := range r.Touches.Writes {
		about = append(about, "writes "+p)
	}
	about = append(about, r.Touches.Reads...)
	if r.Decision == "deny" {
		about = append(about, "denied by "+r.Rule)
	}
	if a := r.Approval; a.By != "" {
		about = append(about, a.State+" by "+a.By)
	} else if a.ID != "" {
		about = append(about, "approval "+a.ID+" "+a.State)
	}
	if r.DryRun {
		about = append(about, "only judged")
	}
	if r.Replay {
		about = append(about, "a replay")
	}
	if r.Cached {
		about = append(about, "from memory")
	}
	return strings.Join(about, "; ")
}

// took writes a duration: with three digits for people, in milliseconds in CSV.
func (q *audit) took(d time.Duration) string {
	if q.csv {
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 3, 64)
	}
	return tidy(d)
}

// tidy writes a duration with three digits.
func tidy(d time.Duration) string {
	for unit := time.Microsecond; unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}

func (a *app) auditTopCommand() *cobra.Command {
	var by string
	c := a.question("top", "Show what is used most",
		"Shows what is used most, with how it went, and the calls of each day.", 20,
		func(ctx context.Context, q *audit) error {
			group := record.Group(by)
			if !slices.Contains([]record.Group{record.ByTool, record.ByCaller, record.ByDoor, record.BySource}, group) {
				return tool.Errorf(tool.CodeInvalidInput,
					"calls cannot be grouped by %q; choose tool, caller, door or source", by)
			}
			var top audittools.Top
			if err := q.ask(ctx, "top", audittools.TopArgs{Filter: q.filter, By: group}, &top); err != nil {
				return err
			}
			head, rows := []string{by, "calls", "ok", "failed", "refused", "errors", "mean", "share"}, [][]string{}
			most := int64(0)
			for _, u := range top.Uses {
				most = max(most, u.Calls)
			}
			for _, u := range top.Uses {
				rows = append(rows, []string{
					cmp.Or(u.Name, unnamed), count(u.Calls), count(u.OK), count(u.Failed), count(u.Refused), count(u.Errors),
					q.took(u.Mean), q.bar(u.Calls, most),
				})
			}
			if err := q.show(head, rows, top); err != nil || q.json || q.csv {
				return err
			}
			q.plot(top.Days)
			return nil
		})
	c.Flags().StringVar(&by, "by", "tool", "what to group calls by: tool, caller, door, source")
	return c
}

// unnamed replaces a name that a call did not have.
const unnamed = "(none)"

func count(n int64) string { return strconv.FormatInt(n, 10) }

// barLength is the length of the longest bar, in characters.
const barLength = 20

// bar draws a number in proportion to the largest. In CSV it is the number itself.
func (q *audit) bar(n, most int64) string {
	if q.csv {
		return strconv.FormatFloat(float64(n)/float64(max(most, 1)), 'f', 4, 64)
	}
	eighths := n * barLength * 8 / max(most, 1)
	text := strings.Repeat("█", int(eighths/8))
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return cmp.Or(text, "▏")
}

// plot draws the calls of each day on one line.
func (q *audit) plot(days []record.Moment) {
	if len(days) < 2 {
		return
	}
	byDay := map[time.Time]int64{}
	most, total := int64(1), int64(0)
	for _, d := range days {
		byDay[d.Start] = d.Calls
		most, total = max(most, d.Calls), total+d.Calls
	}
	first, last := days[0].Start, days[len(days)-1].Start
	if w := max(q.out.width()-30, 60); last.Sub(first) > time.Duration(w)*24*time.Hour {
		first = last.AddDate(0, 0, -w)
	}
	var line strings.Builder
	for day := first; !day.After(last); day = day.AddDate(0, 0, 1) {
		level := byDay[day] * 8 / most
		if byDay[day] == 0 {
			line.WriteRune('·')
		} else {
			line.WriteRune([]rune("▁▂▃▄▅▆▇█")[min(max(level, 1), 8)-1])
		}
	}
	fmt.Fprintf(q.out, "\n%s  %s  %s\n", first.Format(time.DateOnly), line.String(), last.Format(time.DateOnly))
}

func (a *app) auditSeriesCommand() *cobra.Command {
	return a.question("series", "Show how calls went over time",
		"Shows how calls went over time, in steps of one length, the oldest first: how they ended, how long they took and\n"+
			"how much went in and out. Steps have a round length, the shortest that makes at most as many as --limit says.\n"+
			"Without --since they begin with the first call. Percentiles are accurate to within an eighth.", 24,
		func(ctx context.Context, q *audit) error {
			args := audittools.SeriesArgs{Filter: q.filter, Buckets: q.filter.Limit}
			args.Limit = 0
			var found record.Series
			if err := q.ask(ctx, "series", args, &found); err != nil {
				return err
			}
			ms := func(n float64) string { return q.took(time.Duration(n * float64(time.Millisecond))) }
			rows, most := [][]string{}, int64(0)
			for _, b := range found.Buckets {
				most = max(most, b.Calls())
			}
			for _, b := range found.Buckets {
				ms := ms
				if b.Calls() == 0 && !q.csv {
					ms = func(float64) string { return "-" }
				}
				rows = append(rows, []string{
					b.Start.Local().Format(time.DateTime), count(b.Calls()), count(b.OK), count(b.Failed), count(b.Refused),
					count(b.Error + b.Other), ms(b.P50), ms(b.P95), ms(b.P99), count(b.BytesIn), count(b.BytesOut),
					q.bar(b.Calls(), most),
				})
			}
			return q.show([]string{
				"from", "calls", "ok", "failed", "refused", "errors", "p50", "p95", "p99", "bytes_in", "bytes_out", "share",
			}, rows, found)
		})
}

func (a *app) auditPathsCommand() *cobra.Command {
	return a.question("paths", "Show which files are accessed",
		"Shows which files calls access, as far as their arguments say. For refused calls (--outcome refused) it shows\n"+
			"what they asked for.", 20,
		tabled("paths", []string{"reads", "writes", "last", "path"},
			func(_ *audit, found audittools.Paths) (rows [][]string) {
				for _, p := range found.Paths {
					rows = append(rows, []string{count(p.Reads), count(p.Writes), p.Last.Format(time.DateOnly), p.Path})
				}
				return rows
			}))
}

func (a *app) auditErrorsCommand() *cobra.Command {
	return a.question("errors", "Show what goes wrong, and how often",
		"Shows what goes wrong, and in how many of a tool's calls.", 20,
		tabled("errors", []string{"tool", "outcome", "code", "calls", "of", "rate", "share"},
			func(q *audit, found audittools.Failures) (rows [][]string) {
				for _, f := range found.Errors {
					rows = append(rows, []string{
						cmp.Or(f.Tool, unnamed), string(f.Outcome), string(f.Code), count(f.Calls), count(f.Of),
						fmt.Sprintf("%.1f%%", 100*f.Rate), q.bar(f.Calls, f.Of),
					})
				}
				return rows
			}))
}

func (a *app) auditLatencyCommand() *cobra.Command {
	return a.question("latency", "Show how long tools take",
		"Shows how long the calls of each tool take, slowest first. Percentiles are accurate to within an eighth.", 20,
		tabled("latency", []string{"tool", "calls", "mean", "p50", "p95", "p99", "longest", "p95_share"},
			func(q *audit, found audittools.Latencies) (rows [][]string) {
				for _, u := range found.Tools {
					rows = append(rows, []string{
						cmp.Or(u.Tool, unnamed), count(u.Calls), q.took(u.Mean), q.took(u.P50), q.took(u.P95), q.took(u.P99),
						q.took(u.Longest), q.bar(int64(u.P95), int64(found.Tools[0].P95)),
					})
				}
				return rows
			}))
}

func (a *app) auditExportCommand() *cobra.Command {
	return a.question("export", "Write calls as JSON lines or CSV, oldest first",
		"Writes every matching call, oldest first: one JSON object per line, or CSV.", 0,
		func(ctx context.Context, q *audit) error {
			if !q.out.terminal { // otherwise the calls themselves show the progress
				q.shown = q.err.progress("audit export")
				defer q.shown.End()
			}
			if q.csv {
				return q.exportCSV(ctx)
			}
			return q.each(ctx, true, func(line json.RawMessage, _ *tool.Record) error {
				_, err := fmt.Fprintf(q.out, "%s\n", line)
				return err
			})
		})
}

// exported shows the progress of an export by row numbers, some of which may not match the filter. The oldest row comes
// first.
func (q *audit) exported(first, last, head int64, calls int) {
	if q.shown == nil {
		return
	}
	done, all := float64(last-first+1), float64(head-first+1)
	if q.filter.Limit > 0 {
		done, all = float64(calls), float64(q.filter.Limit)
	}
	about := ""
	if float64(calls) != done {
		about = plural(calls, "call")
	}
	q.shown.Set(done, all, about)
}

func (q *audit) exportCSV(ctx context.Context) error {
	w, columns := csv.NewWriter(q.out), record.Columns()
	_ = w.Write(columns.Names())
	err := q.each(ctx, true, func(_ json.RawMessage, r *tool.Record) error {
		return w.Write(formulaSafe(columns.Cells(r)))
	})
	w.Flush()
	return cmp.Or(err, w.Error())
}

func (a *app) auditVerifyCommand() *cobra.Command {
	var expect []string
	c := &cobra.Command{
		Use: "verify", Short: "Verify that the audit log has not been altered",
		Long: "Checks that no record was changed, removed, added or moved, and that the end of the log is signed with the\n" +
			"key. A mark in the state folder reveals a log that is empty or shorter than it was. To detect somebody who\n" +
			"can change that folder too, keep the point that this prints somewhere else, and check it later with\n" +
			"--expect. Exit code 1: something was found.",
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := a.verify(c.Context(), expect)
			if err != nil {
				return err
			}
			return a.conclude(r, func() { a.showReport(&r) }, len(r.Findings) > 0)
		},
	}
	c.Flags().StringArrayVar(&expect, "expect", nil, "a point, NUMBER:HASH, that an earlier verify printed")
	return a.withServer(a.withJSON("print the report as JSON", c))
}

// verify has the log verified, and shows the progress.
func (a *app) verify(ctx context.Context, expect []string) (r record.Report, err error) {
	b, err := a.openKept(ctx, node.Options{Own: true})
	if err != nil {
		return r, err
	}
	defer b.close()
	shown := newLive(a.err, "audit verify", a.verbose)
	defer shown.End()
	call := tool.Call{Tool: "audit.verify", Args: raw(audittools.VerifyArgs{Expect: expect})}
	err = a.callOwnTo(ctx, b, call, shown, asksLog, &r)
	return r, err
}

func (a *app) showReport(r *record.Report) {
	for _, f := range r.Findings {
		fmt.Fprintf(a.out, "%s %s\n", a.out.red("FOUND"), clean(f.What))
	}
	if len(r.Findings) > 0 {
		return
	}
	signed := "signed"
	if !r.Signed {
		signed = "not signed: there is no key"
	}
	fmt.Fprintf(a.out, "%s  %s, %s\npoint  %s\n", a.out.green("sound"), plural(int(r.Rows), "call"), signed, r.Head)
}
