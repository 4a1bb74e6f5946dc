package console

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"toolpost/internal/browser"
	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// oddTool shows what a story of `toolpost init` does not have: a file of an unknown kind, and an unsupported event.
const oddTool = `import json, sys, tempfile
sys.stdin.read()
door = tempfile.mkdtemp() + "/door.obj"
def say(type, **more): print(json.dumps({"version": "0", "type": type, **more}))
open(door, "w").write("v 0 0 0\n")
say("asset", assetId="door", kind="model", mediaType="model/obj", path=door, metadata={"title": "The door, in the round"})
say("state_patch", patch={"place": "vestibule", "door": {"open": False, "knocks": 2}})
say("ui_event", event="camera_shake", payload={"strength": 0.4, "ms": 250})
say("ui_event", event="narrative_choice", payload={"choices": ["Knock again", {"id": "go", "label": "Go away", "hint": "wise"}]})
say("done", ok=True)
`

const oddStory = `title: The Odd Door
opening: Knock
fallback:
  plan:
    narrative: The door shakes. So does everything else.
    tools: [{toolId: door, tool: door}]
`

const oddDoor = `  - {name: door, protocol: narratoria, tool: door, command: [python3, odd.py], input: {type: object}}
planners: [{name: odd, file: story.yaml}]
`

// odd serves a story with what the sample lacks, and tools that fail and that are slow.
func (w world) odd(t *testing.T) *served.Server {
	t.Helper()
	dir := t.TempDir()
	config := strings.Replace(colours, "doors:", oddDoor+"doors:", 1)
	for name, content := range map[string]string{"toolpost.yaml": config, "odd.py": oddTool, "story.yaml": oddStory} {
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return served.Start(t, w.bin, dir)
}

// played plays a story in a session, prompt after prompt.
func played(t *testing.T, s *served.Server, session string, prompts ...string) {
	t.Helper()
	for _, prompt := range prompts {
		kit.Must(s.Call(t.Context(), "story.turn", `{"prompt": `+strconv.Quote(prompt)+`}`, "Toolpost-Session", session))(t)
	}
}

// TestPicturesOfStories takes pictures of a story from its cover to an ending, and of plans in all their states.
func TestPicturesOfStories(t *testing.T) {
	folder := os.Getenv("TOOLPOST_PICTURES")
	if folder == "" {
		t.Skip("make screenshots takes them")
	}
	w := world{browser: browser.Start(t), bin: served.Build(t)}
	sample, odd := w.sample(t), w.odd(t)
	played(t, sample, "choices", "Begin")
	played(t, sample, "book", "Begin", "Light the torch and go in", "Follow the smell of old paper", "Borrow a book about dragons")
	played(t, sample, "end", "Begin", "Go home")
	played(t, odd, "odd", "Knock")
	kit.Must(odd.Call(t.Context(), "plan.run", `{"prompt": "Mend what is broken", "plan": `+failing+`}`))(t)
	waiting := `{"prompt": "Wait for it", "plan": {"requestId": "r", "tools": [{"toolId": "first", "tool": "good"},
		{"toolId": "long", "tool": "slow", "dependencies": ["first"]}, {"toolId": "last", "tool": "good", "dependencies": ["long"]}]}}`

	for _, one := range []struct {
		name   string
		server *served.Server
		hash   string
		ready  func(*browser.Page)
	}{
		{"play-choices", sample, "#/play/choices", func(p *browser.Page) { p.Wait(turn("1")) }},
		{"play-changed", sample, "#/play", func(p *browser.Page) {
			p.Click("button", "Begin The Bell of Nether Wick")
			p.Wait(turn("1"))
			p.Press("1")
			p.Wait(turn("2"))
		}},
		{"play-text", sample, "#/play/book", func(p *browser.Page) { p.Wait(turn("4")); p.WaitText("slightly singed") }},
		{"play-end", sample, "#/play/end", func(p *browser.Page) { p.Wait(turn("2")) }},
		{"play-odd", odd, "#/play/odd", func(p *browser.Page) { p.Wait(turn("1")) }},
		{"plans-list", odd, "#/plans", func(p *browser.Page) { p.Wait("document.querySelectorAll('[data-plan]').length === 2") }},
		{"plans-failed", odd, "#/plans", func(p *browser.Page) {
			p.Wait("document.querySelectorAll('[data-plan]').length === 2")
			p.Press("j", "Enter")
			p.Click("button", "broken: failed")
			p.WaitText("2, 1 retry")
		}},
		{"plans-new", odd, "#/plans/new", func(p *browser.Page) {
			p.Type("textbox", "Plan, as JSON", `{"requestId": "r", "tools": [
  {"toolId": "first", "tool": "good"},
  {"toolId": "second", "tool": "goood", "dependencies": ["first"]},
  {"toolId": "third", "tool": "good", "dependencies": ["secnd"]}
]}`)
			p.Click("button", "Check")
			p.Wait("document.querySelector('.fault')")
		}},
		{"plans-running", odd, "#/plans", func(p *browser.Page) {
			go func() { _, _ = odd.Call(t.Context(), "plan.run", waiting) }() // the timeout of a tool is shorter than the time for all pictures
			p.Wait("document.querySelector('[data-plan]')?.innerText.includes('running')")
			p.Press("j", "Enter")
			p.Wait(state("long", "running"))
		}},
	} {
		for _, look := range browser.Looks() {
			t.Run(one.name+"-"+look.String(), func(t *testing.T) { // a page ends with its test, because only a few may follow streams at once
				p := w.browser.Page(t, look)
				p.SignIn(one.server, one.hash)
				p.Wait("document.querySelector('h1')")
				one.ready(p)
				picture(p, filepath.Join(folder, one.name+"-"+look.String()+".png"))
			})
		}
	}
}
