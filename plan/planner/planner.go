// Package planner turns prompts into plans, in one of three ways: a file that has a plan for each prompt, a model behind
// an OpenAI-compatible server, or a program. Their output is parsed as strictly as all other outside input, and is only
// a proposal: whether a plan can be run, and what its calls may do, is decided elsewhere.
package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/secret"
	"toolpost/host/spawn"
	"toolpost/model"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/nearest"
)

// Options is one entry of the section planners.
type Options struct {
	Name    string        `yaml:"name" doc:"name of the planner, and of its story"`
	Title   string        `yaml:"title" doc:"what the story is called; default: what the file says, otherwise the name"`
	Opening string        `yaml:"opening" doc:"prompt that begins the story; default: what the file says, otherwise \"begin\""`
	File    string        `yaml:"file" kind:"path" doc:"file with a plan for each prompt, relative to the config; read again when it changes"`
	Model   string        `yaml:"model" doc:"name of one of the models, which is asked for a plan"`
	Style   string        `yaml:"style" doc:"of a model: what else it is told, such as the setting, and how to write"`
	Tools   tool.Patterns `yaml:"tools" doc:"tools that a model or a program is told about; default: all that the caller may use"`
	Command []string      `yaml:"command" kind:"path" doc:"program and arguments; it reads a request as JSON on stdin, and prints a plan on stdout"`

	spawn.Options
}

// Validate checks that the entry defines exactly one kind of planner.
func (o *Options) Validate() error {
	ways := map[string]bool{"file": o.File != "", "model": o.Model != "", "command": len(o.Command) > 0}
	maps.DeleteFunc(ways, func(_ string, given bool) bool { return !given })
	switch {
	case o.Name == "":
		return errors.New("a planner has no name; give it one, such as `name: adventure`")
	case len(ways) != 1:
		return fmt.Errorf("planner %q plans in one way: say `file: PATH`, `model: NAME` or `command: [PROGRAM, ...]`",
			o.Name)
	case slices.Equal(o.Command, []string{""}):
		return fmt.Errorf("planner %q: the command is empty; name a program", o.Name)
	case o.Style != "" && o.Model == "":
		return fmt.Errorf("planner %q: style is for models", o.Name)
	case o.Tools != nil && o.File != "":
		return fmt.Errorf("planner %q: tools is for models and commands; a file names its tools itself", o.Name)
	}
	if err := o.Check(); err != nil {
		return fmt.Errorf("planner %q: %s", o.Name, tool.AsError(err).Message)
	}
	return nil
}

// Section is the part of the config that lists planners.
func Section() config.Part {
	return config.Part{Name: "planners", Options: []Options(nil), Doc: "what turns a prompt into a plan, for stories and replans"}
}

// An Env is what planners need of the surrounding program.
type Env struct {
	Secrets   config.Secrets     // the present ones
	OffLimits *offlimits.Checker // the files that no program may see or change
	Redactor  *secret.Redactor   // removes secrets from the output of a server; nil means that nothing is removed
}

// A Registry has the planners of the current config.
type Registry struct {
	env Env
	now atomic.Pointer[[]*Planner]
}

// New makes a registry without planners.
func New(env Env) *Registry {
	r := &Registry{env: env}
	r.now.Store(new([]*Planner))
	return r
}

// A Planner is a planner with a name; it may tell a story.
type Planner struct {
	Name string

	o       Options
	planner plan.Planner
}

var _ plan.Planner = (*Planner)(nil)

// An About is what is known of a story before it begins.
type About struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Opening string `json:"opening" doc:"the prompt that begins it"`
	Error   string `json:"error,omitzero" doc:"why it cannot be told"`
}

// About describes the planner's story.
func (p *Planner) About() About {
	a := About{Name: p.Name, Title: p.o.Title, Opening: p.o.Opening}
	if f, ok := p.planner.(*file); ok {
		script, err := f.read()
		if err != nil {
			a.Error = tool.AsError(err).Message
		} else {
			a.Title, a.Opening = cmp.Or(a.Title, script.Title), cmp.Or(a.Opening, script.Opening)
		}
	}
	a.Title, a.Opening = cmp.Or(a.Title, p.Name), cmp.Or(a.Opening, "begin")
	return a
}

// maxPrompt limits a prompt, in bytes.
const maxPrompt = 16 << 10

// Plan implements plan.Planner.
func (p *Planner) Plan(ctx context.Context, r plan.Request) (*plan.Plan, error) {
	if len(r.Prompt) > maxPrompt {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the prompt is longer than %d bytes; say it in fewer words", maxPrompt)
	}
	if limit := time.Duration(p.o.Timeout); limit > 0 {
		late := tool.Errorf(tool.CodeTimeout, "it did not answer within %v", limit)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, late)
		defer cancel()
	}
	made, err := p.planner.Plan(ctx, p.narrowed(r))
	if err != nil {
		e := *tool.AsError(err)
		if ctx.Err() != nil {
			e = *tool.Ended(ctx)
		}
		e.Message = fmt.Sprintf("planner %q: %s", p.Name, e.Message)
		return nil, &e
	}
	made.RequestID, made.DisabledSkills = r.ID, r.Disabled
	made.Metadata = plan.Metadata{GenerationAttempt: max(r.Attempt, 1)}
	if r.Failed != nil {
		made.Metadata.ParentPlanID = r.Failed.PlanID
	}
	return made, nil
}

// narrowed removes the tools that the planner must not know of.
func (p *Planner) narrowed(r plan.Request) plan.Request {
	r.Tools = slices.DeleteFunc(slices.Clone(r.Tools), func(s *tool.Spec) bool {
		return !p.o.Tools.Mentions(s) || slices.Contains(r.Disabled, s.Name)
	})
	return r
}

// decode parses Plan JSON from an untrusted source.
func decode(doc []byte) (*plan.Plan, error) {
	made, err := plan.ReadAnswer(doc)
	if err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "this is no Plan JSON: %s", err.(*plan.Error).Message)
	}
	return made, nil
}

// Read reads the planners and models of a config; apply switches to them.
func (r *Registry) Read(cfg *config.Config) (apply func(), err error) {
	models, err := model.Read(cfg, model.Env{Secrets: r.env.Secrets, Redactor: r.env.Redactor})
	if err != nil {
		return nil, err
	}
	entries, err := r.entries(cfg)
	if err != nil {
		return nil, err
	}
	next := make([]*Planner, len(entries))
	for i, o := range entries {
		next[i] = &Planner{Name: o.Name, o: o}
		switch {
		case o.File != "":
			next[i].planner = &file{path: offlimits.Under(cfg.Dir, o.File)}
		case o.Model != "":
			m, err := models.Named(o.Model)
			if err != nil {
				return nil, tool.Errorf(tool.CodeInvalidInput, "planner %q: %s", o.Name, tool.AsError(err).Message)
			}
			next[i].planner = newThinker(m, o.Style)
		default:
			next[i].planner = &program{o: o, base: cfg.Dir}
		}
		if next[i].o.Timeout == 0 {
			next[i].o.Timeout = config.Duration(time.Minute)
		}
	}
	return func() { r.now.Store(&next) }, nil
}

// entries reads the section, and adds what programs need.
func (r *Registry) entries(cfg *config.Config) ([]Options, error) {
	var entries []Options
	if err := cfg.Section(Section().Name).Decode(&entries); err != nil {
		return nil, err
	}
	for i, o := range entries {
		entries[i].Grant.Vault, entries[i].Walls.OffLimits = r.env.Secrets, r.env.OffLimits
		if slices.ContainsFunc(entries[:i], func(other Options) bool { return other.Name == o.Name }) {
			return nil, tool.Errorf(tool.CodeInvalidInput, "two planners are called %q; give one of them another name", o.Name)
		}
	}
	return entries, nil
}

// Claims returns the files that the planners of a config start from. No tool may change them, because they decide what
// is called.
func Claims(cfg *config.Config) (all []offlimits.Claim) {
	var entries []Options
	_ = cfg.Section(Section().Name).Decode(&entries) // unreadable planners are not used either
	for _, o := range entries {
		all = append(all, offlimits.Claim{Starts: offlimits.Given(cfg.Dir, o.File)})
		if len(o.Command) > 0 {
			all = append(all, (&program{o: o, base: cfg.Dir}).claim())
		}
	}
	return all
}

// of returns the planners that a caller may use: all except those whose model is for other callers.
func (r *Registry) of(p tool.Principal) []*Planner {
	return slices.DeleteFunc(slices.Clone(*r.now.Load()), func(one *Planner) bool {
		t, thinks := one.planner.(*thinker)
		return thinks && !p.Is(t.Callers)
	})
}

// Named returns a planner that a caller may use. Without a name it returns the first one.
func (r *Registry) Named(p tool.Principal, name string) (*Planner, error) {
	all := r.of(p)
	if len(all) == 0 {
		return nil, tool.Errorf(tool.CodeNotFound, "there is no planner; add one to the section planners of the config, "+
			"such as `planners: [{name: adventure, file: ./story.yaml}]`")
	}
	var names []string
	for _, one := range all {
		if name == "" || one.Name == name {
			return one, nil
		}
		names = append(names, one.Name)
	}
	hint := cmp.Or(nearest.Hint(name, names), "; the config has "+strings.Join(names, ", "))
	return nil, tool.Errorf(tool.CodeNotFound, "there is no planner %q%s", name, hint)
}

// List describes the stories of all planners that a caller may use, in the order of the config.
func (r *Registry) List(p tool.Principal) []About {
	list := []About{}
	for _, one := range r.of(p) {
		list = append(list, one.About())
	}
	return list
}

// Problems finds what would fail later, without starting a program or asking a server.
func (r *Registry) Problems() (found []config.Problem) {
	for _, p := range *r.now.Load() {
		var err error
		switch how := p.planner.(type) {
		case *file:
			err = how.mistakes()
		case *program:
			err = how.missing()
		case *thinker:
			err = how.Problem()
		}
		if err != nil {
			found = append(found, config.Problem{About: "planner " + p.Name, Err: err})
		}
	}
	return found
}
