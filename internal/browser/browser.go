// Package browser drives a real Chromium, in tests and for measurements: it opens the console as people do, clicks
// elements by role and name, presses keys, waits for conditions, takes pictures, and collects the browser's complaints.
package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"toolpost/internal/kit"
)

// A T is the part of a test that the package needs: every testing.TB is one.
type T interface {
	Helper()
	Context() context.Context
	TempDir() string
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skip(args ...any)
}

// Hang is the bound of waits that only guard against a hang.
const Hang = time.Minute

// A Browser is a Chromium without a window.
type Browser struct {
	wire *wire
}

// Start starts a browser, which ends with the test. If Chromium is missing, the test is skipped, except with CI=true.
func Start(t T) *Browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("chromium is missing: .ci/setup chromium")
		}
		t.Skip("chromium is missing: .ci/setup chromium")
	}
	toRead, toWrite, err := os.Pipe()
	if err != nil {
		t.Fatalf("%v", err)
	}
	fromRead, fromWrite, err := os.Pipe()
	if err != nil {
		t.Fatalf("%v", err)
	}
	var said kit.Buffer
	cmd := exec.CommandContext(context.Background(), program, flags(t.TempDir())...)
	cmd.ExtraFiles = []*os.File{toRead, fromWrite} // 3 and 4, as the flag for pipes expects
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v", err)
	}
	toRead.Close()
	fromWrite.Close()
	b := &Browser{newWire(toWrite)}
	var reading sync.WaitGroup
	reading.Go(func() { b.wire.listen(fromRead) })
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with all processes that it started
		_ = cmd.Wait()
		toWrite.Close()
		fromRead.Close()
		reading.Wait()
	})
	ctx, cancel := patience()
	defer cancel()
	if err := b.wire.ask(ctx, "", "Browser.getVersion", struct{}{}, nil); err != nil {
		t.Fatalf("chromium does not start: %v\n%s", err, said.String())
	}
	return b
}

// flags returns the browser's flags. It only loads our own pages, so it needs no sandbox of its own, which root could not
// have.
func flags(dir string) []string {
	return []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--mute-audio",
		"--no-first-run", "--no-default-browser-check", "--disable-extensions", "--disable-sync", "--disable-breakpad",
		"--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--no-proxy-server",
		"--disable-features=Translate,MediaRouter,OptimizationHints", "--force-color-profile=srgb", "--hide-scrollbars",
		"--disable-renderer-backgrounding", "--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows", // several pages are used at once
		"--font-render-hinting=none", "--lang=en-US", "--user-data-dir=" + filepath.Join(dir, "profile"),
	}
}

// A Look is a device and a colour scheme. The zero value is a desktop in light colours.
type Look struct {
	Phone bool
	Dark  bool
}

// Looks lists all looks.
func Looks() []Look { return []Look{{}, {Dark: true}, {Phone: true}, {Phone: true, Dark: true}} }

// String names a look, for files and tests.
func (l Look) String() string {
	device, light := "desktop", "light"
	if l.Phone {
		device = "phone"
	}
	if l.Dark {
		light = "dark"
	}
	return device + "-" + light
}

func (l Look) size() (width, height int) {
	if l.Phone {
		return 390, 844
	}
	return 1440, 900
}

// Page opens an empty page, with its own cookies. The test fails if the browser complains about the page; see
// Page.Forgive.
func (b *Browser) Page(t T, look Look) *Page {
	t.Helper()
	p := &Page{t: t, wire: b.wire}
	var context, target, session struct {
		ID      string `json:"browserContextId"`
		Target  string `json:"targetId"`
		Session string `json:"sessionId"`
	}
	p.ask("Target.createBrowserContext", nil, &context)
	p.ask("Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": context.ID}, &target)
	p.ask("Target.attachToTarget", map[string]any{"targetId": target.Target, "flatten": true}, &session)
	p.session = session.Session
	b.wire.hear(p.session, p.heard)
	t.Cleanup(func() {
		b.wire.hear(p.session, nil)
		p.session = ""
		ctx, cancel := patience()
		defer cancel()
		_ = b.wire.ask(ctx, "", "Target.disposeBrowserContext", map[string]any{"browserContextId": context.ID}, nil)
		if complaints := p.Complaints(); len(complaints) > 0 {
			t.Errorf("the browser complains: %q", complaints)
		}
	})
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "DOM", "Accessibility"} {
		p.ask(domain+".enable", nil, nil)
	}
	width, height := look.size()
	p.ask("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": look.Phone,
	}, nil)
	p.ask("Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil) // a test beside this one may have another page
	p.ask("Emulation.setTimezoneOverride", map[string]any{"timezoneId": noon(time.Now())}, nil)
	p.SetLook(look)
	return p
}

// noon returns a time zone in which it is about noon, so that the day of a page does not end during a test.
func noon(now time.Time) string { return fmt.Sprintf("Etc/GMT%+d", now.UTC().Hour()-12) } // there + is west of Greenwich

// patience bounds a wait that only guards against a hang.
func patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), Hang)
}
