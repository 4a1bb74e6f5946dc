package narratoria

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"toolpost/host/process"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// A call is one run of the tool. One goroutine, the caller's, reads the events; the reaper owns the process.
type call struct {
	*tool.Call
	o          *Options
	guarantees tool.Guarantees
	child      *process.Child
	reaper     *process.Reaper
	events     *tool.Relay
	watch      walls.Watch
	decoder    *decoder
	assets     assets

	done      *tool.Result     // the outcome, once the tool has reported it
	lastError *tool.ErrorEvent // the tool's last error event
	question  *tool.Ask        // its last question
	fault     error            // how the tool broke the protocol
	cut       int              // the number of an incomplete last line, or 0
	count     struct{ events, afterDone, badLines int }
}

// read takes the tool's lines until its output or ctx ends: lines from a tool that is being ended are not its outcome. A
// sink that blocks keeps us from reading, and so the tool from writing.
func (c *call) read(ctx context.Context) {
	defer c.reaper.Finish()
	lines := bounded.NewLines(c.reaper, bounded.LineLimits{Line: c.o.MaxLine, Total: c.o.MaxOutput})
	for {
		line, err := lines.Next()
		last := errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last { // outcome checks whether the tool had sent done
			if limit, ok := errors.AsType[*bounded.LimitError](err); ok {
				c.broke(limit)
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		if err := c.take(line, lines.Number(), last); err != nil || last {
			return
		}
	}
}

// broke records what the tool did wrong and has it killed. After done its outcome remains valid.
func (c *call) broke(fault error) {
	if c.done == nil {
		c.fault = fault
	}
	c.reaper.Abort()
}

// take handles one line. An error ends the reading. A blank line is ignored.
func (c *call) take(line []byte, number int, last bool) error {
	switch {
	case len(bytes.TrimSpace(line)) == 0:
		return nil
	case c.done != nil:
		c.count.afterDone++
		return nil
	}
	typ, err := c.decoder.decode(line)
	switch {
	case err != nil && last:
		c.cut = number
		return err
	case err != nil:
		return c.badLine(line, number, err)
	}
	return c.handle(typ, number)
}

func (c *call) badLine(line []byte, number int, why error) error {
	fault := fmt.Errorf("line %d: %.200s: %s", number, why.Error(), quote(line))
	if c.o.Lenient {
		c.count.badLines++
		return c.events.Emit(tool.LogEvent("warn", "skipped "+fault.Error()))
	}
	c.broke(fault)
	return fault
}

func (c *call) handle(typ string, number int) error {
	if typ == typeDone {
		c.done = c.decoder.done()
		c.reaper.Finish()
		return c.leftOut(number)
	}
	c.count.events++
	d, form := c.decoder, formOf(typ)
	switch typ {
	case typeStatePatch:
		return c.emit(tool.KindStatePatch, bytes.Clone(d.get("patch")))
	case typeAsset:
		return c.asset(number)
	case typeUIEvent:
		if err := c.asks(number); err != nil {
			return err
		}
	case typeError:
		c.lastError = &tool.ErrorEvent{
			Code: string(text(d.get("errorCode"))), Message: string(text(d.get("errorMessage"))),
			Details: bytes.Clone(d.get("details")),
		}
	}
	if err := c.emit(tool.Kind(typ), d.data(form)); err != nil || typ != typeLog {
		return err
	}
	if data := d.progress(); data != nil {
		return c.emit(tool.KindProgress, data)
	}
	return nil
}

// leftOut reports an output that a lenient reader did not accept.
func (c *call) leftOut(number int) error {
	if c.decoder.odd == nil {
		return nil
	}
	c.count.badLines++
	return c.events.Emit(tool.LogEvent("warn", fmt.Sprintf("line %d: %v; it is left out", number, c.decoder.odd)))
}

func (c *call) emit(k tool.Kind, data []byte) error {
	return c.events.Emit(tool.Event{Time: c.decoder.time(), Kind: k, Data: data})
}

// asset passes a checked asset on. A bad one is reported and the call goes on.
func (c *call) asset(number int) error {
	a, file, err := c.assets.register(c.decoder)
	if err == nil {
		defer file.Close()
		ev := tool.NewEvent(tool.KindAsset, a)
		ev.Time, ev.File = c.decoder.time(), file
		return c.events.Emit(ev)
	}
	bad := tool.ErrorEvent{
		Code:    "invalid_asset",
		Message: fmt.Sprintf("line %d: asset %s was not registered: %v", number, quote([]byte(a.AssetID)), err),
	}
	if c.Spec != nil { // the call goes on, so no stage reports it at the end
		elsewhere := func(b tool.Blocked) bool { return filepath.Dir(b.Target) != filepath.Dir(a.Path) }
		bad.Message += walls.Hint(c.Spec, slices.DeleteFunc(c.watch.Blocked(), elsewhere), bad.Message)
	}
	return c.events.Emit(tool.NewEvent(tool.KindError, bad))
}

// asks records a question, and reports one that cannot be asked. Every ui_event is passed on: the caller's interface decides
// which of them it knows. Choices are not a question: the player's choice is the next prompt.
func (c *call) asks(number int) error {
	ask, err := questionOf(string(text(c.decoder.get("event"))), c.decoder.get("payload"))
	switch {
	case err != nil:
		return c.events.Emit(tool.LogEvent("warn", fmt.Sprintf("line %d: %v", number, err)))
	case ask != nil && c.question != nil:
		err = c.events.Emit(tool.LogEvent("warn",
			fmt.Sprintf("line %d: this question takes the place of an earlier one; ask for several things at once with needs", number)))
	}
	if ask != nil {
		c.question = ask
	}
	return err
}

// outcome returns the outcome of the call after the tool's output and its process have ended.
func (c *call) outcome(ctx context.Context) (*tool.Result, error) {
	if err := c.events.Err(); err != nil {
		return nil, err
	}
	exit, killed := c.reaper.Exit, c.reaper.Killed
	clean := exit.Code == 0 && exit.Signal == 0
	switch {
	case c.fault != nil:
		return nil, c.failed("broke the protocol: %v%s", c.fault, c.child.LastWords())
	case c.done != nil && (clean || killed):
		return c.result(), nil
	case c.done != nil:
		return nil, c.failed("said done, and then ended badly: %s",
			c.child.Describe(exit)).Because(tool.ReasonExit)
	case ctx.Err() != nil:
		e := interrupted(ctx, c.o.Tool, c.child.LastWords())
		e.Details = c.details()
		return nil, e
	case killed:
		return nil, c.failed("closed its output without a done event and went on, so it was ended%s",
			c.child.LastWords())
	case !clean && c.cut > 0:
		return nil, c.failed("crashed in the middle of line %d: %s", c.cut,
			c.child.Describe(exit)).Because(tool.ReasonExit)
	case !clean:
		return nil, c.failed("crashed without a done event: %s",
			c.child.Describe(exit)).Because(tool.ReasonExit)
	case c.cut > 0:
		return nil, c.failed("ended in the middle of line %d, without a done event%s", c.cut,
			c.child.LastWords())
	}
	return nil, c.failed("ended without a done event; its last line must be one%s", c.child.LastWords())
}

func (c *call) failed(format string, args ...any) *tool.Error {
	e := tool.Errorf(tool.CodeProtocol, "%s "+format, append([]any{c.o.Tool}, args...)...)
	e.Details = c.details()
	return e
}

func (c *call) result() *tool.Result {
	r := c.done
	r.Trace.Details = c.trace()
	switch {
	case !r.OK:
		r.Failure = c.failure()
	case c.question != nil: // it has ended, and continues when it is called with the answers
		r.OK, r.Ask = false, c.question
		r.Ask.Message = cmp.Or(r.Ask.Message, r.Summary, "What next?")
	}
	return r
}

// failure combines the tool's reports of its failure: done has the summary, the last error event the rest.
func (c *call) failure() *tool.Error {
	said := cmp.Or(c.lastError, &tool.ErrorEvent{})
	return &tool.Error{
		Code: tool.CodeToolError, Reason: said.Code, Details: said.Details,
		Message: cmp.Or(c.done.Summary, said.Message, c.o.Tool+" failed and did not say why"),
	}
}

func (c *call) trace() map[string]any {
	t := map[string]any{
		"requestId": c.ID,
		"exit_code": c.reaper.Exit.Code,
		"exit":      c.reaper.Exit.String(),
		"events":    c.count.events,
		"assets":    len(c.assets.seen),
	}
	if c.count.afterDone > 0 {
		t["events_after_done"] = c.count.afterDone
	}
	if c.count.badLines > 0 {
		t["bad_lines"] = c.count.badLines
	}
	if c.done != nil && c.reaper.Killed {
		t["killed_after_done"] = true
	}
	walls.Enforced(c.Call, t, c.guarantees, c.child.Layers(), c.watch.Checks())
	return t
}

// details returns the trace of a call that has no result.
func (c *call) details() []byte {
	b, _ := strictjson.Marshal(map[string]any{"trace": c.trace()}) // numbers, booleans and strings
	return b
}
