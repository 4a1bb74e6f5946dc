package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolpost/builtin/logs"
	"toolpost/engine/journal"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

func (a *app) logsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "logs", Short: "Show what a server logs, what its tools log, and how calls end",
		Long: "Shows what happened last in a server (--server), the oldest first: the lines of its own log, what tools\n" +
			"logged and reported while they ran, and a line for the end of each call. --follow goes on with what happens, until\n" +
			"Ctrl-C. The server keeps the last 4,096 lines in memory; calls that ended longer ago are in `toolpost audit\n" +
			"log`. It is for operators.\n\n" +
			"With a filter, only lines about such calls are shown. With --outcome, a tool's lines appear after its\n" +
			"call ended with that outcome.",
		Example: "  toolpost logs -f --server http://127.0.0.1:8700\n" +
			"  toolpost logs -f --caller ada --outcome failed --server http://127.0.0.1:8700",
	}
	read := inputs[logs.Args](c, "--tool --caller --session --run --outcome --follow,f --lines,n=last:50 --level:info")
	c.RunE = func(c *cobra.Command, words []string) error {
		args, err := read(words)
		if err != nil {
			return err
		}
		if a.verbose {
			args["level"] = "debug"
		}
		a.alone()
		watch := following{own{"watchLogs", "see the log", 0}, args, true, args["follow"] != true}
		return a.followOwn(c.Context(), watch, a.showLog)
	}
	return a.withServer(a.withJSON("print each line as a JSON object", c))
}

func (a *app) showLog(log tool.Log) (int64, error) {
	var l journal.Line
	if err := strictjson.Unmarshal(log.Fields, &l); err != nil || l.Seq == 0 { // a remark about the lines
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
func logLine(l *journal.Line) string {
	var parts []string
	switch l.From {
	case journal.Server:
		parts = append(parts, "toolpost:", l.Message)
	case journal.Tool:
		parts = append(parts, l.Tool+":", l.Message)
	case journal.Call:
		took := tidy(time.Duration(l.Millis * float64(time.Millisecond)))
		parts = append(parts, cmp.Or(l.Tool, unnamed), string(l.Outcome), string(l.Code), took)
		if l.Message != "" {
			parts = append(parts, "("+l.Message+")")
		}
	}
	if len(l.Fields) > 0 {
		parts = append(parts, string(l.Fields))
	}
	for _, more := range [][2]string{
		{"caller", l.Caller}, {"door", l.Door}, {"session", l.Session}, {"run", l.Run}, {"call", l.Call},
	} {
		if more[1] != "" {
			parts = append(parts, more[0]+"="+more[1])
		}
	}
	return fmt.Sprintf("%s %-5s %s", l.Time.Local().Format("15:04:05.000"), clean(l.Level), clean(strings.Join(parts, " ")))
}
