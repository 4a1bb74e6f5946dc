package mcpsuite

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool/tooltest"
)

const token = "suite-token-0123456789abcdef"

// patience bounds waits that only guard against a hang.
const patience = time.Minute

// A house is a node with the tools of testdata, and the URL of its MCP door for the suite.
type house struct {
	dir  string
	text string // of the config
	node *node.Node
	url  string
	log  kit.Buffer
}

// openHouse opens it, and checks for leaks at the end.
func openHouse(t *testing.T) *house {
	t.Helper()
	tooltest.NoLeaks(t)
	h := &house{dir: t.TempDir()}
	kit.OK(t, os.CopyFS(h.dir, os.DirFS("testdata")))
	kit.OK(t, os.Mkdir(filepath.Join(h.dir, "notes"), 0o777))
	text := kit.Must(os.ReadFile(filepath.Join("testdata", config.FileName)))(t)
	ln := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	h.text = strings.ReplaceAll(string(text), "HOST", `"`+ln.Addr().String()+`"`)
	h.url = h.front(t, ln, h.serve(t)) + "/mcp"
	h.keep(t)
	return h
}

// serve opens the node and returns the address of its HTTP front.
func (h *house) serve(t *testing.T) string {
	t.Helper()
	ready, ended := make(chan node.Listening, 8), make(chan error, 1)
	n := kit.Must(node.Open(t.Context(), h.config(t, ""), node.Options{
		Token: token, Ready: func(l node.Listening) { ready <- l }, Log: slog.New(slog.NewTextHandler(&h.log, nil)),
	}))(t)
	h.node = n
	ctx, stop := context.WithCancel(context.Background())
	go func() { ended <- n.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		kit.Check(t, <-ended, "serving ended badly")
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		kit.Check(t, n.Close(ctx), "the node did not end in good order")
		if t.Failed() {
			t.Logf("the node's log:\n%s", h.log.String())
		}
	})
	for _, s := range n.Sources() {
		if s.Err != nil {
			t.Fatalf("the source %s did not open: %v", s.Name, s.Err)
		}
	}
	for {
		select {
		case l := <-ready:
			if l.Door == "http" {
				return l.URL
			}
		case err := <-ended:
			t.Fatalf("serving ended: %v", err)
		case <-time.After(patience):
			t.Fatal("the door did not open")
		}
	}
}

// front passes requests on to the node, with the token, for which the suite has no option. It changes nothing else, so
// the node checks hosts and origins as the suite sent them.
func (h *house) front(t *testing.T, ln net.Listener, to string) string {
	t.Helper()
	target := kit.Must(url.Parse(to))(t)
	behind := &http.Transport{MaxIdleConnsPerHost: 64}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
			r.Out.Header.Set("Authorization", "Bearer "+token)
		},
		Transport: behind, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	srv := &httptest.Server{Listener: ln, Config: &http.Server{Handler: proxy}}
	srv.Start()
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); behind.CloseIdleConnections() })
	return srv.URL
}

func (h *house) config(t *testing.T, more string) *config.Config {
	t.Helper()
	text := strings.Replace(h.text, "doors:\n", more+"doors:\n", 1)
	return kit.Must(config.Parse(filepath.Join(h.dir, config.FileName), []byte(text)))(t)
}

// keep edits the config: when a tool leaves a note, it adds a source or removes it again, as an editor would. A tool
// cannot do so itself, because the config is off limits to tools.
func (h *house) keep(t *testing.T) {
	t.Helper()
	notes := map[string]string{
		"tools": "  - {name: transient, description: Comes and goes., protocol: namel3ss, tool: transient, " +
			"entry: 'tools.suite:simple_text', app: app}\n",
		"prompts": "  - {name: more, protocol: alphahuman, skills: more}\n",
	}
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	t.Cleanup(func() { stop(); work.Wait() })
	work.Go(func() {
		seen, on := map[string]int64{}, map[string]bool{}
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			changed := false
			for name := range notes {
				info, err := os.Stat(filepath.Join(h.dir, "notes", name))
				if err == nil && info.Size() != seen[name] {
					seen[name], on[name], changed = info.Size(), !on[name], true
				}
			}
			if changed {
				more := ""
				for name, source := range notes {
					if on[name] {
						more += source
					}
				}
				h.node.Reload(ctx, h.config(t, more))
			}
		}
	})
}
