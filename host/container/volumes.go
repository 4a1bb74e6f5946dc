package container

import (
	"path/filepath"
	"slices"
	"strings"

	"toolpost/host/offlimits"
	"toolpost/tool"
)

// A volume is a path of the host that the config's own options put into a container.
type volume struct {
	path     string
	readOnly bool
}

// volumes finds them among the options of podman and docker.
func volumes(args []string) []volume {
	var all []volume
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		switch {
		case slices.Contains([]string{"-v", "--volume"}, name):
			path, rest, _ := strings.Cut(value, ":")
			_, modes, _ := strings.Cut(rest, ":")
			all = append(all, volume{path, slices.Contains(strings.Split(modes, ","), "ro")})
		case name == "--mount":
			all = append(all, mountOption(value))
		}
	}
	// a name is the engine's own volume
	return slices.DeleteFunc(all, func(v volume) bool { return !filepath.IsAbs(v.path) })
}

func mountOption(text string) volume {
	var v volume
	for field := range strings.SplitSeq(text, ",") {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "source", "src":
			v.path = value
		case "ro", "readonly":
			v.readOnly = value != "false"
		}
	}
	return v
}

// mayMount refuses to put into a container what no tool sees, or what tools could have replaced by a link: an engine
// takes the names of folders, and looks them up by itself.
func (b *Box) mayMount() error {
	list, all := b.book.Now(), volumes(b.Args)
	if b.Mount != "" {
		all = append(all, volume{path: b.Mount, readOnly: true})
	}
	for _, v := range all {
		at, err := offlimits.Open(v.path, list)
		if err != nil {
			return tool.Errorf(tool.CodeUnavailable, "container.args: %w", err)
		}
		at.Close()
		ban := max(b.book.At(at.Path), b.book.Inside(at.Path))
		if ban == offlimits.Fixed && v.readOnly {
			ban = offlimits.Free
		}
		switch {
		case ban != offlimits.Free:
			return tool.Errorf(tool.CodeAccessDenied,
				"container.args mounts %s, which has files of this installation, or what the config starts from; "+
					"mount a folder without them, or read-only", v.path).Because("off_limits")
		case list.Theirs(at.Path):
			return tool.Errorf(tool.CodeAccessDenied,
				"container.args mounts %s, which lies in a folder that tools may change: it could be another one "+
					"by then; "+
					"mount one that lies elsewhere", v.path).Because("off_limits")
		}
	}
	return nil
}
