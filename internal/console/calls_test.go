package console

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/browser"
	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// kinds adds to the config of init a program without a protocol, one that takes long, and one that is missing.
const kinds = `
  - name: words
    protocol: command
    tool: shout
    description: Says a text louder.
    command: [tr, a-z, A-Z]
    stdin: "{text}"
    input: {type: object, required: [text], properties: {text: {type: string}, mood: {type: string, enum: [calm, loud]}, times: {type: integer, minimum: 1, maximum: 3}}}
  - name: long
    protocol: command
    tool: nap
    description: Sleeps until it is woken.
    command: [sleep, "{seconds}"]
    input: {type: object, required: [seconds], properties: {seconds: {type: integer}}}
    timeout: 120s
    tier: 2
  - {name: gone, protocol: narratoria, tool: lost, command: [./not-there], input: {type: object}}
`

// demo serves the config of init, with the kinds added.
func (w world) demo(t *testing.T, more string) *served.Server {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "demo")
	if out, err := exec.CommandContext(t.Context(), w.bin, "init", "--sample", "adventure", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	path := filepath.Join(dir, "toolpost.yaml")
	config, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(config), "\nsources:\n", "\nsources:"+kinds, 1)+more), 0o600)
	}
	kit.OK(t, err)
	return served.Start(t, w.bin, dir)
}

func callsEachKindOfTool(t *testing.T, w world) {
	s := w.demo(t, "")
	p := w.browser.Page(t, browser.Look{})
	p.SignIn(s, "#/tools")
	p.WaitText("not-there") // why a source is down
	for _, one := range []struct{ tool, role, field, value, want string }{
		{"readFile", "textbox", "path", "greeter/app.ai", "spec is"},
		{"greet", "textbox", "name", "Ada", "Hello Ada!"},
		{"light_torch", "spinbutton", "steps", "2", "The torch is lit."},
		{"shout", "textbox", "text", "louder", "LOUDER"},
	} {
		p.Eval("location.hash = '#/tools/"+one.tool+"'", nil)
		p.WaitFor("heading", one.tool)
		p.Type(one.role, one.field, one.value)
		p.Press("Control+Enter")
		p.WaitText(one.want)
	}
	// A server's error about a field is shown at the field; switching to JSON keeps the values.
	p.Forgive(refusals)
	p.Type("spinbutton", "times", "9")
	p.Click("button", "Run")
	p.Wait("document.querySelector('.field.wrong [role=alert]')")
	p.Click("button", "JSON")
	p.Wait("document.querySelector('textarea.mono').value.includes('louder')")
}

// nap signs in and runs the slow tool, from its form.
func nap(t *testing.T, w world, s *served.Server, seconds string) *browser.Page {
	t.Helper()
	p := w.browser.Page(t, browser.Look{})
	p.SignIn(s, "#/tools/nap")
	p.Forgive(refusals)
	p.Type("spinbutton", "seconds", seconds)
	p.Click("button", "Run")
	return p
}

func callIsWatchedAndCancelled(t *testing.T, w world) {
	s := w.demo(t, "")
	p := nap(t, w, s, "100")
	p.WaitText("Waiting for the tool")
	p.Click("link", "Open the call")
	p.WaitFor("heading", "nap")
	p.Wait("document.querySelector('[role=option]')?.innerText.includes('running')")
	p.Wait("[...document.querySelectorAll('[aria-label=Stages] li')].some(l => l.innerText.includes('runner'))")
	p.Click("button", "Cancel")
	p.WaitText("the call was cancelled by its caller")
	p.Wait("[...document.querySelectorAll('[role=option]')].some((r) => /cancelled[^]*nap/.test(r.innerText))")
	// A call of another caller appears by itself.
	kit.Must(s.Raw(t.Context(), "shout", `{"text":"x"}`))(t)
	p.Wait("document.querySelector('[role=option]')?.innerText.includes('shout')")
}

func leaseIsIssuedAndUsed(t *testing.T, w world) {
	p := nap(t, w, w.demo(t, "limits: {lease_tier: 1}\n"), "0")
	p.WaitText("lease_required")
	p.Click("button", "Issue a lease and run")
	p.Wait("document.querySelector('[aria-label=\"What happened\"] .head')?.innerText.includes('ok')")
}
