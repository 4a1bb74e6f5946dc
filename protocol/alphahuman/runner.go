package alphahuman

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/sandbox"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// Options are the fields of a source of this protocol: a folder of skills, or a single one.
type Options struct {
	Skills string `yaml:"skills" kind:"path" doc:"folder of skills: each subfolder with a manifest.json, skill.json or SKILL.md is one"`
	Skill  string `yaml:"skill" kind:"path" doc:"folder of a single skill"`
	Data   string `yaml:"data" kind:"path" doc:"folder where skills keep their files; default: skills/SOURCE in the state folder"`

	spawn.Options // folders of skills are found in its dir, and each skill runs in its own

	Concurrency int `yaml:"concurrency" doc:"calls that one skill gets at a time; default: from its manifest, else 1 if it calls back, else unlimited"`
	Generation  int `yaml:"generation" schema:"minimum=1 maximum=2" doc:"1: the contract; 2: tools/list and skill/ hooks; default: found out by asking the skill"`

	StartTimeout config.Duration `yaml:"start_timeout" schema:"default=30s" doc:"time limit for the reply to initialize"`
	HookTimeout  config.Duration `yaml:"hook_timeout" schema:"default=10s" doc:"time limit of each lifecycle hook"`
	Grace        config.Duration `yaml:"grace" schema:"default=2s" doc:"a skill that left a call unanswered and then stays silent for this long is replaced; each step of its shutdown gets as long, at most 2s"`
	SessionIdle  config.Duration `yaml:"session_idle" schema:"default=30m" doc:"a session without calls for this long is ended"`
	MaxLine      int             `yaml:"max_line" kind:"bytes" schema:"default=16777216" doc:"bytes of one message"`

	Effects tool.Effects `yaml:"effects" doc:"what the tools do to the world"`
	Tier    *int         `yaml:"tier" doc:"0 (safe) to 3 (dangerous); default: from the effects, and 1 if nothing is known of them"`

	source string // its name, for messages
}

func (o *Options) check() error {
	switch {
	case (o.Skills == "") == (o.Skill == ""):
		return tool.Errorf(tool.CodeInvalidInput,
			"an alphahuman source needs `skills`, a folder of skills, or `skill`, a single one")
	case tool.CheckTier(o.Tier) != nil:
		return tool.CheckTier(o.Tier)
	case o.Generation < 0 || o.Generation > 2:
		return tool.Errorf(tool.CodeInvalidInput, "generation must be 1 or 2, not %d", o.Generation)
	case o.Concurrency < 0 || o.MaxLine < 0:
		return tool.Errorf(tool.CodeInvalidInput, "concurrency and max_line cannot be negative")
	}
	return o.Options.Check()
}

// setDefaults fills in the defaults of the config.
func (o *Options) setDefaults() {
	o.StartTimeout = cmp.Or(o.StartTimeout, config.Duration(30*time.Second))
	o.HookTimeout = cmp.Or(o.HookTimeout, config.Duration(10*time.Second))
	o.Grace = cmp.Or(o.Grace, config.Duration(2*time.Second))
	o.SessionIdle = cmp.Or(o.SessionIdle, config.Duration(30*time.Minute))
	o.MaxLine = cmp.Or(o.MaxLine, defaultMaxLine)
}

// A Runner runs the skills of one source.
type Runner struct {
	o        Options
	log      *slog.Logger
	programs []*program
	library  *library // the Agent Skills
	broken   []*Skill // unusable skills

	mu    sync.Mutex // one listing at a time
	table *table     // nil until the tools are listed
}

var (
	_ tool.Runner = (*Runner)(nil)
	_ tool.Source = (*Runner)(nil)
)

// Open makes the runner of a configured source.
func Open(_ context.Context, src config.Source, log *slog.Logger) (tool.Runner, error) {
	o, err := optionsOf(src)
	if err != nil {
		return nil, err
	}
	return tool.Opened(NewRunner(src.Dir, o, log))
}

func optionsOf(src config.Source) (Options, error) {
	o := Options{source: src.Name, Data: src.StateDir("skills", src.Name), Options: spawn.Of(src)}
	err := src.Decode(&o)
	if own := o.Walls.Injector.Folder(); own != "" {
		o.Data = filepath.Join(cmp.Or(o.Data, src.StateDir("skills", src.Name)), "callers", own)
	}
	return o, err
}

// Claim returns the files that a configured source starts from, those that it keeps for its skills, and those that they may
// change.
func Claim(src config.Source) (offlimits.Claim, error) {
	o, err := optionsOf(src)
	if err == nil {
		err = o.check()
	}
	c := o.Granted(src.Dir)
	c.Starts = o.Container.Starts(src.Dir)
	for _, folder := range offlimits.Given(o.Folder(src.Dir), o.Skills, o.Skill) {
		c.Starts = append(c.Starts, filepath.Clean(folder)+"/")
	}
	skills := offlimits.Under(o.Folder(src.Dir), cmp.Or(o.Skills, filepath.Dir(o.Skill)))
	if sdk := sdkIn(filepath.Dir(skills)); sdk != "" {
		c.Starts = append(c.Starts, sdk+"/")
	}
	for _, folder := range offlimits.Given(src.Dir, o.Data) {
		c.Keeps = append(c.Keeps, filepath.Clean(folder)+"/")
	}
	list, unread := o.read(o.Folder(src.Dir)) // an unreadable skill starts nothing
	for _, s := range list {
		if s.Manifest == nil {
			continue
		}
		said, err := s.Manifest.launch(s.Dir)
		if err == nil {
			c.Homes = append(c.Homes, o.Homes(said.dir, said.argv, c.Writes)...)
		}
		if err == nil && said.dir != s.Dir { // a package also loads from the folders above it
			c.Homes = append(c.Homes, filepath.Dir(s.Dir)+"/", said.dir+"/.")
		}
	}
	return c, cmp.Or(err, unread)
}

// Opens returns how long a source may take to open: its skills start concurrently, each with its own time to start and load.
func Opens(src config.Source) time.Duration {
	o, _ := optionsOf(src) // a source whose options cannot be read is not opened
	o.setDefaults()
	return time.Duration(2*o.StartTimeout + o.HookTimeout)
}

// NewRunner is Open with decoded options. Their relative paths are relative to dir. Nothing is started until the tools are
// listed or called.
func NewRunner(dir string, o Options, log *slog.Logger) (*Runner, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.setDefaults()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the folder of the config: %w", err)
	}
	o.Data = offlimits.Under(dir, cmp.Or(o.Data, filepath.Join(config.StateName, "skills")))
	skills, err := o.read(o.Folder(dir))
	if err != nil {
		return nil, err
	}
	r := &Runner{o: o, log: log, library: &library{}}
	for _, s := range skills {
		r.add(dir, s)
	}
	return r, nil
}

// read reads the skill folders that the options name.
func (o *Options) read(dir string) ([]*Skill, error) {
	if o.Skills != "" {
		folder := offlimits.Under(dir, o.Skills)
		skills, err := Skills{}.List(folder)
		if err == nil && len(skills) == 0 && isSkill(folder) {
			err = tool.Errorf(tool.CodeInvalidInput, "%s is a skill and not a folder of skills; name it with `skill`",
				folder)
		}
		return skills, err
	}
	s := readSkill(offlimits.Under(dir, o.Skill))
	return []*Skill{s}, s.Err
}

func (r *Runner) add(base string, s *Skill) {
	switch {
	case s.Err != nil:
		r.log.Warn("a skill cannot be used", "skill", s.Name(), "error", s.Err)
		r.broken = append(r.broken, s)
	case s.Manifest == nil:
		r.library.skills = append(r.library.skills, s)
	default:
		data := filepath.Join(r.o.Data, tool.Slug(s.Name()))
		r.programs = append(r.programs, newProgram(s, &r.o, base, data, r.log))
	}
}

// A table maps tools to their skills.
type table struct {
	specs  []*tool.Spec
	byName map[string]*entry
	log    *slog.Logger
}

// An entry is one tool. It has a program, or a tool of the library, or the reason why it cannot be called.
type entry struct {
	program *program
	own     string // the tool's name as the skill knows it
	library func(args json.RawMessage) (*tool.Result, error)
	problem error
}

// Tools implements tool.Source: it starts every skill and asks for its tools. A skill that does not start is listed by its
// own name as unavailable; if it is the only skill of the source, its error is returned instead.
func (r *Runner) Tools(ctx context.Context) ([]*tool.Spec, error) {
	t, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	return t.specs, nil
}

func (r *Runner) list(ctx context.Context) (*table, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table != nil {
		return r.table, nil
	}
	offers, errs := make([][]json.RawMessage, len(r.programs)), make([]error, len(r.programs))
	var all sync.WaitGroup
	for i, p := range r.programs {
		all.Go(func() { offers[i], errs[i] = p.offers(ctx) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil, tool.AsError(context.Cause(ctx))
	}
	if err := errors.Join(errs...); err != nil && len(r.programs) == 1 && len(r.broken) == 0 &&
		len(r.library.skills) == 0 {
		return nil, r.programs[0].explained(errs[0])
	}
	r.table = r.arrange(offers, errs)
	return r.table, nil
}

// Places returns how many calls a skill takes at once, which its tools share.
func (r *Runner) Places(name string) (pool string, calls int) {
	r.mu.Lock()
	t := r.table
	r.mu.Unlock()
	if t == nil || t.byName[name] == nil || t.byName[name].program == nil {
		return "", 0
	}
	p := t.byName[name].program
	return p.name, p.limit()
}

// Unavailable returns why a tool cannot be called, or nil.
func (r *Runner) Unavailable(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table == nil || r.table.byName[name] == nil {
		return nil
	}
	return r.table.byName[name].problem
}

// arrange gives every tool its name: its own, or SKILL__TOOL if two would clash.
func (r *Runner) arrange(offers [][]json.RawMessage, errs []error) *table {
	t := &table{byName: map[string]*entry{}, log: r.log}
	var found []candidate
	var failed []*Skill
	wanted := map[string]int{activateTool: 1, readTool: 1}
	for i, p := range r.programs {
		if errs[i] != nil {
			s := *p.skill
			s.Err = p.explained(errs[i])
			failed = append(failed, &s)
			continue
		}
		for _, c := range r.take(p, offers[i]) {
			found = append(found, c)
			wanted[c.spec.Name]++
		}
	}
	for _, c := range found {
		if wanted[c.spec.Name] > 1 {
			c.spec.Name = c.entry.program.name + "__" + c.spec.Name
		}
		t.put(c.spec, c.entry)
	}
	if len(r.library.skills) > 0 {
		t.put(r.library.activateSpec(), &entry{library: r.library.use(activate)})
		t.put(r.library.readSpec(), &entry{library: r.library.use(readSkillFile)})
	}
	for _, s := range append(failed, r.broken...) {
		t.explain(s)
	}
	return t
}

// A candidate is a tool before it has its name.
type candidate struct {
	spec  *tool.Spec
	entry *entry
}

// take returns the tools of a program that can be offered.
func (r *Runner) take(p *program, offers []json.RawMessage) (found []candidate) {
	behind := p.found.Load()
	seen := map[string]bool{}
	for _, raw := range offers {
		o, schema, err := readOffer(raw)
		if err == nil && seen[o.Name] {
			err = errors.New("another tool of the skill has this name")
		}
		if err != nil {
			p.log.Warn("a tool of the skill is not offered", "tool", jsonrpc.Clip(o.Name), "error", err)
			continue
		}
		seen[o.Name] = true
		spec := &tool.Spec{
			Name: o.Name, Description: o.Description, Input: schema, Effects: r.o.Effects,
			Timeout: time.Duration(r.o.Timeout), Guarantees: r.o.Guarantees,
		}
		behind.Publish(spec)
		spec.Declare(r.o.Tier, tool.TierConfig)
		found = append(found, candidate{spec, &entry{program: p, own: o.Name}})
	}
	return found
}

// explained returns the error of a skill that did not start, with advice if the walls may be the cause.
func (p *program) explained(err error) error {
	spec, e := &tool.Spec{Name: p.name, Source: p.o.source}, *tool.AsError(err)
	if found := p.found.Load(); found != nil {
		found.Publish(spec)
		e.Message += walls.Hint(spec, nil, e.Message)
	}
	return &e
}

// maxName bounds the name of a tool, in bytes.
const maxName = 200

func readOffer(raw json.RawMessage) (o offer, schema json.RawMessage, err error) {
	if err := strictjson.Unmarshal(raw, &o); err != nil {
		return o, nil, errors.New(jsonrpc.Misread(err))
	}
	if o.Name == "" || len(o.Name) > maxName || jsonrpc.Clip(o.Name) != o.Name {
		return o, nil, fmt.Errorf("a name has 1 to %d printable characters", maxName)
	}
	schema, err = o.schema()
	return o, schema, err
}

// explain lists an unusable skill by its own name, so that users can see the reason. It comes last and yields to others: no
// working tool is renamed because of it.
func (t *table) explain(s *Skill) {
	taken := func(name string) bool { return t.byName[name] != nil }
	name := s.Name()
	if taken(name) {
		name = tool.Untaken(filepath.Base(s.Dir), maxName, taken)
	}
	t.put(&tool.Spec{Name: name, Description: s.Description()}, &entry{problem: tool.AsError(s.Err)})
}

func (t *table) put(spec *tool.Spec, e *entry) {
	if t.byName[spec.Name] != nil {
		t.log.Warn("a tool is not offered: another one has its name", "tool", spec.Name)
		return
	}
	t.byName[spec.Name] = e
	t.specs = append(t.specs, spec)
}

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if ctx.Err() != nil {
		return nil, interrupted(ctx, c.Tool, "")
	}
	t, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	e := t.byName[c.Tool]
	switch {
	case e == nil:
		return nil, tool.Errorf(tool.CodeNotFound, "no skill has a tool named %q", c.Tool)
	case e.problem != nil:
		return nil, e.problem
	case e.library != nil:
		return e.library(c.Args)
	}
	if err := sandbox.Covered(c, r.o.Guarantees, "skill"); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	events := tool.NewRelay(out, stop)
	defer events.Close()
	result, err := e.program.call(ctx, e.own, c, events)
	if failed := events.Err(); failed != nil {
		return nil, failed
	}
	return result, err
}

// call makes one call and returns its outcome.
func (p *program) call(ctx context.Context, name string, c *tool.Call, events *tool.Relay) (*tool.Result, error) {
	if err := strictjson.CheckObject(strictjson.OrEmpty(c.Args)); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s cannot be sent: %w", c.Tool, err)
	}
	w, raw, err := p.deliver(ctx, name, c, events)
	for errors.Is(err, jsonrpc.ErrUnsent) {
		w, raw, err = p.deliver(ctx, name, c, events)
	}
	if err != nil {
		return p.unanswered(ctx, c.Tool, w, err)
	}
	result, err := decodeResult(raw)
	if err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "the answer of %s to %s: %w", p.name, c.Tool, err)
	}
	result.Trace.Details = map[string]any{"skill": p.name, "generation": 1}
	if w.second {
		result.Trace.Details["generation"] = 2
	}
	walls.Enforced(c, result.Trace.Details, p.o.Guarantees, w.Layers(), nil)
	return result, nil
}

// deliver hands a call to a worker and returns its answer.
func (p *program) deliver(
	ctx context.Context, name string, c *tool.Call, events *tool.Relay,
) (*speaker, json.RawMessage, error) {
	w, err := p.get(ctx)
	if err != nil {
		return nil, nil, err
	}
	s := &scope{events: events, open: w.Open, state: c.State, inside: c.Session != ""}
	session, leave := w.join(ctx, c, s)
	defer leave()
	if !w.sessionful {
		session = ""
	}
	params := callParams(name, strictjson.OrEmpty(c.Args), session)
	raw, err := w.Call(ctx, methodToolsCall, func(uint64) []byte { return params }, s)
	return w, raw, err
}

// unanswered returns the outcome of a call without a result: the skill refused, or did not answer.
func (p *program) unanswered(ctx context.Context, name string, w *speaker, err error) (*tool.Result, error) {
	var said *jsonrpc.Error
	switch {
	case errors.As(err, &said):
		return outcome(said, name)
	case ctx.Err() == nil:
		return nil, err
	}
	note := ""
	if w != nil {
		if hooks := w.Unanswered(); len(hooks) > 0 {
			note = fmt.Sprintf("; the skill has not answered %s either", strings.Join(hooks, ", "))
		}
	}
	return nil, interrupted(ctx, name, note)
}

// outcome interprets an error reply to tools/call: no outcome, or a failure that the skill reports in its own way.
func outcome(e *jsonrpc.Error, name string) (*tool.Result, error) {
	if err := toolError(e, name); err != nil {
		return nil, err
	}
	r := tool.Failed(fmt.Sprint(e.Code), cmp.Or(e.Message, "the tool failed and did not say why"))
	r.Failure.Details = kept(*e)
	return r, nil
}

// interrupted returns the error of a call whose context ended.
func interrupted(ctx context.Context, name, note string) *tool.Error {
	e := tool.Ended(ctx)
	e.Message = fmt.Sprintf("%s was given up: %s%s", name, e.Message, note)
	return e
}

// Workers implements tool.Staffed.
func (r *Runner) Workers() (n tool.Workers) {
	for _, p := range r.programs {
		n = n.Plus(p.Workers())
	}
	return n
}

// Close implements tool.Runner: every skill is shut down.
func (r *Runner) Close(ctx context.Context) error {
	errs := make([]error, len(r.programs))
	var all sync.WaitGroup
	for i, p := range r.programs {
		all.Go(func() { errs[i] = p.close(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}
