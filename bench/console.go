package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"toolpost/bench/attempt"
	"toolpost/internal/browser"
	"toolpost/tool"
)

// consolePage compares the time from requesting the console until it can be used, signed in and with an empty cache, with
// a page of the same size that has only a heading. The times come from the browser's own clock.
func consolePage(ctx context.Context, l *lab) row {
	c, ok := l.console(ctx, "page")
	if !ok {
		return noBrowser
	}
	ours := c.page()
	ours.Open(c.url + c.link())
	ours.Wait("window.usable > 0")
	size := c.weigh(ours)
	bare := c.page()
	bare.Open(c.barePage(size))
	m, r := compare(15, reload(ours), reload(bare))
	one := longer(m, r, ms)
	one.note = fmt.Sprintf("%d kB", size/1000)
	return one
}

// consoleClick measures the time from a click on a filter of the list of calls until the list is redrawn, while a hundred
// calls a second stream into it, against the same click without calls.
func consoleClick(ctx context.Context, l *lab) row {
	c, ok := l.console(ctx, "click")
	if !ok {
		return noBrowser
	}
	p := c.page()
	p.Open(c.url + c.link())
	p.Wait("window.usable > 0")
	p.Eval("void (location.hash = '#/live')", nil)
	attempt.Check(c.pour(ctx, 100, 0))
	p.Wait("document.querySelector('[role=option]')")
	click(p) // warms up, and does not count
	const clicks = 15
	var calm, busy []time.Duration
	for range clicks {
		calm = append(calm, click(p))
	}
	ctx, stop := context.WithCancel(ctx)
	var stream errgroup.Group
	stream.Go(func() error { return c.pour(ctx, 0, 10*time.Millisecond) })
	err := attempt.Do(func() {
		for range clicks {
			busy = append(busy, click(p))
		}
	})
	stop()
	attempt.Check(errors.Join(err, stream.Wait()))
	return longer(median(busy), median(calm), ms)
}

var noBrowser = row{skipped: true, note: "skipped: chromium is missing; `make setup` installs it"}

// A consoled is a server with a browser on its console.
type consoled struct {
	*trial
	url     string
	handler tool.Handler
	browser *browser.Browser
}

// console starts both. It returns false if there is no browser.
func (l *lab) console(ctx context.Context, name string) (c *consoled, ok bool) {
	if _, err := exec.LookPath("chromium"); err != nil {
		return nil, false
	}
	c = &consoled{trial: &trial{ctx: ctx, l: l, dir: filepath.Join(l.dir, "browser-"+name)}}
	l.atEnd(func() error { return c.failed })
	n, url := l.serveNode(ctx, filepath.Join(l.dir, "console-"+name), echoConfig)
	c.url, c.handler = url, n.Handler()
	c.browser = browser.Start(c)
	return c, true
}

// usable records when the heading of a view exists and is drawn.
const usable = `new MutationObserver((_, o) => {
	if (!document.querySelector('#page-title')) return;
	o.disconnect();
	requestAnimationFrame(() => { window.usable = performance.now(); });
}).observe(document, {childList: true, subtree: true})`

// page opens a tab that caches nothing.
func (c *consoled) page() *browser.Page {
	p := c.browser.Page(c, browser.Look{})
	p.Ask("Network.setCacheDisabled", map[string]any{"cacheDisabled": true}, nil)
	p.Ask("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": usable}, nil)
	return p
}

// reload loads a page again and returns the time from its request until it could be used.
func reload(p *browser.Page) timed {
	return func() (time.Duration, error) {
		p.Eval("void (window.before = true)", nil)
		p.Reload()
		p.Wait("!window.before && window.usable > 0")
		var millis float64
		p.Eval("window.usable", &millis)
		return time.Duration(millis * float64(time.Millisecond)), nil
	}
}

// weigh counts the bytes loaded for a page.
func (c *consoled) weigh(p *browser.Page) (size int) {
	before := len(p.Requests())
	attempt.Must(reload(p)())
	p.Wait("new Promise((done) => setTimeout(done, 500, true))") // leave time for the last requests, which the page does not wait for
	for _, r := range p.Requests()[before:] {
		size += r.Bytes
	}
	return size
}

// barePage serves a page of the given size.
func (c *consoled) barePage(size int) string {
	page := []byte("<!doctype html><title>bare</title><!--")
	page = append(page, bytes.Repeat([]byte("bare "), size/5)...)
	page = append(page, "--><h1 id=page-title>Bare</h1>"...)
	return c.l.serveHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" { // browsers ask for an icon
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	})).URL
}

// link returns a link that signs the owner in.
func (c *consoled) link() string {
	header := http.Header{"Authorization": {"Bearer " + benchToken}}
	body := attempt.Must(post(c.ctx, http.DefaultClient, c.url+"/v1/tools/console.link/call", header, "{}"))
	var made struct {
		Output struct {
			Path string `json:"secret_path"`
		} `json:"output"`
	}
	attempt.Check(json.Unmarshal(body, &made))
	return made.Output.Path
}

// pour makes one call per tick: the given number of calls, or, if that is 0, until ctx ends.
func (c *consoled) pour(ctx context.Context, calls int, tick time.Duration) error {
	ticker := time.NewTicker(max(tick, time.Microsecond))
	defer ticker.Stop()
	for n := 0; calls == 0 || n < calls; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		call := &tool.Call{Tool: "look", Caller: tool.Principal{ID: "bench", Door: "http"}}
		if _, err := invoke(context.WithoutCancel(ctx), c.handler, call); err != nil {
			return err
		}
	}
	return nil
}

// clicked records the time from the next click until the list is empty, since no call failed.
const clicked = `void (() => {
	window.took = 0;
	let from = 0;
	addEventListener('click', (e) => { from = e.timeStamp; }, {capture: true, once: true});
	new MutationObserver((_, o) => {
		if (!from || document.querySelector('[role=option]')) return;
		o.disconnect();
		requestAnimationFrame(() => { window.took = performance.now() - from; });
	}).observe(document, {childList: true, subtree: true});
})()`

// click makes the list show the failed calls, and then all of them again.
func click(p *browser.Page) time.Duration {
	p.Eval(clicked, nil)
	p.Click("button", "Not ok")
	p.Wait("window.took > 0")
	var millis float64
	p.Eval("window.took", &millis)
	p.Click("button", "All")
	p.Wait("document.querySelector('[role=option]')")
	return time.Duration(millis * float64(time.Millisecond))
}

// A trial is a measurement that takes the place of a test for package browser.
type trial struct {
	ctx    context.Context
	l      *lab
	dir    string
	failed error
}

var _ browser.T = (*trial)(nil)

func (t *trial) Helper()                  {}
func (t *trial) Context() context.Context { return t.ctx }
func (t *trial) Cleanup(f func())         { t.l.atEnd(func() error { f(); return nil }) }

// TempDir returns a folder that is removed with all other files of the run.
func (t *trial) TempDir() string {
	attempt.Check(os.MkdirAll(t.dir, 0o755))
	return t.dir
}

func (t *trial) Errorf(format string, args ...any) {
	t.failed = errors.Join(t.failed, fmt.Errorf(format, args...))
}
func (t *trial) Fatalf(format string, args ...any) { attempt.Check(fmt.Errorf(format, args...)) }
func (t *trial) Skip(args ...any)                  { attempt.Check(errors.New(fmt.Sprint(args...))) }
