package console

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"toolpost/internal/browser"
	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// fleetWorkers are the configs of workers; each has four places.
var fleetWorkers = []struct{ name, labels, about string }{
	{"drill", `["gpu"]`, "Sleeps."}, {"lathe", `[]`, "Sleeps."}, {"mill", `["arm64", "lab"]`, "Sleeps."}, {"saw", `[]`, "Naps."}, {"old", `[]`, "Sleeps."},
}

// fleet starts a hub with four workers, of which two run calls and one has another definition of the tool, and one that is gone.
func (w world) fleet(t *testing.T) *served.Server {
	t.Helper()
	dir := t.TempDir()
	kit.Write(t, filepath.Join(dir, "toolpost.yaml"), "sources: []\ndoors: {http: {}}\nlimits: {timeout: 10m}\n")
	init := exec.CommandContext(t.Context(), w.bin, "fleet", "init", "--name", "front", "--listen", "127.0.0.1:0")
	init.Dir = dir
	out, err := init.CombinedOutput()
	kit.OK(t, err, string(out))
	s := served.Start(t, w.bin, dir)
	for _, one := range fleetWorkers {
		invited := kit.Must(s.Call(t.Context(), "inviteNodes", `{"labels":`+one.labels+`}`))(t)
		at := t.TempDir()
		kit.Write(t, filepath.Join(at, "toolpost.yaml"), "fleet: {places: 4}\nsources: [{name: bench, protocol: command, tool: nap, description: '"+one.about+"', command: [sleep, '600']}]\n")
		worker := exec.CommandContext(t.Context(), w.bin, "worker", "--name", one.name, "--join", fmt.Sprint(invited.Output["line"]))
		worker.Dir, worker.Env = at, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + at}
		kit.OK(t, worker.Start())
		t.Cleanup(func() { _ = worker.Process.Kill(); _ = worker.Wait() })
		node := func(state string) {
			kit.Eventually(t, one.name+" is "+state, func() bool {
				l := kit.Must(s.Call(t.Context(), "listNodes", `{}`))(t)
				for _, n := range l.Output["nodes"].([]any) {
					n := n.(map[string]any)
					if n["name"] == one.name && n["state"] == state && (state == "gone" || n["tools"] == 1.0) {
						return true
					}
				}
				return false
			})
		}
		if node("up"); one.name == "old" {
			kit.OK(t, worker.Process.Kill())
			node("gone")
		}
	}
	for i := range 5 {
		go func() { _, _ = s.Raw(t.Context(), "nap", "{}", "Toolpost-Call", fmt.Sprint("nap-", i)) }()
	}
	return s
}

// fleetContents are the addresses of a fleet.
var fleetContents = []content{
	{"fleet", "#/fleet", "document.querySelectorAll('[data-node]').length === 6 && [...document.querySelectorAll('[role=meter]')].some((m) => m.ariaValueNow > 0)"},
	{"fleet-node", "#/fleet/saw", "document.querySelector('aside')?.innerText.includes('Drift')"},
	{"fleet-live", "#/live", rows + " > 4"},
}

func fleetIsAMap(t *testing.T, w world) {
	axe, s := axeSource(t), w.fleet(t)
	for _, look := range []browser.Look{{Phone: true, Dark: true}, {}} {
		p := w.browser.Page(t, look)
		p.SignIn(s, "#/fleet")
		for _, one := range fleetContents {
			p.Eval("void (location.hash = '"+one.hash+"')", nil)
			p.Wait(one.until)
			check(t, p, axe, look.String()+" "+one.hash)
			p.Wait("document.documentElement.scrollWidth <= innerWidth")
		}
		p.Wait("[...document.querySelectorAll('[role=option]')].every((r) => /drill|lathe|mill|front/.test(r.innerText))") // where it runs
	}
	p := w.browser.Page(t, browser.Look{})
	p.SignIn(s, "#/fleet")
	p.WaitText("of 1,040 places taken")
	p.WaitText("5 nodes up, 1 gone, 1 node with drift")
	p.Click("button", "saw")
	p.Click("button", "Drain")
	p.WaitDialog("Drain this node?")
	p.Eval("document.querySelector('dialog[open] button.danger').click()", nil)
	p.WaitText("It takes no more calls")
	p.WaitText("4 nodes up, 2 gone")
	p.Eval("void (location.hash = '#/fleet/old')", nil)
	p.Click("button", "Evict")
	p.WaitDialog("Evict this node?")
	p.Eval("document.querySelector('dialog[open] button.danger').click()", nil)
	p.Wait("!document.querySelector('[data-node=old]')")
	p.Wait("document.querySelector('[data-node=saw]')")
}
