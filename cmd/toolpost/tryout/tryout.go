// Package tryout runs a small fleet on this machine, to look at: hubs, workers with sample tools, and a PostgreSQL, all of
// them children of this program and in one temporary folder.
package tryout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"toolpost/host/process"
	"toolpost/tool"
)

// Options are what a fleet is tried with.
type Options struct {
	Program string // toolpost
	Out     io.Writer
}

const (
	workers   = 3
	startTime = time.Minute // for the fleet to be ready
	callEvery = 500 * time.Millisecond
)

// A yard is the fleet.
type yard struct {
	o        Options
	dir      string
	children []*part
	drained  sync.WaitGroup // their output
}

// A part is a program of the fleet.
type part struct {
	*process.Child
	name  string
	ended bool // by itself, and that was said
}

// Run starts a fleet, shows calls until ctx ends, and then removes all of it.
func Run(ctx context.Context, o Options) (err error) {
	further := make(chan os.Signal, 1)
	signal.Notify(further, os.Interrupt, syscall.SIGTERM) // otherwise a second one would end this program, and leave parts behind
	defer signal.Stop(further)
	y := &yard{o: o}
	defer context.AfterFunc(ctx, func() { y.say("the fleet ends") })()
	if y.dir, err = os.MkdirTemp("", "toolpost-try-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, y.close()) }()
	hubs, err := y.open(ctx)
	if err == nil {
		err = y.calls(ctx, hubs)
	}
	if ctx.Err() != nil { // what was cut short is no error
		return nil
	}
	return err
}

// close ends the workers first and the database last, and removes the folder.
func (y *yard) close() error {
	for _, c := range slices.Backward(y.children) {
		c.Stop(process.Ladder{Term: 5 * time.Second})
	}
	for _, c := range y.children {
		c.Close()
	}
	y.drained.Wait()
	return os.RemoveAll(y.dir)
}

func (y *yard) say(format string, args ...any) { _, _ = fmt.Fprintf(y.o.Out, format+"\n", args...) }

// open starts everything, and returns the names of the hubs.
func (y *yard) open(ctx context.Context) (hubs []string, err error) {
	y.say("starting a fleet of this machine alone, in %s; Ctrl-C ends it and removes the folder", y.dir)
	hubs, store := []string{"hub-1", "hub-2"}, y.database(ctx)
	if store == "" {
		hubs, store = hubs[:1], "sqlite:try.db"
	}
	if err := y.hub(ctx, "hub-1", store); err != nil {
		return nil, err
	}
	for _, name := range hubs[1:] {
		if err := y.secondHub(ctx, name, store); err != nil {
			return nil, err
		}
	}
	line, err := y.token(ctx, "worker", workers)
	for i := 1; i <= workers && err == nil; i++ {
		err = y.worker(fmt.Sprint("worker-", i), line)
	}
	return hubs, err
}

// suggest says what to try, once the fleet is up.
func (y *yard) suggest() {
	last := y.children[len(y.children)-1]
	y.say("\nin another terminal:\n  cd %s/hub-1\n  toolpost fleet           # its nodes\n  toolpost console --open  # the calls, in a browser\n"+
		"  kill -9 %-17d# %s: the others run its calls\n", y.dir, last.Pid(), last.name)
}

// hub founds the fleet, and starts its first hub.
func (y *yard) hub(ctx context.Context, name, store string) error {
	if err := y.config(name, hubConfig(store)); err != nil {
		return err
	}
	if _, err := y.run(ctx, name, "fleet", "init", "--name", name, "--listen", "127.0.0.1:0"); err != nil {
		return err
	}
	return y.start(name, "serve", "--listen", "127.0.0.1:0")
}

func (y *yard) secondHub(ctx context.Context, name, store string) error {
	line, err := y.token(ctx, "hub", 1)
	if err == nil {
		err = y.config(name, hubConfig(store)+"fleet: {listen: \"127.0.0.1:0\"}\n")
	}
	if err != nil {
		return err
	}
	return y.start(name, "serve", "--listen", "127.0.0.1:0", "--name", name, "--join", line)
}

func (y *yard) worker(name, line string) error {
	if err := y.config(name, fmt.Sprintf(workerConfig, name)); err != nil {
		return err
	}
	return y.start(name, "worker", "--name", name, "--join", line)
}

func hubConfig(store string) string {
	return fmt.Sprintf("sources: []\ndoors: {http: {listen: \"127.0.0.1:0\"}}\nstore: {url: %q}\n", store)
}

// workerConfig has a tool that says where it runs.
const workerConfig = `sources:
  - name: samples
    protocol: command
    tool: hello
    description: Says hello.
    command: [echo, "hello {name}, says %s"]
    arguments: {name: string}
    effects: {reads: true}
`

// token makes the line with which nodes join. The first hub may still be starting.
func (y *yard) token(ctx context.Context, role string, uses int) (line string, err error) {
	err = y.until(ctx, func() error {
		line, err = y.run(ctx, "hub-1", "fleet", "token", "--role", role, "--uses", fmt.Sprint(uses))
		return err
	})
	return line, err
}

// calls calls the tool through each hub in turn, until ctx ends, and shows which worker ran it.
func (y *yard) calls(ctx context.Context, hubs []string) error {
	for _, hub := range hubs {
		if err := y.until(ctx, func() error { _, err := y.call(ctx, hub); return err }); err != nil {
			return err
		}
	}
	y.suggest()
	for i := 0; tool.Sleep(ctx, callEvery); i++ {
		if hubs = y.left(hubs); len(hubs) == 0 {
			return tool.Errorf(tool.CodeUnavailable, "no hub is left")
		}
		hub := hubs[i%len(hubs)]
		said, err := y.call(ctx, hub)
		if err != nil {
			said = tool.AsError(err).Message
		}
		if ctx.Err() == nil {
			y.say("%s  %s  %s", time.Now().Format(time.TimeOnly), hub, said)
		}
	}
	return ctx.Err()
}

// left says which parts have ended, and returns the hubs that have not.
func (y *yard) left(hubs []string) []string {
	for _, c := range y.children {
		select {
		case <-c.Exited():
			if !c.ended {
				c.ended = true
				y.say("%s has ended", c.name)
				hubs = slices.DeleteFunc(hubs, func(hub string) bool { return hub == c.name })
			}
		default:
		}
	}
	return hubs
}

func (y *yard) call(ctx context.Context, hub string) (string, error) {
	return y.run(ctx, hub, "call", "hello", "name="+hub)
}

// until repeats what fails while the fleet starts.
func (y *yard) until(ctx context.Context, do func() error) error {
	for end := time.Now().Add(startTime); ; {
		err := do()
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
		for _, c := range y.children {
			select {
			case <-c.Exited():
				return tool.Errorf(tool.CodeUnavailable, "a part of the fleet ended: %s", cmp.Or(c.Tail(), err.Error()))
			default:
			}
		}
		tool.Sleep(ctx, 100*time.Millisecond)
	}
}

func (y *yard) config(name, text string) error {
	dir := filepath.Join(y.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "toolpost.yaml"), []byte(text), 0o600)
}

// command is a toolpost of one node.
func (y *yard) command(node string, words ...string) process.Command {
	dir := filepath.Join(y.dir, node)
	return process.Command{
		Argv: append([]string{y.o.Program, "--config", filepath.Join(dir, "toolpost.yaml")}, words...),
		Dir:  dir, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir},
	}
}

func (y *yard) start(node string, words ...string) error {
	return y.keep(node, y.command(node, words...))
}

// keep starts a program that runs until the end.
func (y *yard) keep(name string, c process.Command) error {
	child, err := process.Start(c)
	if err != nil {
		return err
	}
	y.children = append(y.children, &part{Child: child, name: name})
	y.drained.Go(func() { _, _ = io.Copy(io.Discard, child.Stdout) })
	return nil
}

// run runs a command of a node, and returns what it prints.
func (y *yard) run(ctx context.Context, node string, words ...string) (string, error) {
	return printed(ctx, y.command(node, words...))
}

func printed(ctx context.Context, c process.Command) (string, error) {
	p, err := process.Printed(ctx, nil, 1<<20, func() (*process.Child, error) { return process.Start(c) })
	if err == nil {
		err = p.Err
	}
	if err == nil && p.Exit.Code != 0 {
		err = tool.Errorf(tool.CodeUnavailable, "%s: %s", strings.Join(c.Argv, " "), p.Last)
	}
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(p.Doc)), nil
}
