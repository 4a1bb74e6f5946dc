package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	audittools "toolpost/builtin/audit"
	"toolpost/builtin/define"
	"toolpost/cmd/toolpost/progress"
	record "toolpost/engine/audit"
	"toolpost/tool"
)

// auditTool is one of the tools that query the log of calls.
func auditTool(name string) own { return own{"audit." + name, "ask about calls", store} }

// An audit is one query of the log of calls.
type audit struct {
	*app
	tools *backend // the target of the query
	args  map[string]any
	csv   bool
	shown *progress.Line // progress of an export; nil if it is not shown
}

func (a *app) auditCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "audit", Short: "Query the audit log: what was called, by whom, and how it ended",
		Long: "Every call is recorded: its tool, caller, door, files, the decision and the outcome. `audit verify`\n" +
			"detects changes to the log. Outcomes: ok; failed: the tool reported a failure; asked: a question or an\n" +
			"approval is open; refused: by policy, a lease or a limit; error: there is no result, for example after a\n" +
			"crash or a timeout; lost: Toolpost ended during the call.",
		Example: "  toolpost audit log --since 1h\n  toolpost audit top --by caller\n" +
			"  toolpost audit errors --tool execShell\n  toolpost audit verify",
	}, a.auditLogCommand(), a.auditSeriesCommand(), a.auditTopCommand(), a.auditPathsCommand(), a.auditErrorsCommand(), a.auditLatencyCommand(),
		a.auditExportCommand(), a.auditVerifyCommand())
}

// question makes c a command that queries the log. The text limit ends the flag --limit, and may add others.
func question[A any](a *app, limit string, c *cobra.Command, run func(context.Context, *audit) error) *cobra.Command {
	q := &audit{app: a}
	given := "--since --until --tool --caller --session --run --outcome --parent --source --door --code --limit,n" + limit
	if !strings.Contains(limit, "--kind") {
		given += " --kind"
	}
	c.Flags().BoolVar(&q.csv, "csv", false, "print CSV; times are in milliseconds")
	takes[A](a, given, "print JSON", c, func(ctx context.Context, args map[string]any) (err error) {
		if q.tools, err = auditTool("log").open(ctx, a); err != nil {
			return err
		}
		defer q.tools.close()
		q.args = args
		return run(ctx, q)
	})
	for _, name := range []string{"since", "until"} {
		c.Flags().Lookup(name).Usage += ", such as 2026-01-31, 2026-01-31T08:00:00Z or 7d (7 days ago)"
	}
	return c
}

// tabled calls an audit tool and shows a row for each of the items that it found.
func tabled[O, T any](name string, items func(*audit, O) (*table[T], []T)) func(context.Context, *audit) error {
	return func(ctx context.Context, q *audit) error {
		found, err := use[O](ctx, q.app, q.tools, auditTool(name), tool.Call{Args: raw(q.args)}, tool.Discard)
		if err != nil {
			return err
		}
		t, all := items(q, found)
		return showRows(q, found, t, all)
	}
}

// showRows prints a table, or the data for programs.
func showRows[T any](q *audit, found any, t *table[T], all []T) error {
	switch {
	case q.json:
		return q.printJSON(found)
	case q.csv:
		return t.writeCSV(q.app, all)
	}
	t.print(q.app, "calls", all)
	return nil
}

// each visits the calls that match the filter, page by page. A limit of 0 means no limit.
func (q *audit) each(ctx context.Context, oldest bool, visit func(doc json.RawMessage, r *tool.Record) error) error {
	args, columns := maps.Clone(q.args), record.Columns()
	args["oldest_first"] = oldest
	limit, _ := q.args["limit"].(int64)
	var first, last int64
	seen := 0
	for left := int(limit); ; {
		page, err := use[audittools.Page](ctx, q.app, q.tools, auditTool("log"), tool.Call{Args: raw(args)}, tool.Discard)
		if err != nil {
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
		q.exported(first, last, page.Head, seen, limit)
		left -= len(page.Calls)
		if page.Next == 0 || limit > 0 && left <= 0 {
			return nil
		}
		args["after"], args["limit"] = page.Next, max(left, 0)
	}
}

func (a *app) auditLogCommand() *cobra.Command {
	var follow bool
	c := question[audittools.LogArgs](a, ":20", &cobra.Command{
		Use: "log", Short: "Show calls, newest first",
		Long: "Shows calls, newest first. With --follow it shows the last calls, oldest first, and then each new call as\n" +
			"it is recorded, until Ctrl-C, including calls of other programs that share the store. Each call is one\n" +
			"line, or with --json one JSON object per line.",
		Example: "  toolpost audit log --since 1h --caller ada\n" +
			"  toolpost audit log -f --outcome refused --server http://127.0.0.1:8700",
	}, func(ctx context.Context, q *audit) error {
		if follow {
			return q.followLog(ctx)
		}
		docs, calls := []json.RawMessage{}, []tool.Record{}
		err := q.each(ctx, false, func(doc json.RawMessage, r *tool.Record) error {
			docs, calls = append(docs, doc), append(calls, *r)
			return nil
		})
		if err != nil {
			return err
		}
		return showRows(q, map[string]any{"calls": docs}, q.logTable(), calls)
	})
	c.Flags().BoolVarP(&follow, "follow", "f", false,
		"keep showing new calls; -n is the number of past calls to show first")
	return c
}

func (q *audit) logTable() *table[tool.Record] {
	return columns("time tool caller door outcome code took about", cells[tool.Record]{
		"time": func(r tool.Record) string { return r.Time.Local().Format(time.DateTime) },
		"tool": func(r tool.Record) string { return cmp.Or(r.Tool, "? "+r.Asked) },
		"took": func(r tool.Record) string { return took(r.Duration, q.csv) }, "about": aboutCall,
	})
}

// followLog shows calls as they are recorded. Columns are as wide as most calls need: later calls are not known yet.
func (q *audit) followLog(ctx context.Context) error {
	table, columns, lines := q.logTable(), record.Columns(), csv.NewWriter(q.out)
	if q.csv {
		_ = lines.Write(table.head)
		lines.Flush()
	}
	return q.followOwn(ctx, following{own: auditTool("watch"), args: q.args, numbered: true}, func(log tool.Log) (int64, error) {
		var r tool.Record
		if len(log.Fields) == 0 { // a remark about the log, not a row of it
			fmt.Fprintln(q.err, clean(log.Message))
			return 0, nil
		}
		if err := columns.Unmarshal(log.Fields, &r); err != nil {
			return 0, tool.Errorf(tool.CodeProtocol, "what came is no record of a call: %w", err)
		}
		switch row := table.row(r); {
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
func aboutCall(r tool.Record) string {
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
	switch a := r.Approval; {
	case a.By != "" && a.ID == "": // an entry below `approved`, which has no id
		about = append(about, a.State+" by the config")
	case a.By != "":
		about = append(about, a.State+" by "+a.By)
	case a.ID != "":
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

func (a *app) auditTopCommand() *cobra.Command {
	return question[audittools.TopArgs](a, ":20 --by:tool", &cobra.Command{
		Use: "top", Short: "Show the tools, callers, doors or sources with the most calls",
		Long: "Shows the tools, callers, doors or sources with the most calls, how these calls ended, and the number of\n" +
			"calls per day.",
	}, func(ctx context.Context, q *audit) error {
		var days []record.Moment
		err := tabled("top", func(q *audit, top audittools.Top) (*table[record.Use], []record.Use) {
			most := int64(0)
			for _, u := range top.Uses {
				most = max(most, u.Calls)
			}
			days = top.Days
			return columns(string(top.By)+"=name|(none) calls ok failed refused errors mean=mean_ns share", cells[record.Use]{
				"share": func(u record.Use) string { return q.bar(u.Calls, most) },
			}), top.Uses
		})(ctx, q)
		if err == nil && !q.json && !q.csv {
			q.plot(days)
		}
		return err
	})
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
	return question[audittools.SeriesArgs](a, "=buckets:24", &cobra.Command{
		Use: "series", Short: "Show calls over time",
		Long: "Shows the calls over time, in steps of equal length, oldest first: their outcomes, how long they took,\n" +
			"and the bytes in and out. It uses the shortest round step (such as 1m or 1h) that gives at most --limit\n" +
			"steps. Without --since, the first step begins with the first call. Percentiles are accurate to\n" +
			"12.5 %.",
	}, tabled("series", func(q *audit, found record.Series) (*table[record.Bucket], []record.Bucket) {
		most := int64(0)
		for _, b := range found.Buckets {
			most = max(most, b.Calls())
		}
		ms := func(of func(record.Bucket) float64) func(record.Bucket) string {
			return func(b record.Bucket) string {
				if b.Calls() == 0 && !q.csv {
					return "-"
				}
				return took(time.Duration(of(b)*float64(time.Millisecond)), q.csv)
			}
		}
		return columns("from calls ok failed refused errors p50 p95 p99 bytes_in bytes_out share", cells[record.Bucket]{
			"from":   func(b record.Bucket) string { return b.Start.Local().Format(time.DateTime) },
			"calls":  func(b record.Bucket) string { return count(b.Calls()) },
			"errors": func(b record.Bucket) string { return count(b.Error + b.Other) },
			"p50":    ms(func(b record.Bucket) float64 { return b.P50 }),
			"p95":    ms(func(b record.Bucket) float64 { return b.P95 }),
			"p99":    ms(func(b record.Bucket) float64 { return b.P99 }),
			"share":  func(b record.Bucket) string { return q.bar(b.Calls(), most) },
		}), found.Buckets
	}))
}

func (a *app) auditPathsCommand() *cobra.Command {
	return question[record.Filter](a, ":20", &cobra.Command{
		Use: "paths", Short: "Show the files that calls access",
		Long: "Shows the files that calls access, as far as their arguments tell. With --outcome refused, it shows the\n" +
			"files that refused calls asked for.",
	}, tabled("paths", func(_ *audit, found audittools.Paths) (*table[record.Path], []record.Path) {
		return columns("reads writes last path", cells[record.Path]{
			"last": func(p record.Path) string { return p.Last.Format(time.DateOnly) },
		}), found.Paths
	}))
}

func (a *app) auditErrorsCommand() *cobra.Command {
	return question[record.Filter](a, ":20", &cobra.Command{
		Use: "errors", Short: "Show errors, and how often they occur",
		Long: "Shows the errors of each tool, and the share of its calls that ended with each.",
	}, tabled("errors", func(q *audit, found audittools.Failures) (*table[record.Failure], []record.Failure) {
		return columns("tool|(none) outcome code calls of rate share", cells[record.Failure]{
			"rate":  func(f record.Failure) string { return fmt.Sprintf("%.1f%%", 100*f.Rate) },
			"share": func(f record.Failure) string { return q.bar(f.Calls, f.Of) },
		}), found.Errors
	}))
}

func (a *app) auditLatencyCommand() *cobra.Command {
	return question[record.Filter](a, ":20", &cobra.Command{
		Use: "latency", Short: "Show how long tools take",
		Long: "Shows how long the calls of each tool take, slowest first. Percentiles are accurate to 12.5 %.",
	}, tabled("latency", func(q *audit, found audittools.Latencies) (*table[record.Latency], []record.Latency) {
		names := "tool|(none) calls mean=mean_ns p50=p50_ns p95=p95_ns p99=p99_ns longest=longest_ns p95_share"
		return columns(names, cells[record.Latency]{
			"p95_share": func(u record.Latency) string { return q.bar(int64(u.P95), int64(found.Tools[0].P95)) },
		}), found.Tools
	}))
}

func (a *app) auditExportCommand() *cobra.Command {
	c := question[audittools.LogArgs](a, " --kind:all", &cobra.Command{
		Use: "export", Short: "Write calls as JSON lines or CSV, oldest first",
		Long: "Writes every matching call, oldest first: one JSON object per line, or CSV.",
	}, func(ctx context.Context, q *audit) error {
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
	c.Flags().Lookup("json").Usage = "print errors as JSON too"
	return c
}

// exported shows the progress of an export by row numbers, some of which may not match the filter. The oldest row comes
// first.
func (q *audit) exported(first, last, head int64, calls int, limit int64) {
	if q.shown == nil {
		return
	}
	done, all := float64(last-first+1), float64(head-first+1)
	if limit > 0 {
		done, all = float64(calls), float64(limit)
	}
	about := ""
	if float64(calls) != done {
		about = define.Count(calls, "call")
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
	return over[audittools.VerifyArgs](a, own{"audit.verify", "ask about calls", store | watched}, "--expect", &cobra.Command{
		Use: "verify", Short: "Verify that the audit log has not been altered",
		Long: "Checks that no record was changed, removed, added or moved, and that the end of the log is signed with\n" +
			"the audit key. A mark in the state folder reveals a log that was emptied or cut short. To detect an\n" +
			"attacker who can change that folder too, store the printed point (NUMBER:HASH) elsewhere and check it\n" +
			"later with --expect. Receipts of the nodes of a fleet are checked too. Exit code 1: a problem was found.",
	}, a.showReport, func(r record.Report) bool { return len(r.Findings) > 0 })
}

func (a *app) showReport(r record.Report) {
	for _, f := range r.Findings {
		fmt.Fprintf(a.out, "%s %s\n", a.out.red("FOUND"), clean(f.What))
	}
	if len(r.Findings) > 0 {
		return
	}
	signed := "signed"
	switch own := func(l record.Lane) bool { return l.Own }; {
	case r.Signed:
	case len(r.Lanes) > 0 && !slices.ContainsFunc(r.Lanes, own):
		signed = "signed by others: the key here has signed none of it"
	default:
		signed = "not signed: there is no key"
	}
	if r.Receipts > 0 {
		signed += ", with " + define.Count(int(r.Receipts), "receipt")
	}
	fmt.Fprintf(a.out, "%s  %s, %s\npoint  %s\n", a.out.green("sound"), define.Count(int(r.Rows), "call"), signed, r.Head)
	for _, l := range r.Lanes {
		if len(r.Lanes) > 1 {
			fmt.Fprintf(a.out, "lane %d  %s, key %s\n", l.Lane, define.Count(int(l.Rows), "call"), l.Key)
		}
	}
}
