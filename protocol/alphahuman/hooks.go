package alphahuman

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"toolpost/host/worker"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// introduce determines the skill's generation and its tools.
func (w *speaker) introduce(ctx context.Context) error {
	method := methodInitialize
	if w.p.o.Generation == 2 {
		method = methodToolsList
	}
	raw, err := w.Ask(ctx, method, nil, &scope{})
	var said *jsonrpc.Error
	if method == methodInitialize && errors.As(err, &said) &&
		(said.Code == jsonrpc.CodeMethodNotFound || said.Code == jsonrpc.CodeInternal) {
		method = methodToolsList
		raw, err = w.Ask(ctx, method, nil, &scope{})
	}
	w.second = method == methodToolsList
	switch {
	case w.second && errors.As(err, &said):
		return tool.Errorf(tool.CodeProtocol, "%s knows neither %s nor %s: %w", w.p.name, methodInitialize,
			methodToolsList, said)
	case err != nil:
		return err
	}
	if err := strictjson.Unmarshal(raw, &w.intro); err != nil {
		return tool.Errorf(tool.CodeProtocol, "%s: the answer to %s: %s", w.p.name, method, jsonrpc.Misread(err))
	}
	if c := w.intro.Capabilities; c != nil {
		w.cancels, w.sessionful = c.Cancel, c.Sessions
	}
	return nil
}

// A hook is a request that informs the skill. Its failure is logged and has no further effect.
type hook struct {
	method string
	params any
	scope  *scope // nil if it belongs to no call
}

// in returns the method of the worker's generation.
func (w *speaker) in(first, second string) string {
	if w.second {
		return second
	}
	return first
}

func (w *speaker) loadHook() hook {
	if !w.second {
		return hook{method: methodOnLoad}
	}
	return hook{method: methodLoad, params: map[string]any{
		"manifest": map[string]string{"id": w.p.name, "name": w.p.name, "version": w.p.skill.Version()},
		"dataDir":  w.p.data.dir,
	}}
}

// hook informs the skill and waits for its answer for a limited time. A failure is only logged.
func (w *speaker) hook(ctx context.Context, h hook) (json.RawMessage, bool) {
	var params []byte
	if h.params != nil {
		params, _ = strictjson.Marshal(h.params) // strings alone
	}
	if h.scope == nil {
		h.scope = &scope{}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(w.p.o.HookTimeout))
	defer cancel()
	raw, err := w.Ask(ctx, h.method, params, h.scope)
	if err != nil {
		w.p.log.Warn("a hook of the skill failed", "hook", h.method, "error", err)
	}
	return raw, err == nil
}

// who identifies a session: two callers never share one, whatever names they choose.
type who struct{ caller, session string }

// A talk is a session that the skill was told about.
type talk struct {
	who
	id    string        // as the skill knows it
	told  chan struct{} // closed when the skill has been told
	calls int           // running calls
	last  time.Time
}

// maxTalks bounds the sessions of one worker; the one that was idle the longest ends first.
const maxTalks = 1000

// join announces a call's session to the skill if it is new, and returns the session's id as the skill knows it. The caller
// calls leave at the end of the call.
func (w *speaker) join(ctx context.Context, c *tool.Call, s *scope) (id string, leave func()) {
	if c.Session == "" {
		return "", func() {}
	}
	t, isNew, over := w.talk(who{c.Caller.ID, c.Session})
	for _, t := range over {
		w.hook(ctx, w.endHook(t))
	}
	if isNew {
		w.hook(ctx, hook{w.in(methodOnSessionStart, methodSessionStart), map[string]string{"sessionId": t.id}, s})
		close(t.told)
	}
	select {
	case <-t.told:
	case <-ctx.Done():
	}
	return t.id, func() {
		w.p.mu.Lock()
		defer w.p.mu.Unlock()
		t.calls--
		t.last = time.Now()
	}
}

func (w *speaker) endHook(t *talk) hook {
	return hook{method: w.in(methodOnSessionEnd, methodSessionEnd), params: map[string]string{"sessionId": t.id}}
}

// talk finds or creates a session. If there are too many, it also returns one that ends now.
func (w *speaker) talk(k who) (t *talk, isNew bool, over []*talk) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if t = w.sessions[k]; t != nil {
		t.calls++
		return t, false, nil
	}
	if len(w.sessions) >= maxTalks {
		over = w.takeOut(0, 1)
	}
	id := k.session
	for w.names[id] { // another caller has a session of this name
		id = k.session + "~" + tool.NewID()[:8]
	}
	t = &talk{who: k, id: id, told: make(chan struct{}), calls: 1, last: time.Now()}
	w.sessions[k], w.names[id] = t, true
	return t, true, over
}

// overdue removes and returns the sessions that were idle for this long.
func (w *speaker) overdue(quiet time.Duration) []*talk {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return w.takeOut(quiet, len(w.sessions))
}

// takeOut removes sessions that were idle for this long, the longest idle first.
func (w *speaker) takeOut(quiet time.Duration, most int) (over []*talk) {
	for _, t := range w.sessions {
		if t.calls == 0 && time.Since(t.last) >= quiet {
			over = append(over, t)
		}
	}
	slices.SortFunc(over, func(a, b *talk) int { return a.last.Compare(b.last) })
	over = over[:min(most, len(over))]
	for _, t := range over {
		delete(w.sessions, t.who)
		delete(w.names, t.id)
	}
	return over
}

// keepTime sends ticks and ends idle sessions as long as the worker lives. It does so in sequence: ticks do not overlap.
func keepTime(ctx context.Context, worker *worker.Worker) {
	w := worker.Own.(*speaker)
	interval := w.p.skill.Manifest.Tick
	idle := time.Duration(w.p.o.SessionIdle)
	sweep := time.NewTicker(min(idle, time.Minute))
	defer sweep.Stop()
	tick := time.NewTimer(interval)
	defer tick.Stop()
	due := tick.C
	if interval == 0 {
		due = nil
	}
	for {
		select {
		case <-w.Dead():
			return
		case <-ctx.Done():
			return
		case <-sweep.C:
			for _, t := range w.overdue(idle) {
				w.apart(ctx, w.endHook(t))
			}
		case <-due:
			if h := (hook{method: w.in(methodOnTick, methodTick)}); !slices.Contains(w.Unanswered(), h.method) {
				w.apart(ctx, h)
			}
			tick.Reset(interval)
		}
	}
}

// apart runs a hook that belongs to no call. For a worker that takes one call at a time, it counts as a call.
func (w *speaker) apart(ctx context.Context, h hook) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(w.p.o.HookTimeout))
	defer cancel()
	if w.Hold(ctx) != nil {
		return
	}
	defer w.Release()
	w.hook(ctx, h)
}

// goodbye ends the sessions and asks for shutdown. The last hooks and the answer to shutdown each have a bounded time.
func goodbye(ctx context.Context, worker *worker.Worker) {
	w := worker.Own.(*speaker)
	hooks, cancel := context.WithTimeout(ctx, w.p.Farewell())
	defer cancel()
	var all sync.WaitGroup
	for _, t := range w.overdue(0) {
		all.Go(func() { w.hook(hooks, w.endHook(t)) })
	}
	all.Wait()
	if w.second {
		w.hook(hooks, hook{method: methodUnload})
	}
	last, cancel := context.WithTimeout(ctx, w.p.Farewell())
	defer cancel()
	_, err := w.Ask(last, w.in(methodShutdown, methodSkillShutdown), nil, &scope{})
	if err != nil {
		w.p.log.Warn("the skill did not answer shutdown", "error", err)
	}
}

// BeforeMessage shows a user's message to every running skill of the second generation in turn, and returns it with their
// changes. It is for hosts that have messages; calls have none.
func (r *Runner) BeforeMessage(ctx context.Context, message string) string {
	return r.transform(ctx, methodBeforeMessage, "message", message)
}

// AfterResponse does the same with the response to a user.
func (r *Runner) AfterResponse(ctx context.Context, response string) string {
	return r.transform(ctx, methodAfterResponse, "response", response)
}

func (r *Runner) transform(ctx context.Context, method, name, words string) string {
	for _, p := range r.programs {
		w := p.awake()
		if w == nil {
			continue
		}
		raw, ok := w.hook(ctx, hook{method: method, params: map[string]string{name: words}})
		var answer map[string]json.RawMessage
		if ok && strictjson.Unmarshal(raw, &answer) == nil && strictjson.KindOf(answer[name]) == "string" {
			words = jsonrpc.Text(answer[name])
		}
	}
	return words
}

// Status asks every running skill of the second generation for its status, and returns the answers by skill name.
func (r *Runner) Status(ctx context.Context) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for _, p := range r.programs {
		if w := p.awake(); w != nil {
			if raw, ok := w.hook(ctx, hook{method: methodStatus}); ok {
				all[p.name] = raw
			}
		}
	}
	return all
}

// awake returns the worker if it is running and of the second generation.
func (p *program) awake() *speaker {
	if w := p.Current(); w != nil && w.Own.(*speaker).second {
		return w.Own.(*speaker)
	}
	return nil
}
