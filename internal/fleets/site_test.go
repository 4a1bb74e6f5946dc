package fleets

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/internal/netns"
	"toolpost/internal/served"
	"toolpost/wire/strictjson"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(m.Run())
}

// A site is a fleet. Its hubs are on the machine of the test, and each worker is on one of its own.
type site struct {
	t        *testing.T
	bin, dir string
	store    string
	more     string // of the config of the hubs
	hubs     []*served.Server
	workers  map[string]*worker
}

type worker struct {
	*served.Server
	name    string
	dir     string
	machine *netns.Machine
	words   []string
}

// hubHost is the address of the hubs, which every machine reaches.
const hubHost = "10.77.0.1"

const hubYAML = `
sources: []
doors: {http: {}}
limits: {drain: 2s}
fleet: {name: %s, listen: ":%d"}
store: {url: %q}
`

// workerYAML has tools that write into the folder out of their worker. Those that read wait for a lock on the file gate, which
// the test may hold; mark waits for slow.
const workerYAML = `
fleet: {name: %[1]s, drain: 2s}
sources:
- name: site
  protocol: command
  walls: {write: [out]}
  tools:
  - {tool: read, command: [flock, -s, gate, echo, %[1]s], effects: {reads: true}}
  - {tool: quick, command: [echo, %[1]s], effects: {reads: true}}
  - {tool: mark, command: [sh, mark.sh, "{id}"], arguments: {id: string}, effects: {writes: true}}
  - {tool: trace, command: [printenv, TRACEPARENT], effects: {reads: true}}
  - {tool: tree, command: [sh, -c, "sleep 987654 & sleep 987654"], effects: {reads: true}}
  - {tool: large, command: [cat, large.json], output: json, effects: {reads: true}, max_output: 16MiB}
- {name: tales, protocol: narratoria, command: [python3, tell.py], effects: {reads: true}, timeout: 5m, walls: {write: [out]}}
- {name: asks, protocol: mcp, command: [python3, ask.py, %[1]s], era: legacy}
`

// markSh appends a line that is on the disk before the call goes on, which takes until the test lets go of the lock slow.
const markSh = `printf '%s\n' "$1" >> out/marks && sync out/marks && exec flock -s slow echo "$1"`

// open starts a fleet with a number of hubs, which need a PostgreSQL if there are several.
func open(t *testing.T, store string, hubs int) *site {
	t.Helper()
	return openWith(t, store, hubs, "")
}

// openWith is open with more in the config of the hubs.
func openWith(t *testing.T, store string, hubs int, more string) *site {
	t.Helper()
	s := &site{t: t, bin: served.Build(t), dir: t.TempDir(), store: store, more: more, workers: map[string]*worker{}}
	netns.Run(t, "ip", "address", "add", hubHost+"/32", "dev", "lo")
	for n := range hubs {
		s.hubs = append(s.hubs, s.hub(n))
	}
	return s
}

func (s *site) hub(n int) *served.Server {
	name := fmt.Sprint("hub-", n+1)
	dir := filepath.Join(s.dir, name)
	kit.Write(s.t, filepath.Join(dir, "toolpost.yaml"), fmt.Sprintf(hubYAML, name, 7422+n, s.store)+s.more)
	var env []string
	if n == 0 {
		s.run(dir, "fleet", "init")
	} else {
		env = append(env, "TOOLPOST_JOIN="+s.line("hub"))
	}
	return served.Start(s.t, s.bin, dir, env...)
}

// run runs a command in the folder of a hub, and returns what it prints.
func (s *site) run(dir string, words ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.bin, words...)
	cmd.Dir = filepath.Join(s.dir, filepath.Base(dir))
	out, err := cmd.CombinedOutput()
	kit.OK(s.t, err, words, out)
	return string(out)
}

// line returns what a node joins with.
func (s *site) line(role string) string {
	s.t.Helper()
	made, _ := call(s.t.Context(), s.hubs[0], "toolpost.inviteNodes", fmt.Sprintf(`{"role":%q}`, role)).Output.(map[string]any)
	line, _ := made["line"].(string)
	return line
}

// work starts a worker on a machine, and waits until all hubs have its tools.
func (s *site) work(name string, m *netns.Machine) *worker {
	s.t.Helper()
	w := &worker{name: name, dir: filepath.Join(s.dir, name), machine: m, words: m.Words(s.bin)}
	kit.OK(s.t, os.CopyFS(w.dir, os.DirFS("testdata")))
	kit.Files(s.t, w.dir, map[string]string{
		"toolpost.yaml": fmt.Sprintf(workerYAML, name), "mark.sh": markSh, "out/marks": "", "gate": "", "slow": "",
	})
	s.join(w)
	return w
}

// join lets a worker join whose folder is complete, and waits until all hubs have its tools.
func (s *site) join(w *worker, env ...string) {
	s.t.Helper()
	s.workers[w.name] = w
	s.start(w, append(env, "TOOLPOST_JOIN="+s.line("worker"))...)
}

func (s *site) start(w *worker, env ...string) {
	s.t.Helper()
	w.Server = served.Work(s.t, w.words, w.dir, env...)
	for _, hub := range s.hubs {
		s.until(hub, w.name, "up")
	}
}

// A node is one of the list of nodes.
type node struct {
	Name, State string
	Running     int
	Tools       int
}

// nodes lists the nodes, as a hub sees them.
func (s *site) nodes(hub *served.Server) (all []node, err error) {
	body, err := hub.Raw(s.t.Context(), "toolpost.listNodes", `{}`)
	if err != nil {
		return nil, err
	}
	var list struct {
		Output struct {
			Nodes []struct {
				Name    string `json:"name"`
				State   string `json:"state"`
				Running int    `json:"running"`
				Tools   int    `json:"tools"`
			} `json:"nodes"`
		} `json:"output"`
	}
	err = strictjson.Unmarshal([]byte(body), &list)
	for _, n := range list.Output.Nodes {
		all = append(all, node{n.Name, n.State, n.Running, n.Tools})
	}
	return all, err
}

// until waits until a hub sees a node in a state; if it is up, it has the tools of the node.
func (s *site) until(hub *served.Server, name, state string) {
	s.t.Helper()
	kit.Until(s.t, func() error {
		all, err := s.nodes(hub)
		known := state != "up" || s.workers[name] == nil // calls need the tools of a worker
		if err == nil && !slices.ContainsFunc(all, func(n node) bool { return n.Name == name && n.State == state && (known || n.Tools > 0) }) {
			log := ""
			if w := s.workers[name]; w != nil && w.Server != nil {
				log = w.Log()
			}
			err = fmt.Errorf("%s is not %s: %v\n%s", name, state, all, log)
		}
		if err == nil && state == "up" && s.workers[name] != nil {
			if ready, _ := hub.Ask(s.t.Context(), "GET", "/readyz", ""); !strings.Contains(ready, `"ok":true`) {
				err = fmt.Errorf("%s: %s", name, ready)
			}
		}
		return err
	})
}

// busyAtLeast waits until the workers run a number of calls.
func (s *site) busyAtLeast(hub *served.Server, calls int) {
	s.t.Helper()
	kit.Eventually(s.t, "the workers are busy", func() bool {
		sum := 0
		for _, n := range kit.Must(s.nodes(hub))(s.t) {
			sum += n.Running
		}
		return sum >= calls
	})
}

// busy waits until workers run a number of calls, and each at least one.
func (s *site) busy(hub *served.Server, calls int, names ...string) {
	s.t.Helper()
	kit.Until(s.t, func() error {
		all, err := s.nodes(hub)
		sum, idle := 0, 0
		for _, n := range all {
			if slices.Contains(names, n.Name) {
				sum += n.Running
				if n.Running == 0 {
					idle++
				}
			}
		}
		if err == nil && (sum != calls || idle > 0) {
			err = fmt.Errorf("%d calls run, not %d: %v", sum, calls, all)
		}
		return err
	})
}

// hold locks a file of a worker, so that its tools wait until release.
func (w *worker) hold(t *testing.T, file string) (release func()) {
	t.Helper()
	f := kit.Must(os.OpenFile(filepath.Join(w.dir, file), os.O_RDWR, 0))(t)
	t.Cleanup(func() { _ = f.Close() })
	kit.OK(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	return func() { _ = f.Close() }
}

// marks counts the calls of mark that have run, on all workers, by their ids.
func (s *site) marks() map[string]int {
	all := map[string]int{}
	for _, w := range s.workers {
		for line := range strings.Lines(kit.Read(s.t, filepath.Join(w.dir, "out", "marks"))) {
			all[strings.TrimSpace(line)]++
		}
	}
	return all
}

// An answer is what a caller got. err means that it got none.
type answer struct {
	OK     bool `json:"ok"`
	Output any  `json:"output"`
	Error  struct {
		Code    string `json:"code"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"error"`
	err error
}

// said is the text that the tool printed, or why there is none.
func (a answer) said() string {
	text, ok := a.Output.(string)
	if a.OK && ok {
		return strings.TrimSpace(text)
	}
	return fmt.Sprintf("%+v", a)
}

func call(ctx context.Context, hub *served.Server, name, args string, headers ...string) (a answer) {
	var body string
	if body, a.err = hub.Raw(ctx, name, args, headers...); a.err == nil {
		a.err = strictjson.Unmarshal([]byte(body), &a)
	}
	return a
}

// calls makes calls at once, and returns a channel with what they got. In args, # is the number of the call.
func calls(ctx context.Context, hub *served.Server, name, args string, count int) <-chan answer {
	all := make(chan answer, count)
	for n := range count {
		go func() { all <- call(ctx, hub, name, strings.ReplaceAll(args, "#", fmt.Sprint(n))) }()
	}
	return all
}

// logs returns what the nodes have logged.
func (s *site) logs() string {
	var b strings.Builder
	for i, hub := range s.hubs {
		fmt.Fprintf(&b, "hub-%d:\n%s", i+1, hub.Log())
	}
	for name, w := range s.workers {
		fmt.Fprintf(&b, "%s:\n%s", name, w.Log())
	}
	return b.String()
}
