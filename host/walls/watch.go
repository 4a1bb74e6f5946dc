package walls

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"toolpost/config/offlimits"
	"toolpost/host/sandbox"
	"toolpost/tool"
)

// GuaranteeBlocked is the reason of a check that stopped something, in the words of the namel3ss contract.
const GuaranteeBlocked = "guarantee_blocked"

// A Check is an attempt of a tool that a wall stopped, in the words of the namel3ss contract.
type Check struct {
	Capability string `json:"capability"`
	Allowed    bool   `json:"allowed"`
	Source     string `json:"guarantee_source"`
	Reason     string `json:"reason"`
	Target     string `json:"target,omitempty"` // the path or the address
}

// A Watch records what is stopped while one call runs: it reports each attempt as a log event, and keeps it for the
// trace. A worker that serves one call after the other has one Watch, which follows the calls; see Follow.
type Watch struct {
	mu      sync.Mutex
	out     tool.Sink          // nil if attempts are not reported
	sources map[string]string  // the origin of each guarantee; others come from the default profile, which is the engine's
	checker *offlimits.Checker // what no setting can allow
	checks  []Check
	blocked []tool.Blocked
}

// mostChecks is the maximum number of attempts in a call's trace.
const mostChecks = 64

// Follow attributes the attempts from now on to a call, whose guarantees have the given origins, and forgets the call
// before.
func (w *Watch) Follow(out tool.Sink, sources map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out, w.sources, w.checks, w.blocked = out, sources, nil, nil
}

// Sources returns the origin of each of a call's guarantees: own are those of the source's config.
func Sources(own, all tool.Guarantees) map[string]string {
	sources := map[string]string{}
	for _, name := range all.Asked() {
		sources[name] = "policy"
	}
	for _, name := range own.Asked() {
		sources[name] = "user"
	}
	return sources
}

// Checks returns the attempts of the call so far.
func (w *Watch) Checks() []Check {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.checks)
}

// Blocked returns what was stopped during the call so far, including limits.
func (w *Watch) Blocked() []tool.Blocked {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.blocked)
}

func (w *Watch) saw(v sandbox.Violation) {
	w.mu.Lock()
	if v.Guarantee == "" {
		out := w.out
		b := w.note(v, byEngine)
		w.mu.Unlock()
		if out != nil {
			e := tool.LogEvent("warn", "it reached its limit of "+v.Capability+" ("+v.Target+")")
			e.Blocked = b
			_ = out.Emit(e) // a sink that fails ends the call by itself
		}
		return
	}
	source, asked := w.sources[v.Guarantee]
	if !asked {
		source = byEngine
	}
	c := Check{Capability: v.Capability, Source: source, Reason: GuaranteeBlocked, Target: v.Target}
	if n := len(w.checks); n > 0 && w.checks[n-1] == c { // tried again, perhaps in another way
		w.mu.Unlock()
		return
	}
	if len(w.checks) < mostChecks {
		w.checks = append(w.checks, c)
	}
	out := w.out
	e := c.event(v.Guarantee)
	e.Blocked = w.note(v, source)
	w.mu.Unlock()
	if out != nil {
		_ = out.Emit(e) // a sink that fails ends the call by itself
	}
}

// byEngine is the origin of what only the walls of a source forbid.
const byEngine = "engine"

// note records what was stopped.
func (w *Watch) note(v sandbox.Violation, by string) *tool.Blocked {
	b := tool.Blocked{Capability: v.Capability, Target: v.Target, By: by}
	if v.Capability == "filesystem_write" {
		// A hidden path gets the same advice as any other: otherwise a caller that chooses paths could detect it.
		ban := w.checker.At(v.Target)
		b.Never = ban != offlimits.Free && ban != offlimits.Secret
	}
	if len(w.blocked) < mostChecks {
		w.blocked = append(w.blocked, b)
	}
	return &b
}

// event returns the log event of an attempt.
func (c Check) event(guarantee string) tool.Event {
	fields, _ := json.Marshal(struct {
		Type string `json:"type"`
		Check
		Guarantee string `json:"guarantee"`
	}{"capability_check", c, guarantee})
	return tool.NewEvent(tool.KindLog, tool.Log{
		Level: "warn", Message: "blocked: " + c.Capability + ": " + c.Target + " (" + guarantee + ")", Fields: fields,
	})
}

// Blocked refuses a call of a tool that only does what a guarantee forbids: no wall has to be built.
func Blocked(c *tool.Call, guarantee string) *tool.Error {
	e := tool.Errorf(tool.CodeAccessDenied, "%s was not run: %s forbids what it does",
		c.Spec.Name, guarantee).Because(GuaranteeBlocked)
	source := Sources(c.Spec.Guarantees, c.Tightened(tool.Guarantees{}))[guarantee]
	e.Details, _ = json.Marshal(map[string]any{
		"capability_checks": []Check{
			{Capability: strings.TrimPrefix(guarantee, "no_"), Source: source, Reason: GuaranteeBlocked},
		},
	})
	return e
}

// Enforced records in a call's trace, and in its record, which walls were around it: the layers that process.Child names.
// Without any it records that nothing was enforced.
func Enforced(c *tool.Call, details map[string]any, g tool.Guarantees, layers []string, checks []Check) {
	level := "none"
	if len(layers) > 0 {
		level, details["enforcement"] = "enforced", layers
	}
	details["enforcement_level"] = level
	if len(checks) > 0 {
		details["capability_checks"] = checks
	}
	switch {
	case c.Record == nil:
	case len(layers) == 0:
		c.Record.Walls = "none"
	default:
		c.Record.Walls = strings.Join(append(g.Asked(), "layers:"+strings.Join(layers, "+")), ",")
	}
}
