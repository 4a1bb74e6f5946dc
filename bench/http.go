package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"
)

// fileConfig has the tool to call: it reads a file of a few bytes.
const fileConfig = `sources: [{name: files, protocol: builtin}]
store: {url: %q}
`

const (
	fileArgs = `{"path":"f.txt"}`
	fileText = "a few bytes\n"
)

var readFile = request{tool: "readFile", args: fileArgs}

// readers returns callers of readFile at a Toolpost server whose store has the given URL.
func (l *lab) readers(ctx context.Context, dir, store string, callers int) *crowd {
	at := l.toolpostServe(ctx, filepath.Join(l.dir, dir), map[string]string{
		"toolpost.yaml": fmt.Sprintf(fileConfig, store), "f.txt": fileText,
	})
	c := l.crowd(ctx, at, callers, readFile)
	if store != "none" {
		c.recording()
	}
	return c
}

// againstBare compares callers that read a file, with the record on, with equally many that ask a bare server for the
// same answer.
func againstBare(ctx context.Context, l *lab, callers int) (m, r *pace) {
	ours := l.readers(ctx, fmt.Sprint("http", callers), recorded, callers)
	bare := l.crowd(ctx, l.benchServe(ctx, l.dir, wordBare), callers, readFile)
	return race(rounds, ours, bare)
}

// bareTrace and bareOutcome are the answer to a call of readFile, written the obvious way.
type bareTrace struct {
	ID       string    `json:"id"`
	Call     string    `json:"call"`
	Tool     string    `json:"tool"`
	Source   string    `json:"source"`
	Protocol string    `json:"protocol"`
	Start    time.Time `json:"start"`
	MS       float64   `json:"duration_ms"`
}

type bareOutcome struct {
	OK     bool      `json:"ok"`
	Output string    `json:"output"`
	Trace  bareTrace `json:"trace"`
	Call   string    `json:"call"`
}

// bareAnswer decodes the arguments of readFile and encodes an answer, with the standard library; it reads no file.
func bareAnswer(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	var args struct {
		Path string `json:"path"`
	}
	if !decode(w, r, &args) {
		return
	}
	const id = "01a1e596-e016-7990-bcc5-98bcea6db7a8"
	reply(w, bareOutcome{OK: true, Output: fileText, Call: id, Trace: bareTrace{
		ID: id, Call: id, Tool: "readFile", Source: "files", Protocol: "builtin", Start: began,
		MS: float64(time.Since(began)) / float64(time.Millisecond),
	}})
}

// reply answers the obvious way.
func reply(w http.ResponseWriter, answer any) {
	body, _ := json.Marshal(answer) // its types always have JSON
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}
