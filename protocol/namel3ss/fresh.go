package namel3ss

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"toolpost/host/forks"
	"toolpost/host/process"
	"toolpost/host/walls"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/wire/bounded"
)

// An ending is the complete outcome of one run of a tool's code.
type ending struct {
	reply  []byte
	exit   process.Exit
	why    string   // why it ended like that, if more than the status is known
	layers []string // the walls that were around it
}

// fresh runs a call in an interpreter of its own. The reply comes on standard output, as the contract demands; the tool's
// own output comes through two pipes beside it.
func (t *localTool) fresh(ctx context.Context, request []byte, inv *invocation) (ending, error) {
	return t.alone(ctx, request, inv, t.around, process.Command{
		Argv: t.hostCommand("fresh"), Env: t.environment(inv.held), Files: []*os.File{t.host},
	}, "reply", "stdout", "stderr")
}

// alone runs a call in a confined process of its own. See once for the meaning of says.
func (f *facts) alone(
	ctx context.Context, request []byte, inv *invocation, w *walls.Walls, cmd process.Command, says ...string,
) (e ending, err error) {
	watch := &walls.Watch{}
	watch.Follow(inv.logs, inv.sources)
	if cmd.Confine, err = w.Confine(f.spec.Name, inv.held, watch); err != nil {
		return e, err
	}
	cmd.Dir, cmd.Env = f.root, inv.call.TraceEnv(cmd.Env)
	cmd.Stderr, cmd.StderrLimit = inv.logs.stderr, maxLog
	e, err = inv.once(ctx, request, says, func(pipes []*os.File) (*process.Child, error) {
		cmd.Files = append(cmd.Files, pipes...)
		return f.start(cmd, inv.held)
	})
	if err == nil {
		inv.enforced(e.layers, watch.Checks())
	}
	return e, err
}

// once runs a process for one call. The names in says describe its standard output and each pipe that it is started with:
// the reply, or a stream of the log.
func (inv *invocation) once(
	ctx context.Context, request []byte, says []string, start func(pipes []*os.File) (*process.Child, error),
) (e ending, err error) {
	out, err := forks.NewPipes(ctx, len(says)-1)
	if err != nil {
		return e, err
	}
	defer out.Close()
	child, err := start(out.W)
	if err != nil {
		return e, err
	}
	defer child.Close()
	process.CloseAll(out.W)
	child.Feed(request)

	var readers sync.WaitGroup
	readers.Go(func() { inv.logs.take(says[0], child.Stdout, &e) })
	for i, stream := range says[1:] {
		readers.Go(func() { inv.logs.take(stream, out.Reader(i), &e) })
	}
	e.exit = await(ctx, child)
	_ = child.Stdout.SetReadDeadline(time.Now().Add(forks.DrainTime))
	out.Drain()
	readers.Wait()
	e.why, e.layers = child.Reached(e.exit), child.Layers()
	return e, nil
}

// await waits for a child to end, and ends it when ctx ends.
func await(ctx context.Context, child *process.Child) process.Exit {
	select {
	case <-child.Exited():
		return child.Wait()
	case <-ctx.Done():
		return child.Kill()
	}
}

// start starts a process of the tool, with the secrets that are granted to it.
func (f *facts) start(cmd process.Command, g tool.Guarantees) (*process.Child, error) {
	given, err := f.grant.Give(&cmd, g.SecretsAllowed)
	if err != nil {
		return nil, err
	}
	defer given()
	return process.Start(cmd)
}

// take reads a stream of a call to its end: the reply, or log lines. A reply that is too long ends the call.
func (l *logs) take(stream string, r io.Reader, e *ending) {
	if stream != "reply" {
		l.read(stream, r)
		return
	}
	b, err := bounded.ReadDocument(r, maxDocument)
	if _, long := errors.AsType[*bounded.LimitError](err); long {
		l.stop(tool.Errorf(tool.CodeProtocol, "%s: the reply is longer than %d MiB", l.tool, maxDocument>>20))
	}
	e.reply = b
}

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
	t.around.Publish(f.spec)
	if f.pack != nil {
		t.roots = []string{f.pack.Dir, f.root}
	}
	return t, nil
}

func (t *nodeTool) describe(tr *trace) { tr.set("node_path", t.path) }

func (t *nodeTool) run(ctx context.Context, inv *invocation) (*reply, error) {
	return t.runCode(ctx, inv, t)
}

// execute runs a call. The reply comes through a pipe of its own; standard output belongs to the tool.
func (t *nodeTool) execute(ctx context.Context, request []byte, inv *invocation) (ending, error) {
	inv.trace.set("mode", modeFresh)
	return t.alone(ctx, request, inv, t.around, process.Command{
		Argv: append([]string{t.path, "--input-type=module", "-e", nodeSource, "--"}, t.roots...),
		Env:  t.around.Environment(process.Environment(allowed(t.vars, inv.held), nil)),
	}, "stdout", "reply")
}
