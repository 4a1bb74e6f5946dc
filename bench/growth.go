package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"

	"toolpost/bench/attempt"
	"toolpost/store"
	"toolpost/store/sqlite"
)

// Growth: the cost of a call must not depend on the amount of anything else. Each row compares a size with the smallest
// one; a curve is drawn through all of them (see picture.go).

// growthCallers is the number of concurrent callers: enough to keep a small machine busy.
const growthCallers = 8

// flat is the share of the rate at the smallest size that must be left at a large one.
const flat = 0.8

// A point is the speed of calls at a size, or the memory for an output.
type point struct {
	curve  string
	size   int
	rate   float64 // calls per second
	first  float64 // the rate of the smallest size, measured in turns with this one
	p99    float64 // in milliseconds
	memory int64   // bytes beyond those of a server with outputs of a few bytes; only for outputs
}

// An ofSize starts a server of a size, and returns the requests to make.
type ofSize func(size int) (*served, []request)

// grown lets callers of a small and a large server call in turns, and records both for the curves.
func (l *lab) grown(ctx context.Context, curve string, small, large int, server ofSize) row {
	from, calls := server(small)
	to, more := server(large)
	m, r := race(rounds,
		l.crowd(ctx, to, growthCallers, more...).recording(),
		l.crowd(ctx, from, growthCallers, calls...).recording())
	for size, p := range map[int]*pace{large: m, small: r} {
		l.points = append(l.points, point{
			curve: curve, size: size, rate: p.rate(), first: r.rate(), p99: float64(p.percentile(99).Microseconds()) / 1000,
		})
	}
	return faster(m, r, flat)
}

// grownTools compares calls of a server with many upstream tools with those of a server with few.
func grownTools(tools int) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		return l.grown(ctx, curveTools, 10, tools, func(size int) (*served, []request) {
			cfg := fmt.Sprintf(manyConfig, l.manyTools(size), recorded)
			dir := filepath.Join(l.dir, fmt.Sprint("tools", tools, "-", size))
			at := l.toolpostServe(ctx, dir, map[string]string{"toolpost.yaml": cfg, "f.txt": fileText})
			if n := at.tools(ctx)["many"]; n != size { // otherwise nothing would have grown
				attempt.Check(fmt.Errorf("the server has %d tools of the other one, not %d", n, size))
			}
			return at, []request{readFile}
		})
	}
}

const manyConfig = `sources: [{name: many, protocol: mcp, url: %q}, {name: files, protocol: builtin}]
store: {url: %q}
`

// manyTools serves MCP with the given number of tools.
func (l *lab) manyTools(tools int) (url string) {
	var list []map[string]any
	for _, s := range attempt.Must(many{}.Tools(context.Background()))[:tools] {
		list = append(list, map[string]any{"name": s.Name, "description": s.Description, "inputSchema": s.Input})
	}
	text := string(attempt.Must(json.Marshal(list)))
	return l.serveHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // half a body cannot be answered
		answerMCP(w, body, text)
	})).URL
}

// grownSessions compares calls of many sessions, each with a state, with those of one.
func grownSessions(sessions int) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		return l.grown(ctx, curveSessions, 1, sessions, func(size int) (*served, []request) {
			dir := filepath.Join(l.dir, fmt.Sprint("sessions", sessions, "-", size))
			at := l.toolpostServe(ctx, dir, map[string]string{
				"toolpost.yaml": fmt.Sprintf(fileConfig, recorded), "f.txt": fileText,
			})
			var patches, calls []request
			for n := range size {
				name := fmt.Sprint("session-", n)
				patch := fmt.Sprintf(`{"patch":{"turn":%d,"topic":"growth"}}`, n)
				patches = append(patches, request{tool: "state.patch", args: patch, session: name})
				calls = append(calls, request{tool: "readFile", args: fileArgs, session: name})
			}
			attempt.Check(l.crowd(ctx, at, min(size, 64), patches...).once())
			return at, calls
		})
	}
}

// grownRecord compares calls with many rows in the store with calls with few.
func grownRecord(rows int) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		if rows > 1_000_000 && !l.huge {
			return row{skipped: true, note: "skipped: it takes many minutes; GROWTH=1 measures it"}
		}
		return l.grown(ctx, curveRecord, 10_000, rows, func(size int) (*served, []request) {
			at := l.toolpostServe(ctx, filepath.Join(l.dir, fmt.Sprint("rows", rows, "-", size)), map[string]string{
				"toolpost.yaml": fmt.Sprintf(fileConfig, "sqlite:"+l.filled(ctx, size)), "f.txt": fileText,
				".toolpost/audit.key": hex.EncodeToString(storeKey()),
			})
			return at, []request{readFile}
		})
	}
}

// filled returns the path of a store with a log of that many calls. Making a million takes a while.
func (l *lab) filled(ctx context.Context, rows int) (path string) {
	return l.once(fmt.Sprintf("rows-%d.db", rows), func(path string) {
		db := openStore(path)
		attempt.Check(errors.Join(fill(ctx, db.Audit(), 512, rows), db.Close()))
	})
}

// storeKey signs the logs of filled stores: a server does not append to a log signed with another key.
func storeKey() []byte { return []byte("only for the logs of this bench!") }

func openStore(path string) *store.DB {
	return attempt.Must(sqlite.Open(path, store.Options{Key: func() ([]byte, error) { return storeKey(), nil }}))
}

const outputConfig = `sources: [{name: files, protocol: builtin, max_file: 134217728}]
store: {url: %q}
`

// grownOutput compares the memory of a server for outputs of a size, one after the other, with outputs of a few bytes. A
// server holds an output at most twice, as it was read and as it is sent.
func grownOutput(size int) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		at := l.toolpostServe(ctx, filepath.Join(l.dir, fmt.Sprint("output", size)), map[string]string{
			"toolpost.yaml": fmt.Sprintf(outputConfig, recorded),
			"f.txt":         strings.Repeat("a line of 16 B.\n", size/16),
			"few.txt":       "a few bytes\n",
		})
		few := l.crowd(ctx, at, 1, request{tool: "readFile", args: `{"path":"few.txt"}`}).recording()
		for range 3 { // a server called without pauses takes more memory, which is not the output's
			attempt.Must(few.lap(long))
		}
		before := at.memory("VmHWM")
		c := l.crowd(ctx, at, 1, readFile).recording()
		p := new(pace)
		for range 3 {
			p.add(attempt.Must(c.lap(long)))
		}
		took := at.memory("VmHWM") - before
		limit := outputLimit(size)
		l.points = append(l.points, point{
			curve: curveOutput, size: size, rate: p.rate(), p99: float64(p.percentile(99).Microseconds()) / 1000, memory: took,
		})
		return row{
			measured: "+" + mib(took), reference: mib(before) + " with 12 B", ratio: p.text(),
			target: fmt.Sprintf("≤%d MiB", limit>>20), pass: took <= limit,
		}
	}
}

// outputLimit returns how much memory a server may take for an output of a size.
func outputLimit(size int) int64 { return 2*int64(size) + 16<<20 }
