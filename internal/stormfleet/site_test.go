package stormfleet

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/internal/netns"
	"toolpost/internal/pg"
	"toolpost/internal/served"
)

// A site is what a storm rages over. Every node is on a machine of its own; the callers are in the network between them.
type site struct {
	t        *testing.T
	bin, dir string
	other    string // the program as its next version may be; the two change places at each rolling restart
	logs     string // the folder of the logs, which stays
	net      *network
	hubs     []*node
	workers  []*node
	store    string // the URL that names both servers
	primary  *pg.Server
	standby  *pg.Server
	database string      // the URL of the database at the first server
	promoted []time.Time // when a standby became the primary
	ctx      context.Context
	stop     context.CancelFunc
	keepers  sync.WaitGroup
}

// A node is a program that is started again after its end, as a service manager does it.
type node struct {
	name    string
	dir     string
	machine *netns.Machine
	words   []string
	env     []string
	pid     atomic.Int64  // 0: it does not run
	starts  atomic.Int64  // how often it was started
	held    sync.Mutex    // it is not started while a fault holds it
	ready   chan struct{} // closed once it was started for the first time
	log     *os.File
}

const hubYAML = `
sources: []
doors: {http: {}, nats: {listen: "%[2]s:4222"}}
limits:
  drain: 2s
  quotas: [{name: metered, tools: meter, rate: %[4]d/s, burst: %[5]d}]
policy: {rules: [{effect: ask, tools: pay, approvers: owner, self: true}]}
fleet: {name: %[1]s, listen: "%[2]s:7422"}
store: {url: %[3]q}
`

// What the quota of the tool meter allows.
const meterRate, meterBurst = 4, 4

const workerYAML = `
fleet: {name: %[1]s, drain: 2s}
sources:
- {name: site, protocol: mcp, command: [python3, trace.py, %[1]s, %[2]s], era: legacy, trust_hints: true, walls: {write: [out]}}
- {name: tell, protocol: narratoria, command: [sh, tell.sh], effects: {reads: true}}
`

// open builds a site and waits until all of it works.
func open(t *testing.T, logs string, p plan) *site {
	t.Helper()
	s := &site{t: t, bin: served.Build(t), dir: t.TempDir(), logs: logs, net: newNetwork(t)}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(s.close)
	s.primary = pg.New(t)
	s.database = s.primary.Database(t)
	s.primary.Apart(t)
	s.standby = s.primary.Standby(t)
	s.store = "postgres://toolpost@10.9.1.2,10.9.2.2" + kit.Must(url.Parse(s.database))(t).Path + "?target_session_attrs=read-write"
	for i := range p.hubs {
		s.hub(i)
	}
	for i := range p.workers {
		s.worker(i, p.twice)
	}
	for _, hub := range s.hubs {
		kit.Until(t, func() error { return s.works(hub) })
	}
	return s
}

// works reports whether all workers are up in the eyes of a hub, which is ready.
func (s *site) works(hub *node) error {
	ctx, stop := context.WithTimeout(s.ctx, 5*time.Second)
	defer stop()
	body, err := post(ctx, hub, "toolpost.listNodes", `{}`, nil)
	up := len(regexp.MustCompile(`"state":"up"`).FindAllString(body, -1))
	if err == nil && up < len(s.hubs)+len(s.workers) {
		err = fmt.Errorf("%s sees %d nodes that are up: %s", hub.name, up, body)
	}
	return err
}

func (s *site) hub(i int) {
	s.t.Helper()
	n := s.node(fmt.Sprint("hub-", i+1), 11+i)
	address := n.machine.Address()
	kit.Write(s.t, filepath.Join(n.dir, "toolpost.yaml"), fmt.Sprintf(hubYAML, n.name, address, s.store, meterRate, meterBurst))
	n.words = n.machine.Words(s.bin, "serve", "--listen", address+":8700")
	s.hubs = append(s.hubs, n)
	if i == 0 {
		s.run(n, "fleet", "init")
	} else {
		n.env = append(n.env, "TOOLPOST_JOIN="+s.line("hub"))
	}
	s.keep(n)
	kit.Until(s.t, func() error { return kit.Err(post(s.ctx, n, "toolpost.listNodes", `{}`, nil)) })
}

// A worker has a small disk of its own, which a fault can fill.
func (s *site) worker(i int, twice bool) {
	s.t.Helper()
	n := s.node(fmt.Sprint("worker-", i+1), 21+i)
	netns.Run(s.t, "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", n.dir)
	s.t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "umount", "-l", n.dir).Run() })
	kit.OK(s.t, os.CopyFS(n.dir, os.DirFS("testdata")))
	kit.Files(s.t, n.dir, map[string]string{"toolpost.yaml": fmt.Sprintf(workerYAML, n.name, map[bool]string{true: "twice", false: "once"}[twice]), "out/trace": ""})
	n.words = n.machine.Words(s.bin, "worker")
	n.env = append(n.env, "TOOLPOST_JOIN="+s.line("worker"))
	s.workers = append(s.workers, n)
	s.keep(n)
}

func (s *site) node(name string, number int) *node {
	s.t.Helper()
	n := &node{name: name, dir: filepath.Join(s.dir, name), machine: netns.New(s.t, number), ready: make(chan struct{})}
	kit.OK(s.t, os.MkdirAll(n.dir, 0o755))
	n.log = kit.Must(os.Create(filepath.Join(s.logs, name+".log")))(s.t)
	return n
}

// keep runs a node, and starts it again half a second after its end, until the site is closed.
func (s *site) keep(n *node) {
	s.keepers.Go(func() {
		for s.ctx.Err() == nil {
			n.held.Lock()
			if s.ctx.Err() != nil {
				n.held.Unlock()
				return
			}
			cmd := exec.CommandContext(s.ctx, n.words[0], n.words[1:]...)
			cmd.Dir, cmd.Stdout, cmd.Stderr = n.dir, n.log, n.log
			cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + n.dir, "TOOLPOST_TOKEN=" + served.Token}, n.env...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			err := cmd.Start()
			if err == nil {
				n.pid.Store(int64(cmd.Process.Pid))
				if n.starts.Add(1) == 1 {
					close(n.ready)
				}
				n.held.Unlock()
				err = cmd.Wait()
				n.pid.Store(0)
			} else {
				n.held.Unlock()
			}
			fmt.Fprintf(n.log, "%s: %s has ended: %v\n", time.Now().Format("15:04:05.000"), n.name, err)
			time.Sleep(500 * time.Millisecond)
		}
	})
	<-n.ready
}

// next builds the program as its next version may be: its store has a table more, and its nodes speak a later version of the link.
func next(t *testing.T) string {
	t.Helper()
	link := string(kit.Must(os.ReadFile("../../fleet/wire.go"))(t))
	version := regexp.MustCompile(`const linkVersion = (\d+)`).FindStringSubmatch(link)
	number := kit.Must(strconv.Atoi(version[1]))(t)
	steps := len(kit.Must(filepath.Glob("../../store/migrations/*.sql"))(t))
	return served.BuildWith(t, map[string]string{
		"fleet/wire.go": strings.Replace(link, version[0], fmt.Sprint("const linkVersion = ", number+1), 1),
		fmt.Sprintf("store/migrations/%d.sql", steps+1): "-- expands\nCREATE TABLE later (id BIGINT PRIMARY KEY);\n",
	})
}

// signal sends a signal to a node, if it runs.
func (n *node) signal(how syscall.Signal) {
	if pid := int(n.pid.Load()); pid != 0 {
		_ = syscall.Kill(pid, how) // it may have ended just now
	}
}

// restarted waits until a node runs that was started after a number of starts.
func (n *node) restarted(ctx context.Context, before int64) {
	for ctx.Err() == nil && (n.starts.Load() <= before || n.pid.Load() == 0) {
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *site) close() {
	s.stop()
	for _, n := range append(s.hubs, s.workers...) {
		n.signal(syscall.SIGCONT)
		n.signal(syscall.SIGKILL)
	}
	s.keepers.Wait()
}

// run runs a command of the program on the machine of a node, and returns what it prints.
func (s *site) run(n *node, words ...string) string {
	s.t.Helper()
	out, err := s.try(n, words...)
	kit.OK(s.t, err, words, out)
	return out
}

func (s *site) try(n *node, words ...string) (string, error) {
	all := n.machine.Words(append([]string{s.bin}, words...)...)
	cmd := exec.CommandContext(s.ctx, all[0], all[1:]...)
	cmd.Dir = n.dir
	var out, told bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &told
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, told.String())
	}
	return out.String(), err
}

var lineOf = regexp.MustCompile(`tp://[^"\\]+`)

// line returns what a node joins with.
func (s *site) line(role string) (line string) {
	s.t.Helper()
	kit.Until(s.t, func() error {
		body, err := post(s.ctx, s.hubs[0], "toolpost.inviteNodes", fmt.Sprintf(`{"role":%q}`, role), nil)
		if line = lineOf.FindString(body); err == nil && line == "" {
			err = fmt.Errorf("no line: %s", body)
		}
		return err
	})
	return line
}

// nodes are all programs of the fleet.
func (s *site) nodes() []*node { return append(append([]*node(nil), s.hubs...), s.workers...) }

// find returns the node of a name.
func (s *site) find(name string) *node {
	for _, n := range s.nodes() {
		if n.name == name {
			return n
		}
	}
	return nil
}
