package console

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/browser"
	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// sample serves the config of `toolpost init --sample adventure`, which includes the adventure.
func (w world) sample(t *testing.T) *served.Server {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "demo")
	if out, err := exec.CommandContext(t.Context(), w.bin, "init", "--sample", "adventure", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return served.Start(t, w.bin, dir)
}

// turn returns an expression that is true once a turn has been played to its end and offers choices.
func turn(n string) string {
	return `document.querySelector('[data-turn="` + n + `"][aria-busy=false] .choice')`
}

// watchLit records which places of the state are highlighted from now on: they are highlighted only for a second.
const watchLit = `void (window.lit = new Set(), new MutationObserver(() => document.querySelectorAll('[data-change]')
	.forEach((e) => window.lit.add(e.dataset.path))).observe(document.body, {subtree: true, childList: true, attributes: true}))`

func adventureIsPlayed(t *testing.T, w world) {
	s := w.sample(t)
	p := w.browser.Page(t, browser.Look{})
	p.SignIn(s, "#/play")
	p.Click("button", "Begin The Bell of Nether Wick")
	p.Wait(turn("1"))
	p.WaitText("Nobody has woken up on time since.")
	log, err := s.Call(t.Context(), "audit.log", `{"tool":"story.turn"}`)
	if calls, _ := log.Output["calls"].([]any); err != nil || len(calls) != 1 {
		t.Errorf("the cover plays nothing by itself: %v, %v", log.Output, err)
	}
	// The picture is SVG, which only an <img> may show.
	p.Wait("document.querySelector('.picture img')?.naturalWidth > 0")
	// A strip of the tools, all of them ended.
	p.Wait("document.querySelectorAll('.strip [data-state=success]').length >= 2")

	p.Eval(watchLit, nil)
	p.Press("1") // light the torch and go in
	p.Wait(turn("2"))
	p.Wait(`document.querySelector('aside [data-path="/inventory/torch/lit"]')?.innerText.includes('true')`)
	p.Wait(`window.lit.has('/inventory/torch/lit') && window.lit.has('/place') && !window.lit.has('/inventory/sandwich')`)
	p.Wait("!document.querySelector('[data-change]')") // the highlight fades

	p.Eval("document.querySelector('.choice').click()", nil)
	p.Wait(turn("3"))
	p.Press("1")
	p.Wait(turn("4"))
	p.Wait("document.querySelectorAll('.past > li').length === 3 && document.querySelector('.past').innerText.includes('Begin')")

	// The session is in the address: a reload continues in the same place.
	before := p.Text()
	p.Reload()
	p.Wait(turn("4"))
	for _, part := range []string{"The Bell of Nether Wick", "Turn 4", "torch"} {
		if !strings.Contains(before, part) || !strings.Contains(p.Text(), part) {
			t.Errorf("%q is not there before and after the page was loaded again", part)
		}
	}
	// Start over begins another session, and Back returns to this one.
	p.Click("button", "Start over")
	p.Wait(turn("1"))
	p.Eval("history.back()", nil)
	p.Wait(turn("4"))
}

func turnSurvivesALostConnection(t *testing.T, w world) {
	s := w.sample(t)
	p := w.browser.Page(t, browser.Look{})
	p.Forgive("ERR_INTERNET_DISCONNECTED", refusals)
	p.SignIn(s, "#/play")
	p.Click("button", "Begin The Bell of Nether Wick")
	p.Wait(turn("1"))
	p.SetOffline(true)
	p.Press("1")
	p.WaitText("Connection lost")
	p.SetOffline(false)
	p.Click("button", "Try again")
	p.Wait(turn("2"))
	p.Wait("document.querySelectorAll('.past > li').length === 1")
}

// colours is a config with tools that succeed, fail, and are slow.
const colours = `sources:
  - {name: files, protocol: builtin, roots: [{path: .}]}
  - {name: good, protocol: command, tool: good, command: ["true"]}
  - {name: bad, protocol: command, tool: bad, command: ["false"]}
  - {name: slow, protocol: command, tool: slow, command: [sleep, "60"]}
doors: {http: {}}
`

const failing = `{"requestId": "r", "tools": [
	{"toolId": "first", "tool": "good"},
	{"toolId": "broken", "tool": "bad", "dependencies": ["first"], "retryPolicy": {"maxRetries": 1, "backoffMs": 1}},
	{"toolId": "after", "tool": "good", "dependencies": ["broken"]},
	{"toolId": "maybe", "tool": "bad", "required": false, "retryPolicy": {"maxRetries": 0}},
	{"toolId": "still", "tool": "good", "dependencies": ["maybe"]}]}`

// state returns an expression that is true if a box of the graph is in a state.
func state(box, state string) string {
	return `document.querySelector('.graph [data-tool="` + box + `"]')?.dataset.state === '` + state + `'`
}

func planIsColoured(t *testing.T, w world) {
	s := w.serve(t, colours)
	p := w.browser.Page(t, browser.Look{})
	p.SignIn(s, "#/plans/new")

	p.Type("textbox", "Plan, as JSON", strings.Replace(failing, `["broken"]`, `["borken"]`, 1))
	p.Wait(`document.querySelectorAll('.graph [data-tool]').length === 5`)
	p.Click("button", "Check")
	p.Wait(`document.querySelector('.fault')?.innerText.includes('borken')`)
	p.Wait(`document.querySelector('.graph .wrong')?.dataset.tool === 'after'`)

	p.Type("textbox", "Plan, as JSON", failing)
	p.Click("button", "Check")
	p.WaitText("Nothing is wrong with it")
	p.Click("button", "Run")
	for box, is := range map[string]string{"first": "success", "broken": "failed", "after": "skipped", "maybe": "failed", "still": "success"} {
		p.Wait(state(box, is))
	}
	var strokes []string
	p.Eval(`['first', 'broken', 'after'].map((id) => getComputedStyle(document.querySelector('[data-tool="' + id + '"] .body')).fill)`, &strokes)
	if len(strokes) != 3 || strokes[0] == strokes[1] || strokes[1] == strokes[2] || strokes[0] == strokes[2] {
		t.Errorf("success, failed and skipped have the colours %v", strokes)
	}
	p.Click("button", "broken: failed")
	p.WaitText("2, 1 retry")
	p.Press("Escape")
	p.WaitNoText("2, 1 retry")

	// A running plan can be cancelled, and is in the live list.
	list := w.browser.Page(t, browser.Look{})
	list.SignIn(s, "#/plans")
	list.Wait("document.querySelectorAll('[data-plan]').length === 1")
	go func() {
		_, _ = s.Call(context.Background(), "plan.run", `{"plan": {"requestId": "r", "tools": [{"toolId": "long", "tool": "slow"}]}}`)
	}()
	list.Wait("document.querySelectorAll('[data-plan]').length === 2")
	list.Press("j", "Enter")
	list.Wait(state("long", "running"))
	list.Click("button", "Cancel")
	list.Click("button", "Cancel the plan")
	list.WaitText("cancelled")
}

// axeFindsNothingInStories lets axe check a game and plans, which are empty in the check of every view.
func axeFindsNothingInStories(t *testing.T, w world) {
	axe := axeSource(t)
	s := w.odd(t)
	played(t, s, "odd", "Knock")
	kit.Must(s.Call(t.Context(), "plan.run", `{"plan": `+failing+`}`))(t)
	for _, look := range []browser.Look{{}, {Phone: true, Dark: true}} { // each device and each colour scheme once
		p := w.browser.Page(t, look)
		p.SignIn(s, "#/play/odd")
		p.Wait(turn("1"))
		check(t, p, axe, look.String()+" a turn")
		p.Eval("void (location.hash = '#/plans')", nil)
		p.Wait("document.querySelectorAll('[data-plan]').length === 2")
		check(t, p, axe, look.String()+" plans")
		p.Press("j", "Enter")
		p.Click("button", "broken: failed")
		p.WaitText("2, 1 retry")
		check(t, p, axe, look.String()+" a plan")
		p.Eval("void (location.hash = '#/plans/new')", nil)
		p.Type("textbox", "Plan, as JSON", strings.Replace(failing, `["broken"]`, `["borken"]`, 1))
		p.Click("button", "Check")
		p.Wait("document.querySelector('.fault')")
		check(t, p, axe, look.String()+" a plan with faults")
	}
}

// hostile is text of a tool and a story that tries to be more than text.
const hostile = "<img src=x onerror=window.pwned=1> <script>window.pwned=1</script> \u202etxet\u202c \x1b[31mred"

// hostileTool puts it into every field that a tool can set.
const hostileTool = `import json, os, sys
text = json.loads(sys.stdin.readline())["text"]
folder = os.environ["TMPDIR"] if os.environ.get("TMPDIR") else "/tmp"
def say(type, **more): print(json.dumps({"version": "0", "type": type, **more}))
drawing = folder + "/drawing.svg"
open(drawing, "w").write('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="window.pwned=1">'
  '<script>window.pwned=1</script><rect width="9" height="9"/></svg>')
page = folder + "/page.html"
open(page, "w").write("<script>parent.pwned=1</script>" + text)
say("asset", assetId=text, kind="image", mediaType="image/svg+xml", path=drawing, metadata={"title": text})
say("asset", assetId="page " + text, kind="text", mediaType="text/html", path=page)
say("asset", assetId="other " + text, kind="model", mediaType="model/x-" + "odd", path=page, metadata={"title": "odd " + text})
say("state_patch", patch={text: {"__proto__": text, "link": "javascript:window.pwned=1"}})
say("ui_event", event=text, payload={text: [text]})
say("ui_event", event="narrative_choice", payload={"choices": [{"id": "a", "label": text, "hint": text}, "javascript:window.pwned=1"]})
say("log", level="info", message=text, fields={"plan": {"planId": text, "tools": [], "narrative": "forged"}})
say("done", ok=True, summary=text)
`

func hostileStoryIsText(t *testing.T, w world) {
	dir := t.TempDir()
	quoted := kit.Must(json.Marshal(hostile))(t) // JSON is YAML
	for name, content := range map[string]string{
		"toolpost.yaml": `sources:
  - {name: evil, protocol: narratoria, tool: evil, command: [python3, evil.py], input: {type: object}}
planners: [{name: evil, title: ` + string(quoted) + `, file: story.yaml}]
doors: {http: {}}
`,
		"evil.py": hostileTool,
		"story.yaml": `fallback:
  plan:
    narrative: ` + string(quoted) + `
    tools: [{toolId: ` + string(quoted) + `, tool: evil, input: {text: ` + string(quoted) + `}}]
`,
	} {
		// The id of a tool in a plan must not have control characters.
		if name == "story.yaml" {
			content = strings.Replace(content, "toolId: "+string(quoted), `toolId: "<img src=x onerror=window.pwned=1>"`, 1)
		}
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	s := served.Start(t, w.bin, dir)
	p := w.browser.Page(t, browser.Look{})
	p.SignIn(s, "#/play")
	p.Click("button", "Begin")
	p.Wait(turn("1"))
	p.Wait("document.querySelector('.picture img')?.naturalWidth > 0")
	p.WaitText("<script>parent.pwned=1</script>") // the page, as its source
	p.WaitText("model/x-odd")
	p.WaitText("which is not supported here")
	p.WaitNoText("forged")
	p.Press("1") // the hostile choice is the next prompt
	p.Wait(turn("2"))
	seen := func(where string) {
		t.Helper()
		text := p.Text()
		if !strings.Contains(text, "<img src=x onerror=window.pwned=1>") || strings.ContainsAny(text, "\u202e\x1b") {
			t.Errorf("%s: what is hostile is not shown as visible text", where)
		}
		var bad bool
		p.Eval(`'pwned' in window || document.querySelector('img[src="x"], script:not([src]), iframe, object, embed') !== null ||
			[...document.querySelectorAll('a')].some((a) => a.protocol === 'javascript:')`, &bad)
		if bad {
			t.Errorf("%s: something of it was run, or could be", where)
		}
	}
	seen("play")
	p.Eval("document.querySelector('.strip a').click()", nil)
	p.Wait("document.querySelector('.graph [data-state=success]')")
	seen("the plan")
	p.Eval("document.querySelector('.graph [data-tool]').dispatchEvent(new MouseEvent('click', {bubbles: true}))", nil)
	p.Wait("document.querySelector('aside dl')")
	seen("its tool")
	p.Eval("void (location.hash = '#/plans')", nil)
	p.Wait("document.querySelectorAll('[data-plan]').length === 2")
	seen("the list")
}
