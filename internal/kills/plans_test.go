package kills

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/served"
	"toolpost/tool/tooltest"
)

// Two tools are the same program: one declares nothing, one declares that it may run twice. Each run writes a line, and
// waits for a file if its input says so.
const planYAML = `
sources:
- {name: once, protocol: narratoria, tool: once, command: [sh, step.sh], walls: {write: [out], read: [go]}}
- {name: twice, protocol: narratoria, tool: twice, command: [sh, step.sh], effects: {idempotent: true}, walls: {write: [out], read: [go]}}
doors: {http: {}}
callers: {owner: false, list: {tester: {tools: "*", tokens: [%x]}}}
`

const stepSh = `read -r r; id=$(echo "$r" | grep -o '"id": *"[^"]*"' | head -n 1 | grep -o '[a-z0-9]*"$' | tr -d '"')
echo "$id" >> out/marks
case "$r" in *'"wait"'*) while ! [ -e go/on ]; do sleep 0.05; done;; esac
echo "{\"version\":\"0\",\"type\":\"state_patch\",\"patch\":{\"$id\":1}}"
echo "{\"version\":\"0\",\"type\":\"done\",\"ok\":true,\"output\":{\"id\":\"$id\"}}"`

// killedPlan has one ended tool of each kind, and one of each that is running when the server is killed, and a tool that
// depends on them.
const killedPlan = `{"requestId":"r","parallel":true,"tools":[
{"toolId":"a","tool":"once","input":{"id":"a"}},
{"toolId":"b","tool":"twice","input":{"id":"b"}},
{"toolId":"c","tool":"once","async":true,"required":false,"dependencies":["a","b"],"input":{"id":"c","do":"wait"}},
{"toolId":"d","tool":"twice","async":true,"dependencies":["a","b"],"input":{"id":"d","do":"wait"}},
{"toolId":"e","tool":"once","dependencies":["d"],"input":{"id":"e","of":"${a.output.id}"}}]}`

func TestAPlanSurvivesTheKillOfTheServer(t *testing.T) {
	tooltest.NoLeaks(t)
	bin := served.Build(t)
	for _, as := range []string{"call", "job"} {
		t.Run(as, func(t *testing.T) { killPlan(t, bin, as) })
	}
}

// planServer starts a server with the tools of the plans.
func planServer(t *testing.T, bin string) (s *served.Server, dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, folder := range []string{"out", "go"} {
		kit.OK(t, os.Mkdir(filepath.Join(dir, folder), 0o755))
	}
	config := fmt.Appendf(nil, planYAML, sha256.Sum256([]byte(served.Token)))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), config, 0o600))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "step.sh"), []byte(stepSh), 0o600))
	return served.Start(t, bin, dir), dir
}

// killAndGoOn kills the server, releases the waiting tools, and starts another server, which ends with the test.
func killAndGoOn(t *testing.T, s *served.Server, bin, dir string, told <-chan struct{}) *served.Server {
	t.Helper()
	s.Kill()
	<-told
	kit.OK(t, os.WriteFile(filepath.Join(dir, "go", "on"), nil, 0o600))
	next := served.Start(t, bin, dir)
	t.Cleanup(next.Kill)
	return next
}

// plansOf lists the plans of a server.
func plansOf(t *testing.T, s *served.Server) (plans []map[string]any) {
	t.Helper()
	o := kit.Must(s.Call(t.Context(), "plan.list", `{}`))(t)
	list, _ := o.Output["plans"].([]any)
	for _, p := range list {
		plans = append(plans, p.(map[string]any))
	}
	return plans
}

func killPlan(t *testing.T, bin, as string) {
	s, dir := planServer(t, bin)
	job := ""
	told := make(chan struct{})
	if as == "job" {
		close(told)
		o, err := s.Call(t.Context(), "startJob", `{"tool":"plan.run","session":"s","arguments":{"plan":`+killedPlan+`}}`)
		kit.OK(t, err)
		job, _ = o.Output["job"].(string)
	} else {
		go func() {
			defer close(told)
			_, _ = s.Call(t.Context(), "plan.run", `{"plan":`+killedPlan+`}`, "Toolpost-Session", "s") // it gets no answer
		}()
	}
	kit.Eventually(t, "both wait", func() bool { m := runsOf(t, dir); return m["c"] == 1 && m["d"] == 1 })
	s = killAndGoOn(t, s, bin, dir, told)
	var one map[string]any
	kit.Eventually(t, "the plan goes on, and ends", func() bool {
		plans := plansOf(t, s)
		if len(plans) == 1 {
			one = plans[0]
		}
		return one != nil && one["state"] != "running"
	})
	o := kit.Must(s.Call(t.Context(), "plan.show", fmt.Sprintf(`{"plan":%q}`, one["planId"])))(t)
	var states []string
	for _, r := range o.Output["result"].(map[string]any)["toolResults"].([]any) {
		r := r.(map[string]any)
		states = append(states, fmt.Sprint(r["toolId"], ":", r["state"]))
		if e, ok := r["error"].(map[string]any); r["toolId"] == "c" && (!ok || e["category"] != "process_error") {
			t.Errorf("of c nobody knows, and it says %v", e)
		}
	}
	if got := strings.Join(states, " "); got != "a:success b:success c:failed d:success e:success" || one["state"] != "done" {
		t.Errorf("%s: %s", one["state"], got)
	}
	kit.Equal(t, fmt.Sprint(runsOf(t, dir)), "map[a:1 b:1 c:1 d:2 e:1]", "runs")
	kit.Eventually(t, "the state of the session has what its tools patched", func() bool { // patched at the end of the call, after that of the plan
		state := kit.Must(s.Raw(t.Context(), "state.get", `{"session":"s"}`))(t)
		return strings.Contains(state, `{"a":1,"b":1,"d":1,"e":1}`)
	})
	if job == "" {
		return
	}
	kit.Eventually(t, "the job ends", func() bool {
		o := kit.Must(s.Call(t.Context(), "showJob", fmt.Sprintf(`{"job":%q}`, job)))(t)
		return o.Output["state"] == "done"
	})
}

// The outer plan that ran an inner plan is gone, so the result of continuing the inner plan would reach no caller.
func TestAPlanWithinAPlanIsLostWithTheServer(t *testing.T) {
	tooltest.NoLeaks(t)
	bin := served.Build(t)
	s, dir := planServer(t, bin)
	told := make(chan struct{})
	go func() {
		defer close(told)
		inner := `{"requestId":"in","tools":[{"toolId":"c","tool":"once","input":{"id":"c","do":"wait"}}]}`
		_, _ = s.Call(t.Context(), "plan.run", `{"plan":{"requestId":"out","tools":[{"toolId":"p","tool":"plan.run","input":{"plan":`+
			inner+`}}]}}`)
	}()
	kit.Eventually(t, "it waits", func() bool { return runsOf(t, dir)["c"] == 1 })
	s = killAndGoOn(t, s, bin, dir, told)
	kit.Eventually(t, "both have ended", func() bool {
		states := map[any]int{}
		for _, p := range plansOf(t, s) {
			states[p["state"]]++
		}
		return states["lost"] == 1 && states["failed"] == 1
	})
	kit.Equal(t, runsOf(t, dir)["c"], 1, "runs")
	o := kit.Must(s.Call(t.Context(), "listJobs", `{}`))(t)
	if jobs, _ := o.Output["jobs"].([]any); len(jobs) != 1 {
		t.Errorf("only the outer plan goes on as a job: %v", jobs)
	}
}

// runsOf counts how often each tool ran.
func runsOf(t *testing.T, dir string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "out", "marks"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	runs := map[string]int{}
	for _, id := range strings.Fields(string(b)) {
		runs[id]++
	}
	return runs
}
