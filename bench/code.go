package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"toolpost/bench/attempt"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const codeConfig = `sources: [{name: bench, protocol: echo}, {name: files, protocol: builtin}]
doors: {http: {}}
`

// programs returns programs that call a tool a thousand times in sequence, and count the right answers.
func programs() map[string]string {
	return map[string]string{
		"python": `
right = 0
for n in range(1000):
    right += (await tools.bench.look(n=n))["n"] == n
return right`,
		"javascript": `
let right = 0
for (let n = 0; n < 1000; n++) right += (await tools.bench.look({n})).n === n
return right`,
	}
}

// codeCalls returns the measurement of the calls that a program makes in a loop, including the start of the program,
// against a client of the same server's HTTP door that makes the same calls. Both are separate processes.
func codeCalls(language string) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		n, url := l.serveNode(ctx, filepath.Join(l.dir, "code-"+language), codeConfig)
		url += "/v1/tools/look/call"
		self := attempt.Must(os.Executable())
		args := attempt.Must(strictjson.Marshal(map[string]any{"language": language, "code": programs()[language]}))
		call := &tool.Call{Tool: "runCode", Args: args, Caller: tool.Principal{ID: "local", Door: "cli"}}
		m, r := compare(11,
			clock(func() error {
				out, err := invoke(ctx, n.Handler(), call)
				if err == nil && !bytes.Contains(out, fmt.Appendf(nil, `"result":%d,`, calls)) {
					err = fmt.Errorf("unexpected answer %q", out)
				}
				return err
			}),
			func() (took time.Duration, err error) {
				said, err := exec.CommandContext(ctx, self, wordCalls, url).Output()
				if err == nil {
					err = strictjson.Unmarshal(said, &took)
				}
				return took, err
			})
		return ofTheRate(calls, m, r, 0.3)
	}
}

const calls = 1000

// callREST makes the calls as a client does, and returns the time they took.
func callREST(ctx context.Context, l *lab, url string) (time.Duration, error) {
	client := l.client(1)
	each, err := batch(calls, func() error { return lookREST(ctx, client, url) })()
	return calls * each, err
}

// lookREST makes one call over HTTP and checks its answer.
func lookREST(ctx context.Context, client *http.Client, url string) error {
	header := http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + benchToken}}
	body, err := post(ctx, client, url, header, `{"n":1}`)
	if err == nil && !bytes.Contains(body, []byte(`"n":1`)) {
		err = fmt.Errorf("unexpected answer %q", body)
	}
	return err
}
