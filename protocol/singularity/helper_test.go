package singularity

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/config"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const (
	testToken = "let-me-in"
	patience  = time.Minute // only guards against a hang
)

func auth(_ context.Context, shown identity.Credentials) (tool.Principal, error) {
	if shown.Token != testToken {
		return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "unknown token")
	}
	return tool.Principal{ID: "tester", Door: "nats"}, nil
}

func startServer(t testing.TB, listen string) *Server {
	t.Helper()
	s := kit.Must(StartServer(ServerOptions{Listen: listen, Gate: auth, Log: testLog(t)}))(t)
	t.Cleanup(s.Close)
	return s
}

// serve opens a door and waits until it accepts requests. The returned function closes the door and waits.
func serve(t testing.TB, o DoorOptions, h tool.Handler, c tool.Catalog) (stop func()) {
	t.Helper()
	ready := make(chan struct{})
	o.Ready = func(string) { close(ready) }
	o.Log = testLog(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- NewDoor(o).Serve(ctx, h, c) }()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		t.Fatalf("the door did not open: %v", err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		kit.Check(t, <-ended, "Serve")
	})
	t.Cleanup(stop)
	return stop
}

func connect(t testing.TB, s *Server, more ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), append([]nats.Option{nats.Token(testToken), nats.Timeout(patience)}, more...)...)
	kit.OK(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func ask(t testing.TB, nc *nats.Conn, subject, body string) string {
	t.Helper()
	m, err := nc.Request(subject, []byte(body), patience)
	kit.OK(t, err, subject)
	return string(m.Data)
}

func askMsg(t testing.TB, nc *nats.Conn, m *nats.Msg) string {
	t.Helper()
	r, err := nc.RequestMsg(m, patience)
	kit.OK(t, err, m.Subject)
	return string(r.Data)
}

// same fails if two JSON texts differ in more than layout.
func same(t testing.TB, what, got, want string) {
	t.Helper()
	g, err := strictjson.Decode([]byte(got))
	if err != nil {
		t.Errorf("%s: %v: %.200s", what, err, got)
		return
	}
	w, err := strictjson.Decode([]byte(want))
	kit.OK(t, err, "%s: the wanted JSON", what)
	kit.DeepEqual(t, g, w, what, got, want)
}

// A toolbox is a handler and a catalogue of tools in this process.
type toolbox map[string]tool.HandlerFunc

func (b toolbox) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	h := b[c.Tool]
	if h == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", c.Tool)
	}
	return h(ctx, c, out)
}

func (b toolbox) Lookup(_ context.Context, _ tool.Principal, name string) (*tool.Spec, error) {
	if b[name] == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", name)
	}
	return &tool.Spec{Name: name}, nil
}

func (b toolbox) Specs(context.Context, tool.Principal) iter.Seq2[*tool.Spec, error] {
	var names []string
	for name := range b {
		names = append(names, name)
	}
	slices.Sort(names)
	return func(yield func(*tool.Spec, error) bool) {
		for _, name := range names {
			if !yield(&tool.Spec{Name: name, Description: "The tool " + name + "."}, nil) {
				return
			}
		}
	}
}

// gives is a tool that always returns the same output.
func gives(output string) tool.HandlerFunc {
	return func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Output: json.RawMessage(output)}, nil
	}
}

func refuses(err *tool.Error) tool.HandlerFunc {
	return func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return nil, err }
}

// echo returns its arguments.
func echo(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	return &tool.Result{OK: true, Output: slices.Clone(c.Args)}, nil
}

func source(t testing.TB, fields string) config.Source {
	t.Helper()
	text := "sources: [{name: far, protocol: singularity, " + fields + "}]\n"
	c := kit.Must(config.Parse(filepath.Join(t.TempDir(), config.FileName), []byte(text)))(t)
	return c.Sources[0]
}

// open makes a runner from the fields of a source.
func open(t testing.TB, fields string) (*Runner, error) {
	t.Helper()
	ctx := kit.Context(t)
	r, err := Open(ctx, source(t, fields), testLog(t))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r.(*Runner), nil
}

func mustOpen(t testing.TB, fields string) *Runner {
	t.Helper()
	return kit.Must(open(t, fields))(t)
}

// withToken returns the fields of a source that reaches the test server.
func withToken(t testing.TB, url, more string) string {
	t.Helper()
	kit.OK(t, os.Setenv("SINGULARITY_TEST_TOKEN", testToken))
	return `url: "` + url + `", token_env: SINGULARITY_TEST_TOKEN` + more
}

func wantCode(t testing.TB, err error, code tool.Code, words ...string) {
	t.Helper()
	var e *tool.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("the error is %v; want code %s", err, code)
		return
	}
	for _, w := range words {
		kit.Contains(t, e.Message, w, "the error")
	}
}

// testLog discards, or writes to standard error if SINGULARITY_LOG is set.
func testLog(testing.TB) *slog.Logger {
	if os.Getenv("SINGULARITY_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

// connectOwn connects to the account of the tester with the rights of this process: it may subscribe to tools.> as a server
// of the contract does.
func connectOwn(t testing.TB, s *Server) *nats.Conn {
	t.Helper()
	connect(t, s) // so that the account exists
	p, _ := auth(t.Context(), identity.Credentials{Token: testToken})
	s.mu.Lock()
	account := s.accounts[keyOf(p)].nats.Name
	s.mu.Unlock()
	return connectTo(t, s, account)
}

func connectTo(t testing.TB, s *Server, account string) *nats.Conn {
	t.Helper()
	nc := kit.Must(s.dial(account))(t)
	t.Cleanup(nc.Close)
	return nc
}

func answerNever(received chan<- struct{}) nats.MsgHandler {
	return func(*nats.Msg) {
		select {
		case received <- struct{}{}:
		default:
		}
	}
}
