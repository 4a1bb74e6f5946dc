package matrix

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/engine/member"
	"toolpost/internal/kit"
	"toolpost/internal/netns"
	"toolpost/internal/rounds"
	"toolpost/node"
	"toolpost/tool"
)

// TestEveryDoorReachesEveryRunnerOnAnotherMachine is the matrix with the doors at a hub, and all runners at a worker on another
// machine. There is one table for both: a fleet carries all that a machine does. Each door and each runner is in one pair at
// least; in the long round every pair is tried.
func TestEveryDoorReachesEveryRunnerOnAnotherMachine(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	h := openTaped(t, nil, netns.New(t, 11))
	t.Run("in one plan", func(t *testing.T) { onePlanOfAll(t, h) })
	all, every := h.runners, doors()
	for i, d := range every {
		h.runners = slices.DeleteFunc(slices.Clone(all), func(r *runner) bool {
			j := slices.Index(all, r)
			return j%len(every) != i && i%len(all) != j && rounds.Of(1, 0) == 1
		})
		reachAll(t, h, d, i)
	}
}

// The environment of the worker.
const (
	lineEnv   = "MATRIX_LINE" // what it joins with
	assetsEnv = "MATRIX_HOUSE_ASSETS"
)

// openAway starts a hub in a folder of its own, and a worker that runs the sources. The peers of the sources are at the same
// addresses for it.
func (h *house) openAway(t *testing.T, text string) (*node.Node, addresses) {
	t.Helper()
	for _, u := range []string{h.remote.http, h.remote.nats, h.service, h.mcp["modern"], h.mcp["legacy"], h.api} {
		h.away.Relay(t, kit.Must(url.Parse(u))(t).Host)
	}
	const hub = "sources: []\nlimits: {lease_tier: 3}\nfleet: {name: hub, listen: \":0\"}\n"
	cfg := kit.Must(config.Parse(filepath.Join(h.dir, "hub", config.FileName), []byte(hub+doorsConfig)))(t)
	netns.Run(t, "ip", "address", "add", "10.77.0.1/32", "dev", "lo")
	kit.OK(t, os.MkdirAll(filepath.Join(h.dir, "hub"), 0o755))
	kit.OK(t, node.FoundFleet(t.Context(), cfg, ""))
	n, at := h.open(t, "hub", hub)
	line := kit.Must(n.Fleet().Token(t.Context(), member.Ticket{Role: member.Worker, Uses: 1}, time.Hour))(t)
	kit.Write(t, filepath.Join(h.dir, config.FileName), text)
	words := h.away.Words(kit.Must(os.Executable())(t))
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Stderr = h.dir, &h.log
	cmd.Env = append(os.Environ(), lineEnv+"="+line, assetsEnv+"="+h.assets)
	kit.OK(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kit.Check(t, cmd.Wait(), "the worker did not end in good order")
	})
	return n, at
}

// work is the worker, in its own process.
func work() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	h := &house{assets: os.Getenv(assetsEnv)}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg, err := config.Load(config.FileName)
	if err == nil {
		err = node.JoinFleet(ctx, cfg, os.Getenv(lineEnv), "worker", member.Worker)
	}
	var n *node.Node
	if err == nil {
		n, err = node.Open(ctx, cfg, node.Options{Worker: true, Protocols: h.protocols(), Log: log})
	}
	if err == nil {
		err = errors.Join(n.Work(ctx), n.Close(context.WithoutCancel(ctx)))
	}
	if err != nil {
		log.Error("the worker ended", "error", err)
		os.Exit(1)
	}
}

// arrived waits until the hub has the tools of all rows.
func (h *house) arrived(t *testing.T) {
	t.Helper()
	kit.Until(t, func() error {
		for _, r := range h.runners {
			for _, c := range checks() {
				if !r.has(c.tool) {
					continue
				}
				_, err := h.node.Catalog().Lookup(t.Context(), tool.Principal{ID: "local"}, r.where(c.tool)+"."+c.tool)
				if err != nil {
					return fmt.Errorf("%w\n%s", err, h.log.all())
				}
			}
		}
		return nil
	})
}

func (j *journal) all() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "")
}

// atWorker counts the calls that run at the worker.
func (h *house) atWorker(t *testing.T) (calls int) {
	t.Helper()
	if h.away == nil {
		return 0
	}
	for _, s := range kit.Must(h.node.Fleet().Nodes(t.Context()))(t) {
		calls += s.Running
	}
	return calls
}
