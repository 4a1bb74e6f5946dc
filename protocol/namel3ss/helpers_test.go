package namel3ss

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"toolpost/host/process"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// modes are the two ways to run; most tests hold for both.
func modes() []string { return []string{modeFresh, modeWarm} }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// write makes the files of an app and returns its folder.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		kit.Write(t, path, content)
	}
	return root
}

// open makes a runner that is closed with the test.
func open(t testing.TB, dir string, o Options) *Runner {
	t.Helper()
	r := kit.Must(New(context.Background(), dir, o, quiet()))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		kit.Check(t, r.Close(ctx))
	})
	return r
}

// python opens a single tool `t` whose function `run` is in that code.
func python(t testing.TB, code string, o Options) *Runner {
	t.Helper()
	o.Tool, o.Entry = "t", "code:run"
	return open(t, write(t, map[string]string{"code.py": code}), o)
}

// patience only guards against a hang: a flood takes its time on a busy machine.
const patience = 5 * time.Minute

func call(r tool.Handler, name, args string, out tool.Sink) (*tool.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.Invoke(ctx, &tool.Call{Tool: name, Args: []byte(args), Trace: tool.NewID()}, out)
}

// must calls a tool and expects success.
func must(t testing.TB, r tool.Handler, name, args string) *tool.Result {
	t.Helper()
	res, err := call(r, name, args, tool.Discard)
	kit.OK(t, err, name)
	if !res.OK {
		t.Fatalf("%s failed: %v", name, res.Failure)
	}
	return res
}

// systemPython returns the interpreter of apps without a .venv.
func systemPython(t testing.TB) string {
	t.Helper()
	return kit.Must(findPython(context.Background(), t.TempDir(), "", process.Environment(nil, nil)))(t).path
}

// server returns a fork server of the tool `t`, which waits for its next call.
func server(t testing.TB, r *Runner) *worker {
	t.Helper()
	p := localOf(r, "t").pools.all[0]
	w := kit.Must(p.Get(t.Context()))(t)
	p.Put(w, true)
	return w
}

// localOf returns the Python tool of that name.
func localOf(r *Runner, name string) *localTool { return r.tools[name].way.(*localTool) }
