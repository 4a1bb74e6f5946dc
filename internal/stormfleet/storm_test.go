package stormfleet

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/internal/netns"
	"toolpost/internal/pg"
	"toolpost/internal/rounds"
	"toolpost/tool/tooltest"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(m.Run())
}

// healsWithin is how long after the last fault calls of every kind succeed again, at every hub.
const healsWithin = 10 * time.Second

// writesWithin is how long after a standby became the primary calls that change something succeed again.
const writesWithin = 5 * time.Second

// A plan of a storm.
type plan struct {
	seed          uint64
	length        time.Duration
	hubs, workers int
	twice         bool // a planted fault: now and then a tool does twice what it must not
}

// asked returns the storm that was asked for, by `make storm`, or the short one.
func asked(t *testing.T) plan {
	t.Helper()
	p := plan{seed: 3, length: 5 * time.Second, hubs: 2, workers: 2}
	if text := os.Getenv("TOOLPOST_STORM_SEED"); text != "" {
		p = plan{hubs: 3, workers: 3}
		p.seed = kit.Must(strconv.ParseUint(text, 10, 64))(t)
		minutes := kit.Must(strconv.ParseFloat(cmp.Or(os.Getenv("TOOLPOST_STORM_MINUTES"), "5"), 64))(t)
		p.length = time.Duration(minutes * float64(time.Minute))
	}
	return p
}

// Whatever breaks, no promise does.
func TestStorm(t *testing.T) { holds(t, asked(t)) }

// The same, for long and with other seeds.
func TestLongStorms(t *testing.T) {
	for seed := range rounds.Of(0, 3) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
			holds(t, plan{seed: uint64(seed + 1), length: 2 * time.Minute, hubs: 3, workers: 3})
		})
	}
}

// A storm in which a tool breaks a promise is found to break it, and no other.
func TestPlantedStormIsFound(t *testing.T) {
	if rounds.Of(0, 1) == 0 {
		t.Skip("only in the long round")
	}
	found, here := storm(t, plan{seed: 3, length: 5 * time.Second, hubs: 2, workers: 2, twice: true})
	if here && len(found) == 0 || slices.ContainsFunc(found, func(f string) bool { return !strings.HasPrefix(f, "nothing runs twice") }) {
		t.Errorf("found: %v", found)
	}
}

// holds fails the test if a storm breaks a promise.
func holds(t *testing.T, p plan) {
	t.Helper()
	found, here := storm(t, p)
	for _, f := range found {
		t.Error(f)
	}
	if here && t.Failed() {
		t.Logf("make storm SEED=%d MINUTES=%.4g repeats it; its logs are in build/storm-%d", p.seed, p.length.Minutes(), p.seed)
	}
}

// storm lets a storm rage and returns the promises that it broke. What is left of it is in build/storm-SEED. Only the run that netns
// makes of the test is here.
func storm(t *testing.T, p plan) (found []string, here bool) {
	t.Helper()
	if err := missing(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if !netns.Alone(t) {
		return nil, false
	}
	tooltest.NoLeaks(t)
	left := filepath.Join("..", "..", "build", fmt.Sprint("storm-", p.seed))
	kit.OK(t, os.RemoveAll(left))
	kit.OK(t, os.MkdirAll(left, 0o755))
	lock := kit.Must(os.Create(filepath.Join(left, "..", "storm.lock")))(t) // one storm at a time
	defer lock.Close()
	kit.OK(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	e, l := open(t, left, p).weather(t, p)
	for _, b := range e.judged() {
		l.findings = append(l.findings, b.String())
	}
	kit.OK(t, os.WriteFile(filepath.Join(left, "timeline.svg"), []byte(l.svg()), 0o644))
	writeAttempts(t, filepath.Join(left, "attempts"), e)
	t.Log(l.title)
	// A machine that is busy with other things makes few.
	if least := int(p.length/time.Second) * 5; len(e.told()) < least {
		t.Errorf("only %d calls had an outcome, and not %d: there was no load", len(e.told()), least)
	}
	return l.findings, true
}

// missing says what a storm needs, apart from what netns and pg need and name themselves.
func missing() error {
	for _, program := range []string{"nft", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("storms need Debian's packages nftables and python3: %w", err)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return fmt.Errorf("storms delay packets with a device of the kernel's module tun: %w", err)
	}
	return nil
}

// weather makes the storm, and returns what is known about it.
func (s *site) weather(t *testing.T, p plan) (evidence, timeline) {
	t.Helper()
	faults := schedule(p.seed, p.length, names(s.hubs), names(s.workers))
	if slices.ContainsFunc(faults, func(f fault) bool { return f.kind == "rolling restart" }) {
		s.other = next(t)
	}
	h := &history{}
	e := evidence{history: h, kills: map[string][]time.Time{}}
	l := timeline{began: time.Now(), rows: []string{"network", "postgres"}}
	for _, n := range s.nodes() {
		l.rows = append(l.rows, n.name)
	}
	all := doors(t, s)
	bare := s.bare(t)
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	load.Go(func() { s.call(ctx, p.seed, h, all) })
	var mu sync.Mutex
	s.rage(faults, l.began, func(f fault, begun, ended time.Time) {
		mu.Lock()
		defer mu.Unlock()
		l.faults = append(l.faults, span{f, begun, ended})
		if f.kind == "kill" {
			e.kills[f.nodes[0]] = append(e.kills[f.nodes[0]], begun.Add(100*time.Millisecond)) // the signal came by then
		}
	})
	over := time.Now()
	look := time.AfterFunc(2*healsWithin, s.look)
	healed := s.heals(all, over)
	look.Stop()
	if most := healsWithin + 20*bare; healed.last > most {
		l.findings = append(l.findings, fmt.Sprintf("healed within %v: only after %v (%s)", most, healed.last, healed.what))
	}
	stop()
	load.Wait()
	l.ended = time.Now()
	var writes []time.Duration
	for _, at := range s.promoted {
		took, most := e.writesAfter(at), writesWithin+20*bare
		if writes = append(writes, took.Round(10*time.Millisecond)); took > most {
			l.findings = append(l.findings, fmt.Sprintf("writes go on within %v of a new primary: only after %v", most, took))
		}
	}
	s.ends(t, h)
	var err error
	e.traces, err = s.tracesOf()
	kit.OK(t, err)
	for _, hub := range s.hubs { // a hub writes the records that wait before it reads the log
		kit.Until(t, func() error { return kit.Err(post(s.ctx, hub, "toolpost.audit.log", `{"limit":1}`, nil)) })
	}
	kit.Until(t, func() error { e.records, err = s.recordsOf(s.hubs[0]); return err })
	if out, err := s.try(s.hubs[0], "audit", "verify"); err != nil || strings.Contains(out, "FOUND") {
		l.findings = append(l.findings, fmt.Sprintf("the log is sound: %s%v", out, err))
	}
	l.attempts = h.attempts
	l.title = fmt.Sprintf("seed %d, %v: %d calls (%d with an outcome), %d jobs, %d faults; healed after %v, writes %v after new primaries", p.seed, p.length, len(h.attempts),
		len(e.told()), len(h.jobs), len(faults), healed.last.Round(10*time.Millisecond), writes)
	return e, l
}

// writesAfter returns how long it took, after a moment, until a call that changes something had an outcome.
func (e evidence) writesAfter(moment time.Time) time.Duration {
	soonest := time.Hour
	for _, a := range e.told() {
		if a.tool == "mark" && a.ended.After(moment) {
			soonest = min(soonest, a.ended.Sub(moment))
		}
	}
	return soonest
}

func names(nodes []*node) (all []string) {
	for _, n := range nodes {
		all = append(all, n.name)
	}
	return all
}

// bare returns how long the slowest of ten calls takes before the storm: more than a moment on a machine that is busy.
func (s *site) bare(t *testing.T) (slowest time.Duration) {
	t.Helper()
	for i := range 10 {
		begun := time.Now()
		hub := s.hubs[i%len(s.hubs)]
		kit.Until(t, func() error {
			body, err := post(s.ctx, hub, "mark", fmt.Sprintf(`{"id":"bare-%d"}`, i), map[string]string{"Idempotency-Key": fmt.Sprint("bare-", i)})
			if err == nil && ranOf.FindString(body) == "" {
				err = fmt.Errorf("%s: %s", hub.name, body)
			}
			return err
		})
		slowest = max(slowest, time.Since(begun))
	}
	return slowest
}

// A recovery is how long it took until calls of all kinds succeeded, and which was last.
type recovery struct {
	last time.Duration
	what string
}

// heals waits until a call of each kind succeeds at each hub and door.
func (s *site) heals(all []door, since time.Time) (r recovery) {
	kinds := map[string]string{
		"read": `{"id":"%s"}`, "put": `{"id":"%s"}`, "mark": `{"id":"%s"}`, "pay": `{"id":"%s"}`,
		"startJob": `{"tool":"read","arguments":{"id":"%s"}}`,
		"plan.run": `{"plan":{"requestId":"%s","tools":[{"toolId":"a","tool":"read","input":{"id":"healed"}}]}}`,
	}
	var mu sync.Mutex
	var work sync.WaitGroup
	for _, hub := range s.hubs {
		for _, d := range all {
			for tool, args := range kinds {
				work.Go(func() {
					what, last := fmt.Sprintf("%s over %s at %s", tool, d.name, hub.name), attempt{}
					for n := 0; time.Since(since) < time.Minute; n++ {
						ctx, stop := context.WithTimeout(s.ctx, 3*time.Second)
						last = attempt{tool: tool}
						id := fmt.Sprintf("healed-%s-%s-%s-%d", hub.name, d.name, tool, n)
						body, err := d.call(ctx, hub, tool, fmt.Sprintf(args, id), nil)
						stop()
						if judge(&last, body, err); last.how == ran || askOf.MatchString(body) {
							break
						}
						sleep(s.ctx, 100*time.Millisecond)
					}
					took := time.Since(since)
					mu.Lock()
					defer mu.Unlock()
					if took > r.last {
						r = recovery{took, what + " " + last.why}
					}
				})
			}
		}
	}
	work.Wait()
	return r
}

// look keeps what the kernel knows of the networks, for whoever looks for the reason why a fleet does not heal.
func (s *site) look() {
	show := [][]string{{"nft", "list", "ruleset"}, {"ip", "rule"}, {"ip", "-s", "link"}}
	for _, n := range s.nodes() {
		show = append(show, n.machine.Words("ss", "-tanpoi"), n.machine.Words("ip", "neighbour"), n.machine.Words("nstat", "-az"))
	}
	for _, db := range []*pg.Server{s.primary, s.standby} {
		show = append(show, []string{"nsenter", "-t", strconv.Itoa(db.PID()), "-n", "ss", "-tanpoi"}, []string{"pstree", "-pa", strconv.Itoa(db.PID())})
	}
	f, err := os.Create(filepath.Join(s.logs, "network"))
	if err != nil {
		return
	}
	defer f.Close()
	for _, words := range show {
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		fmt.Fprintf(f, "== %s %v\n%s\n", strings.Join(words, " "), err, out)
	}
}

// ends waits until the jobs have ended, and asks for their states.
func (s *site) ends(t *testing.T, h *history) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for i := range h.jobs {
		j := &h.jobs[i]
		for began := time.Now(); ; {
			body, err := post(s.ctx, s.hubs[i%len(s.hubs)], "toolpost.showJob", fmt.Sprintf(`{"job":%q}`, j.job), nil)
			if j.state = first(stateOf, body); err != nil || j.state == "" {
				j.state = body
			}
			if slices.Contains([]string{"done", "failed", "lost", "cancelled"}, j.state) || time.Now().After(end) {
				if took := time.Since(began); took > time.Second {
					t.Logf("job %s (%s of %s) was %s only after %v", j.job, j.tool, j.id, j.state, took)
				}
				break
			}
			sleep(s.ctx, 50*time.Millisecond)
		}
		if j.tool == "tell" && j.state == "done" {
			ctx, stop := context.WithTimeout(s.ctx, patience)
			body, err := send(ctx, fresh(), s.hubs[i%len(s.hubs)], "/v1/jobs/"+j.job+"/events", "", nil)
			stop()
			kit.Check(t, err, "the events of a job")
			h.streams = append(h.streams, streamOf("job "+j.job, body))
		}
	}
}

// writeAttempts keeps what the callers were told, for whoever looks for the reason of a finding.
func writeAttempts(t *testing.T, file string, e evidence) {
	t.Helper()
	var b strings.Builder
	for _, a := range e.attempts {
		fmt.Fprintf(&b, "%s %v %s %s %s %s %s %s %s %s\n", a.begun.Format("15:04:05.000"), a.ended.Sub(a.begun).Round(time.Millisecond),
			a.hub, a.door, a.tool, a.call, a.how, a.said, a.why, strings.ReplaceAll(a.body, "\n", " "))
	}
	for _, l := range e.traces {
		fmt.Fprintf(&b, "%s trace %s %s %s\n", l.at.Format("15:04:05.000"), l.node, l.tool, l.said)
	}
	for _, j := range e.jobs {
		fmt.Fprintf(&b, "job %+v\n", j)
	}
	kit.OK(t, os.WriteFile(file, []byte(b.String()), 0o644))
}
