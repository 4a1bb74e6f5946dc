package console

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/internal/browser"
	"toolpost/internal/kit"
	"toolpost/internal/served"
	"toolpost/wire/strictjson"
)

// wicked is text that tries to be more than text: to run, to link elsewhere, to hide, to reorder its neighbours.
const wicked = `<script>pwned=1</script><img src=x onerror=pwned=1>"'><svg onload=pwned=1><a href="javascript:pwned=1">` +
	"{@html '<b>'}\u202egnol\u2066\u200b\ufeff\x1b[31m\x07"

// plainly is the part of it that the page must show unchanged.
const plainly = "<img src=x onerror=pwned=1>"

// wickedTool puts it into every field that a tool of the protocol can set. On request its output is large in one of three
// ways.
const wickedTool = `import json, os, sys
asked = json.loads(sys.stdin.readline())
text = asked["text"]
def say(what, **more): print(json.dumps({"version": "0", "type": what, **more}))
def file(name, content):
    path = os.path.join(os.environ.get("TMPDIR") or "/tmp", name)
    with open(path, "w") as f: f.write(content)
    return path
script = "<script>pwned=1;document.documentElement.dataset.pwned=1</script>"
drawing = file("drawing.svg", '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="pwned=1">' + script + '<rect width="9" height="9"/></svg>')
size = asked.get("size")
if size == "long":
    say("log", level="info", message="x" * (10 << 20))
    say("done", ok=True, summary=text, output={"long": text + "y" * (10 << 20)})
elif size == "many":
    say("state_patch", patch={"many": {text + str(i): i for i in range(100000)}})
    say("done", ok=True, summary="many", output={text + str(i): i for i in range(100000)})
elif size == "deep":
    deep = text
    for i in range(asked["levels"]): deep = {"d": deep} if i % 2 else [deep]
    say("ui_event", event="deep", payload={"deep": deep})
    say("done", ok=True, summary="deep", output={"deep": deep})
else:
    say("asset", assetId="drawing " + text[:180], kind="image", mediaType="image/svg+xml", path=drawing, metadata={"title": text, text: text})
    say("asset", assetId="page", kind="text", mediaType="text/html", path=file("page.html", script), metadata={"title": text})
    say("asset", assetId="plain", kind="text", mediaType="text/plain", path=file("page.txt", script), metadata={"title": text})
    say("log", level="error", message=text, fields={text: text, "link": "javascript:pwned=1", "data": "data:text/html,<script>pwned=1</script>"})
    say("state_patch", patch={text: {"__proto__": text, "constructor": text, "link": "javascript:pwned=1"}})
    say("ui_event", event=text, payload={text: [text]})
    if size == "fail":
        say("error", errorCode=text, errorMessage=text, details={text: text})
        say("done", ok=False, error={"code": text, "message": text, "details": {text: text}})
    else:
        say("done", ok=True, summary=text, output={"text": text, text: [text, "javascript:pwned=1", "data:text/html,x"]})
`

// wickedServer lists tools with hostile text in every field, one of them with an invalid name.
const wickedServer = `import json, sys
text = json.loads(sys.argv[1])
seen = text[:text.index("\u202e")]  # names and schemas with characters that cannot be seen are refused
schema = {"type": "object", "title": seen, "description": seen, "properties": {
    "plain": {"type": "string", "title": seen, "description": seen, "default": seen, "examples": [seen]},
    seen: {"type": "string", "enum": [seen, "javascript:pwned=1"], "description": seen},
    "inner": {"type": "object", "description": seen, "properties": {seen: {"const": seen}}}}}
tools = [{"name": "wellNamed", "title": text, "description": text, "inputSchema": schema, "annotations": {"title": text}},
    {"name": text, "title": text, "description": text, "inputSchema": schema}]
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    r = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": text, "version": text}},
        "tools/list": {"tools": tools}, "tools/call": {"content": [{"type": "text", "text": text}], "isError": True}}.get(m["method"])
    if m["method"] == "tools/call" and "progressToken" in m["params"].get("_meta", {}):
        about = {"progressToken": m["params"]["_meta"]["progressToken"], "progress": 1, "total": 2, "message": text}
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": about}), flush=True)
    answer = {"result": r} if r else {"error": {"code": -32601, "message": text}}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], **answer}), flush=True)
`

// guarded looks for what foreign text must never become: code that ran, an element or a link of its own, or a character
// that hides or reorders others, in what is shown and in its labels.
const guarded = `(() => {
	const found = [];
	if ('pwned' in window) found.push('script ran');
	const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/;
	for (const e of document.querySelectorAll('*')) {
		const at = () => ' at ' + e.cloneNode().outerHTML.slice(0, 200);
		for (const a of e.attributes) {
			if (a.name.startsWith('on')) found.push('handler' + at());
			if (!/^(id|data-.*|aria-activedescendant)$/.test(a.name) && hidden.test(a.value)) found.push('hidden characters in ' + a.name + at());
			if (/^(href|src|action|data|formaction)$/.test(a.name) && /^\s*(javascript|data):/i.test(a.value)) found.push('address' + at());
		}
		if (/^(iframe|object|embed|base|frame|meta)$/.test(e.localName) && e.httpEquiv) found.push('element' + at());
		if (e.localName === 'script' && !e.getAttribute('src')?.includes('assets/')) found.push('script' + at());
		if (e.localName === 'img' && !/^(blob:|http:..127.0.0.1:\d+.v1.assets.)/.test(e.src)) found.push('image' + at());
		for (const n of e.childNodes) if (n.nodeType === 3 && hidden.test(n.data)) found.push('hidden characters in text' + at() + n.data.slice(0, 100));
	}
	return [...new Set(found)].slice(0, 20);
})()`

func hostileContentIsText(t *testing.T, w world) {
	s := w.wicked(t)
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals)
	p.SignIn(s, "#/tools")
	harmless := func(where string) {
		t.Helper()
		var found []string
		p.Eval(guarded, &found)
		for _, one := range found {
			t.Errorf("%s: %s", where, one)
		}
	}
	look := func(where string) {
		t.Helper()
		harmless(where)
		kit.Contains(t, p.Text(), plainly, "%s does not show what is hostile as text", where)
	}
	visit := func(hash, until string) {
		t.Helper()
		p.Eval("void (location.hash = "+asJSON(t, hash)+")", nil)
		p.Wait(until)
		p.WaitText(plainly)
		look(hash)
	}
	visit("#/tools", "document.querySelectorAll('[role=option]').length > 3")
	visit("#/tools/wellNamed", "document.querySelector('form input, form textarea')")

	// A call from the form, a failing one, and each of the three large ones; after each the page can still be used.
	for _, one := range []struct{ size, until string }{
		{"", "document.querySelector('section[aria-label=\"What happened\"] .json')"},
		{"fail", "document.querySelector('.failure')"},
		{"long", "document.body.innerText.includes('10.5 MB')"},
		{"many", "document.body.innerText.includes('99,900 more')"},
		{"deep", "document.querySelector('section[aria-label=\"What happened\"] .json')"},
	} {
		p.Eval("void (location.hash = '#/tools')", nil)
		p.Wait("!document.querySelector('form')")
		p.Eval("void (location.hash = '#/tools/wicked')", nil)
		p.Type("textbox", "Arguments", asJSON(t, map[string]any{"text": wicked, "size": one.size, "levels": 60}))
		p.Press("Control+Enter")
		p.Wait(one.until)
		p.Wait("!document.querySelector('button.danger')") // the call has ended
		p.Eval("document.querySelectorAll('section[aria-label=\"What happened\"] ol [aria-expanded=false]').forEach((b) => b.click())", nil)
		look("a call: " + one.size)
		p.Click("link", "Open the call")
		p.Wait("document.querySelector('section[aria-label=Stages]')")
		p.Eval("document.querySelectorAll('section[aria-label=Events] ol [aria-expanded=false]').forEach((b) => b.click())", nil)
		look("the page of a call: " + one.size)
	}
	assetsAreNoPages(t, p)
	visit("#/live", "document.querySelectorAll('[role=option]').length > 5")
	visit("#/audit?code=not_found", rows+" > 0") // the list shows as many of all as fit

	// A server's progress messages, during the call and on the page of the call.
	p.Eval("void (location.hash = '#/tools/wellNamed')", nil)
	p.Wait("document.querySelector('form input, form textarea')")
	p.Press("Control+Enter")
	p.Wait("document.querySelector('.failure')")
	const progress = "[...document.querySelectorAll('ol li')].some((e) => e.innerText.includes('progress') && e.innerText.includes('1 of 2 · <script>'))"
	p.Wait(progress)
	look("progress")
	p.Click("link", "Open the call")
	p.Wait("document.querySelector('section[aria-label=Stages]')")
	p.Wait(progress)
	look("progress on the page of a call")

	jobs := startJobs(t, s)
	p.Eval("void (location.hash = '#/operate/jobs')", nil)
	p.Wait("document.querySelectorAll('[data-job]').length > 1")
	harmless("jobs")
	for _, id := range jobs {
		visit("#/operate/jobs/"+id, "document.querySelectorAll('.job ol li').length > 0 && document.querySelector('.job .json')")
	}
	visit("#/operate/callers", "document.querySelector('[data-token]')")
	visit("#/operate/config", "document.querySelector('[data-line]')")
	visit("#/overview", "document.querySelector('[data-tile=Calls]')")
	p.Press("Control+k")
	p.WaitDialog("Commands")
	look("the palette")
	p.Press("Escape")

	// A tool can still be called.
	p.Eval("void (location.hash = '#/tools/readFile')", nil)
	p.Type("textbox", "path", "toolpost.yaml")
	p.Press("Control+Enter")
	p.WaitText("protocol: narratoria")
}

// startJobs starts jobs that call hostile tools, and returns their ids when all have ended.
func startJobs(t *testing.T, s *served.Server) (ids []string) {
	t.Helper()
	for name, args := range map[string]any{"wicked": map[string]any{"text": wicked}, "wellNamed": map[string]any{}} {
		o, err := s.Call(t.Context(), "startJob", asJSON(t, map[string]any{"tool": name, "arguments": args}))
		if err != nil || !o.OK {
			t.Fatalf("%+v, %v", o, err)
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		said, err := s.Raw(t.Context(), "listJobs", `{"all":true}`)
		var r struct {
			Output struct {
				Jobs []struct{ Job, State string }
			}
		}
		if err == nil {
			err = json.Unmarshal([]byte(said), &r)
		}
		ids = ids[:0]
		for _, j := range r.Output.Jobs {
			if j.State != "queued" && j.State != "running" {
				ids = append(ids, j.Job)
			}
		}
		switch {
		case err != nil || time.Now().After(end):
			t.Fatal(said, err)
		case len(ids) == len(r.Output.Jobs):
			return ids
		}
	}
}

// assetsAreNoPages opens the drawing at its own address, as people do to see it large: the browser must download it.
func assetsAreNoPages(t *testing.T, p *browser.Page) {
	t.Helper()
	seen := 0
	for _, r := range p.Requests() {
		if !strings.Contains(r.URL, "/v1/assets/") {
			continue
		}
		seen++
		var headers []string
		p.Eval("fetch("+asJSON(t, r.URL)+`).then((r) => ['Content-Disposition', 'Content-Type', 'Content-Security-Policy',
			'X-Content-Type-Options'].map((h) => r.headers.get(h)))`, &headers)
		got := strings.Join(headers, " ")
		const closed = " sandbox; default-src 'none' nosniff"
		if strings.HasPrefix(got, "inline;") && strings.HasSuffix(got, " text/plain; charset=utf-8"+closed) {
			continue // text is shown as text
		}
		if !strings.HasPrefix(got, "attachment;") || !strings.HasSuffix(got, " application/octet-stream"+closed) {
			t.Errorf("an asset is served with %q", headers)
		}
		p.Eval("void (location.href = "+asJSON(t, r.URL)+")", nil) // a download does not navigate
	}
	if seen == 0 {
		t.Error("no drawing was shown")
	}
}

// wicked serves hostile tools to which hostile callers have made calls.
func (w world) wicked(t *testing.T) *served.Server {
	t.Helper()
	dir := t.TempDir()
	text := asJSON(t, wicked)
	for name, content := range map[string]string{
		"toolpost.yaml": "# " + strings.NewReplacer("\x1b", "", "\x07", "", "\ufeff", "").Replace(wicked) + `
sources:
  - {name: files, protocol: builtin, roots: [{path: .}]}
  - {name: wicked, protocol: narratoria, tool: wicked, description: ` + text + `, command: [python3, wicked.py], input: {type: object}, max_line: 33554432}
  - {name: server, protocol: mcp, command: [python3, server.py, ` + asJSON(t, text) + `]}
doors: {http: {}}
`,
		"wicked.py": wickedTool, "server.py": wickedServer,
	} {
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	s := served.Start(t, w.bin, dir)
	seen, _, _ := strings.Cut(wicked, "\u202e") // names have no invisible characters
	header := strings.NewReplacer("\x1b", "", "\x07", "").Replace(wicked)
	if said, err := s.Raw(t.Context(), url.PathEscape(wicked), "{}", "Toolpost-Session", header); err != nil {
		t.Fatal(said, err) // there is no such tool, and the log has its name
	}
	o, err := s.Call(t.Context(), "token.issue", asJSON(t, map[string]any{"caller": seen, "tools": []string{"*"}, "note": seen}))
	token, _ := o.Output["token"].(string)
	if err != nil || !o.OK {
		t.Fatalf("%+v, %v", o, err)
	}
	o, err = s.Call(t.Context(), "wicked", asJSON(t, map[string]any{"text": wicked}), "Authorization", "Bearer "+token, "Toolpost-Session", header)
	if err != nil || !o.OK {
		t.Fatalf("%+v, %v", o, err)
	}
	return s
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	return string(kit.Must(strictjson.Marshal(v))(t))
}
