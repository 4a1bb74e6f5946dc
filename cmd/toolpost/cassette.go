package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/builtin/define"
	"toolpost/config"
	"toolpost/engine/cassette"
	"toolpost/tool"
)

func (a *app) recordCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "record FILE [COMMAND ...]", DisableFlagsInUseLine: true,
		Short: "Record the calls of another command on a cassette",
		Long: "Runs another toolpost command (default: serve) and records in FILE the calls that it makes or serves:\n" +
			"tools, arguments, events, assets and outcomes. `toolpost replay FILE` plays them again, so that an agent\n" +
			"can be tested without the real tools. FILE contains everything in a call except the values of secrets:\n" +
			"review it before you share it. Calls that their caller cancelled are left out.",
		Example: "  toolpost record run.jsonl                      # serve, until Ctrl-C\n" +
			"  toolpost record run.jsonl call greet name=Ada\n  toolpost record run.jsonl as mcp",
		Args: words(1, -1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if err := inner(c, args[1:]); err != nil {
				return err
			}
			if a.recorder, err = cassette.Create(args[0], version); err != nil {
				return err
			}
			err = a.inner(c.Context(), args[1:])
			calls, failed := a.recorder.Close()
			if calls == 0 {
				_ = os.Remove(args[0]) // it has only its head, and would block the next try
			}
			switch {
			case failed != nil:
				return failed
			case !a.called && err == nil:
				return tool.Errorf(tool.CodeInvalidInput, "%s calls nothing in this process, so there is nothing to record; "+
					"a server records its calls if it is started by `toolpost record`", strings.Join(args[1:], " "))
			case calls == 0:
				fmt.Fprintf(a.err, "no calls were made, so there is no %s\n", clean(args[0]))
				return err
			}
			fmt.Fprintf(a.err, "%s recorded in %s\n", define.Count(calls, "call"), clean(args[0]))
			return err
		},
	}
	c.Flags().SetInterspersed(false) // words after FILE belong to the other command
	return c
}

func (a *app) replayCommand() *cobra.Command {
	var o taped
	complete := false
	c := &cobra.Command{
		Use: "replay [flags] FILE [COMMAND ...]", DisableFlagsInUseLine: true,
		Short: "Play the calls of a cassette again",
		Long: "Runs another toolpost command (default: serve) with the tools of a cassette instead of a config.\n" +
			"`toolpost record` writes cassettes. Recorded answers are returned; nothing runs. A call that was not\n" +
			"recorded is refused, and the error names the most similar recorded call. To use a cassette together with\n" +
			"other sources, callers or doors, name it in a config: `sources: [{name: NAME, protocol: cassette, file:\n" +
			"FILE}]`.",
		Example: "  toolpost replay run.jsonl                      # serve, until Ctrl-C\n" +
			"  toolpost replay run.jsonl call greet name=Ada\n  toolpost replay --loose run.jsonl as mcp",
		Args: words(1, -1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if err := inner(c, args[1:]); err != nil {
				return err
			}
			tape, err := readCassette(args[0])
			if err != nil {
				return err
			}
			if a.played, err = o.config(args[0], tape); err != nil {
				return err
			}
			if complete {
				a.check = cassette.Check(tape)
			}
			if err := a.inner(c.Context(), args[1:]); err != nil || !complete {
				return err
			}
			return a.check.Left()
		},
	}
	c.Flags().SetInterspersed(false) // words after FILE belong to the other command
	c.Flags().BoolVar(&o.Loose, "loose", false,
		"answer a call even if it is made more often than recorded, by repeating its last outcome")
	c.Flags().StringSliceVar(&o.Ignore, "ignore", nil,
		"argument to ignore when matching calls, such as a time; repeatable")
	c.Flags().BoolVar(&o.Realtime, "realtime", false, "take as long as the recorded calls took")
	c.Flags().BoolVar(&complete, "complete", false,
		"fail at the end if a tool was called fewer times than recorded")
	return c
}

// inner refuses commands that cannot be the inner one, and flags of the outer one that come too late.
func inner(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if name, ok := strings.CutPrefix(args[0], "--"); ok {
		name, _, _ = strings.Cut(name, "=")
		if c.LocalNonPersistentFlags().Lookup(name) != nil && name != "help" {
			return tool.Errorf(tool.CodeInvalidInput, "--%s is a flag of `%s`, and stands before FILE: what follows FILE is "+
				"the other command", name, c.CommandPath())
		}
	}
	if slices.Contains([]string{"record", "replay"}, args[0]) {
		return tool.Errorf(tool.CodeInvalidInput, "%s is not a command for `%s`", args[0], c.CommandPath())
	}
	return nil
}

// inner runs another command; flags without a command are those of `serve`.
func (a *app) inner(ctx context.Context, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		args = append([]string{"serve"}, args...)
	}
	return a.execute(ctx, args)
}

func readCassette(file string) (*cassette.Tape, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the cassette cannot be read: %w", err)
	}
	defer f.Close()
	tape, err := cassette.Read(f)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %s", file, tool.AsError(err).Message)
	}
	return tape, nil
}

// taped holds the playback options, in the terms of the sources.
type taped struct {
	Name     string   `json:"name"`
	Protocol string   `json:"protocol"`
	File     string   `json:"file"`
	Loose    bool     `json:"loose"`
	Ignore   []string `json:"ignore"`
	Realtime bool     `json:"realtime"`
}

// config returns a config with the sources of a cassette, under their own names, in place of the user's.
func (o taped) config(file string, tape *cassette.Tape) (*config.Config, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	sources := []taped{}
	for _, name := range tape.Sources() {
		o.Name, o.Protocol, o.File, o.Ignore = name, "cassette", path, append([]string{}, o.Ignore...)
		sources = append(sources, o)
	}
	text, err := json.Marshal(map[string]any{ // JSON is YAML too
		"sources": sources, "store": map[string]string{"url": "none"},
		"doors": map[string]any{"http": map[string]any{}},
	})
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse(filepath.Join(filepath.Dir(path), config.FileName), text)
	if err == nil {
		cfg.Path = ""
	}
	return cfg, err
}
