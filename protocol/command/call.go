package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"toolpost/host/process"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// lastRead limits one read of the output of a program that has ended: a process out of our reach may hold the other end of
// the pipe.
const lastRead = 3 * time.Second

// A call is one run of a tool. One goroutine, the caller's, reads the output; the reaper owns the process.
type call struct {
	asked *tool.Call
	*form
	*prepared
	guarantees tool.Guarantees
	child      *process.Child
	reaper     *process.Reaper
	events     *tool.Relay
	watch      walls.Watch
	meter      *meter
	made       *files // nil if no assets are configured
	assetCount int
}

// stderr takes a line of standard error, which is progress or a log event.
func (c *call) stderr(line []byte) {
	if !c.meter.sees(line, false) {
		c.events.Stderr(line)
	}
}

// read reads the output to its end. It returns a fault if the output is invalid; outcome handles any other reason for the
// end of the reading.
func (c *call) read() (output json.RawMessage, fault error) {
	stdout := io.Reader(c.reaper)
	if c.meter != nil {
		stdout = io.TeeReader(stdout, &splitter{line: func(line []byte) { c.meter.sees(line, true) }})
	}
	output, err := c.Output.read(stdout, c.MaxOutput, func(text string) error {
		return c.events.Emit(tool.NewEvent(tool.KindOutput, tool.Output{Stream: "stdout", Text: text}))
	})
	if errors.Is(err, os.ErrDeadlineExceeded) || c.events.Err() != nil {
		return output, nil // the reaper stopped us, or the sink wants no more
	}
	if limit, ok := errors.AsType[*bounded.LimitError](err); ok {
		c.reaper.Abort()
		return nil, fmt.Errorf("%w; ask it for less, or raise max_output of its source", limit)
	}
	if err != nil { // the program may be about to report it by its exit code
		if n, _ := io.CopyN(io.Discard, stdout, c.MaxOutput); n == c.MaxOutput {
			c.reaper.Abort()
		}
	}
	return output, err
}

// outcome returns the outcome of the call after the program has ended.
func (c *call) outcome(ctx context.Context, output json.RawMessage, fault error) (*tool.Result, error) {
	if err := c.events.Err(); err != nil {
		return nil, err
	}
	exit := c.reaper.Exit
	switch {
	case ctx.Err() != nil && c.reaper.Killed:
		e := c.interrupted(ctx, c.lastWords())
		e.Details = c.details()
		return nil, e
	case exit.Signal != 0 && !c.reaper.Killed:
		return nil, c.failed(tool.CodeCrash, "crashed: %s", c.child.Describe(exit))
	}
	means := Exit{Code: exit.Code, OK: exit.Code == 0}
	if i := slices.IndexFunc(c.Exits, func(e Exit) bool { return e.Code == exit.Code }); i >= 0 {
		means = c.Exits[i]
	}
	// A failed program reports its failure and need not write valid output. A program that was killed for its output has not
	// failed by itself.
	if fault != nil && (means.OK || c.reaper.Killed) {
		return nil, c.failed(tool.CodeProtocol, "wrote what cannot be read as %s: %v%s", cmp.Or(c.Output, Text), fault,
			c.lastWords())
	}
	if err := c.register(); err != nil {
		return nil, err
	}
	r := &tool.Result{OK: means.OK, Output: output, Trace: tool.Trace{Details: c.trace()}}
	if means.OK {
		r.Summary = means.Message
		return r, nil
	}
	r.Failure = &tool.Error{Code: tool.CodeToolError, Reason: means.Reason, Message: c.why(means), Details: c.details()}
	return r, nil
}

// why returns the message of a failure: the config's, the program's, or both, and otherwise the exit code.
func (c *call) why(means Exit) string {
	said := strings.TrimSpace(c.meter.without(c.child.Tail()))
	if means.Message != "" && said != "" {
		return means.Message + ": " + said
	}
	return cmp.Or(means.Message, said, fmt.Sprintf("%s failed with %s and did not say why", c.Name, c.reaper.Exit))
}

// register passes the files that the program made on as assets. A file that cannot be opened is reported.
func (c *call) register() error {
	if c.made == nil {
		return nil
	}
	found, err := c.made.changed()
	if err != nil {
		return c.events.Emit(tool.LogEvent("warn", err.Error()))
	}
	for _, name := range found {
		if err := c.asset(name); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) asset(name string) error {
	f, err := c.child.OpenFile(c.program.Dir, name)
	if err != nil {
		return c.events.Emit(tool.NewEvent(tool.KindError, tool.ErrorEvent{
			Code: "invalid_asset", Message: fmt.Sprintf("the file %.80q was not registered: it %v", name, err),
		}))
	}
	defer f.Close()
	ev := tool.NewEvent(tool.KindAsset, assetOf(c.program.Dir, name, f))
	ev.File = f
	c.assetCount++
	return c.events.Emit(ev)
}

// interrupted returns the error of a call whose context ended.
func (f *form) interrupted(ctx context.Context, tail string) *tool.Error {
	e := tool.Ended(ctx)
	e.Message = fmt.Sprintf("%s was ended: %s%s", f.Name, e.Message, tail)
	return e
}

func (c *call) failed(code tool.Code, format string, args ...any) *tool.Error {
	e := tool.Errorf(code, "%s "+format, append([]any{c.Name}, args...)...)
	e.Details = c.details()
	return e
}

// lastWords returns the end of the program's standard error, safe for any terminal and log.
func (c *call) lastWords() string {
	if last := process.LastLines(c.meter.without(c.child.Tail())); last != "" {
		return "; the last it wrote to stderr: " + last
	}
	return ""
}

func (c *call) trace() map[string]any {
	t := map[string]any{"exit_code": c.reaper.Exit.Code, "exit": c.reaper.Exit.String()}
	if c.made != nil {
		t["assets"] = c.assetCount
	}
	walls.Enforced(c.asked, t, c.guarantees, c.child.Layers(), c.watch.Checks())
	return t
}

// details returns the trace of a call that has no result, or has failed.
func (c *call) details() json.RawMessage {
	b, _ := strictjson.Marshal(map[string]any{"trace": c.trace()}) // numbers, booleans and strings
	return b
}
