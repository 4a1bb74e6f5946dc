package matrix

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A runner is a row of the matrix: one or several sources with the tools in one protocol.
type runner struct {
	name    string
	about   string                   // for the page
	sources func(h *house) string    // entries of the config
	where   func(tool string) string // the source of a tool, or empty if there is none
	carries carries
	patch   string // the result of its state patch, in the form of its protocol
	// inSession reports that it has a state only in a session.
	inSession bool
}

func (r *runner) has(tool string) bool { return r.where(tool) != "" }

// in is for runners that have all of the named tools in one source.
func in(source string, tools ...string) func(string) string {
	return func(name string) string {
		for _, t := range tools {
			if t == name {
				return source
			}
		}
		return ""
	}
}

// runners lists the rows.
func runners() []*runner {
	return []*runner{
		builtinRunner(),
		namel3ssLocal(), namel3ssService(), namel3ssContainer(),
		skillOne(), skillTwo(),
		machinaRun(), machinaServe(),
		narratoriaRunner(), commandRunner(), cassetteRunner(),
		natsNode(), natsPlain(), natsToolCall(), restNode(),
		mcpProgram("modern"), mcpProgram("legacy"), mcpServer("modern"), mcpServer("legacy"),
		openapiRunner(),
	}
}

func builtinRunner() *runner {
	return &runner{
		name: "built-in", about: "in this process",
		sources: func(*house) string { return "- {name: builtin, protocol: builtin}\n" },
		where:   in("builtin", "echo", "fail", "hang", "wait", "ask", "report", "patch", "asset", "choose", "large", "danger"),
		patch:   `{"torch":{"lit":true}}`,
	}
}

// protocols returns those of this build, with our own tools in place of the built-in ones.
func (h *house) protocols() []node.Protocol {
	list := node.Protocols()
	for i := range list {
		if list[i].Name == "builtin" {
			list[i].Open = func(context.Context, config.Source, *slog.Logger) (tool.Runner, error) {
				return &inProcess{assets: h.assets}, nil
			}
		}
	}
	return list
}

// inProcess has the tools of the matrix in this process.
type inProcess struct{ assets string }

func (r *inProcess) Close(context.Context) error { return nil }

func (r *inProcess) Tools(context.Context) ([]*tool.Spec, error) {
	limit, err := time.ParseDuration(hangFor)
	return []*tool.Spec{
		{Name: "echo", Input: json.RawMessage(echoInput)},
		{Name: "fail"}, {Name: "wait"}, {Name: "ask"}, {Name: "report"}, {Name: "patch"}, {Name: "asset"}, {Name: "choose"}, {Name: "large"},
		{Name: "hang", Timeout: limit},
		{Name: "danger", Tier: 3},
	}, err
}

const echoInput = `{"type":"object","properties":{"value":{},"n":{"type":"number"}},"required":["value"]}`

func (r *inProcess) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	result := &tool.Result{OK: true, Output: json.RawMessage(`{"done":true}`)}
	switch c.Tool {
	case "echo":
		result.Output = bytes.Clone(c.Args)
	case "fail":
		var args struct {
			Message string `json:"message"`
		}
		err := strictjson.Unmarshal(c.Args, &args)
		return tool.Failed("NoTorch", args.Message), err
	case "ask":
		return asking(c), nil
	case "hang", "wait":
		<-ctx.Done()
		return nil, ctx.Err()
	case "report":
		return result, out.Emit(tool.NewEvent(tool.KindProgress, tool.Progress{Progress: 1, Total: 2, Message: halfWay}))
	case "patch":
		return result, out.Emit(tool.Event{Kind: tool.KindStatePatch, Data: json.RawMessage(`{"torch":{"lit":true}}`)})
	case "asset":
		return result, r.asset(out)
	case "choose":
		return result, out.Emit(tool.NewEvent(tool.KindUIEvent, tool.UIEvent{Event: choosing, Payload: json.RawMessage(choices)}))
	case "large":
		result.Output = json.RawMessage(`{"text":"` + strings.Repeat("x", oneMiB) + `"}`)
	}
	return result, nil
}

// asking is a tool that asks a question before it continues.
func asking(c *tool.Call) *tool.Result {
	if c.Answers == nil {
		return &tool.Result{Ask: &tool.Ask{ID: "colour", Message: which, Schema: json.RawMessage(colourForm)}}
	}
	return &tool.Result{OK: true, Output: json.RawMessage(`{"answers":` + string(c.Answers) + `}`)}
}

func (r *inProcess) asset(out tool.Sink) error {
	dir, err := os.MkdirTemp(r.assets, "")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "torch.txt")
	if err := os.WriteFile(path, []byte("a torch"), 0o600); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	ev := tool.NewEvent(tool.KindAsset, tool.Asset{AssetID: "torch", Kind: "text", MediaType: "text/plain", Path: path})
	ev.File = f
	return out.Emit(ev)
}
