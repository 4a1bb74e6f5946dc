package namel3ss

import (
	"cmp"
	"context"
	_ "embed"
	"os/exec"

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

func (t *nodeTool) run(ctx context.Context, inv *invocation) (*reply, error) {
	return t.runCode(ctx, inv, t)
}

// execute runs a call. The reply comes through a pipe of its own; standard output is the tool's.
func (t *nodeTool) execute(ctx context.Context, request []byte, inv *invocation) (ending, error) {
	inv.trace.set("mode", modeFresh)
	return t.alone(ctx, request, inv, t.around, process.Command{
		Argv: append([]string{t.path, "--input-type=module", "-e", nodeSource, "--"}, t.roots...),
		Env:  t.around.Environment(process.Environment(allowed(t.vars, inv.held), nil)),
	}, "stdout", "reply")
}
