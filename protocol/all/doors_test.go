package all_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/protocol/all"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

const limit = time.Minute // only guards against a hang

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	return kit.Must(config.Parse(filepath.Join(t.TempDir(), "toolpost.yaml"), []byte(text)))(t)
}

// byToken identifies callers by tokens that are their names, and admits anonymous callers as the door configures.
func byToken(_ context.Context, shown identity.Credentials) (tool.Principal, error) {
	switch {
	case shown.Token != "":
		return tool.Principal{ID: shown.Token, Door: shown.Door}, nil
	case shown.Anonymous != "":
		return tool.Principal{ID: shown.Anonymous, Door: shown.Door}, nil
	}
	return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "nobody knows you")
}

// A waiter is a handler: the tool wait runs until it is cancelled, any other returns its caller and the door.
type waiter struct{ began chan string }

func (w waiter) Invoke(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	if c.Tool == "wait" {
		w.began <- c.ID
		<-ctx.Done()
		return nil, tool.AsError(context.Cause(ctx))
	}
	return &tool.Result{OK: true, Output: fmt.Appendf(nil, "%q", c.Caller.ID+" at "+c.Caller.Door)}, nil
}

// A street is the open doors of a config.
type street struct {
	t     *testing.T
	url   map[string]string // by the names of doors
	began chan string
	stop  func() error
}

func openStreet(t *testing.T, text string) *street {
	t.Helper()
	tooltest.NoLeaks(t)
	s := &street{t: t, url: map[string]string{}, began: make(chan string, 8)}
	cfg := parse(t, text)
	ready := make(chan all.Listening, 8)
	doors := kit.Must(all.Doors(cfg, all.DoorOptions{
		Gate: byToken, Ready: func(l all.Listening) { ready <- l }, Known: func(name string) bool { return name == "guest" },
	}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, len(doors))
	for _, d := range doors {
		go func() { ended <- d.Serve(ctx, waiter{s.began}, tooltest.Reference{}) }()
	}
	for range cfg.Doors {
		l := <-ready
		s.url[l.Door] = l.URL
	}
	s.stop = sync.OnceValue(func() (err error) {
		cancel()
		for range doors {
			err = errors.Join(err, <-ended)
		}
		http.DefaultClient.CloseIdleConnections()
		return err
	})
	t.Cleanup(func() {
		kit.Check(t, s.stop())
	})
	return s
}

// ask sends a request, with a token unless who is empty, and returns the status and the body.
func (s *street) ask(method, url, who, body string, headers ...string) (int, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r := kit.Must(http.NewRequestWithContext(ctx, method, url, strings.NewReader(body)))(s.t)
	if who != "" {
		r.Header.Set("Authorization", "Bearer "+who)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func service(name string) string {
	return `{"protocol_version":1,"tool_name":"` + name + `","payload":{}}`
}

const sharing = `doors: {http: {listen: "127.0.0.1:0"}, namel3ss: {listen: "127.0.0.1:0", anonymous: guest}}`

func TestTwoDoorsShareOneAddress(t *testing.T) {
	s := openStreet(t, sharing)
	base := s.url["http"]
	kit.MustEqual(t, s.url["namel3ss"], base+"/tools", "two addresses: %v", s.url)
	for _, c := range []struct {
		method, path, who, body string
		status                  int
		want                    string // the beginning
	}{
		{"POST", "/v1/tools/x/call", "ada", `{}`, 200, `{"ok":true,"output":"ada at http",`},
		{"POST", "/tools", "ada", service("x"), 200, `{"ok":true,"result":"ada at namel3ss"}`},
		{"POST", "/tools", "", service("x"), 200, `{"ok":true,"result":"guest at namel3ss"}`}, // anonymous belongs to a door,
		{"POST", "/v1/tools/x/call", "", `{}`, 401, `{"ok":false,"error":{"code":`},           // not to an address
		{"GET", "/tools", "ada", "", 405, `{"ok":false,"error":{"type":`},
		{"POST", "/healthz", "ada", "", 405, `{"ok":false,"error":{"code":`},
		{"GET", "/nothing", "ada", "", 404,
			`{"ok":false,"error":{"code":"not_found","message":"nothing at /nothing: tools are at /v1/tools; POST to /tools or /capabilities/handshake; MCP is at /mcp; `},
	} {
		status, got := s.ask(c.method, base+c.path, c.who, c.body)
		if status != c.status || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s %s by %q: %d %s", c.method, c.path, c.who, status, got)
		}
	}
	if status, got := s.ask("POST", base+"/tools", "ada", service("x"), "Origin", "http://evil.example"); status != 403 || !strings.HasPrefix(got, `{"ok":false,"error":{"type":`) {
		t.Errorf("a page: %d %s", status, got)
	}
}

func TestCallIsCancelledThroughAnotherDoor(t *testing.T) {
	s := openStreet(t, sharing)
	done := make(chan string, 1)
	go func() {
		_, body := s.ask("POST", s.url["namel3ss"], "ada", service("wait"), "Toolpost-Call", "mine")
		done <- body
	}()
	kit.Equal(t, <-s.began, "mine", "the call is")
	if status, _ := s.ask("DELETE", s.url["http"]+"/v1/calls/mine", "eve", ""); status != 404 {
		t.Errorf("somebody else: %d", status)
	}
	if status, body := s.ask("DELETE", s.url["http"]+"/v1/calls/mine", "ada", ""); status != 204 {
		t.Errorf("its caller: %d %s", status, body)
	}
	kit.Contains(t, <-done, "cancelled by its caller")
}

func TestCallsOfEveryDoorAreAnsweredAtTheEnd(t *testing.T) {
	s := openStreet(t, sharing+"\nlimits: {drain: 50ms}")
	done := make(chan string, 2)
	for url, body := range map[string]string{s.url["namel3ss"]: service("wait"), s.url["http"] + "/v1/tools/wait/call": "{}"} {
		go func() {
			_, got := s.ask("POST", url, "ada", body)
			done <- got
		}()
		<-s.began
	}
	kit.Check(t, s.stop())
	for range 2 {
		kit.Contains(t, <-done, "shut down")
	}
}

func TestDoorsWithoutAnAddressHaveTheirOwn(t *testing.T) {
	for text, want := range map[string]int{
		`doors: {http: {}, namel3ss: {}}`:                              2,
		`doors: {http: {}, namel3ss: {listen: "127.0.0.1:8700"}}`:      1,
		`doors: {http: {listen: "127.0.0.1:8787"}, namel3ss: {}}`:      1,
		`doors: {http: {listen: "unix:s"}, namel3ss: {}, nats: {}}`:    3,
		`doors: {http: {}, namel3ss: {listen: "unix:s", mode: "660"}}`: 2,
	} {
		kit.Equal(t, len(kit.Must(all.Doors(parse(t, text), all.DoorOptions{Gate: byToken}))(t)), want, text)
	}
}

func TestDoorsThatShareAnAddressAndDisagreeAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{http: {tls: {cert: a, key: b}}, namel3ss: {listen: "127.0.0.1:8700", tls: {cert: c, key: d}}}`: "disagree about tls",
		`{namel3ss: {listen: "unix:s", mode: "0600"}, http: {listen: "unix:s", mode: "0660"}}`:           "disagree about mode",
		`{http: {hosts: [a]}, namel3ss: {listen: "127.0.0.1:8700", hosts: [b]}}`:                         "disagree about hosts",
	} {
		_, err := all.Doors(parse(t, "doors: "+text), all.DoorOptions{Gate: byToken})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "http") || !strings.Contains(err.Error(), "namel3ss") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The command line moves both doors of an address: TLS that one asks for must apply to the other.
func TestTheCommandLineMovesAnAddressAsAWhole(t *testing.T) {
	cfg := parse(t, `doors: {http: {hosts: [a], listen: "127.0.0.1:1"}, namel3ss: {listen: "127.0.0.1:1"}}`)
	ready := make(chan all.Listening, 8)
	doors, err := all.Doors(cfg, all.DoorOptions{Gate: byToken, Listen: "127.0.0.1:0", Ready: func(l all.Listening) { ready <- l }})
	if err != nil || len(doors) != 1 {
		t.Fatalf("%d, %v", len(doors), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- doors[0].Serve(ctx, nil, nil) }()
	one, other := <-ready, <-ready
	if !strings.HasPrefix(other.URL, one.URL) && !strings.HasPrefix(one.URL, other.URL) {
		t.Errorf("%s and %s", one.URL, other.URL)
	}
	cancel()
	kit.Check(t, <-ended)
}

func TestTheServiceDoorStandsOnAUnixSocketToo(t *testing.T) {
	dir := kit.Must(os.MkdirTemp("", "s"))(t) // short, as the path of a socket must be
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	s := openStreet(t, `doors: {namel3ss: {listen: "unix:`+path+`", mode: "0660"}}`)
	kit.Equal(t, s.url["namel3ss"], "unix:"+path)
	kit.Equal(t, kit.Must(os.Lstat(path))(t).Mode(), os.ModeSocket|0o660)
	conn := kit.Must(net.Dial("unix", path))(t)
	defer conn.Close()
	body := service("x")
	fmt.Fprintf(conn, "POST /tools HTTP/1.1\r\nHost: any\r\nAuthorization: Bearer ada\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	resp := kit.Must(http.ReadResponse(bufio.NewReader(conn), nil))(t)
	defer resp.Body.Close()
	if got, _ := io.ReadAll(resp.Body); string(got) != `{"ok":true,"result":"ada at namel3ss"}` {
		t.Errorf("%s", got)
	}
}
