package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// recordedReads compares callers that read a file with the record on with equally many without a store.
func recordedReads(ctx context.Context, l *lab, callers int) (m, r *pace) {
	return readsWith(ctx, l, fmt.Sprint("record", callers), recorded, callers)
}

func readsWith(ctx context.Context, l *lab, dir, store string, callers int) (m, r *pace) {
	return race(rounds, l.readers(ctx, dir, store, callers), l.readers(ctx, dir+"-none", "none", callers))
}

// recordedChanges compares calls of a tool that may change something, each of which is noted before it runs and recorded
// before it is answered, with requests to a bare server that appends a line for each to a file and answers once the line
// is on disk. Concurrent requests share that wait.
func recordedChanges(ctx context.Context, l *lab, callers int) (m, r *pace) {
	ours, bare := filepath.Join(l.dir, "changes"), filepath.Join(l.dir, "changes-bare")
	writeFiles(ours, map[string]string{"toolpost.yaml": fmt.Sprintf(lookConfig, recorded)})
	call := request{tool: "echo", args: fileArgs}
	return race(rounds,
		l.crowd(ctx, l.benchServe(ctx, ours, wordEcho, ours), callers, call),
		l.crowd(ctx, l.benchServe(ctx, bare, wordAppend, filepath.Join(bare, "lines")), callers, call))
}

// serveAppending is the bare server that stores a line for every request.
func serveAppending(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := make(chan appended, 1024)
	go appendGroups(f, lines)
	defer close(lines)
	return serveBare(ctx, func(w http.ResponseWriter, r *http.Request) {
		var args json.RawMessage
		if !decode(w, r, &args) {
			return
		}
		done := make(chan error, 1)
		lines <- appended{lineOf(args), done}
		if err := <-done; err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(w, struct {
			OK     bool            `json:"ok"`
			Output json.RawMessage `json:"output"`
		}{true, args})
	})
}

// An appended is a line for the file, and the channel of its waiting request.
type appended struct {
	line []byte
	done chan error
}

// lineOf returns a line with the minimum that has to be known about a call.
func lineOf(args json.RawMessage) []byte {
	line, _ := json.Marshal(map[string]any{
		"time": time.Now(), "tool": "echo", "source": "bench", "door": "http", "caller": "owner", "outcome": "ok",
		"args": args,
	})
	return append(line, '\n')
}

// appendGroups writes lines, and syncs once for all lines that arrived in the meantime.
func appendGroups(f *os.File, lines <-chan appended) {
	for first := range lines {
		group, text := []appended{first}, first.line
		for len(lines) > 0 {
			next := <-lines
			group, text = append(group, next), append(text, next.line...)
		}
		_, err := f.Write(text)
		err = errors.Join(err, f.Sync())
		for _, one := range group {
			one.done <- err
		}
	}
}
