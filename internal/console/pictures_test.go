package console

import (
	"os"
	"path/filepath"
	"testing"

	"toolpost/internal/browser"
	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// TestPictures takes pictures of every view, with content and in every look, if TOOLPOST_PICTURES names a folder for
// them.
func TestPictures(t *testing.T) {
	folder := os.Getenv("TOOLPOST_PICTURES")
	if folder == "" {
		t.Skip("make screenshots takes them")
	}
	w := world{browser: browser.Start(t), bin: served.Build(t)}
	s := w.demo(t, "")
	someCalls(t, s, 40, 0) // for the plots
	all := contents(t, s)
	asks, _ := w.asks(t)
	_, id := asCI(t, asks, "b.txt", "")
	kit.Must(asks.Call(t.Context(), "approvals.decide", `{"id":"`+id+`","approve":false,"reason":"not on a Friday"}`))(t)
	writesAsCI(t, asks)
	waits := w.waits(t)
	for _, tool := range []string{"greeter", "breaks"} {
		kit.Must(waits.Call(t.Context(), "startJob", `{"tool": "`+tool+`"}`))(t)
	}
	fleet := w.fleet(t)
	for _, look := range browser.Looks() {
		p := w.browser.Page(t, look)
		p.Forgive(refusals)
		take := func(name string) {
			picture(p, filepath.Join(folder, name+"-"+look.String()+".png"))
		}
		p.Open(s.URL())
		p.WaitText("Sign in to Toolpost")
		take("sign-in")
		p.SignIn(s, "#/tools")
		for _, one := range all {
			p.Eval("void (location.hash = '"+one.hash+"')", nil)
			p.Wait(one.until)
			take(one.name)
		}
		p.Eval("void (location.hash = '#/tools')", nil)
		p.Press("Control+k")
		p.WaitDialog("Commands")
		take("palette")
		p.Press("Escape")
		p.Wait("!document.querySelector('dialog[open]')")
		opens(p, "?", "Keys")
		take("keys")
		p.SignIn(asks, "#/overview")
		for name, hash := range map[string]string{"overview": "#/overview", "live": "#/live", "tool": "#/tools/writeFile", "history": "#/operate/approvals"} {
			p.Eval("void (location.hash = '"+hash+"')", nil)
			p.Wait("document.querySelector('[data-approval]')")
			take("approval-" + name)
		}
		p.SignIn(fleet, "#/fleet")
		for _, one := range fleetContents {
			p.Eval("void (location.hash = '"+one.hash+"')", nil)
			p.Wait(one.until)
			take(one.name)
		}
		p.SignIn(waits, "#/overview")
		p.WaitText("2 things wait for you")
		take("waits")
		p.Click("link", "Answer")
		p.Wait("document.querySelector('aside form') && document.querySelector('aside ol')")
		take("waits-job")
	}
}

// picture takes a picture of a page once all that it fetches to be drawn is there: drawings, other images and fonts.
func picture(p *browser.Page, path string) {
	p.Wait("!document.querySelector('[data-how=svg]:not(:has(img))')")
	p.Wait("Promise.all([...document.images].map((i) => i.decode())).then(() => true)")
	p.Wait("document.fonts.ready.then(() => new Promise(requestAnimationFrame))")
	p.Picture(path)
}
