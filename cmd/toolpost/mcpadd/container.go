package mcpadd

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/host/process"
	"toolpost/tool"
)

// A boxed server runs in a container of docker or podman.
type boxed struct {
	engine, image string
	args          []string // options for the engine's run command
	env           []string // NAME, or NAME=VALUE
}

// Options of `docker run`. All others are refused: most of them take something away from the container's walls.
const (
	ownFlags   = "-i --interactive --rm -t --tty -it -ti --init -q --quiet" // set, or not needed, by our own run command
	ownOptions = "--name --pull -a --attach"                                // likewise, with a value
	forwarded  = "-v --volume --mount --entrypoint -u --user -w --workdir --platform -m --memory --cpus"
)

// parseBoxed reads a command that runs an image, and returns the words for its program, or nil for any other command.
func parseBoxed(argv []string) (box *boxed, words []string, err error) {
	box = &boxed{engine: filepath.Base(argv[0])}
	if box.engine != "docker" && box.engine != "podman" || len(argv) < 2 || argv[1] != "run" {
		return nil, nil, nil
	}
	one := func(list, flag string) bool { return slices.Contains(strings.Fields(list), flag) }
	for words = argv[2:]; len(words) > 0 && strings.HasPrefix(words[0], "-"); {
		flag, value, given := strings.Cut(words[0], "=")
		if words = words[1:]; one(ownFlags, flag) {
			continue
		}
		if !given && len(words) > 0 {
			value, words = words[0], words[1:]
		}
		if from, rest, ok := strings.Cut(value, ":"); ok && strings.HasPrefix(from, ".") { // an engine starts elsewhere
			value = strings.Join(absolute([]string{from}), "") + ":" + rest
		}
		switch {
		case one(ownOptions, flag), one("--network --net", flag) && value == "none":
		case one("-e --env", flag):
			box.env = append(box.env, value)
		case one("-v --volume --mount", flag) && exposed(flag, value) != "":
			return nil, nil, tool.Errorf(tool.CodeAccessDenied, "%s %s would show the server %s; mount the folder that it needs", flag,
				value, exposed(flag, value))
		case one(forwarded, flag):
			box.args = append(box.args, flag, value)
		default:
			return nil, nil, tool.Errorf(tool.CodeUnsupported, "%s run %s is not supported: a server's container has no network, no "+
				"capabilities and nothing of this machine; `mcp add --network all` gives it a network, and the rest is for "+
				"`container` in the config, by hand", box.engine, flag)
		}
	}
	if len(words) == 0 || words[0] == "" {
		return nil, nil, tool.Errorf(tool.CodeInvalidInput, "%s run has no image; write `%[1]s run -i --rm IMAGE`", box.engine)
	}
	box.image = words[0]
	return box, words[1:], nil
}

// fields are the settings of the container in the config.
func (b *boxed) fields(network []string) config.Fields {
	fields := config.Fields{{Name: "image", Value: b.image}, {Name: "runtime", Value: b.engine}}
	if len(network) > 0 {
		fields = append(fields, config.Field{Name: "network", Value: "bridge"})
	}
	if len(b.args) > 0 {
		fields = append(fields, config.Field{Name: "args", Value: b.args})
	}
	return fields
}

// pin fetches the image and names it by its content, so that later starts fetch nothing and run the same. An image that
// was made here is in no registry, so its name there means nothing.
func (b *boxed) pin(ctx context.Context) error {
	const most = 20 * time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, most, tool.Errorf(tool.CodeTimeout, "%s did not fetch %s within %v", b.engine, b.image, most))
	defer cancel()
	inspect := []string{"image", "inspect", "--format", "{{range .RepoDigests}}{{.}} {{end}}{{.Id}}", b.image}
	out, err := b.run(ctx, inspect...)
	if err != nil {
		if _, err = b.run(ctx, "pull", b.image); err == nil {
			out, err = b.run(ctx, inspect...)
		}
	}
	if names := strings.Fields(string(out)); err == nil && strings.HasPrefix(b.image, "localhost/") {
		b.image = names[len(names)-1]
	} else if err == nil {
		b.image = names[0]
	}
	return err
}

func (b *boxed) run(ctx context.Context, args ...string) ([]byte, error) {
	out, exit, words, err := process.Run(ctx, process.Command{Argv: append([]string{b.engine}, args...), Dir: "/", Env: os.Environ()}, 1<<20)
	if err == nil && (exit != (process.Exit{}) || args[0] != "pull" && len(strings.Fields(string(out))) == 0) {
		err = tool.Errorf(tool.CodeUnavailable, "%s %s: %s", b.engine, args[0], words)
	}
	return out, err
}
