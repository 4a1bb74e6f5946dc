package namel3ss

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"toolpost/config/offlimits"
	"toolpost/host/container"
	"toolpost/host/process"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
)

// A containerTool is an image that is started for each call.
type containerTool struct {
	*facts
	program *spawn.Program
	runtime string // docker, podman or sandbox
	image   string
	command []string
	vars    map[string]string
}

func (b *builder) container(f *facts, bound *appfile.Binding) (way, error) {
	o := b.Options.Options
	o.Dir, o.Env, o.PassEnv = "", nil, nil // the image sets the folder; the variables depend on the call, see execute
	o.Container.Image = bound.Image
	t := &containerTool{facts: f, runtime: "sandbox", image: bound.Image, command: bound.Command, vars: b.vars(bound)}
	var err error
	switch {
	case bound.Image == "":
		return nil, tool.Errorf(tool.CodeUnavailable,
			"its runner is container and it has no image; set image in its binding")
	case o.Container.Own():
		if t.image, err = b.rootFolder(bound.Image); err != nil {
			return nil, err
		}
	}
	if t.program, err = o.Program(b.dir, spawn.Command{Argv: bound.Command, Log: f.log}); err != nil {
		return nil, err
	}
	if t.program.Box != nil {
		t.runtime = t.program.Box.Engine
	}
	return t, nil
}

// rootFolder finds the folder that serves as the image. If it is outside of the app, the user's config must name it, because
// its content can be read.
func (b *builder) rootFolder(image string) (string, error) {
	root, err := filepath.EvalSymlinks(image)
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "its image, which is the folder that becomes the root: %w", err)
	}
	app, err := filepath.EvalSymlinks(b.app.root)
	if b.Image == "" && b.Container.Image == "" && (err != nil || !offlimits.Within(root, app)) {
		return "", tool.Errorf(tool.CodeInvalidInput,
			"its image %.80q lies outside of the app; the config of the source must name it with `image`", image)
	}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return "", tool.Errorf(tool.CodeUnavailable, "its image %.80q is not a folder", image)
	}
	return root, nil
}

func (t *containerTool) describe(tr *trace) {
	tr.set("container_runtime", t.runtime)
	tr.set("image", t.image)
	tr.set("command", slices.Clone(t.command))
	tr.set("container_enforcement", "verified") // the walls around it are ours, not a claim of the image
}

// covered refuses a call that asks for more than a container can enforce.
func (t *containerTool) covered(inv *invocation) error {
	missing := container.Uncovered(inv.walls)
	if len(missing) == 0 {
		return nil
	}
	if err := t.uncovered(inv, missing, "cannot be enforced by a container"); err != nil {
		return err
	}
	inv.holdBut(missing)
	inv.trace.set("container_enforcement", "declared")
	return nil
}

func (t *containerTool) run(ctx context.Context, inv *invocation) (*reply, error) {
	return t.runCode(ctx, inv, t)
}

func (t *containerTool) execute(ctx context.Context, request []byte, inv *invocation) (ending, error) {
	watch := &walls.Watch{}
	watch.Follow(inv.logs, inv.sources)
	e, err := inv.once(ctx, request, []string{"reply"}, func([]*os.File) (*process.Child, error) {
		return t.program.Start(ctx, spawn.Run{
			Name: t.spec.Name, Env: allowed(t.vars, inv.held), Call: inv.call, Guarantees: inv.held, Watch: watch,
			Stderr: inv.logs.stderr, StderrLimit: maxLog,
		})
	})
	if len(e.layers) > 0 {
		inv.enforced(e.layers, watch.Checks())
	}
	if box := t.program.Box; err == nil && box != nil && len(e.reply) == 0 {
		err = box.Unstarted(e.exit, inv.logs.last())
	}
	return e, err
}
