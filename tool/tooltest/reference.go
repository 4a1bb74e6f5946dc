package tooltest

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Reference has the standard tools in this process, to test a door in front of it. Every caller may see all of them.
type Reference struct{}

var (
	_ tool.Handler = Reference{}
	_ tool.Catalog = Reference{}
	_ tool.Source  = Reference{}
)

type arguments struct {
	Message  string `json:"message"`
	Count    int    `json:"count"`
	Children int    `json:"children"`
	Sleep    string `json:"sleep"`
	Setsid   bool   `json:"setsid"`
	Hang     bool   `json:"hang"`
}

// Invoke runs a standard tool.
func (Reference) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if c.Tool == "echo" { // its arguments may be anything
		return &tool.Result{OK: true, Output: bytes.Clone(c.Args)}, nil
	}
	var args arguments
	if err := strictjson.Unmarshal(c.Args, &args); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s: %w", c.Tool, err)
	}
	switch c.Tool {
	case "fail":
		return tool.Failed("", args.Message), nil
	case "hang":
		return hang(ctx, out)
	case "events":
		return logs(ctx, args.Count, out)
	case "flood":
		return flood(ctx, out)
	case "spawn":
		return spawn(ctx, args, out)
	case "crash":
		return nil, tool.Errorf(tool.CodeCrash, "crash died without an answer, as it was told to")
	}
	return nil, tool.Errorf(tool.CodeNotFound, "no tool is called %q", c.Tool)
}

// Tools lists the standard tools.
func (Reference) Tools(context.Context) ([]*tool.Spec, error) { return Specs(), nil }

// Lookup finds a standard tool.
func (Reference) Lookup(_ context.Context, _ tool.Principal, name string) (*tool.Spec, error) {
	for _, s := range Specs() {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, tool.Errorf(tool.CodeNotFound, "no tool is called %q", name)
}

// Specs yields the standard tools.
func (Reference) Specs(context.Context, tool.Principal) iter.Seq2[*tool.Spec, error] {
	return func(yield func(*tool.Spec, error) bool) {
		for _, s := range Specs() {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func hang(ctx context.Context, out tool.Sink) (*tool.Result, error) {
	if err := out.Emit(tool.LogEvent("info", "hanging")); err != nil {
		return nil, err
	}
	<-ctx.Done()
	return nil, tool.AsError(ctx.Err())
}

func logs(ctx context.Context, count int, out tool.Sink) (*tool.Result, error) {
	for n := 1; n <= count; n++ {
		if ctx.Err() != nil {
			return nil, tool.AsError(ctx.Err())
		}
		if err := out.Emit(tool.LogEvent("info", fmt.Sprintf("event %d", n))); err != nil {
			return nil, err
		}
	}
	return &tool.Result{OK: true, Output: []byte(`{}`)}, nil
}

func flood(ctx context.Context, out tool.Sink) (*tool.Result, error) {
	message := strings.Repeat("x", 1<<10)
	for ctx.Err() == nil {
		if err := out.Emit(tool.LogEvent("info", message)); err != nil {
			return nil, err
		}
	}
	return nil, tool.AsError(ctx.Err())
}

func spawn(ctx context.Context, args arguments, out tool.Sink) (*tool.Result, error) {
	var children []*exec.Cmd
	defer func() {
		for _, c := range children {
			_ = c.Process.Kill()
			_ = c.Wait() // "killed" is what we wanted
		}
	}()
	for range args.Children {
		c := exec.Command("sleep", args.Sleep)
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: args.Setsid}
		if err := c.Start(); err != nil {
			return nil, tool.Errorf(tool.CodeUnavailable, "spawn cannot start sleep: %w", err)
		}
		children = append(children, c)
	}
	if args.Hang {
		return hang(ctx, out)
	}
	return &tool.Result{OK: true, Output: fmt.Appendf(nil, `{"started":%d}`, args.Children)}, nil
}

// Python is the real interpreter behind any launcher on the PATH, so that a test that starts many tools does not pay
// for the launcher each time.
var Python = sync.OnceValue(func() string {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		panic("the tests need python3: " + err.Error())
	}
	return strings.TrimSpace(string(out))
})

// DirectPython puts the folder of that interpreter first on the PATH of this program.
func DirectPython() {
	_ = os.Setenv("PATH", filepath.Dir(Python())+string(filepath.ListSeparator)+os.Getenv("PATH"))
}
