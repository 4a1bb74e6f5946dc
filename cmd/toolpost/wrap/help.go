package wrap

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

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

// Ask asks a program for its help, or finds its manual page.
func Ask(ctx context.Context, words []string, manual bool) (*Program, error) {
	last := ""
	for _, flag := range []string{"--help", "-h"} {
		if manual {
			break
		}
		text, err := helpOf(ctx, words, flag)
		if err != nil {
			return nil, err
		}
		if p := Read(text, words); p.Useful() {
			return p, nil
		}
		if text = process.LastLines(text); text != "" {
			last = "; the last that it said: " + text
		}
	}
	page := strings.Join(append([]string{filepath.Base(words[0])}, words[1:]...), "-")
	text, err := helpOf(ctx, []string{"man", "--pager=cat"}, page)
	if p := Read(text, words); err == nil && p.Useful() {
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

// Check opens the source of a draft as `config check` would.
func Check(ctx context.Context, text string) (config.Source, error) {
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
