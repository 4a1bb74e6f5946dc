package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"toolpost/internal/browser"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/internal/served"
)

// refusals is the browser's message about every response with an error status, which is not an error of the page.
const refusals = "Failed to load resource"

func linkSignsInOnce(t *testing.T, w world) {
	s := w.server
	link := s.URL() + browser.Link(t, s)
	p := w.browser.Page(t, browser.Look{})
	p.Open(link)
	p.WaitFor("navigation", "Views")
	p.WaitText("owner")
	var hash, kept string
	p.Eval("location.href", &hash)
	p.Eval("document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)", &kept)
	if strings.Contains(hash, "code") || kept != "{}{}" {
		t.Errorf("after signing in the page is at %s and keeps %s", hash, kept)
	}
	for _, r := range p.Requests() {
		if strings.Contains(r.URL, "code=") {
			t.Errorf("the code was sent in a URL: %s", r.URL)
		}
	}
	again := w.browser.Page(t, browser.Look{})
	again.Forgive(refusals)
	again.Open(link)
	again.WaitText("this link was used before")
}

func tokenSignsIn(t *testing.T, w world) {
	s := w.server
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals)
	p.Open(s.URL() + "/#/tools")
	p.Type("textbox", "With a token", "not-the-token-0123456789")
	p.Click("button", "Sign in")
	p.WaitText("wrong or no longer valid")
	p.Type("textbox", "With a token", served.Token)
	p.Click("button", "Sign in")
	p.WaitFor("heading", "Tools")
	var kept string
	p.Eval("document.cookie + JSON.stringify(localStorage) + document.documentElement.outerHTML", &kept)
	if strings.Contains(kept, served.Token) {
		t.Error("the page keeps the token")
	}
	p.Wait("fetch('v1/tools/listFiles/call', {method: 'POST', headers: {'Toolpost-Console': '1', 'Content-Type': 'application/json'}, body: '{}'}).then((r) => r.ok)")
	p.Reload()
	p.WaitFor("heading", "Tools")
	p.Click("button", "Sign out")
	p.WaitText("Sign in to Toolpost")
	p.Reload()
	p.WaitText("Sign in to Toolpost")
}

func revokedTokenEndsSession(t *testing.T, w world) {
	s := w.server
	issued, err := s.Call(t.Context(), "token.issue", `{"caller":"ada","tools":["*"]}`)
	token, _ := issued.Output["token"].(string)
	id, _ := issued.Output["id"].(string)
	if err != nil || token == "" {
		t.Fatalf("%+v, %v", issued, err)
	}
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals)
	p.Open(s.URL())
	p.Type("textbox", "With a token", token)
	p.Click("button", "Sign in")
	p.WaitFor("navigation", "Views")
	p.WaitText("ada")
	kit.Must(s.Call(t.Context(), "token.revoke", `{"id":"`+id+`"}`))(t)
	p.Wait("fetch('v1/session').then((r) => r.status === 401)")
	p.Reload()
	p.WaitText("Sign in to Toolpost")
}

func nothingButTheShell(t *testing.T, w world) {
	s := w.server
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals)
	p.Open(s.URL() + "/#/audit/some-call")
	p.WaitText("Sign in to Toolpost")
	if p.Has("navigation", "") {
		t.Error("somebody without a token sees the navigation")
	}
	for _, r := range p.Requests() {
		if strings.HasSuffix(r.URL, "/v1/signin") { // which providers there are, for the buttons
			continue
		}
		if strings.Contains(r.URL, "/v1/") && r.Status != http.StatusUnauthorized {
			t.Errorf("%s was answered with %d", r.URL, r.Status)
		}
	}
}

// A page at another port of the same machine is same-site: its requests carry the cookie, whatever SameSite says.
func foreignPageChangesNothing(t *testing.T, w world) {
	s := w.serve(t, plain) // its links are counted
	evil := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "text/html")
		_, _ = out.Write([]byte(`<!doctype html><title>evil</title><form method="post" enctype="text/plain" action="` + s.URL() +
			`/v1/tools/console.link/call"><input name='{"a":"' value='"}'><button>Win</button></form>`))
	}))
	defer evil.Close()
	p := w.browser.Page(t, browser.Look{})
	p.Forgive("")
	p.SignIn(s, "#/tools")
	p.WaitFor("heading", "Tools")
	p.Open(evil.URL)
	p.Wait("document.title === 'evil'")
	before := linksMade(t, s)
	for _, attempt := range []string{
		`fetch(URL + '/v1/session', {method: 'DELETE', credentials: 'include', mode: 'no-cors'})`,
		`fetch(URL + '/v1/session', {method: 'DELETE', credentials: 'include', headers: {'Toolpost-Console': '1'}})`,
		`fetch(URL + '/v1/tools/console.link/call', {method: 'POST', credentials: 'include', mode: 'no-cors', body: '{}'})`,
		`fetch(URL + '/v1/tools', {credentials: 'include'})`,
	} {
		var read string // any part of the answer that it could read
		p.Eval("("+strings.Replace(attempt, "URL", "'"+s.URL()+"'", 1)+").then((r) => r.text()).catch(() => '')", &read)
		kit.Equal(t, read, "", attempt)
	}
	p.Click("button", "Win")
	p.WaitText("access_denied")
	p.Open(s.URL() + "/#/tools")
	p.WaitFor("heading", "Tools") // still signed in
	if after := linksMade(t, s); after != before {
		t.Errorf("the foreign page made %d links", after-before)
	}
}

// linksMade counts the recorded calls that made a link.
func linksMade(t *testing.T, s *served.Server) int {
	t.Helper()
	log, err := s.Call(t.Context(), "audit.log", `{"tool":"console.link"}`)
	calls, ok := log.Output["calls"].([]any)
	if err != nil || !ok || len(calls) == 0 {
		t.Fatalf("%+v, %v", log, err)
	}
	return len(calls)
}

func keysLeadEverywhere(t *testing.T, w world) {
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals) // there is no fleet
	p.SignIn(w.server, "#/tools")
	p.WaitFor("heading", "Tools")
	for key, heading := range map[string]string{"h": "Overview", "p": "Play", "l": "Live", "n": "Plans", "a": "Audit", "o": "Operate", "c": "Connections", "f": "Fleet", "t": "Tools"} {
		pressed(p, func() bool { return p.Has("heading", heading) }, "g", key)
		p.WaitFor("heading", heading)
	}
	opens(p, "?", "Keys")
	for _, group := range []string{"Everywhere", "In lists", "In a tool or a plan", "In Live", "In Play", "Go to"} {
		p.Wait("document.querySelector('dialog[open] section[aria-label=\"" + group + "\"] kbd')")
	}
	p.Press("Escape")
	p.Wait("!document.querySelector('dialog[open]')")
	opens(p, "Control+k", "Commands")
	p.Wait("document.activeElement.matches('dialog[open] input')")
	for _, letter := range "oper" {
		p.Press(string(letter))
	}
	p.Press("Enter")
	p.WaitFor("heading", "Operate")
	opens(p, "Control+k", "Commands")
	p.Type("combobox", "Commands", "zzqx")
	p.WaitText("Nothing matches")
	p.Wait("!document.querySelector('dialog[open] [role=option]')")
	p.Type("combobox", "Commands", "rdfile") // letters in their order, and the best first
	p.Wait("document.querySelector('dialog[open] [role=option]')?.innerText.includes('Call readFile')")
	p.Press("Escape")
	opens(p, "Control+k", "Commands")
	for _, letter := range "dark" {
		p.Press(string(letter))
	}
	p.Press("Enter")
	p.Wait("document.documentElement.dataset.theme === 'dark'")
	p.Reload()
	p.Wait("document.documentElement.dataset.theme === 'dark'")
}

// opens presses a key that opens a dialog.
func opens(p *browser.Page, key, dialog string) {
	pressed(p, func() bool { return p.HasDialog(dialog) }, key)
	p.WaitDialog(dialog)
}

// pressed presses keys until they take effect. They have none if the page was still busy with the previous view, or
// handled the second key so late that it had forgotten the first.
func pressed(p *browser.Page, done func() bool, keys ...string) {
	for range 20 {
		p.Press(keys...)
		for range 50 {
			if done() {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func navigationOnAPhone(t *testing.T, w world) {
	p := w.browser.Page(t, browser.Look{Phone: true})
	p.Forgive(refusals) // there is no fleet
	p.SignIn(w.server, "#/tools")
	p.WaitFor("heading", "Tools")
	p.Wait("document.querySelector('nav').getBoundingClientRect().top > innerHeight - 80")
	for _, view := range []string{"Overview", "Live", "Plans", "Audit", "Operate", "Connections", "Fleet", "Tools"} {
		p.Click("link", view)
		p.WaitFor("heading", view)
		p.Wait("document.documentElement.scrollWidth <= innerWidth")
	}
	for _, hash := range []string{"#/plans/new", "#/operate/policy", "#/operate/sources?add=mcp"} {
		p.Eval("void (location.hash = '"+hash+"')", nil)
		p.Wait("document.querySelector('main :is(input, textarea).mono')")
		p.Wait("[...document.querySelectorAll('input, textarea, select')].every((f) => parseFloat(getComputedStyle(f).fontSize) >= 16)")
	}
	p.Click("button", "More")
	p.WaitDialog("Commands")
	check(t, p, axeSource(t), "the menu of a phone")
	p.Click("option", "Sign out")
	p.WaitText("Sign in to Toolpost")
}

func lostConnectionComesBack(t *testing.T, w world) {
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals, "ERR_INTERNET_DISCONNECTED")
	p.SignIn(w.server, "#/tools")
	p.WaitFor("heading", "Tools")
	p.Eval("void (window.told = '', new MutationObserver(() => { window.told += document.querySelector('.connection').innerText })"+
		".observe(document.querySelector('.connection'), {subtree: true, childList: true, characterData: true}))", nil) // it tells for a moment only
	p.SetOffline(true)
	p.Click("button", "Sign out") // something that needs the server
	p.WaitText("Connection lost")
	p.SetOffline(false)
	p.Wait("window.told.includes('Connected again')")
	p.WaitNoText("Connected again")
	p.WaitFor("heading", "Tools")
}

func restartAsksToSignIn(t *testing.T, w world) {
	s := w.server
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals)
	p.SignIn(s, "#/audit")
	p.WaitFor("heading", "Audit")
	p.Eval("fetch('v1/session', {method: 'DELETE', headers: {'Toolpost-Console': '1'}}).then(() => 0)", nil) // as a restart does
	p.Reload()
	p.Type("textbox", "With a token", served.Token)
	p.Click("button", "Sign in")
	p.WaitFor("heading", "Audit")
}

// serverComesBack stops the server gracefully, and then with SIGKILL, each time in the middle of a call. Sessions are in
// the server's memory, so the page asks to sign in again, and continues in the same place.
func serverComesBack(t *testing.T, w world) {
	dir := t.TempDir()
	config := strings.Replace(plain, "[{", "[{name: long, protocol: command, tool: nap, command: [sleep, '60']}, {", 1) + "limits: {drain: 1s}\n"
	kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), []byte(config), 0o600))
	s := served.Start(t, w.bin, dir)
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals, "ERR_")
	p.SignIn(s, "#/live")
	p.WaitFor("heading", "Live")
	row := func(tool, word string) string {
		return "[...document.querySelectorAll('[role=option]')].filter((r) => r.innerText.includes('" + tool + "') && r.innerText.includes('" + word + "')).length"
	}
	for i, end := range []func(){func() { s.Stop(t) }, func() { s.Kill() }} {
		someCalls(t, s, 1, 0)
		p.Wait(row("readFile", "ok") + " === " + strconv.Itoa(2*i+1))
		cut := make(chan struct{})
		go func() {
			defer close(cut)
			_, _ = s.Raw(t.Context(), "nap", "{}")
		}()
		p.Wait(row("nap", "running") + " === 1")
		end()
		<-cut
		p.WaitText("Connection lost")
		s = served.StartAgain(t, s, w.bin, dir)
		p.Type("textbox", "With a token", served.Token)
		p.Click("button", "Sign in")
		p.WaitFor("heading", "Live")
		someCalls(t, s, 1, 0)
		p.Wait(row("readFile", "ok") + " === " + strconv.Itoa(2*i+2)) // each once
		p.Wait(row("nap", "running") + " === 0")                      // it died with the server
	}
}

func firstViewIsSmall(t *testing.T, w world) {
	s := w.server
	p := w.browser.Page(t, browser.Look{})
	p.SignIn(s, "")
	p.WaitFor("heading", "Overview")
	p.Wait("document.querySelector('[data-cell=Disk]') && document.querySelector('[data-waits]')")
	total, seen := 0, map[string]bool{}
	for _, r := range p.Requests() {
		if !strings.HasPrefix(r.URL, s.URL()+"/") {
			t.Errorf("a request to somebody else: %s", r.URL)
		} else if !strings.Contains(r.URL, "/v1/") && !seen[r.URL] { // its questions are not a part of it
			seen[r.URL] = true
			total += zipped(t, r.URL)
		}
	}
	t.Logf("%d bytes in %d files", total, len(seen))
	if total == 0 || total > 60_000 {
		t.Errorf("the first view takes %d bytes", total)
	}
}

// zipped returns how many bytes a file has as the server sends it to a browser.
func zipped(t *testing.T, url string) int {
	t.Helper()
	ask := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	ask.Header.Set("Accept-Encoding", "gzip")
	answer := kit.Must(http.DefaultTransport.RoundTrip(ask))(t)
	defer answer.Body.Close()
	return len(kit.Must(io.ReadAll(answer.Body))(t))
}

func axeFindsNothing(t *testing.T, w world) {
	axe := axeSource(t)
	s := w.demo(t, "")
	all := contents(t, s)
	looks := browser.Looks()
	if rounds.Of(0, 1) == 0 {
		looks = []browser.Look{{}, {Phone: true, Dark: true}} // each device and each colour scheme once
	}
	for _, look := range looks {
		p := w.browser.Page(t, look)
		p.Forgive(refusals)
		p.Open(s.URL())
		p.WaitText("Sign in to Toolpost")
		check(t, p, axe, look.String()+" sign-in")
		p.SignIn(s, "#/tools")
		p.Eval(watchLost, nil)
		for _, one := range all {
			p.Eval("void (location.hash = '"+one.hash+"')", nil)
			p.Wait(one.until)
			check(t, p, axe, look.String()+" "+one.hash)
			var wide []string
			p.Eval(tooWide, &wide)
			for _, w := range wide {
				t.Errorf("%s %s: wider than its pane: %s", look, one.hash, w)
			}
		}
		p.Press("Control+k")
		p.WaitDialog("Commands")
		check(t, p, axe, look.String()+" palette")
		p.Press("Escape")
		p.Wait("!document.querySelector('dialog[open]')")
		opens(p, "?", "Keys")
		check(t, p, axe, look.String()+" keys")
		p.Wait("window.wasLost === false") // a request that the page cancelled is not a lost connection
	}
}

// tooWide lists what reaches beyond the pane that it scrolls in, other than what scrolls by itself.
const tooWide = `[...document.querySelectorAll('.content')].filter((e) => e.scrollWidth > e.clientWidth).map((e) => {
	const right = e.getBoundingClientRect().right
	return [...e.querySelectorAll('*')].filter((x) => x.getBoundingClientRect().left + x.scrollWidth > right + 1 && getComputedStyle(x).overflowX === 'visible').slice(-3).map((x) => x.cloneNode().outerHTML.slice(0, 100)).join(' ')
})`

// watchLost records whether the page ever reports that the connection is lost.
const watchLost = `void (window.wasLost = false, new MutationObserver(() => { window.wasLost ||= !!document.querySelector('.connection.lost') })
	.observe(document.body, {subtree: true, attributes: true, childList: true}))`

// axeSource returns the script to inject into pages that axe checks.
func axeSource(t *testing.T) string {
	t.Helper()
	axe, err := os.ReadFile(filepath.FromSlash("../../web/console/app/node_modules/axe-core/axe.min.js"))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("axe is missing: .ci/setup console")
	}
	return string(axe)
}

// A content is an address with something to see, and a condition for its being loaded.
type content struct{ name, hash, until string }

// contents makes calls of all outcomes, a turn of a story, a token and a lease, and lists their addresses.
func contents(t *testing.T, s *served.Server) []content {
	t.Helper()
	made := []struct {
		tool, args, call string
		ok               bool
	}{
		{"light_torch", `{"steps":2}`, "torch-1", true},
		{"shout", `{"text":"louder"}`, "shout-1", true},
		{"readFile", `{"path":"nosuch.txt"}`, "read-1", false},
		{"shout", `{"times":9}`, "shout-2", false},
		{"token.issue", `{"caller":"ci","tools":["read*"],"note":"builds"}`, "token-1", true},
		{"lease.issue", `{"tool":"nap","ttl_ms":300000}`, "lease-1", true},
	}
	for _, c := range made {
		said, err := s.Raw(t.Context(), c.tool, c.args, "Toolpost-Call", c.call)
		if err != nil || strings.HasPrefix(said, `{"ok":true`) != c.ok {
			t.Fatalf("%s: %s, %v", c.tool, said, err)
		}
	}
	turn, err := s.Call(t.Context(), "story.turn", `{"prompt":"Begin"}`, "Toolpost-Session", "ada", "Toolpost-Call", "turn-1")
	plan, _ := turn.Output["planId"].(string)
	if err != nil || plan == "" {
		t.Fatalf("%+v, %v", turn, err)
	}
	return []content{
		{"overview", "#/overview", "document.querySelector('[data-cell=Disk]') && document.querySelector('[data-tile=Calls]') && document.querySelector('[data-waits]')"},
		{"play", "#/play", "document.querySelector('h1')?.textContent === 'Play'"},
		{"scene", "#/play/ada", "document.querySelector('[data-turn] .choice') && document.querySelector('.picture img')?.naturalWidth > 0"},
		{"tools", "#/tools", rows + " > 5"},
		{"tool", "#/tools/shout", "document.querySelector('form input')"},
		{"live", "#/live", rows + " > 5"},
		{"call", "#/live/torch-1", "document.querySelector('section[aria-label=Events] ol li')"},
		{"failed-call", "#/live/read-1", "document.querySelector('section.failure')"},
		{"turn", "#/live/turn-1", "document.querySelector('section[aria-label=Stages]')"},
		{"plans", "#/plans", "document.querySelector('[data-plan]')"},
		{"plan", "#/plans/" + plan, "document.querySelector('.graph [data-state=success]')"},
		{"new-plan", "#/plans/new", "document.querySelector('textarea')"},
		{"audit", "#/audit", rows + " > 5 && document.querySelectorAll('figure canvas').length === 3 && document.querySelector('section[aria-label=Errors] li')"},
		{"connections", "#/connections", "document.querySelector('h1')?.textContent === 'Connections'"},
		{"sources", "#/operate", "document.querySelector('[data-source]')"},
		{"add-source", "#/operate/sources?add=mcp", "document.querySelector('[data-adding=mcp] input')"},
		{"approvals", "#/operate/approvals", "document.querySelector('#history')"},
		{"jobs", "#/operate/jobs", "document.querySelector('#jobs')"},
		{"limits", "#/operate/limits", "document.querySelector('[role=meter]')"},
		{"callers", "#/operate/callers", "document.querySelector('[data-token]')"},
		{"leases", "#/operate/leases", "document.querySelector('[data-lease]')"},
		{"policy", "#/operate/policy", "document.querySelector('#policy form')"},
		{"config", "#/operate/config", "document.querySelector('[data-line]')"},
		{"no-fleet", "#/fleet", "document.querySelector('.empty code')"},
	}
}

// check lets axe check the page. The test injects axe, bypassing the page's policy.
func check(t *testing.T, p *browser.Page, axe, what string) {
	t.Helper()
	var has bool
	if p.Eval("'axe' in window", &has); !has { // it is half a megabyte
		p.Eval("(() => {"+axe+"})()", nil)
	}
	var found []string
	p.Eval("axe.run().then((r) => r.violations.map((v) => v.impact + ' ' + v.id + ': ' + v.help + ' ' + "+
		"v.nodes.map((n) => n.html.slice(0, 200) + ' ' + n.failureSummary).join(' | ')))", &found)
	for _, one := range found {
		t.Errorf("%s: %s", what, one)
	}
}
