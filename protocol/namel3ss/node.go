package namel3ss

import (
	"cmp"
	"context"
	_ "embed"
	"os"
	"os/exec"
	"sync"
	"time"

	"toolpost/host/process"
	"toolpost/host/walls"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
)

// nodeSource is the Node side.
//
//go:embed node/host.mjs
var nodeSource string

// A nodeTool is a JavaScript function that we run ourselves, in a process of its own for each call.
type nodeTool struct {
	*facts
	path   string // of node
	roots  []string
	vars   map[string]string
	around *walls.Walls
}

func (b *builder) nodeTool(f *facts, bound *appfile.Binding) (way, error) {
	if b.node == "" {
		name := cmp.Or(b.program(b.Node), "node")
		path, err := exec.LookPath(name)
		if err != nil {
			return nil, tool.Errorf(tool.CodeUnavailable,
				"no Node.js: %s cannot be run; install node, or set `node`: %w", name, err)
		}
		if b.nodeIn, err = b.around(walls.Code(path)); err != nil {
			return nil, err
		}
		b.node = path
	}
	t := &nodeTool{facts: f, path: b.node, roots: []string{f.root}, vars: b.vars(bound), around: b.nodeIn}
	f.spec.Walls, f.spec.Held = t.around.String(), t.around.Holds()
	if f.pack != nil {
		t.roots = []string{f.pack.Dir, f.root}
	}
	return t, nil
}

func (t *nodeTool) describe(tr *trace) { tr.set("node_path", t.path) }

func (t *nodeTool) close(context.Context) error { return nil }

func (t *nodeTool) run(ctx context.Context, inv *invocation) (*reply, error) {
	if err := t.refuse(inv); err != nil {
		return nil, err
	}
	doc, err := t.document(inv)
	if err != nil {
		return nil, err
	}
	inv.trace.set("mode", modeFresh)
	e, err := t.execute(ctx, doc, inv)
	if err != nil {
		return nil, about(t.spec.Name, err)
	}
	return inv.judged(e.outcome(t.spec.Name, inv.logs.last()))
}

// execute runs a call. The reply comes through a pipe of its own; standard output is the tool's.
func (t *nodeTool) execute(ctx context.Context, request []byte, inv *invocation) (ending, error) {
	l := inv.logs
	confine, saw, err := t.confined(t.around, inv)
	if err != nil {
		return ending{}, err
	}
	out, err := newPipes(ctx, 1)
	if err != nil {
		return ending{}, err
	}
	defer out.close()
	child, err := t.start(process.Command{
		Argv: append([]string{t.path, "--input-type=module", "-e", nodeSource, "--"}, t.roots...),
		Dir:  t.root, Env: inv.call.TraceEnv(t.around.Environment(process.Environment(allowed(t.vars, inv.held), nil))),
		Files: []*os.File{out.w[0]}, Confine: confine,
		Stderr: func(line []byte) { l.line("stderr", line) }, StderrLimit: maxLog,
	}, inv.held)
	if err != nil {
		return ending{}, err
	}
	defer child.Close()
	closeAll(out.w)
	child.Feed(request)

	var e ending
	var readers sync.WaitGroup
	readers.Go(func() { e.reply = readReply(out.reader(0), l) })
	readers.Go(func() { l.read("stdout", child.Stdout) })
	e.exit = await(ctx, child)
	_ = child.Stdout.SetReadDeadline(time.Now().Add(drainTime))
	out.drain()
	readers.Wait()
	e.why = reached(child, e.exit)
	saw(child)
	return e, nil
}

// await waits for the end of a child, or ends it together with ctx.
func await(ctx context.Context, child *process.Child) process.Exit {
	select {
	case <-child.Exited():
		return child.Wait()
	case <-ctx.Done():
		return child.Kill()
	}
}
