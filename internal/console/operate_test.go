package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // to alter a log behind the server's back

	"toolpost/internal/browser"
	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// leased is a config in which a call that changes something needs a lease.
const leased = `sources: [{name: files, protocol: builtin, roots: [{path: ., write: true}]}]
doors: {http: {}}
limits: {lease_tier: 1, quotas: [{name: each, per: caller, rate: 1000/m}]}
`

// someCalls fills a log: calls that succeed, and some that do not find their file.
func someCalls(t *testing.T, s *served.Server, well, missing int) {
	t.Helper()
	for i := range well + missing {
		path := "toolpost.yaml"
		if i >= well {
			path = "nosuch.txt"
		}
		said, err := s.Raw(t.Context(), "readFile", fmt.Sprintf(`{"path":%q}`, path))
		if err != nil || strings.Contains(said, `"not_found"`) != (i >= well) {
			t.Fatalf("%s: %s, %v", path, said, err)
		}
	}
}

const rows = "document.querySelectorAll('[role=listbox] [role=option]').length"

func auditIsAQuestionInTheAddress(t *testing.T, w world) {
	s := w.serve(t, plain)
	someCalls(t, s, 8, 3)
	p := w.browser.Page(t, browser.Look{})
	p.SignIn(s, "#/audit")
	p.WaitText("Verified to row")
	p.Wait(rows + " >= 11 && document.querySelectorAll('figure canvas').length === 3")
	p.Wait("document.querySelector('[aria-label=Time] [aria-pressed=true]').textContent === 'all'") // the log is younger than a day
	p.Wait("document.querySelector('section[aria-label=Errors] li a')")
	p.Eval("document.querySelector('section[aria-label=Errors] li a').click()", nil)
	p.Wait("location.hash.includes('code=not_found') && location.hash.includes('tool=readFile')")
	p.Wait(rows + " === 3")
	p.Reload()
	p.WaitFor("button", "Remove the filter code not_found")
	p.Wait(rows + " === 3")
	p.Click("button", "Remove the filter code not_found")
	p.Wait(rows + " === 11 && !location.hash.includes('code=')")

	// A row that is added meanwhile appears by itself.
	someCalls(t, s, 1, 0)
	p.Wait(rows + " === 12")

	// Dragging across a plot zooms in; Back zooms out again.
	p.Eval("performance.clearResourceTimings(), void (location.hash += '&since=24h')", nil)
	p.WaitFor("button", "24h")
	p.Wait(rows + " === 12")
	p.Wait("performance.getEntriesByType('resource').some((r) => r.name.includes('audit.paths') && r.responseStatus === 200)") // after the plots
	p.Eval(`(() => {
		const over = document.querySelector('.u-over'), box = over.getBoundingClientRect();
		const at = (type, share, to) => to.dispatchEvent(new MouseEvent(type, {bubbles: true, clientX: box.left + share * box.width, clientY: box.top + 20, button: 0, movementX: 9}));
		at('mousemove', 0.2, over); at('mousedown', 0.2, over); at('mousemove', 0.6, over); at('mouseup', 0.6, document);
	})()`, nil)
	p.Wait("location.hash.includes('since=') && location.hash.includes('until=')")
	p.WaitText("No calls in this time")
	p.Eval("history.back()", nil)
	p.Wait(rows + " === 12")

	// Keys move the selection; Enter opens the call, which has its own address.
	p.Press("j", "j", "Enter")
	p.Wait(`/#\/audit\/[^?]+\?.*row=\d+/.test(location.hash)`)
	p.WaitFor("heading", "readFile")
	p.Press("Escape")
	p.Wait(`/#\/audit\?/.test(location.hash)`)
	watchersLeftWell(t, p, s)
}

// watchersLeftWell leaves the views that watch something. That is not an error, and the log must record it as ok.
func watchersLeftWell(t *testing.T, p *browser.Page, s *served.Server) {
	t.Helper()
	p.Eval("void (location.hash = '#/operate')", nil)
	p.Wait("document.querySelector('[data-source]')")
	p.Eval("void (location.hash = '#/tools')", nil)
	for _, name := range []string{"audit.watch", "watchLoad"} {
		var calls []any
		kit.Eventually(t, name+" is in the log", func() bool {
			log := kit.Must(s.Call(t.Context(), "audit.log", `{"tool":"`+name+`"}`))(t)
			calls, _ = log.Output["calls"].([]any)
			return len(calls) > 0
		})
		for _, c := range calls {
			if outcome := c.(map[string]any)["outcome"]; outcome != "ok" {
				t.Errorf("%s ended with %v: %v", name, outcome, c)
			}
		}
	}
}

func alteredLogIsSeen(t *testing.T, w world) {
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), []byte(plain), 0o600))
	s := served.Start(t, w.bin, dir)
	someCalls(t, s, 5, 0)
	kit.Must(s.Call(t.Context(), "audit.verify", `{}`))(t) // a query of the log flushes it first
	db := kit.SQLite(t, filepath.Join(dir, ".toolpost", "toolpost.db"))
	kit.Must(db.ExecContext(t.Context(), "UPDATE audit SET bytes_in = bytes_in + 1 WHERE seq = 3"))(t)
	p := w.browser.Page(t, browser.Look{})
	p.SignIn(s, "#/audit")
	p.WaitText("Broken at row 3")
}

func leaseOfOperateIsUsed(t *testing.T, w world) {
	s := w.serve(t, leased)
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals)
	p.SignIn(s, "#/operate")
	p.WaitText("all ready")
	p.Click("link", "Leases")
	p.Click("button", "Issue a lease")
	p.Eval("document.querySelector('#leases input').focus()", nil)
	p.Type("combobox", "Tool", "writeFile")
	p.Click("button", "Issue")
	p.Wait("document.querySelector('[data-secret]')?.textContent.startsWith('tok_')")
	const write = `fetch('v1/tools/writeFile/call', {method: 'POST', headers: {'Content-Type': 'application/json', 'Toolpost-Console': '1',
		'Toolpost-Lease': document.querySelector('[data-secret]').textContent}, body: '{"path":"made.txt","content":"x"}'}).then((r) => r.status)`
	var first, second int
	p.Eval(write, &first)
	p.Eval(write, &second)
	if first != 200 || second == 200 {
		t.Errorf("with the lease %d, and once more %d", first, second)
	}
	p.Reload()
	p.Wait("document.querySelector('[data-lease]')?.textContent.includes('used')")
}

func tokenIsIssuedAndRevoked(t *testing.T, w world) {
	s := w.serve(t, plain)
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals)
	p.SignIn(s, "#/operate/callers")
	p.Click("button", "Issue a token")
	p.Type("textbox", "Caller", "ci")
	p.Type("textbox", "Tools", "readFile")
	p.Click("button", "Issue")
	p.Wait("document.querySelector('[data-secret]')?.textContent.startsWith('tp_')")
	const use = `fetch('v1/session', {credentials: 'omit', headers: {Authorization: 'Bearer ' + document.querySelector('[data-secret]').textContent}}).then((r) => r.status)`
	p.Wait(use + ".then((s) => s === 200)")
	p.Wait("document.querySelector('[data-token]')")
	p.Click("button", "Revoke")
	p.WaitDialog("Revoke this token?")
	check(t, p, axeSource(t), "a dialog")
	p.Eval("document.querySelector('dialog[open] button.danger').click()", nil)
	p.Wait("!document.querySelector('[data-token]')")
	p.Wait(use + ".then((s) => s === 401)")
	var page string
	p.Reload()
	p.WaitText("live token")
	p.Eval("document.documentElement.outerHTML", &page)
	if strings.Contains(page, "tp_") {
		t.Error("a token is shown twice")
	}
}

// asking is a tool with a question.
const asking = `import json, sys
request = json.load(sys.stdin)
def say(**fields): print(json.dumps({"version": "0", **fields}), flush=True)
answers = request.get("answers")
if answers:
    say(type="done", ok=True, output={"hello": answers["name"]})
else:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False}
    say(type="ui_event", event="ask", payload={"message": "What is your name?", "schema": schema})
    say(type="done", ok=True)
`

func jobIsAnswered(t *testing.T, w world) {
	dir := t.TempDir()
	config := "sources: [{name: greeter, protocol: narratoria, command: [python3, greeter.py], input: {type: object}}]\ndoors: {http: {}}\n"
	for name, content := range map[string]string{"toolpost.yaml": config, "greeter.py": asking} {
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	s := served.Start(t, w.bin, dir)
	p := w.browser.Page(t, browser.Look{})
	p.SignIn(s, "#/operate/jobs")
	p.WaitText("No jobs") // there are none yet; later ones must appear too
	kit.Must(s.Call(t.Context(), "startJob", `{"tool": "greeter"}`))(t)
	p.WaitText("1 job with a question")
	p.Click("button", "Answer")
	p.WaitText("What is your name?")
	p.Type("textbox", "name", "Ada")
	p.Wait("document.querySelector('aside ol li')?.innerText.match(/\\d s\\s+ui\\s+ask/)") // its events as those of a call
	p.Eval("document.querySelector('aside form button.primary').click()", nil)
	p.Wait("document.querySelector('aside').innerText.includes('hello')")
	p.Press("Escape")
	p.WaitNoText("with a question")
}

func configShowsItsErrors(t *testing.T, w world) {
	dir := t.TempDir()
	path := filepath.Join(dir, "toolpost.yaml")
	write := func(text string) {
		kit.OK(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write(plain)
	s := served.Start(t, w.bin, dir)
	write(plain + "# a comment\nlimit: {}\n")
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals)
	p.SignIn(s, "#/operate?at=config") // as addresses were before the parts had their own
	p.Wait("location.hash === '#/operate/config'")
	p.Wait("document.querySelector('[data-line=\"4\"].wrong + .fault')?.textContent.includes('unknown field')")
	p.WaitText("1 error: the one before it runs")
	p.Click("button", "Reload")
	p.WaitText("the config was not reloaded")
	write(plain)
	p.Click("button", "Reload")
	p.WaitText("is what runs")

	// The policy's decision for a call.
	p.Click("link", "Policy")
	p.Wait("document.querySelector('#policy input')")
	p.Eval("document.querySelector('#policy input').focus()", nil)
	p.Type("combobox", "Tool", "readFile")
	p.Click("button", "Explain")
	p.Wait("document.querySelector('[data-verdict=allowed]')")
}
