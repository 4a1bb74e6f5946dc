package machina

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/host/spawn"
	"toolpost/tool"
)

// Options configure a toolhost. Only Command is needed.
type Options struct {
	Command []string     `yaml:"command" kind:"path" doc:"the toolhost and its arguments before --run, --serve or --list; looked up on PATH or, if it contains a slash, relative to dir"`
	Plugin  string       `yaml:"plugin" kind:"path" doc:"what the toolhost loads"`
	Mode    string       `yaml:"mode" schema:"enum=serve|run default=serve" doc:"serve: keep warm sessions; run: start a process for each call"`
	Tools   []ToolOption `yaml:"tools" doc:"the tools; default: whatever --list reports"`

	Tiers    map[string]int `yaml:"tiers" doc:"tier of each tool by aid, 0 (safe) to 3 (dangerous), overriding --list"`
	Sessions int            `yaml:"sessions" schema:"default=2" doc:"warm sessions at most"`
	MaxReply int            `yaml:"max_reply" kind:"bytes" schema:"default=1048576" doc:"bytes of one reply"`

	spawn.Options // the default timeout is MACHINA_TOOLHOST_TIMEOUT in seconds, or else 30s
}

// A ToolOption is one tool of a toolhost that is not asked for its list.
type ToolOption struct {
	AID         string       `yaml:"aid" doc:"the tool's action id"`
	Name        string       `yaml:"name" doc:"name of the tool; default: derived from its aid"`
	Title       string       `yaml:"title" doc:"display name"`
	Description string       `yaml:"description" doc:"what the tool does and when to use it"`
	Input       config.JSON  `yaml:"input" doc:"JSON Schema of the arguments"`
	Output      config.JSON  `yaml:"output" doc:"JSON Schema of the result"`
	Effects     tool.Effects `yaml:"effects" doc:"what the tool does to the world"`
	Tier        *int         `yaml:"tier" doc:"0 (safe) to 3 (dangerous); default: from the effects, and 1 if nothing is known of them"`
}

func (o Options) withDefaults() Options {
	o.Mode = cmp.Or(o.Mode, "serve")
	o.Sessions = cmp.Or(o.Sessions, 2)
	o.MaxReply = cmp.Or(o.MaxReply, maxReply)
	o.Timeout = cmp.Or(o.Timeout, config.Duration(defaultTimeout()))
	return o
}

// defaultTimeout returns the environment's timeout, in seconds with or without a fraction.
func defaultTimeout() time.Duration {
	s, err := strconv.ParseFloat(os.Getenv(timeoutEnv), 64)
	if err != nil || !(s > 0) || s > 1e6 {
		s = timeoutSeconds
	}
	return time.Duration(s * float64(time.Second))
}

// check finds errors that would otherwise only show, or mislead, when a tool is called.
func (o Options) check() error {
	switch {
	case slices.Equal(o.Command, []string{""}) || len(o.Command) == 0 && o.Container.Image == "":
		return tool.Errorf(tool.CodeInvalidInput, "a machina source needs a command: the toolhost to run")
	case o.Mode != "serve" && o.Mode != "run":
		return tool.Errorf(tool.CodeInvalidInput, "mode is serve or run, not %q", o.Mode)
	case o.Sessions < 0 || o.MaxReply < 0:
		return tool.Errorf(tool.CodeInvalidInput, "sessions and max_reply cannot be negative")
	}
	for aid, tier := range o.Tiers {
		if err := tool.CheckTier(&tier); err != nil {
			return tool.Errorf(tool.CodeInvalidInput, "%s: %s", aid, tool.AsError(err).Message)
		}
	}
	return o.Options.Check()
}

// Open makes the runner of a configured source and asks its toolhost for the tools.
func Open(ctx context.Context, src config.Source, log *slog.Logger) (tool.Runner, error) {
	o, err := optionsOf(src)
	if err != nil {
		return nil, err
	}
	return tool.Opened(New(ctx, src.Dir, o, log))
}

func optionsOf(src config.Source) (Options, error) {
	o := Options{Options: spawn.Of(src)}
	return o, src.Decode(&o)
}

// Claim returns the files that a configured source starts from, and those that its toolhost may change.
func Claim(src config.Source) (offlimits.Claim, error) {
	o, err := optionsOf(src)
	c := o.Claim(src.Dir, o.Command)
	c.Stays = o.Mode != "run"
	if strings.Contains(o.Plugin, "/") || filepath.Ext(o.Plugin) != "" { // otherwise it may be just a name
		plugin := offlimits.Under(o.Folder(src.Dir), o.Plugin)
		c.Starts, c.Homes = append(c.Starts, plugin), append(c.Homes, filepath.Dir(plugin)+"/")
	}
	return c, err
}

// New makes a runner, and asks its toolhost for the tools if the options do not list them. Relative paths are relative to
// base, the folder of the config.
func New(ctx context.Context, base string, o Options, log *slog.Logger) (*Runner, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	host := spawn.Command{Argv: o.Command, Log: log}
	plugin, err := filepath.Abs(offlimits.Under(o.Folder(base), o.Plugin))
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "its folder %s: %w", o.Dir, err)
	}
	if _, err := os.Stat(plugin); err == nil && o.Plugin != "" { // otherwise it may be just a name
		host.Code = []string{plugin}
	}
	r := &Runner{o: o, log: log, aids: map[string]string{}}
	if r.host, err = o.Program(base, host); err != nil {
		return nil, err
	}
	r.held = o.Guarantees.Tighten(r.host.Holds())
	if r.specs, err = r.discover(ctx); err != nil {
		return nil, err
	}
	name := filepath.Base(strings.Join(o.Command[:min(1, len(o.Command))], ""))
	r.sessions = process.NewPool(r.startSession, process.PoolOptions{Name: "the toolhost " + name, Max: o.Sessions})
	return r, nil
}

// discover lists the tools of the options or else of the toolhost. If two tools share a name, the second is called by its
// aid.
func (r *Runner) discover(ctx context.Context) (specs []*tool.Spec, err error) {
	tools := r.o.Tools
	if len(tools) == 0 {
		if tools, err = r.list(ctx); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{}
	for _, t := range tools {
		switch {
		case t.AID == "":
			return nil, tool.Errorf(tool.CodeInvalidInput, "a tool needs an aid, such as AID.MEMORY.QUERY.v1")
		case seen[t.AID]:
			return nil, tool.Errorf(tool.CodeInvalidInput, "two tools have the aid %s", t.AID)
		}
		seen[t.AID] = true
		s := &tool.Spec{
			Name: cmp.Or(t.Name, nameOf(t.AID)), Title: t.Title, Description: t.Description, Aliases: []string{t.AID},
			Input: json.RawMessage(t.Input), Output: json.RawMessage(t.Output), Effects: t.Effects,
			Timeout: time.Duration(r.o.Timeout), Guarantees: r.o.Guarantees,
		}
		r.host.Publish(s)
		if r.aids[s.Name] != "" {
			s.Name, s.Aliases = t.AID, nil
		}
		r.aids[s.Name] = t.AID
		by := tool.TierConfig
		if len(r.o.Tools) == 0 {
			by = tool.TierTool
		}
		s.Declare(t.Tier, by)
		if tier, ok := r.o.Tiers[t.AID]; ok {
			s.Declare(&tier, tool.TierConfig)
		}
		specs = append(specs, s)
	}
	return specs, nil
}

// list asks the toolhost for its tools.
func (r *Runner) list(ctx context.Context) ([]ToolOption, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(r.o.Timeout), r.outOfTime("--list"))
	defer cancel()
	asking := &call{
		Call: &tool.Call{}, aid: "--list", guarantees: r.o.Guarantees,
		events: tool.NewRelay(tool.Discard, func(error) {}),
	}
	doc, err := r.once(ctx, asking, []string{"--list", r.o.Plugin}, nil)
	if err != nil {
		return nil, err
	}
	said, err := decodeListing(doc)
	if err != nil {
		return nil, structured(typeParseError, "--list", "the toolhost's list of tools: %w", err)
	}
	var tools []ToolOption
	for _, t := range said {
		tools = append(tools, ToolOption{AID: t.AID, Name: t.Name, Effects: t.effects(), Tier: t.tier()})
	}
	return tools, nil
}

// Unavailable returns why the tools cannot be called at present: the toolhost or its folder is missing.
func (r *Runner) Unavailable(name string) error { return missing(r.aids[name], r.host.Unavailable()) }
