package console

import (
	"testing"
	"time"

	"toolpost/internal/browser"
	"toolpost/internal/rounds"
	"toolpost/internal/served"
)

// A page that watches a hundred calls a second stays usable, and its memory does not grow.
func streamIsBounded(t *testing.T, w world) {
	s := w.serve(t, plain)
	p := w.browser.Page(t, browser.Look{})
	p.SignIn(s, "#/live")
	p.WaitFor("heading", "Live")
	const kept = 2000 // maximum number of calls that the page keeps
	pour(t, s, kept+1000, 0)
	use := func() {
		t.Helper()
		p.Click("link", "Tools")
		p.WaitFor("heading", "Tools")
		p.Eval("void (location.hash = '#/tools/readFile')", nil)
		p.Type("textbox", "path", "toolpost.yaml")
		p.Press("Control+Enter")
		p.WaitText("protocol: builtin")
		p.Click("link", "Live")
		p.WaitFor("heading", "Live")
		p.Wait("document.querySelector('[role=option]')")
	}
	use()
	shows(t, p, s)
	var has int
	if p.Eval("Number(document.querySelector('[role=option]').ariaSetSize)", &has); has > kept || has < kept/2 {
		t.Errorf("of %d calls the page has %d", kept+1000, has)
	}
	heap, nodes := p.Memory()

	done := make(chan struct{})
	more := rounds.Of(300, 6000)
	go func() {
		defer close(done)
		pour(t, s, more, 10*time.Millisecond)
	}()
	use()
	<-done
	pour(t, s, 3*more, 0)
	more *= 4
	shows(t, p, s)
	heapAfter, nodesAfter := p.Memory()
	t.Logf("%d calls: %d bytes and %d nodes, then %d and %d", more, heap, nodes, heapAfter, nodesAfter)
	// A kept call takes half a kilobyte, and a row of the list has ten nodes. Other actions in the meantime leave a
	// little.
	if heapAfter > heap+500_000+100*more || nodesAfter > nodes+more {
		t.Errorf("after %d calls more it holds %d bytes and %d nodes, before %d and %d", more, heapAfter, nodesAfter, heap, nodes)
	}
}

// pour makes one call per tick; 0 means as fast as possible.
func pour(t *testing.T, s *served.Server, calls int, tick time.Duration) {
	t.Helper()
	next := make(<-chan time.Time)
	if tick > 0 {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		next = ticker.C
	}
	for range calls {
		if tick > 0 {
			<-next
		}
		if o, err := s.Call(t.Context(), "statFile", `{"path":"toolpost.yaml"}`); err != nil || !o.OK {
			t.Errorf("%+v, %v", o, err)
			return
		}
	}
}

// shows makes a call and waits until it is first in the list.
func shows(t *testing.T, p *browser.Page, s *served.Server) {
	t.Helper()
	someCalls(t, s, 0, 1)
	p.Wait("document.querySelector('[role=option]').innerText.includes('not_found')")
}
