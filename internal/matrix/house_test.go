package matrix

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/config"
	"toolpost/engine/cassette"
	"toolpost/internal/kit"
	"toolpost/internal/netns"
	"toolpost/internal/served"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

var update = flag.Bool("update", false, "write docs/matrix.md")

const (
	token    = "matrix-token-0123456789abcdef"
	tokenEnv = "MATRIX_TOKEN"
)

// A house is a node with every source and every door, and its peers.
type house struct {
	dir     string // of the config and of the peers
	assets  string // the folder for files of tools
	bin     string // the program, or empty if not built
	python  string // the interpreter
	runners []*runner
	node    *node.Node
	far     *node.Node // another node, which is a source here
	doors   addresses
	remote  addresses
	service string            // the address of a namel3ss service
	mcp     map[string]string // the addresses of MCP servers, by era
	api     string            // the address of an HTTP API with an OpenAPI document
	image   string            // of the tools in a container
	log     journal           // of the nodes
	tape    *cassette.Recorder
	away    *netns.Machine // where the sources are run, by a worker; nil: in the node

	client *nats.Conn          // of callers over NATS
	web    *http.Client        // of callers over HTTP
	talks  map[string]*mcpTalk // of callers over MCP, by era and transport
}

// addresses holds the addresses at which a node accepts calls.
type addresses struct{ http, nats, service, mcp string }

// openHouse opens everything. It checks for leaks at the end.
func openHouse(t *testing.T) *house {
	t.Helper()
	return openTaped(t, nil, nil)
}

// openTaped opens a house whose own node records its calls on a cassette, if there is one. Its sources are on another machine,
// if there is one.
func openTaped(t *testing.T, tape *cassette.Recorder, away *netns.Machine) *house {
	t.Helper()
	python := requirePython(t)
	tooltest.NoLeaks(t)
	t.Setenv(tokenEnv, token)
	h := newHouse(t)
	h.python = python
	for to, from := range map[string]string{"": "testdata", "mcp": "../../protocol/mcp/testdata/py"} {
		kit.OK(t, os.CopyFS(filepath.Join(h.dir, to), os.DirFS(from)))
	}
	h.bin = served.Build(t)
	h.far, h.remote = h.open(t, "remote", "sources:\n- {name: builtin, protocol: builtin}\n")
	serveContract(t, h.remote.nats)
	h.service = serveTools(t, python)
	h.mcp = serveMCP(t)
	h.api = serveAPI(t)
	var missing string
	if h.image, missing = makeImage(t); missing != "" {
		t.Run(containerRow, func(t *testing.T) { t.Skip(missing) })
	}
	h.runners = slices.DeleteFunc(runners(), func(r *runner) bool { return missing != "" && r.name == containerRow })
	var entries strings.Builder
	for _, r := range h.runners {
		entries.WriteString(r.sources(h))
	}
	h.tape, h.away = tape, away
	text := "sources:\n" + entries.String() + "limits: {lease_tier: 3}\n"
	if away != nil {
		h.node, h.doors = h.openAway(t, text)
	} else {
		h.node, h.doors = h.open(t, "", text)
	}
	h.complete(t)
	h.connect(t)
	h.talkMCP(t)
	return h
}

// newHouse returns an empty house. Callers over HTTP share their connections; otherwise a crowd would need a descriptor
// each.
func newHouse(t *testing.T) *house {
	t.Helper()
	shared := &http.Transport{MaxIdleConnsPerHost: 256, MaxConnsPerHost: 256}
	return &house{dir: t.TempDir(), assets: t.TempDir(), web: &http.Client{Transport: shared}}
}

// requirePython returns the interpreter itself: python3 may be a script that looks for it each time.
func requirePython(t *testing.T) string {
	t.Helper()
	path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("python3 is missing; `make setup` installs it")
		}
		t.Skip("python3 is missing; `make setup` installs it")
	}
	return strings.TrimSpace(string(path))
}

// open starts a node in a folder of the house, with its networked doors on free ports.
func (h *house) open(t *testing.T, folder, text string) (*node.Node, addresses) {
	t.Helper()
	path := filepath.Join(h.dir, folder, config.FileName)
	cfg := kit.Must(config.Parse(path, []byte(text+doorsConfig)))(t)
	ready := make(chan node.Listening, len(cfg.Doors)+2) // MCP and the door for models are mounted on HTTP
	o := node.Options{
		Protocols: h.protocols(), Token: token, Ready: func(l node.Listening) { ready <- l },
		Log: slog.New(slog.NewTextHandler(&h.log, nil)),
	}
	if h.tape != nil {
		o.Tape = h.tape
	}
	n := kit.Must(node.Open(t.Context(), cfg, o))(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		kit.Check(t, <-ended, "serving ended badly")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		kit.Check(t, n.Close(ctx), "the node did not end in good order")
	})
	return n, await(t, ready, ended)
}

const doorsConfig = `doors:
  http: {listen: "127.0.0.1:0"}
  nats: {embedded: true, listen: "127.0.0.1:0"}
  namel3ss: {listen: "127.0.0.1:0"}
`

func await(t *testing.T, ready <-chan node.Listening, ended <-chan error) (s addresses) {
	t.Helper()
	for s.http == "" || s.nats == "" || s.service == "" || s.mcp == "" {
		select {
		case l := <-ready:
			switch l.Door {
			case "http":
				s.http = l.URL
			case "nats":
				s.nats = l.URL
			case "namel3ss":
				s.service = l.URL
			case "mcp":
				s.mcp = l.URL
			}
		case err := <-ended:
			t.Fatalf("serving ended: %v", err)
		case <-time.After(time.Minute):
			t.Fatal("a door did not open")
		}
	}
	return s
}

// complete checks that every tool of every row exists.
func (h *house) complete(t *testing.T) {
	t.Helper()
	for _, s := range h.node.Sources() {
		if s.Err != nil {
			t.Fatalf("the source %s did not open: %v", s.Name, s.Err)
		}
	}
	if h.away != nil {
		h.arrived(t)
	}
	for _, r := range h.runners {
		for _, c := range checks() {
			if r.has(c.tool) {
				h.published(t, r, c.tool)
			}
		}
	}
}

// published returns the name under which a tool is listed.
func (h *house) published(t *testing.T, r *runner, name string) string {
	t.Helper()
	spec, err := h.node.Catalog().Lookup(t.Context(), tool.Principal{ID: "local"}, r.where(name)+"."+name)
	if err != nil {
		t.Error(err)
		return ""
	}
	return spec.Name
}

// connect connects the callers.
func (h *house) connect(t *testing.T) {
	t.Helper()
	nc := kit.Must(nats.Connect(h.doors.nats, nats.Token(token), nats.Timeout(time.Minute)))(t)
	t.Cleanup(func() {
		nc.Close()
		h.web.CloseIdleConnections()
	})
	h.client = nc
}

// as runs `toolpost as PROTOCOL WORDS`: one conversation on the standard streams.
func (h *house) as(ctx context.Context, t *testing.T, stdin, protocol string, words ...string) (stdout []byte, lines []string) {
	t.Helper()
	var out, log bytes.Buffer
	h.serveAs(ctx, t, node.Stdio{In: strings.NewReader(stdin), Out: &out, Log: &log}, protocol, words...)
	return out.Bytes(), strings.Split(log.String(), "\n")
}

func (h *house) serveAs(ctx context.Context, t *testing.T, std node.Stdio, protocol string, words ...string) {
	t.Helper()
	std.Caller = tool.Principal{ID: "local", Door: protocol}
	for _, p := range h.protocols() {
		if p.Name != protocol {
			continue
		}
		d, err := p.Stdio.Door(words, std)
		if err == nil {
			err = d.Serve(ctx, h.node.Handler(), h.node.Catalog())
		}
		var exit interface{ ExitCode() int } // 1 means that the answer reports a dead tool
		if err != nil && ctx.Err() == nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
			t.Errorf("toolpost as %s %s: %v", protocol, strings.Join(words, " "), err)
		}
	}
}
