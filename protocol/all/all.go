// Package all is the one list of protocols: how a source of each is opened, which doors a config opens,
// and what can be spoken on stdin and stdout. Adding a protocol is adding one entry here.
package all

import (
	"context"
	"io"
	"log/slog"

	"toolpost/builtin/file"
	"toolpost/config"
	"toolpost/protocol/namel3ss"
	"toolpost/protocol/narratoria"
	"toolpost/protocol/rest"
	"toolpost/tool"
)

// A Protocol is one way to speak to tools.
type Protocol struct {
	Name string
	Doc  string // one sentence about its sources
	// Open binds a configured source.
	Open func(context.Context, config.Source, *slog.Logger) (tool.Runner, error)
	// Options is the zero value of what Open decodes, for the schema of the config.
	Options any
	// Stdio makes the door for `toolpost as`, for the tool of that name; nil: not offered.
	Stdio func(name string, std Stdio) tool.Door
	// NeedsName says that the door cannot tell from what it reads which tool is meant.
	NeedsName bool
}

// Stdio is what a door on the standard streams has. Nothing but the door writes to Out.
type Stdio struct {
	In     io.Reader
	Out    io.Writer
	Log    io.Writer
	Caller tool.Principal
}

// Protocols lists them all.
func Protocols() []Protocol {
	return []Protocol{
		{
			Name: "builtin", Doc: "tools that Toolpost brings: reading below configured folders",
			Open: file.Open, Options: file.Options{},
		},
		{
			Name: "namel3ss", Doc: "Python functions, one JSON document in and one out",
			Open: namel3ss.Open, Options: namel3ss.Options{},
			Stdio: func(name string, s Stdio) tool.Door {
				return &namel3ss.Door{In: s.In, Out: s.Out, Log: s.Log, Tool: name, Caller: s.Caller}
			},
		},
		{
			Name: "narratoria", Doc: "programs that report events, one JSON object a line",
			Open: narratoria.Open, Options: narratoria.Options{},
			Stdio: func(name string, s Stdio) tool.Door {
				return &narratoria.Door{In: s.In, Out: s.Out, Tool: name, Caller: s.Caller}
			},
			NeedsName: true,
		},
		{
			Name: "rest", Doc: "the tools of another Toolpost, over HTTP",
			Open: rest.Open, Options: rest.SourceOptions{},
		},
	}
}
