package console

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"toolpost/internal/browser"
)

// twice makes a page receive every item of every list from the server twice, even those that are unique today and
// promised to be.
const twice = `(() => {
	const twice = (v) => Array.isArray(v) ? v.flatMap((x) => [twice(x), twice(x)])
		: v && typeof v === 'object' ? Object.fromEntries(Object.entries(v).map(([k, x]) => [k, twice(x)])) : v
	const { json } = Response.prototype
	Response.prototype.json = function () { return json.call(this).then(twice) }
	const { parse } = JSON
	JSON.parse = (text, ...more) => twice(parse(text, ...more))
})()`

// A view continues to draw despite duplicates: one key for two rows would stop the whole page.
func nothingTwiceStopsAView(t *testing.T, w world) {
	s := w.demo(t, "")
	all := contents(t, s)
	p := w.browser.Page(t, browser.Look{})
	p.Forgive(refusals)
	p.Ask("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": twice}, nil)
	p.SignIn(s, "#/tools")
	for _, one := range all {
		p.Eval("void (location.hash = '"+one.hash+"')", nil)
		p.Wait(one.until)
		if one.name == "scene" { // unique items are counted once
			p.Wait("Number(document.querySelector('aside h2 .muted').textContent) === document.querySelectorAll('aside [aria-label=Assets] li').length")
		}
	}
	for key, dialog := range map[string]string{"?": "Keys", "Control+k": "Commands"} {
		opens(p, key, dialog)
		p.Press("Escape")
		p.Wait("!document.querySelector('dialog[open]')")
	}
	p.Eval("void (location.hash = '#/tools')", nil) // navigation still works
	p.WaitFor("heading", "Tools")
}

// A click opens the row on which it began, however many calls have arrived since.
func clickIsForWhatWasPressed(t *testing.T, w world) {
	s := w.serve(t, strings.Replace(plain, "[{", "[{name: long, protocol: command, tool: nap, command: [sleep, '60']}, {", 1))
	p := w.browser.Page(t, browser.Look{})
	p.SignIn(s, "#/live")
	if said, err := s.Raw(t.Context(), "readFile", `{"path":"toolpost.yaml"}`, "Toolpost-Call", "pressed"); err != nil {
		t.Fatal(said, err)
	}
	p.Wait("document.querySelector('[role=option]')?.innerText.includes('readFile')")
	var at struct{ X, Y float64 }
	p.Eval("(({x, y}) => ({X: x + 20, Y: y + 10}))(document.querySelector('[role=option]').getBoundingClientRect())", &at)
	mouse := func(kind string) {
		p.Ask("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil)
	}
	const running = "Number([...document.querySelectorAll('nav a')].find((a) => a.innerText.includes('Live'))?.querySelector('.badge')?.textContent ?? 0)"
	var before int
	p.Eval(running, &before)
	mouse("mouseMoved")
	mouse("mousePressed")
	someCalls(t, s, 20, 0)
	ctx, end := context.WithCancel(t.Context())
	var napping sync.WaitGroup
	napping.Go(func() { _, _ = s.Raw(ctx, "nap", "{}") })
	defer napping.Wait()
	defer end()
	p.Wait(fmt.Sprintf("%s > %d", running, before)) // the page knows of all of them
	mouse("mouseReleased")
	p.Wait("location.hash.startsWith('#/live/pressed')")
	p.Wait("document.querySelector('[role=option]').innerText.includes('nap')") // and the list goes on
}
