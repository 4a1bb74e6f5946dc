package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolpost/builtin/logs"
	"toolpost/engine/calls"
	"toolpost/engine/follow"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

func (a *app) logsCommand() *cobra.Command {
	given := "--tool --caller --session --run --outcome --follow,f --lines,n=last:50 --level:info"
	return takes[logs.Args](a, given, "print each line as a JSON object", &cobra.Command{
		Use: "logs", Short: "Show the logs of a server and its tools, and how calls end",
		Long: "Shows the last log lines of the running server, or of --server URL, oldest first: its own log, the log\n" +
			"lines and events of tools, and a line for the end of each call. --follow continues with new lines until\n" +
			"Ctrl-C. The server keeps the last 4,096 lines in memory; for older calls see `toolpost audit log`. Only\n" +
			"operators may use it: the owner and the user of the command line.\n\n" +
			"With a filter, only lines about matching calls are shown. With --outcome, the lines of a tool appear\n" +
			"only after its call has ended with that outcome. In a fleet, the lines of all nodes are shown, each with its node.",
		Example: "  toolpost logs -f\n" +
			"  toolpost logs -f --caller ada --outcome failed --server https://tools.example.org",
	}, func(ctx context.Context, args map[string]any) error {
		if a.verbose {
			args["level"] = "debug"
		}
		if err := a.locate(ctx); err != nil {
			return err
		}
		a.alone()
		watch := following{own{"watchLogs", "see the log", 0}, args, true, args["follow"] != true}
		return a.followOwn(ctx, watch, a.showLog)
	})
}

func (a *app) showLog(log tool.Log) (int64, error) {
	var l calls.JournalLine
	if err := strictjson.Unmarshal(log.Fields, &l); err != nil || l.From == "" { // a remark about the lines
		fmt.Fprintln(a.err, a.err.amber(clean(log.Message)))
		return 0, nil
	}
	text := cleanLines(string(log.Fields))
	if !a.json {
		text = a.out.painted(l.Level, logLine(&l))
	}
	_, err := fmt.Fprintln(a.out, text)
	return l.Seq, err
}

// logLine writes a line of the journal for people, on one line whatever its tool wrote.
func logLine(l *calls.JournalLine) string {
	var parts []string
	switch l.From {
	case calls.Server:
		parts = append(parts, "toolpost:", l.Message)
	case calls.FromTool:
		parts = append(parts, l.Tool+":", l.Message)
	case calls.FromCall:
		parts = append(parts, cmp.Or(l.Tool, unnamed), string(l.Outcome), string(l.Code), millis(l.Millis))
		if l.Message != "" {
			parts = append(parts, "("+l.Message+")")
		}
	}
	if len(l.Fields) > 0 {
		parts = append(parts, string(l.Fields))
	}
	for _, more := range [][2]string{
		{"node", l.Node}, {"caller", l.Caller}, {"door", l.Door}, {"session", l.Session}, {"run", l.Run}, {"call", l.Call},
	} {
		if more[1] != "" {
			parts = append(parts, more[0]+"="+more[1])
		}
	}
	return fmt.Sprintf("%s %-5s %s", l.Time.Local().Format("15:04:05.000"), clean(l.Level), clean(strings.Join(parts, " ")))
}

// How long a follower waits for a lost server, from the first retry to the last.
const (
	againFirst = time.Second
	againLast  = 10 * time.Second
	againFor   = 2 * time.Minute
)

// A following is one of our tools that report events, and how it is followed.
type following struct {
	own
	args     map[string]any
	numbered bool // its events have numbers, and a call can go on after one of them
	once     bool // one call is enough
}

// followOwn repeatedly calls a tool, until ctx ends. Each call ends after an hour, and the next continues after it. A server
// that goes away, as for a restart, is waited for. The function each receives every event and returns its number, or 0 if it
// has none.
func (a *app) followOwn(ctx context.Context, f following, each func(tool.Log) (int64, error)) error {
	b, err := f.open(ctx, a)
	if err != nil {
		return err
	}
	defer b.close()
	var after *int64
	var away time.Time
	pause := againFirst
	sink := tool.SinkFunc(func(ev tool.Event) error {
		var log tool.Log
		if err := strictjson.Unmarshal(ev.Data, &log); ev.Kind != tool.KindLog || err != nil {
			return err
		}
		seen, err := each(log)
		if seen > 0 {
			after, away, pause = &seen, time.Time{}, againFirst
		}
		return err
	})
	for {
		begun, args := time.Now(), maps.Clone(f.args)
		if f.numbered && after != nil {
			args["after"] = *after
		}
		w, err := use[follow.Watched](ctx, a, b, f.own, tool.Call{Args: raw(args)}, sink)
		switch code := tool.CodeOf(err); {
		case f.once:
			return err
		case ctx.Err() != nil: // the user ends it this way
			return nil
		case err == nil:
			after, away, pause = &w.Next, time.Time{}, againFirst
			if w.Others != nil {
				f.args["others"] = w.Others
			}
			if time.Since(begun) > pause { // otherwise the server is about to end, and is not asked at once
				continue
			}
		case a.server.url == "" || after == nil || code != tool.CodeUnavailable && code != tool.CodeCrash:
			return err
		case away.IsZero():
			away = time.Now()
			fmt.Fprintf(a.err, "%s\n", a.err.amber("the server went away; waiting for it"))
		case time.Since(away) > againFor:
			return err
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, againLast)
		case <-ctx.Done():
		}
	}
}

// alone notes that the output is about this process only, if no server is named.
func (a *app) alone() {
	if a.server.url == "" && !a.json {
		fmt.Fprintln(a.err, "showing this process only; start `toolpost serve`, or name a running server with --server URL")
	}
}
