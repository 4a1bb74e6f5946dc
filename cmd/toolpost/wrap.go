package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/wrap"
	"toolpost/config"
	"toolpost/host/process"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/protocol/command"
	"toolpost/tool"
	"toolpost/wire/bounded"
)

// The limits for a program's description of itself.
const (
	helpTime = 10 * time.Second
	helpSize = 4 << 20
)

func (a *app) wrapCommand() *cobra.Command {
	var manual bool
	c := &cobra.Command{
		Use: "wrap [flags] PROGRAM [COMMAND ...]", Short: "Write a first draft of a source that runs a program as a tool",
		Args: words(1, -1), DisableFlagsInUseLine: true,
		Long: "Reads the help of a program (--help or -h) or its manual page, and prints a source with `protocol:\n" +
			"command` for it. Review the source, remove what you do not need, declare its effects, and add it to\n" +
			"toolpost.yaml. The program is run only to print its help, without network access and without write access\n" +
			"to any file.",
		Example: "  toolpost wrap git log\n  toolpost wrap --man rsync\n  toolpost wrap ./convert.py > draft.yaml",
		RunE:    func(c *cobra.Command, args []string) error { return a.wrap(c.Context(), args, manual) },
	}
	c.Flags().BoolVar(&manual, "man", false, "read the manual page, not the help")
	c.Flags().SetInterspersed(false) // words after the program are its own
	return a.withJSON("print the source as JSON", c)
}

func (a *app) wrap(ctx context.Context, words []string, manual bool) error {
	if strings.HasPrefix(words[len(words)-1], "-") {
		return tool.Errorf(tool.CodeInvalidInput, "%s is an option; name the program and its command alone, such as `toolpost wrap git log`",
			words[len(words)-1])
	}
	if _, err := exec.LookPath(words[0]); err != nil && !manual {
		return process.Diagnose(words, "", err)
	}
	p, err := helpText(ctx, words, manual)
	if err != nil {
		return err
	}
	if p.Commands() {
		return tool.Errorf(tool.CodeInvalidInput, "%[1]s has commands of its own; wrap one of them: `toolpost wrap %[1]s COMMAND`",
			strings.Join(words, " "))
	}
	text := p.Draft(words)
	src, err := checkDraft(ctx, text)
	if err != nil {
		return tool.Errorf(tool.CodeUnsupported, "there is no draft for it: %s", tool.AsError(err).Message)
	}
	if a.json {
		return a.printIndented(src.JSON())
	}
	_, err = fmt.Fprint(a.out, cleanLines(text))
	return err
}

// helpText asks a program for its help, or finds its manual page.
func helpText(ctx context.Context, words []string, manual bool) (*wrap.Program, error) {
	last := ""
	for _, flag := range []string{"--help", "-h"} {
		if manual {
			break
		}
		text, err := helpOf(ctx, words, flag)
		if err != nil {
			return nil, err
		}
		if p := wrap.Read(text, words); p.Useful() {
			return p, nil
		}
		if text = process.LastLines(text); text != "" {
			last = "; the last that it said: " + text
		}
	}
	page := strings.Join(append([]string{filepath.Base(words[0])}, words[1:]...), "-")
	text, err := helpOf(ctx, []string{"man", "--pager=cat"}, page)
	if p := wrap.Read(text, words); err == nil && p.Useful() {
		return p, nil
	}
	return nil, tool.Errorf(tool.CodeNotFound, "neither the help of %s nor a page %s of the manual tells of options or a usage%s; "+
		"docs/protocols/command.md shows how to write the source by hand", strings.Join(words, " "), page, last)
}

// helpOf runs a program with one more word and returns everything that it writes to stdout and stderr: programs differ in
// the stream of their help, and in how they exit after it.
func helpOf(ctx context.Context, words []string, more string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, helpTime)
	defer cancel()
	base, err := filepath.Abs(".")
	if err != nil {
		return "", err
	}
	o := spawn.Options{Walls: walls.Options{Read: manualFiles()}, Env: map[string]string{ // many programs want a home that exists
		"HOME": base, "TERM": "dumb", "COLUMNS": "160", "MANWIDTH": "160", "PAGER": "cat", "MANPAGER": "cat", "GIT_PAGER": "cat",
		"LC_ALL": "C.UTF-8",
	}}
	p, err := o.Program(base, spawn.Command{Argv: words})
	if err != nil {
		return "", err
	}
	var mu sync.Mutex
	var errs bytes.Buffer
	child, err := p.Start(ctx, spawn.Run{
		Name: words[0], Args: []string{more}, Guarantees: tool.Guarantees{NoNetwork: true, NoFilesystemWrite: true},
		Stderr: func(line []byte) {
			mu.Lock()
			defer mu.Unlock()
			errs.Write(append(line, '\n'))
		},
	})
	if err != nil {
		return "", err
	}
	defer child.Close()
	child.CloseStdin()
	reaper := process.Reap(ctx, child, time.Second)
	out, err := bounded.ReadDocument(reaper, helpSize)
	if err != nil {
		reaper.Abort()
	}
	<-reaper.Ended
	if ctx.Err() != nil || err != nil {
		return "", tool.Errorf(tool.CodeTimeout, "%s %s did not end within %v, or never stopped writing; `toolpost wrap --man %s` reads its manual",
			strings.Join(words, " "), more, helpTime, strings.Join(words, " "))
	}
	mu.Lock()
	defer mu.Unlock()
	return string(out) + errs.String(), nil
}

// manualFiles returns the files that man reads beside the pages, as far as they exist.
func manualFiles() []string {
	return slices.DeleteFunc([]string{"/etc/manpath.config", "/etc/man_db.conf", "/etc/groff", "/var/cache/man"}, func(path string) bool {
		_, err := os.Stat(path)
		return err != nil
	})
}

// checkDraft opens the source as `config check` would.
func checkDraft(ctx context.Context, text string) (config.Source, error) {
	cfg, err := config.Parse(config.FileName, []byte(text))
	if err != nil {
		return config.Source{}, err
	}
	r, err := command.Open(ctx, cfg.Sources[0], slog.New(slog.DiscardHandler))
	if err != nil {
		return config.Source{}, err
	}
	return cfg.Sources[0], r.Close(ctx)
}
