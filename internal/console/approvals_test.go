package console

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/browser"
	"toolpost/internal/kit"
	"toolpost/internal/served"
	"toolpost/wire/strictjson"
)

const ciToken = "the-token-of-ci-0123456789abcdef"

// needsApproval is a config in which the owner must approve ci's deletions.
const needsApproval = `sources: [{name: files, protocol: builtin, roots: [{path: ., write: true}]}]
doors: {http: {}}
policy: {rules: [{effect: ask, tools: deleteFile, approvers: owner, reason: gone is gone}]}
callers: {list: {ci: {tools: "*", tokens: [%x]}}}
`

// asCI deletes a file as ci, and returns the answer.
func asCI(t *testing.T, s *served.Server, path, resume string) (said string, ask string) {
	t.Helper()
	headers := []string{"Authorization", "Bearer " + ciToken, "Toolpost-Session", "night"}
	if resume != "" {
		headers = append(headers, "Toolpost-Resume", resume)
	}
	said = kit.Must(s.Raw(t.Context(), "deleteFile", fmt.Sprintf(`{"path":%q}`, path), headers...))(t)
	var r struct {
		Ask struct {
			ID string `json:"id"`
		} `json:"ask"`
	}
	kit.OK(t, strictjson.Unmarshal([]byte(said), &r))
	return said, r.Ask.ID
}

func callIsApprovedAndDenied(t *testing.T, w world) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"toolpost.yaml": fmt.Sprintf(needsApproval, sha256.Sum256([]byte(ciToken))), "a.txt": "a", "b.txt": "b", "<img src=x onerror=alert(1)>": "c",
	} {
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	there := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	s := served.Start(t, w.bin, dir)
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals)
	p.SignIn(s, "#/tools")
	const badge = `document.querySelector('nav a[href*="overview"] .badge')?.textContent`
	const waits = `document.querySelector('[data-approval][data-state=waiting]')`

	// A waiting approval shows in every view at once.
	_, id := asCI(t, s, "a.txt", "")
	if id == "" {
		t.Fatal("it does not ask")
	}
	p.Wait(badge + " === '1'")
	p.Eval("void (location.hash = '#/operate/approvals')", nil)
	const card = waits + "?.textContent"
	p.Wait(card + "?.includes('deleteFile') && " + card + ".includes('ci') && " + card + ".includes('a.txt') && " + card + ".includes('night')")
	p.WaitText("gone is gone")
	check(t, p, axeSource(t), "a call that waits")
	p.Type("textbox", "Reason", "checked it")
	p.Click("button", "For an hour")
	p.Wait("!" + waits + " && !" + badge)
	p.WaitText("owner allowed it for an hour: checked it")
	p.WaitText("It runs when ci makes the call again")
	if said, _ := asCI(t, s, "a.txt", id); !strings.Contains(said, `"ok":true`) || there("a.txt") {
		t.Errorf("it was approved: %s", said)
	}
	p.WaitText("It ran:") // the page hears what became of it

	// A remembered approval is shown, applies, and can be revoked.
	p.Wait("document.querySelector('[data-remembered]')?.textContent.includes('an hour')")
	if said, _ := asCI(t, s, "b.txt", ""); !strings.Contains(said, `"ok":true`) || there("b.txt") {
		t.Errorf("it is remembered: %s", said)
	}
	p.Click("button", "Revoke")
	p.WaitDialog("Revoke this approval?")
	p.Eval(`document.querySelector('dialog[open] button.danger').click()`, nil)
	p.Wait("!document.querySelector('[data-remembered]')")

	// A name that is markup is shown as text, and a denial has its reason.
	_, id = asCI(t, s, "<img src=x onerror=alert(1)>", "")
	p.Wait(card + "?.includes('<img src=x')")
	p.Wait("!document.querySelector('[data-approval] img')")
	p.Type("textbox", "Reason", "not on a Friday")
	p.Click("button", "Deny")
	p.Wait("!" + waits)
	p.WaitText("owner denied it: not on a Friday")
	if said, _ := asCI(t, s, "<img src=x onerror=alert(1)>", id); !strings.Contains(said, "not on a Friday") || !there("<img src=x onerror=alert(1)>") {
		t.Errorf("it was denied: %s", said)
	}

	// The history outlives the page.
	p.Reload()
	p.WaitText("2 decisions")
}

// asks serves a config in which the owner must approve what ci writes and deletes, and returns its path.
func (w world) asks(t *testing.T) (s *served.Server, path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "toolpost.yaml")
	config := strings.Replace(fmt.Sprintf(needsApproval, sha256.Sum256([]byte(ciToken))), "tools: deleteFile", "tools: [deleteFile, writeFile]", 1)
	for name, text := range map[string]string{"toolpost.yaml": config, "a.txt": "one\ntwo\n", "b.txt": "b"} {
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return served.Start(t, w.bin, dir), path
}

// writesAsCI changes a line of a file as ci, which waits for an approval.
func writesAsCI(t *testing.T, s *served.Server) {
	t.Helper()
	kit.Must(s.Raw(t.Context(), "writeFile", `{"path":"a.txt","content":"one\nthree\n"}`, "Authorization", "Bearer "+ciToken))(t)
}

// noticed keeps the notifications that a page shows, and makes the page believe that it is out of sight.
const noticed = `(() => {
	window.noticed = []
	window.Notification = class { static permission = 'granted'; constructor(title, more) { window.noticed.push([title, more.body]); window.lastNotice = this } }
	document.hasFocus = () => false
})()`

// A call that waits stands on the overview, in Live and in the form of its tool, and the browser tells of it. The
// change that it would make can be read, and so can the rule before it is written.
func approvalStandsWhereTheCallIs(t *testing.T, w world) {
	s, path := w.asks(t)
	config := string(kit.Must(os.ReadFile(path))(t))
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals)
	p.Ask("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": noticed}, nil)
	p.SignIn(s, "#/overview")
	p.WaitText("Nothing waits for you")
	p.Wait("window.noticed.length === 0")
	writesAsCI(t, s)
	p.WaitText("1 thing waits for you")
	p.Wait("window.noticed.length === 1 && window.noticed[0][0].includes('writeFile') && window.noticed[0][1] === 'gone is gone'")
	p.Wait("document.querySelector('[data-approval] .gone')?.innerText.includes('-two') && document.querySelector('[data-approval] .added')?.innerText.includes('+three')")
	check(t, p, axeSource(t), "a difference")

	p.Eval("void (location.hash = '#/live')", nil)
	p.Wait("document.querySelector('main [data-approval]')")
	p.Eval("void (location.hash = '#/tools/writeFile')", nil)
	p.Wait("document.querySelector('aside [data-approval]')")
	p.Eval("window.lastNotice.onclick()", nil) // a click on the notification leads to it
	p.Wait("location.hash === '#/operate/approvals' && document.querySelector('[data-approval]')")

	p.Click("button", "Always…")
	p.WaitText("This is written below approved:")
	check(t, p, axeSource(t), "a rule before it is written")
	p.Wait("document.querySelector('.rule pre').innerText.includes('caller: ci')")
	kit.Equal(t, string(kit.Must(os.ReadFile(path))(t)), config, "the rule was written before it was agreed to")
	p.Click("button", "Write the rule and allow")
	p.WaitText("owner allowed it always")
	kit.Eventually(t, "the rule is written", func() bool {
		return strings.Contains(string(kit.Must(os.ReadFile(path))(t)), "approved:")
	})

	// On the overview what was decided stays, with what became of it.
	p.Eval("void (location.hash = '#/overview')", nil)
	_, id := asCI(t, s, "b.txt", "")
	p.WaitText("1 thing waits for you")
	check(t, p, axeSource(t), "an approval on the overview")
	p.Click("button", "Allow once")
	p.WaitText("owner allowed it once")
	asCI(t, s, "b.txt", id)
	p.WaitText("It ran:")
}
