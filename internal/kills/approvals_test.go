package kills

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/engine/approval"
	"toolpost/engine/job"
	"toolpost/internal/kit"
	"toolpost/internal/served"
	"toolpost/node/storage"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

const approvalsYAML = `
sources: [{name: mark, protocol: narratoria, command: [sh, mark.sh], walls: {write: [out]}}]
doors: {http: {}}
policy:
  rules:
  - {name: reds, effect: ask, tools: mark, callers: "red-*", approvers: [team-red], timeout: 1h}
  - {name: blues, effect: ask, tools: mark, callers: "blue-*", approvers: [team-blue], timeout: 1h}
callers: {owner: false, roles: {team-red: {}, team-blue: {}}, list: {%s}}
`

// A crowd is 64 callers, half of them with jobs, and 8 approvers, of two teams.
type crowd struct {
	t      *testing.T
	server atomic.Pointer[served.Server]
	done   atomic.Int64

	mu      sync.Mutex
	decided map[string]string // approval -> the decision that an approver saw acknowledged
	seen    map[string]string // approval -> the team that saw it
	asked   map[string]string // caller -> the approval that it was told to wait for
	ended   map[string]string // caller -> its answer
	jobs    map[string]string // caller -> its job
}

const (
	callersOfTeam   = 32
	approversOfTeam = 4
)

func tokenOf(name string) string { return "the-token-of-" + name + "-0123456789abcdef" }

func (c *crowd) folder() string {
	dir := newFolder(c.t)
	var list []string
	for _, team := range []string{"red", "blue"} {
		for i := range callersOfTeam {
			list = append(list, fmt.Sprintf(`%s-%d: {tools: "*", tokens: [%x]}`, team, i, sha256.Sum256([]byte(tokenOf(fmt.Sprintf("%s-%d", team, i))))))
		}
		for i := range approversOfTeam {
			list = append(list, fmt.Sprintf(`a-%s-%d: {roles: [team-%s], tokens: [%x]}`, team, i, team,
				sha256.Sum256([]byte(tokenOf(fmt.Sprintf("a-%s-%d", team, i))))))
		}
	}
	kit.OK(c.t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), fmt.Appendf(nil, approvalsYAML, strings.Join(list, ", ")), 0o600))
	return dir
}

// A told is the answer to a call, with its question.
type told struct {
	OK     bool           `json:"ok"`
	Ask    *tool.Ask      `json:"ask"`
	Error  *tool.Error    `json:"error"`
	Output map[string]any `json:"output"`
}

// call calls a tool as a given caller, on the server that runs by then.
func (c *crowd) call(ctx context.Context, who, name, args string, headers ...string) (got told, err error) {
	text, err := c.server.Load().Raw(ctx, name, args, append(headers, "Authorization", "Bearer "+tokenOf(who))...)
	if err != nil {
		return got, err
	}
	return got, strictjson.Unmarshal([]byte(text), &got)
}

const pollEvery = 100 * time.Millisecond

// ask repeats one call until it has an outcome, with the id of its approval once it has one.
func (c *crowd) ask(ctx context.Context, who string) {
	args, id := fmt.Sprintf(`{"id":%q}`, who), ""
	for ; ctx.Err() == nil; time.Sleep(pollEvery) {
		var headers []string
		if id != "" {
			headers = []string{"Toolpost-Resume", id}
		}
		got, err := c.call(ctx, who, "mark", args, headers...)
		switch {
		case err != nil: // the server is dead, or not up yet
		case got.OK:
			c.end(who, "ran")
			return
		case got.Ask != nil && got.Ask.Kind == tool.AskApproval:
			if id != "" && got.Ask.ID != id {
				c.t.Errorf("%s waits for %s, and then for %s", who, id, got.Ask.ID)
			}
			id = got.Ask.ID
			c.mu.Lock()
			c.asked[who] = id
			c.mu.Unlock()
		case got.Error != nil && got.Error.Reason == approval.WasDenied:
			c.end(who, "denied")
			return
		case got.Error != nil && got.Error.Reason == approval.Unknown:
			c.end(who, "used") // by a call whose answer was lost with its server
			return
		case got.Error != nil && got.Error.Code == tool.CodeUnavailable:
		default:
			c.t.Errorf("%s: %+v, %+v", who, got, got.Error)
			return
		}
	}
}

// start starts a job, which waits and continues by itself.
func (c *crowd) start(ctx context.Context, who string) {
	for ; ctx.Err() == nil; time.Sleep(pollEvery) {
		got, err := c.call(ctx, who, "listJobs", `{}`) // a server may have started it and died before it answered
		if err != nil || !got.OK {
			continue
		}
		if list, _ := got.Output["jobs"].([]any); len(list) > 0 {
			got.Output, _ = list[0].(map[string]any)
		} else {
			got, err = c.call(ctx, who, "startJob", fmt.Sprintf(`{"tool":"mark","arguments":{"id":%q}}`, who))
		}
		if id, _ := got.Output["job"].(string); err == nil && id != "" {
			c.mu.Lock()
			c.jobs[who] = id
			c.mu.Unlock()
			c.end(who, "job")
			return
		}
	}
}

func (c *crowd) end(who, how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[who] = how
	c.done.Add(1)
}

// decide decides waiting approvals, as one of several approvers, and tries those of the other team.
func (c *crowd) decide(ctx context.Context, who, team string) {
	for ; ctx.Err() == nil; time.Sleep(pollEvery) {
		text, err := c.server.Load().Raw(ctx, "approvals.list", `{}`, "Authorization", "Bearer "+tokenOf(who))
		var list struct {
			Output struct {
				Approvals []approval.Approval `json:"approvals"`
			} `json:"output"`
		}
		if err != nil || strictjson.Unmarshal([]byte(text), &list) != nil {
			continue
		}
		for _, a := range list.Output.Approvals {
			if !strings.HasPrefix(a.Caller, team+"-") {
				c.t.Errorf("%s sees the call of %s", who, a.Caller)
			}
			c.mu.Lock()
			c.seen[a.ID] = team
			c.mu.Unlock()
			if rand.IntN(3) > 0 { // not all at once, so that some still wait when the server dies
				c.decideOne(ctx, who, a.ID)
			}
		}
		c.tryForeign(ctx, who, team)
	}
}

func (c *crowd) decideOne(ctx context.Context, who, id string) {
	approve, want := rand.IntN(4) > 0, approval.Denied
	if approve {
		want = approval.Approved
	}
	got, err := c.call(ctx, who, "approvals.decide", fmt.Sprintf(`{"id":%q,"approve":%t,"reason":"as %s"}`, id, approve, who))
	switch {
	case err != nil:
	case got.OK:
		c.mu.Lock()
		defer c.mu.Unlock()
		if was := c.decided[id]; was != "" {
			c.t.Errorf("%s was decided by %s, and by %s", id, was, who)
		}
		c.decided[id] = want + " by " + who
	case got.Error == nil || got.Error.Code != tool.CodeConflict && got.Error.Code != tool.CodeUnavailable:
		c.t.Errorf("%s decides about %s: %+v", who, id, got.Error)
	}
}

// tryForeign tries to see and to decide the approvals of the other team.
func (c *crowd) tryForeign(ctx context.Context, who, team string) {
	c.mu.Lock()
	id := ""
	for one, of := range c.seen {
		if of != team {
			id = one
		}
	}
	c.mu.Unlock()
	if id == "" {
		return
	}
	for name, args := range map[string]string{
		"approvals.decide": fmt.Sprintf(`{"id":%q,"approve":true}`, id), "approvals.show": fmt.Sprintf(`{"id":%q}`, id),
	} {
		got, err := c.call(ctx, who, name, args)
		if err == nil && (got.Error == nil || got.Error.Code != tool.CodeNotFound && got.Error.Code != tool.CodeUnavailable) {
			c.t.Errorf("%s got %+v of %s of the other team: %+v", name, got, id, got.Error)
		}
	}
}

func TestApprovalsAreDecidedOnceAcrossKills(t *testing.T) {
	tooltest.NoLeaks(t)
	c := &crowd{t: t, decided: map[string]string{}, seen: map[string]string{}, asked: map[string]string{}, ended: map[string]string{}, jobs: map[string]string{}}
	dir, bin := c.folder(), served.Build(t)
	c.server.Store(served.Start(t, bin, dir))
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	var callers, approvers sync.WaitGroup
	for _, team := range []string{"red", "blue"} {
		for i := range callersOfTeam {
			who := fmt.Sprintf("%s-%d", team, i)
			if i%2 == 0 {
				callers.Go(func() { c.ask(ctx, who) })
			} else {
				callers.Go(func() { c.start(ctx, who) })
			}
		}
		for i := range approversOfTeam {
			approvers.Go(func() { c.decide(ctx, fmt.Sprintf("a-%s-%d", team, i), team) })
		}
	}
	kills := 0
	for ; kills < 6; kills++ {
		c.progress(kills * 6) // some are decided, and others wait
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		dead := c.server.Load()
		dead.Kill()
		c.server.Store(served.StartAgain(t, dead, bin, dir))
	}
	callers.Wait()
	db := c.open(dir)
	defer db.Close()
	states := c.jobsEnd(db)
	stop()
	approvers.Wait()
	c.check(db, states, marksOf(t, dir))
	c.server.Load().Kill()
	t.Logf("%d kills: %d decisions acknowledged", kills, len(c.decided))
}

// progress waits until a number of approvals are decided.
func (c *crowd) progress(n int) {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		enough := len(c.decided) >= n
		c.mu.Unlock()
		if enough {
			return
		}
	}
}

func (c *crowd) open(dir string) *store.DB {
	cfg := kit.Must(config.Load(filepath.Join(dir, "toolpost.yaml")))(c.t)
	db, _, err := storage.Open(cfg)
	kit.OK(c.t, err)
	return db
}

// jobsEnd returns how each job ended, once all have.
func (c *crowd) jobsEnd(db *store.DB) map[string]string {
	states := map[string]string{}
	kit.Eventually(c.t, "all jobs have ended", func() bool {
		all := kit.Must(db.Jobs().All(c.t.Context(), "", 0))(c.t)
		for _, j := range all {
			states[j.ID] = j.State
		}
		return !slices.ContainsFunc(all, func(j job.Job) bool { return slices.Contains([]string{"queued", "running", "asked"}, j.State) })
	})
	return states
}

// check compares the answers with the stored state and with the runs of the tool.
func (c *crowd) check(db *store.DB, states map[string]string, marks map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries := kit.Must(db.Approvals().List(c.t.Context(), approval.Filter{}))(c.t)
	of := map[string][]string{}
	for _, e := range entries {
		team, _, _ := strings.Cut(e.Caller, "-")
		if e.By != "" && !strings.HasPrefix(e.By, "a-"+team) {
			c.t.Errorf("%s of %s was decided by %s", e.ID, e.Caller, e.By)
		}
		if id := c.asked[e.Caller]; id != "" && id != e.ID { // the answers with its id were lost with servers
			if e.State == approval.Used { // by a repeat whose answer was lost too
				marks[e.Caller] = max(0, marks[e.Caller]-1)
			}
			continue
		}
		state := e.State
		if state == approval.Used {
			state = approval.Approved
		}
		if told := c.decided[e.ID]; told != "" && told != state+" by "+e.By {
			c.t.Errorf("%s is %s by %s, and somebody was told that it is %s", e.ID, e.State, e.By, told)
		}
		of[e.Caller] = append(of[e.Caller], state)
	}
	for who, how := range c.ended {
		n, all := marks[who], of[who]
		if job := c.jobs[who]; job != "" {
			how = states[job]
		}
		ok := n <= 1 && len(all) == 1
		switch how {
		case "lost": // its server died after the job had begun: before it asked, or while it ran
			ok = n <= 1 && len(all) <= 1 && (n == 0 || len(all) == 1 && all[0] == approval.Approved)
		case "ran", "done":
			ok = ok && n == 1 && all[0] == approval.Approved
		case "denied", "failed":
			ok = ok && n == 0 && all[0] == approval.Denied
		case "used":
			ok = ok && all[0] == approval.Approved
		default:
			ok = false
		}
		if !ok {
			c.t.Errorf("%s was told %q, ran %d times, and has the approvals %v", who, how, n, all)
		}
	}
	if len(c.ended) != 2*callersOfTeam || len(c.decided) < callersOfTeam {
		c.t.Errorf("%d callers, %d decisions", len(c.ended), len(c.decided))
	}
	report, err := db.Audit().Verify(c.t.Context())
	if err != nil || len(report.Findings) > 0 {
		c.t.Errorf("the log does not verify: %v, %+v", err, report)
	}
}
