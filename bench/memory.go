package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/bench/attempt"
	"toolpost/examples"
)

// settled is how long after its start a server's memory is read.
const settled = 10 * time.Second

// memoryOfExamples measures the memory of a server with the sources of `toolpost init --sample adventure`.
func memoryOfExamples(ctx context.Context, l *lab) row {
	dir := attempt.Must(os.MkdirTemp(l.dir, "memory"))
	attempt.Check(os.CopyFS(dir, examples.Files))
	return l.memory(ctx, dir, 25<<20)
}

// memoryOfMany measures the memory of a server with a source of 1,000 tools, after they have been listed.
func memoryOfMany(ctx context.Context, l *lab) row {
	dir := attempt.Must(os.MkdirTemp(l.dir, "memory"))
	paths := map[string]any{}
	for n := range 1000 {
		paths[fmt.Sprintf("/things/%d", n)] = json.RawMessage(fmt.Sprintf(`{"get":{"operationId":"get_thing_%d",`+
			`"summary":"Gives thing %d, with all that is known about it.","parameters":[`+
			`{"name":"q","in":"query","description":"what to look for","schema":{"type":"string"}},`+
			`{"name":"limit","in":"query","schema":{"type":"integer","minimum":1,"maximum":100}}],`+
			`"responses":{"200":{"description":"the thing","content":{"application/json":{"schema":{"type":"object",`+
			`"properties":{"name":{"type":"string"},"size":{"type":"integer"}}}}}}}}}`, n, n))
	}
	document := attempt.Must(json.Marshal(map[string]any{
		"openapi": "3.1.0", "info": map[string]string{"title": "things", "version": "1"},
		"servers": []map[string]string{{"url": "http://127.0.0.1:9"}}, "paths": paths,
	}))
	writeFiles(dir, map[string]string{
		"toolpost.yaml": "sources: [{name: things, protocol: openapi, document: ./api.json}]\ndoors: {http: {}}\n",
		"api.json":      string(document),
	})
	return l.memory(ctx, dir, 40<<20)
}

// memory serves a folder, lists its tools, and measures the memory of the program once it has settled.
func (l *lab) memory(ctx context.Context, dir string, limit int64) row {
	began := time.Now()
	server := l.process(ctx, dir, l.coldCopy(), "serve", "--listen", "127.0.0.1:0")
	server.tools(ctx)
	select {
	case <-time.After(time.Until(began.Add(settled))):
	case <-ctx.Done():
		attempt.Check(ctx.Err())
	}
	all := server.memory("VmRSS")
	return row{
		measured: mib(all), reference: mib(server.memory("RssFile")) + " are files", ratio: "-",
		target: fmt.Sprintf("< %d MiB", limit>>20), pass: all < limit,
	}
}

// coldCopy returns a copy of the program that is not in the kernel's page cache. The cache holds a newly written program
// in pieces of up to two megabytes, and a process that uses one byte is charged for the whole piece: the same program
// would take ten megabytes more on the day it was built.
func (l *lab) coldCopy() string {
	path := filepath.Join(attempt.Must(os.MkdirTemp(l.dir, "program")), "toolpost")
	attempt.Check(os.WriteFile(path, attempt.Must(os.ReadFile(l.toolpost)), 0o755))
	f := attempt.Must(os.Open(path))
	defer f.Close()
	attempt.Check(f.Sync())
	attempt.Check(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	return path
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
