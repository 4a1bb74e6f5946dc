package stormfleet

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"toolpost/wire/strictjson"
)

// A trace is a line that a tool wrote before it answered.
type trace struct {
	tool, id, said, node string
	at                   time.Time
}

// A record is a row of the log.
type record struct {
	Call    string `json:"call"`
	Tool    string `json:"tool"`
	Outcome string `json:"outcome"`
	Parent  string `json:"parent"`
	Kind    string `json:"kind"`
}

// Evidence is all that is known about a storm when it is over.
type evidence struct {
	*history
	traces  []trace
	records []record
	kills   map[string][]time.Time // when hubs were killed
}

// A broken promise.
type broken struct{ promise, what string }

func (b broken) String() string { return b.promise + ": " + b.what }

// checks are the promises. Each returns what is against it.
func checks() map[string]func(evidence) []string {
	return map[string]func(evidence) []string{
		"no acknowledged call is lost":        evidence.lostCalls,
		"no acknowledged job is lost":         evidence.lostJobs,
		"nothing runs twice that must not":    evidence.ranTwice,
		"what was answered is what ran":       evidence.answersWithoutTrace,
		"a key has one outcome":               evidence.twoOutcomes,
		"events come without gaps":            evidence.gaps,
		"a quota is never exceeded":           evidence.overQuota,
		"a decision about an approval counts": evidence.approvals,
	}
}

// judged returns all promises that were broken.
func (e evidence) judged() (all []broken) {
	for _, promise := range slices.Sorted(maps.Keys(checks())) {
		for _, what := range checks()[promise](e) {
			all = append(all, broken{promise, what})
		}
	}
	return all
}

// told returns the attempts that got an outcome.
func (e evidence) told() (all []attempt) {
	for _, a := range e.attempts {
		if a.how == ran || a.how == failed {
			all = append(all, a)
		}
	}
	return all
}

// readsOnly are tools whose records are written in batches after the answer: a hub that is killed may not have written the last.
func readsOnly(tool string) bool { return tool == "read" }

// lostCalls: every call that was answered with an outcome has a row in the log.
func (e evidence) lostCalls() (found []string) {
	rows := map[string]bool{}
	for _, r := range e.records {
		rows[r.Call] = true
	}
	for _, a := range e.told() {
		if !rows[a.call] && !(readsOnly(a.tool) && e.killedAfter(a, rows)) {
			found = append(found, fmt.Sprintf("%s of %s was answered by %s over %s, and has no record", a.call, a.tool, a.hub, a.door))
		}
	}
	return found
}

// killedAfter reports whether the hub of a read was killed while the record of it still waited, as it does without a store: hubs write
// these records in order, so none of a later read was written before the kill.
func (e evidence) killedAfter(a attempt, rows map[string]bool) bool {
	i := slices.IndexFunc(e.kills[a.hub], a.ended.Before)
	if i < 0 {
		return false
	}
	return !slices.ContainsFunc(e.attempts, func(b attempt) bool {
		return readsOnly(b.tool) && b.hub == a.hub && rows[b.call] && b.begun.After(a.ended) && b.ended.Before(e.kills[a.hub][i])
	})
}

// lostJobs: every job that was acknowledged exists, has ended, has a record, and did what it says.
func (e evidence) lostJobs() (found []string) {
	rows, lines := map[string]bool{}, e.byID()
	for _, r := range e.records {
		rows[r.Call] = true
	}
	for _, j := range e.jobs {
		ran := len(lines[j.id]) > 0
		switch {
		case j.state != "done" && j.state != "failed" && j.state != "lost":
			found = append(found, fmt.Sprintf("job %s (%s of %s) is %q", j.job, j.tool, j.id, j.state))
		case !rows[j.job] && (ran || j.state != "lost"): // one that is lost may have ended before its call began
			found = append(found, fmt.Sprintf("job %s (%s of %s) is %s, and has no record", j.job, j.tool, j.id, j.state))
		case j.state == "done" && j.tool != "plan.run" && j.tool != "tell" && !ran:
			found = append(found, fmt.Sprintf("job %s (%s of %s) is done, and its tool did not run", j.job, j.tool, j.id))
		case j.state == "lost" && mayRepeat(j.tool):
			found = append(found, fmt.Sprintf("job %s (%s of %s) is lost, and could have run again", j.job, j.tool, j.id))
		}
	}
	return found
}

func (e evidence) byID() map[string][]trace {
	all := map[string][]trace{}
	for _, l := range e.traces {
		all[l.id] = append(all[l.id], l)
	}
	return all
}

// mayRepeat are tools that may run again.
func mayRepeat(tool string) bool { return tool == "read" || tool == "put" || tool == "tell" }

// ranTwice: no tool that must not run twice left two lines for one id.
func (e evidence) ranTwice() (found []string) {
	lines := e.byID()
	for _, id := range slices.Sorted(maps.Keys(lines)) {
		if l := lines[id]; !mayRepeat(l[0].tool) && len(l) > 1 {
			found = append(found, fmt.Sprintf("%s of %s ran %d times: %v", l[0].tool, id, len(l), l))
		}
	}
	return found
}

// answersWithoutTrace: what a caller was told is what a tool wrote.
func (e evidence) answersWithoutTrace() (found []string) {
	wrote := map[string]bool{}
	for _, l := range e.traces {
		wrote[l.said] = true
	}
	lines := e.byID()
	for _, a := range e.told() {
		if strings.HasPrefix(a.said, "ran:") && !wrote[a.said] {
			found = append(found, fmt.Sprintf("%s of %s was answered %s, which no tool said", a.call, a.tool, a.said))
		}
	}
	for _, p := range e.plans {
		for i := range 3 {
			if id := fmt.Sprintf("%s-%d", p.id, i); p.how == ran && len(lines[id]) == 0 {
				found = append(found, fmt.Sprintf("plan %s succeeded, and %s did not run", p.id, id))
			}
		}
	}
	return found
}

// twoOutcomes: whatever the order in which the attempts with a key took effect, one outcome explains what all of them were told.
// After it is known, no caller is told that it is not.
func (e evidence) twoOutcomes() (found []string) {
	keys := map[string][]porcupine.Operation{}
	for i, a := range e.attempts {
		firm := a.why == "conflict idempotency_unknown"
		if a.key && (a.how == ran || a.how == failed || firm) {
			id := a.tool + " " + a.id
			keys[id] = append(keys[id], porcupine.Operation{
				ClientId: i, Input: a, Call: a.begun.UnixNano(), Return: a.ended.UnixNano(),
			})
		}
	}
	model := porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, in, _ any) (bool, any) {
			a := in.(attempt)
			if a.said == "" {
				return state == "", state
			}
			return state == "" || state == a.said, a.said
		},
	}
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		if porcupine.CheckOperationsTimeout(model, keys[id], 10*time.Second) != porcupine.Ok {
			var told []string
			for _, o := range keys[id] {
				a := o.Input.(attempt)
				told = append(told, fmt.Sprintf("%s %s %s", a.hub, cmp.Or(a.said, a.why), a.begun.Format("05.000")))
			}
			found = append(found, fmt.Sprintf("%s: %s", id, strings.Join(told, "; ")))
		}
	}
	return found
}

const lines = 20 // that the tool tell tells

// gaps: the events of a call are numbered without gaps, and so is what the tool told.
func (e evidence) gaps() (found []string) {
	for _, s := range e.streams {
		for i, n := range s.ids {
			if n != i+1 {
				found = append(found, fmt.Sprintf("the events of %s have the numbers %v", s.id, s.ids))
				break
			}
		}
		last := -1
		for _, n := range s.told {
			if n != last+1 && n != 0 { // it may begin again, at another worker
				found = append(found, fmt.Sprintf("of %s, the lines %v were told", s.id, s.told))
				break
			}
			last = n
		}
		if s.whole && last != lines-1 {
			found = append(found, fmt.Sprintf("%s succeeded, and told the lines %v", s.id, s.told))
		}
	}
	return found
}

var (
	numberOf = regexp.MustCompile(`(?m)^id: (\d+)$`)
	lineTold = regexp.MustCompile(`"fields":\{"n":(\d+)\}`)
)

// streamOf reads a stream of events.
func streamOf(id, body string) stream {
	s := stream{id: id, whole: strings.Contains(body, "event: result\ndata: {\"ok\":true")}
	body = body[:strings.LastIndexByte(body, '\n')+1] // its last line may be torn
	for _, m := range numberOf.FindAllStringSubmatch(body, -1) {
		n, _ := strconv.Atoi(m[1])
		s.ids = append(s.ids, n)
	}
	for _, m := range lineTold.FindAllStringSubmatch(body, -1) {
		n, _ := strconv.Atoi(m[1])
		s.told = append(s.told, n)
	}
	return s
}

// overQuota: in no span of time were more calls begun and run than the quota allows for it. A hub may spend what it took from the
// quota within a second, which the span is longer by.
func (e evidence) overQuota() (found []string) {
	begun := map[string]time.Time{}
	for _, a := range e.attempts {
		if a.tool == "meter" {
			begun[a.id] = a.begun
		}
	}
	type span struct{ from, to time.Time }
	var all []span
	for _, l := range e.traces {
		if l.tool == "meter" {
			all = append(all, span{begun[l.id], l.at})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return a.to.Compare(b.to) })
	for _, first := range all {
		count := 0
		for _, s := range all {
			if s.from.Before(first.from) {
				continue
			}
			count++
			long := s.to.Sub(first.from) + time.Second
			if most := meterBurst + meterRate*long.Seconds() + 1; float64(count) > most {
				return append(found, fmt.Sprintf("%d calls ran within %v, from %s on, and not %.0f at most",
					count, long, first.from.Format("15:04:05.000"), most))
			}
		}
	}
	return found
}

// approvals: what ran was approved, and what was answered ran.
func (e evidence) approvals() (found []string) {
	lines, asked := e.byID(), map[string]payment{}
	for _, p := range e.pays {
		if asked[p.id] = p; p.how == ran && len(lines[p.id]) == 0 {
			found = append(found, fmt.Sprintf("%s (%s) was answered, and did not run", p.id, p.approval))
		}
	}
	for _, l := range e.traces {
		if l.tool == "pay" && !asked[l.id].yes {
			found = append(found, fmt.Sprintf("%s (%s) ran, and nobody had approved it", l.id, asked[l.id].approval))
		}
	}
	return found
}

var traceOf = regexp.MustCompile(`^(\w+) (\d+) (\S+) (ran:(\S+):[0-9a-f]{16})\.$`)

// tracesOf reads what the tools of the workers wrote. A line that did not fit on a full disk has no full stop.
func (s *site) tracesOf() (all []trace, err error) {
	for _, w := range s.workers {
		text, err := os.ReadFile(filepath.Join(w.dir, "out", "trace"))
		if err != nil {
			return nil, err
		}
		for line := range bytes.SplitSeq(text, []byte("\n")) {
			if m := traceOf.FindStringSubmatch(string(line)); m != nil {
				nanos, _ := strconv.ParseInt(m[2], 10, 64)
				all = append(all, trace{tool: m[1], id: m[5], said: m[4], node: m[3], at: time.Unix(0, nanos)})
			}
		}
	}
	return all, nil
}

// recordsOf reads the log.
func (s *site) recordsOf(hub *node) (all []record, err error) {
	out, err := s.try(hub, "audit", "export", "--kind", "all")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		var r record
		if err := strictjson.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%w: %s", err, line)
		}
		all = append(all, r)
	}
	return all, nil
}
