package quota

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/wire/nearest"
)

// Limits of the config. Within them everything can be counted in 64-bit integers.
const (
	maxRules  = 100
	maxAmount = 100_000_000 // calls, units, and the cost of a call
)

// A Rule is an entry of limits.quotas. It applies to the calls that match all of its patterns, and limits at least one
// of their rate, units and concurrency.
type Rule struct {
	Name        string         `yaml:"name" doc:"name of the rule in messages"`
	Per         Parts          `yaml:"per" schema:"items.enum=caller|tool|source|door|session|codebase" doc:"which calls are counted together; a list combines them; default: all calls"`
	Rate        Rate           `yaml:"rate" doc:"number of calls per s, m, h or d, such as 100/m"`
	Burst       int64          `yaml:"burst" doc:"calls that may come at once; default: the whole rate"`
	Concurrency int64          `yaml:"concurrency" doc:"calls that may run at the same time; default: unlimited"`
	Units       Rate           `yaml:"units" doc:"units that calls may cost, such as 1000/h"`
	Cost        map[string]int `yaml:"cost" doc:"units per call, by tool name or source.name; the key default covers all other tools, which otherwise cost 1"`
	Tools       tool.Patterns  `yaml:"tools" doc:"tools by name, source.name or alias"`
	Sources     tool.Globs     `yaml:"sources" doc:"names of sources"`
	Callers     tool.Globs     `yaml:"callers" doc:"who calls, such as owner, local or ci-*"`
	Doors       tool.Globs     `yaml:"doors" doc:"where the call came in: cli, http, nats, or a protocol's name"`
	Reason      string         `yaml:"reason" doc:"reason, shown to the refused caller"`
}

// otherTools is the key in Cost for all tools that it does not name.
const otherTools = "default"

// Validate implements config's validator.
func (r *Rule) Validate() error {
	switch {
	case r.Name == "":
		return errors.New("a quota has no name; give it one, such as `name: per-caller`")
	case r.Burst < 0 || r.Burst > maxAmount:
		return fmt.Errorf("quota %q: burst is %d; it must be 1 to %d", r.Name, r.Burst, maxAmount)
	case r.Concurrency < 0 || r.Concurrency > maxAmount:
		return fmt.Errorf("quota %q: concurrency is %d; it must be 1 to %d", r.Name, r.Concurrency, maxAmount)
	case !r.Rate.given() && !r.Units.given() && r.Concurrency == 0:
		return fmt.Errorf("quota %q limits nothing; give it a rate, units or a concurrency, such as `rate: 100/m`",
			r.Name)
	case r.Burst > 0 && !r.Rate.given():
		return fmt.Errorf("quota %q has a burst and no rate; say how many calls there may be, such as `rate: 100/m`",
			r.Name)
	case len(r.Cost) > 0 && !r.Units.given():
		return fmt.Errorf("quota %q has costs and no units; say how many there are, such as `units: 1000/h`", r.Name)
	}
	for name, cost := range r.Cost {
		switch {
		case cost < 0:
			return fmt.Errorf("quota %q: a call of %s cannot cost %d; 0 is free", r.Name, name, cost)
		case int64(cost) > r.Units.amount:
			return fmt.Errorf("quota %q: a call of %s costs %d units, and there are never more than %d; deny the "+
				"tool in the policy, or give more units", r.Name, name, cost, r.Units.amount)
		}
	}
	for i, p := range r.Per {
		if slices.Contains(r.Per[:i], p) {
			return fmt.Errorf("quota %q: per names %s twice", r.Name, p)
		}
	}
	if list := config.EmptyList(r, "per"); list != "" {
		return fmt.Errorf("quota %q: %s is an empty list and would match nothing; leave it out to match everything",
			r.Name, list)
	}
	return nil
}

// check refuses too many rules, two of the same name, and unknown doors and sources: a limit on something that does not
// exist limits nothing. If doors or sources is nil, any name is accepted.
func check(rules []Rule, doors, sources []string) error {
	if len(rules) > maxRules {
		return invalid("there are %d quotas, and %d are allowed", len(rules), maxRules)
	}
	seen := map[string]bool{}
	for _, r := range rules {
		if seen[r.Name] {
			return invalid("two quotas are called %q; give one of them another name", r.Name)
		}
		seen[r.Name] = true
		err := cmp.Or(nearest.Check("door", r.Doors, doors), nearest.Check("source", r.Sources, sources))
		if err != nil {
			return invalid("quota %q: %w", r.Name, err)
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return tool.Errorf(tool.CodeInvalidInput, "limits: "+format, args...)
}

// A Rate is an amount in a time, such as 100/m. The zero value means no rate.
type Rate struct {
	amount int64
	unit   string // s, m, h or d
}

func (r Rate) given() bool { return r.amount > 0 }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(b []byte) error {
	text := string(b)
	amount, unit, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(amount, 10, 63)
	if _, ok := units()[unit]; err != nil || !ok || len(text) > 32 {
		return fmt.Errorf("expected a rate such as 10/s, 100/m, 1000/h or 5000/d, got %.40q", text)
	}
	if n < 1 || n > maxAmount {
		return fmt.Errorf("%s: it must be 1 to %d; to allow nothing, deny it in the policy", text, maxAmount)
	}
	*r = Rate{int64(n), unit}
	return nil
}

// words returns the rate in words.
func (r Rate) words(what string) string { return amount(r.amount, what) + " " + units()[r.unit].words }

// amount returns a count with its noun, which ends in s and is made singular for 1.
func amount(n int64, what string) string {
	if n == 1 {
		what = strings.TrimSuffix(what, "s")
	}
	return fmt.Sprint(n, " ", what)
}

type unit struct {
	words string
	time  time.Duration
}

func units() map[string]unit {
	return map[string]unit{
		"s": {"a second", time.Second}, "m": {"a minute", time.Minute}, "h": {"an hour", time.Hour},
		"d": {"a day", 24 * time.Hour},
	}
}

// A Part is a property of a call by which calls are counted.
type Part string

// The parts.
const (
	PerCaller   Part = "caller"
	PerTool     Part = "tool"
	PerSource   Part = "source"
	PerDoor     Part = "door"
	PerSession  Part = "session"
	PerCodebase Part = "codebase" // the argument codebase_id or codebaseId; calls without one are counted together
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Part) UnmarshalText(b []byte) error {
	all := []Part{PerCaller, PerTool, PerSource, PerDoor, PerSession, PerCodebase}
	if *p = Part(b); !slices.Contains(all, *p) {
		return fmt.Errorf("expected caller, tool, source, door, session or codebase, got %.40q", b)
	}
	return nil
}

// Parts is a list of parts.
type Parts = tool.Several[Part, *Part]

// forWhom describes what a rule counts for.
func (r *Rule) forWhom() string {
	words := "for all together"
	for i, part := range r.Per {
		if i == 0 {
			words = "for each " + string(part)
		} else {
			words += " and " + string(part)
		}
	}
	return words
}
