package browser

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/internal/served"
	"toolpost/wire/strictjson"
)

// A Page is one tab.
type Page struct {
	t       T
	wire    *wire
	session string

	mu         sync.Mutex
	complaints []string
	forgiven   []string
	requests   []*Request
	byID       map[string]*Request
}

// A Request is a request that the page has sent.
type Request struct {
	Method string
	URL    string
	Status int
	Bytes  int // transferred for it, including headers
}

// thrown is an exception of JavaScript.
type thrown struct {
	Text      string `json:"text"`
	Exception struct {
		Description string `json:"description"`
	} `json:"exception"`
}

// String returns the message that people see.
func (t thrown) String() string { return t.Text + " " + t.Exception.Description }

func (p *Page) ask(method string, params, into any) {
	p.t.Helper()
	if params == nil {
		params = struct{}{}
	}
	ctx, cancel := patience()
	defer cancel()
	if err := p.wire.ask(ctx, p.session, method, params, into); err != nil {
		p.t.Fatalf("%v", err)
	}
}

// Ask sends the page a command of the DevTools protocol, for tasks that have no method here.
func (p *Page) Ask(method string, params, into any) {
	p.t.Helper()
	p.ask(method, params, into)
}

// maxComplaints is how many complaints are kept: the first ones are the useful ones.
const maxComplaints = 20

// heard records the browser's events of the page.
func (p *Page) heard(method string, params json.RawMessage) {
	var e struct {
		RequestID string `json:"requestId"`
		Request   struct {
			URL    string `json:"url"`
			Method string `json:"method"`
		} `json:"request"`
		Response struct {
			Status int `json:"status"`
		} `json:"response"`
		EncodedDataLength float64 `json:"encodedDataLength"`

		Type  string `json:"type"`
		Entry struct {
			Level string `json:"level"`
			Text  string `json:"text"`
			URL   string `json:"url"`
		} `json:"entry"`
		Details thrown `json:"exceptionDetails"`
	}
	if strictjson.Unmarshal(params, &e) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	complain := func(text string) { // a loop would repeat the same for ever
		if len(p.complaints) < maxComplaints && !slices.Contains(p.complaints, text) {
			p.complaints = append(p.complaints, text)
		}
	}
	switch method {
	case "Network.requestWillBeSent":
		r := &Request{Method: e.Request.Method, URL: e.Request.URL}
		p.requests = append(p.requests, r)
		if p.byID == nil {
			p.byID = map[string]*Request{}
		}
		p.byID[e.RequestID] = r
	case "Network.responseReceived":
		if r := p.byID[e.RequestID]; r != nil {
			r.Status = e.Response.Status
		}
	case "Network.loadingFinished":
		if r := p.byID[e.RequestID]; r != nil {
			r.Bytes = int(e.EncodedDataLength)
		}
	case "Runtime.exceptionThrown":
		complain(e.Details.String())
	case "Runtime.consoleAPICalled":
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			complain(fmt.Sprintf("%s %s", e.Type, params))
		}
	case "Page.javascriptDialogOpening":
		p.complaints = append(p.complaints, fmt.Sprintf("a dialog %s", params))
	case "Log.entryAdded":
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			complain(strings.TrimSpace(e.Entry.Text + " " + e.Entry.URL))
		}
	}
}

// Forgive names expected complaints by a part of their text: a browser complains about every response with an error
// status.
func (p *Page) Forgive(parts ...string) { p.forgiven = append(p.forgiven, parts...) }

// Complaints returns the browser's complaints: exceptions, errors in its console, violations of the policy.
func (p *Page) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.complaints), func(text string) bool {
		return slices.ContainsFunc(p.forgiven, func(part string) bool { return strings.Contains(text, part) })
	})
}

// Requests lists the requests that the page has sent so far.
func (p *Page) Requests() (all []Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		all = append(all, *r)
	}
	return all
}

// SetLook makes the page light or dark. It requests reduced motion, so that elements are already in their final place.
func (p *Page) SetLook(l Look) {
	p.t.Helper()
	scheme := "light"
	if l.Dark {
		scheme = "dark"
	}
	p.ask("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"},
	}}, nil)
}

// SetOffline disconnects the page from the network, or reconnects it.
func (p *Page) SetOffline(offline bool) {
	p.t.Helper()
	p.ask("Network.emulateNetworkConditions", map[string]any{
		"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1,
	}, nil)
}

// SignIn signs in to the console of a server as its owner, by a link, and goes to an address such as #/tools.
func (p *Page) SignIn(s *served.Server, hash string) {
	p.t.Helper()
	p.Open(s.URL() + Link(p.t, s))
	p.WaitFor("navigation", "Views")
	p.Eval("void (location.hash = "+quoted(hash)+")", nil)
}

// Link makes a sign-in link for the owner of a server, and returns the part after the server's address.
func Link(t T, s *served.Server) string {
	t.Helper()
	made, err := s.Call(t.Context(), "console.link", "{}")
	path, _ := made.Output["secret_path"].(string)
	if err != nil || path == "" {
		t.Fatalf("no link: %+v, %v", made, err)
	}
	return path
}

// Open goes to an address.
func (p *Page) Open(url string) {
	p.t.Helper()
	var went struct {
		ErrorText string `json:"errorText"`
	}
	p.ask("Page.navigate", map[string]any{"url": url}, &went)
	if went.ErrorText != "" {
		p.t.Fatalf("%s: %s", url, went.ErrorText)
	}
}

// Reload loads the page again.
func (p *Page) Reload() {
	p.t.Helper()
	p.ask("Page.reload", nil, nil)
}

// Eval evaluates a JavaScript expression, waits if it is a promise, and reads its value.
func (p *Page) Eval(expression string, into any) {
	p.t.Helper()
	if err := p.eval(expression, into); err != nil {
		p.t.Fatalf("%.200s: %v", expression, err)
	}
}

func (p *Page) eval(expression string, into any) error {
	ctx, cancel := patience()
	defer cancel()
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Failed *thrown `json:"exceptionDetails"`
	}
	err := p.wire.ask(ctx, p.session, "Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true,
	}, &r)
	switch {
	case err != nil:
		return err
	case r.Failed != nil:
		return errors.New(r.Failed.String())
	case into == nil || len(r.Result.Value) == 0:
		return nil
	}
	return strictjson.Unmarshal(r.Result.Value, into)
}

// Wait waits until an expression, or its promise, is true.
func (p *Page) Wait(expression string) {
	p.t.Helper()
	p.until(expression, func() bool {
		var is bool
		// While a page loads it cannot be evaluated, and the expression's subject may not exist yet.
		return p.eval("Promise.resolve("+expression+").then(Boolean)", &is) == nil && is
	})
}

// WaitText waits until the page shows a text.
func (p *Page) WaitText(text string) {
	p.t.Helper()
	p.Wait("document.body?.innerText.includes(" + quoted(text) + ")")
}

// WaitNoText waits until the page does not show a text.
func (p *Page) WaitNoText(text string) {
	p.t.Helper()
	p.Wait("!document.body.innerText.includes(" + quoted(text) + ")")
}

// Text returns the text that the page shows.
func (p *Page) Text() (text string) {
	p.t.Helper()
	p.Eval("document.body.innerText", &text)
	return text
}

func (p *Page) until(what string, done func() bool) {
	p.t.Helper()
	for end := time.Now().Add(Hang); !done(); time.Sleep(20 * time.Millisecond) {
		if err := p.t.Context().Err(); err != nil { // the test was interrupted
			p.t.Fatalf("in vain for %s: %v", what, err)
		}
		if time.Now().After(end) {
			var text string
			_ = p.eval("document.body.innerText", &text)
			p.t.Fatalf("in vain for %s; complaints: %q; the page says:\n%s", what, p.Complaints(), text)
		}
	}
}

// An element is something that people can find: it has a role and a name.
type element struct {
	Node int `json:"backendDOMNodeId"`
	Name struct {
		Value string `json:"value"`
	} `json:"name"`
	Ignored bool `json:"ignored"`
}

// find waits for an element, as assistive technology finds it. An exact match of the name comes before names that contain
// it; the name "" matches any.
func (p *Page) find(role, name string) (found element) {
	p.t.Helper()
	p.until(fmt.Sprintf("the %s %q", role, name), func() bool {
		var ok bool
		found, ok = p.look(role, name)
		return ok
	})
	return found
}

func (p *Page) look(role, name string) (element, bool) {
	var root struct {
		Root struct {
			Node int `json:"backendNodeId"`
		} `json:"root"`
	}
	var tree struct {
		Nodes []element `json:"nodes"`
	}
	ctx, cancel := patience()
	defer cancel()
	err := p.wire.ask(ctx, p.session, "DOM.getDocument", map[string]any{"depth": 0}, &root)
	if err == nil {
		which := map[string]any{"backendNodeId": root.Root.Node, "role": role}
		err = p.wire.ask(ctx, p.session, "Accessibility.queryAXTree", which, &tree)
	}
	if err != nil {
		return element{}, false // the page is just being replaced
	}
	nodes := slices.DeleteFunc(tree.Nodes, func(e element) bool {
		return e.Ignored || !strings.Contains(e.Name.Value, name)
	})
	slices.SortStableFunc(nodes, func(a, b element) int { return len(a.Name.Value) - len(b.Name.Value) })
	if len(nodes) == 0 {
		return element{}, false
	}
	return nodes[0], true
}

// Has reports whether an element exists now.
func (p *Page) Has(role, name string) bool {
	_, ok := p.look(role, name)
	return ok
}

// HasDialog reports whether a dialog is open, by its label or its text. It checks the page itself: on a busy machine the
// accessibility tree, in which everything else is found, may show a dialog more than a minute late.
func (p *Page) HasDialog(name string) (open bool) {
	p.t.Helper()
	p.Eval("[...document.querySelectorAll('dialog[open]')].some((d) => (d.ariaLabel + d.innerText).includes("+quoted(name)+"))",
		&open)
	return open
}

// WaitDialog waits for a dialog that is open.
func (p *Page) WaitDialog(name string) {
	p.t.Helper()
	p.until(fmt.Sprintf("the dialog %q", name), func() bool { return p.HasDialog(name) })
}

// WaitFor waits for an element.
func (p *Page) WaitFor(role, name string) {
	p.t.Helper()
	p.find(role, name)
}

// Click clicks in the middle of an element, with a mouse, as people do: an element that covers it gets the click.
func (p *Page) Click(role, name string) {
	p.t.Helper()
	var x, y float64
	p.until(fmt.Sprintf("a place to click on the %s %q", role, name), func() (ok bool) {
		x, y, ok = p.middle(p.find(role, name))
		return ok
	})
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		p.ask("Input.dispatchMouseEvent", map[string]any{
			"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1,
		}, nil)
	}
}

func (p *Page) middle(e element) (x, y float64, ok bool) {
	ctx, cancel := patience()
	defer cancel()
	which := map[string]any{"backendNodeId": e.Node}
	var box struct {
		Quads [][]float64 `json:"quads"`
	}
	if p.wire.ask(ctx, p.session, "DOM.scrollIntoViewIfNeeded", which, nil) != nil ||
		p.wire.ask(ctx, p.session, "DOM.getContentQuads", which, &box) != nil || len(box.Quads) == 0 {
		return 0, 0, false
	}
	q := box.Quads[0]
	x, y = (q[0]+q[2]+q[4]+q[6])/4, (q[1]+q[3]+q[5]+q[7])/4
	var inside bool
	err := p.eval(fmt.Sprintf("%g >= 0 && %g < innerWidth && %g >= 0 && %g < innerHeight", x, x, y, y), &inside)
	return x, y, err == nil && inside // elsewhere a click reaches nothing
}

// Type clicks into a field and replaces its content with a text.
func (p *Page) Type(role, name, text string) {
	p.t.Helper()
	p.Click(role, name)
	p.Eval("document.activeElement.select?.()", nil)
	p.ask("Input.insertText", map[string]any{"text": text}, nil)
}

// Press presses keys, one after the other: a letter, or the name of a key, with the prefix Control+ if that is held.
func (p *Page) Press(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		press := map[string]any{"type": "keyDown"}
		if rest, ok := strings.CutPrefix(key, "Control+"); ok {
			key, press["modifiers"] = rest, 2
		}
		press["key"] = key
		if len(key) == 1 && press["modifiers"] == nil {
			press["text"] = key
		}
		codes := map[string]int{"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38}
		if code := codes[key]; code != 0 {
			press["windowsVirtualKeyCode"] = code
		}
		if key == "Enter" {
			press["text"] = "\r"
		}
		p.ask("Input.dispatchKeyEvent", press, nil)
		press["type"] = "keyUp"
		delete(press, "text")
		p.ask("Input.dispatchKeyEvent", press, nil)
	}
}

// Memory returns what the page holds after garbage collection: bytes of JavaScript's values, and nodes of its documents.
func (p *Page) Memory() (heap, nodes int) {
	p.t.Helper()
	p.ask("HeapProfiler.collectGarbage", nil, nil)
	var used struct {
		Size float64 `json:"usedSize"`
	}
	var dom struct {
		Nodes int `json:"nodes"`
	}
	p.ask("Runtime.getHeapUsage", nil, &used)
	p.ask("Memory.getDOMCounters", nil, &dom)
	return int(used.Size), dom.Nodes
}

// Picture writes the visible part of the page to a PNG file.
func (p *Page) Picture(path string) {
	p.t.Helper()
	var shot struct {
		Data string `json:"data"`
	}
	p.ask("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	b, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		p.t.Fatalf("%v", err)
	}
}

func quoted(text string) string {
	b, _ := strictjson.Marshal(text) // a string
	return string(b)
}
