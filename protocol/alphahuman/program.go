package alphahuman

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/host/spawn"
	"toolpost/host/worker"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// A program is a skill that runs as a process, which a supervisor keeps running.
type program struct {
	*worker.Supervisor
	skill *Skill
	name  string
	o     *Options
	base  string // the folder of the config
	log   *slog.Logger

	memory   memory
	data     dataFolder
	entities entities

	last   launch                        // how it was last started; only one start at a time uses it
	found  atomic.Pointer[spawn.Program] // the program of that launch, behind its walls; nil if it was never started
	second atomic.Bool                   // its last worker was of the second generation

	mu sync.Mutex // guards the sessions of its workers
}

func newProgram(s *Skill, o *Options, base, data string, log *slog.Logger) *program {
	p := &program{
		skill: s, name: s.Name(), o: o, base: base, data: dataFolder{dir: data}, log: log.With("skill", s.Name()),
	}
	p.Supervisor = worker.New(worker.Options{
		Name: p.name, Log: p.log,
		Find: p.find, Guarantees: o.Guarantees,
		Hello: methodInitialize, Greet: p.greet, Live: keepTime, Goodbye: goodbye,
		Serve: p.serve, Names: callNamed, Cancel: cancel,
		Places: p.limit, MaxLine: o.MaxLine, StartTime: time.Duration(o.StartTimeout), Grace: time.Duration(o.Grace),
	})
	return p
}

// find returns the command that starts the skill behind its walls. Its folder is its own code, which no guarantee takes
// away.
func (p *program) find() (*spawn.Program, error) {
	said, err := p.skill.Manifest.launch(p.skill.Dir)
	if err != nil {
		return nil, err
	}
	said.lookAround(p.skill.Dir, p.o.Walls.Checker(p.base))
	if found := p.found.Load(); found != nil && slices.Equal(p.last.argv, said.argv) &&
		slices.Equal(p.last.code, said.code) && slices.Equal(p.last.reads, said.reads) {
		return found, nil
	}
	argv := said.argv
	// its folder is read-only: every attempt to store a compiled module would be reported as a violation
	if p.skill.Manifest.python() {
		argv = slices.Insert(slices.Clone(argv), 1, "-B")
	}
	found, err := p.o.Program(p.base, spawn.Command{
		Argv: argv, Dir: said.dir, Own: p.skill.Dir, Code: append([]string{p.skill.Dir}, said.code...),
		Reads: said.reads, Withheld: said.withheld, PassEnv: p.skill.Manifest.Env, Log: p.log,
	})
	if err != nil {
		return nil, err
	}
	p.last = said
	p.found.Store(found)
	return found, nil
}

// limit returns how many calls a worker takes at once; 0 means any number. A worker of the second generation takes one by
// default, because its callbacks do not name the call they belong to. The generation is unknown until the first worker has
// started.
func (p *program) limit() int {
	switch {
	case p.o.Concurrency > 0:
		return p.o.Concurrency
	case p.skill.Manifest.Concurrency > 0:
		return p.skill.Manifest.Concurrency
	case p.second.Load():
		return 1
	}
	return 0
}

// A speaker is our knowledge of one worker of a skill.
type speaker struct {
	*worker.Worker
	p *program

	second     bool // it is of the second generation
	cancels    bool // it knows $/cancelRequest
	sessionful bool // it takes sessionId in tools/call
	intro      introduction

	// Guarded by the program's mutex.
	sessions map[who]*talk   // that it was told about
	names    map[string]bool // their ids
}

// greet learns what a worker is and which tools it has, and tells it that it is loaded.
func (p *program) greet(ctx context.Context, w *worker.Worker) error {
	s := &speaker{Worker: w, p: p, sessions: map[who]*talk{}, names: map[string]bool{}}
	w.Own = s
	if err := s.introduce(ctx); err != nil {
		return err
	}
	p.second.Store(s.second)
	s.hook(context.WithoutCancel(ctx), s.loadHook())
	return nil
}

// cancel tells a worker that a request is abandoned.
func cancel(w *worker.Worker, id uint64) {
	if w.Own.(*speaker).cancels {
		w.Tell(methodCancel, fmt.Appendf(nil, `{"id":%d}`, id))
	}
}

// callNamed returns the id of the request that a callback names as its own.
func callNamed(in *jsonrpc.Incoming) uint64 {
	var named struct {
		CallID uint64 `json:"callId"`
	}
	if len(in.Params) == 0 || strictjson.Unmarshal(in.Params, &named) != nil {
		return 0
	}
	return named.CallID
}

// get returns a worker with a place for a call.
func (p *program) get(ctx context.Context) (*speaker, error) {
	w, err := p.Get(ctx)
	if err != nil {
		return nil, err
	}
	return w.Own.(*speaker), nil
}

// offers returns the tools that the skill's worker offers.
func (p *program) offers(ctx context.Context) ([]json.RawMessage, error) {
	s, err := p.get(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Release()
	return s.intro.Tools, nil
}

func (p *program) close(ctx context.Context) error {
	defer p.data.close()
	return p.Close(ctx)
}
