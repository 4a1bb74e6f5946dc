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
	const badge = `document.querySelector('nav a[href*="operate"] .badge')?.textContent`

	// A waiting approval shows in every view at once.
	_, id := asCI(t, s, "a.txt", "")
	if id == "" {
		t.Fatal("it does not ask")
	}
	p.Wait(badge + " === '1'")
	p.Press("g", "o")
	const card = "document.querySelector('[data-approval]')?.textContent"
	p.Wait(card + "?.includes('deleteFile') && " + card + ".includes('ci') && " + card + ".includes('a.txt') && " + card + ".includes('night')")
	p.WaitText("gone is gone")
	check(t, p, axeSource(t), "a call that waits")
	p.Type("textbox", "Reason", "checked it")
	p.Eval(`(() => { const s = document.querySelector('[data-approval] select'); s.value = 'hour'; s.dispatchEvent(new Event('change', {bubbles: true})); })()`, nil)
	p.Click("button", "Approve")
	p.Wait("!document.querySelector('[data-approval]') && !" + badge)
	if said, _ := asCI(t, s, "a.txt", id); !strings.Contains(said, `"ok":true`) || there("a.txt") {
		t.Errorf("it was approved: %s", said)
	}

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
	p.Wait("!document.querySelector('[data-approval]')")
	if said, _ := asCI(t, s, "<img src=x onerror=alert(1)>", id); !strings.Contains(said, "not on a Friday") || !there("<img src=x onerror=alert(1)>") {
		t.Errorf("it was denied: %s", said)
	}
}
