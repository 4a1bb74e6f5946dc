package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"syscall"
	"time"

	"toolpost/builtin/define"
	"toolpost/host/process"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The bounds of what goes over a channel.
const (
	maxInFlight = 64        // calls of a program at once; while there are so many, nobody listens to it
	maxLine     = 4 << 20   // bytes of one call, and of a result
	maxBytes    = 256 << 20 // bytes of all that a program says, and of all that it is answered
)

func lineLimits() process.LineLimits { return process.LineLimits{Line: maxLine, Total: maxBytes} }

// A program is one that runs, as the host sees it.
type program struct {
	t              *Tools
	call           *tool.Call // that it runs for: the parent of all of its calls
	code           string
	events         tool.Sink
	stdout, stderr *define.Stream

	made   int // calls
	names  names
	unread bool // its process ended before it had read what to run

	mu       sync.Mutex // of what follows, and of writing to conn
	conn     io.Writer
	answered int64                             // bytes
	open     map[int64]context.CancelCauseFunc // calls that run, by the program's own number for them
}

func (p *program) stderrLines() func([]byte) { return define.Lines(p.stderr) }

// A line is one that a program writes to its channel. Of a call it has the name and the arguments, and a number for the
// answer. There is no place in it for anything else that belongs to a call, and what has one is not understood.
type line struct {
	ID     *int64          `json:"id"`
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args"`
	Cancel *int64          `json:"cancel"`
	Return json.RawMessage `json:"return"`
	Raised *raised         `json:"raised"`
}

// said is the last that a program says.
type said struct {
	result json.RawMessage
	raised *raised // nil: it returned
	left   int     // calls that ran when it returned: nobody awaited them
}

// raised is an exception that nobody caught.
type raised struct {
	Type    string  `json:"type"`
	Message string  `json:"message"`
	Code    string  `json:"code"` // of a call that failed; empty: it is another exception
	Frames  []frame `json:"frames"`
}

// A frame is a place in the program.
type frame struct {
	Line int    `json:"line"`
	In   string `json:"in"`
}

var errBroken = errors.New("it wrote to the channel of its calls what is no call")

// talkThen is talk, and then ends the program: at once if it did not say its last, or else when it has not ended by
// itself soon.
func (p *program) talkThen(
	ctx context.Context, end func(), conn io.Writer, lines *process.Lines,
) (*said, error) {
	last, err := p.talk(ctx, conn, lines)
	if last == nil {
		end()
	}
	time.AfterFunc(process.LastBreath, end)
	return last, err
}

// talk listens to a program until it says its last, or nothing more, and makes its calls. They end with ctx, and with
// the program; when it returns none runs any more.
func (p *program) talk(ctx context.Context, conn io.Writer, lines *process.Lines) (*said, error) {
	over := tool.Errorf(tool.CodeCancelled, "the program that made the call has ended")
	ctx, end := context.WithCancelCause(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer end(over)
	p.conn, p.open = conn, map[int64]context.CancelCauseFunc{}
	if p.unread = p.order() != nil; p.unread {
		return nil, nil // it has ended, and how says more
	}
	places := make(chan struct{}, maxInFlight)
	for {
		text, err := lines.Next()
		if err != nil {
			// The kernel says so of a socket that was closed with something in it, and that is the order, as long as nothing
			// was answered.
			p.unread = p.made == 0 && errors.Is(err, syscall.ECONNRESET)
			return nil, unheard(err)
		}
		var l line
		if err := strictjson.UnmarshalClosed(text, &l); err != nil {
			return nil, fmt.Errorf("%w: %w", errBroken, err)
		}
		switch {
		case l.Raised != nil && l.alone():
			return &said{raised: l.Raised}, nil
		case l.Return != nil && l.alone():
			return &said{result: l.Return, left: p.running()}, nil
		case l.Cancel != nil && l.alone():
			p.cancel(*l.Cancel)
		case l.ID != nil && l.Tool != "" && l.alone():
			if !p.begin(ctx, places, &calls, l) {
				return nil, fmt.Errorf("%w: the number %d of a call that is not answered yet", errBroken, *l.ID)
			}
		default:
			return nil, errBroken
		}
	}
}

// alone reports whether a line says one thing.
func (l *line) alone() bool {
	n := 0
	calls := l.ID != nil || l.Tool != "" || l.Args != nil
	for _, is := range []bool{l.Raised != nil, l.Return != nil, l.Cancel != nil, calls} {
		if is {
			n++
		}
	}
	return n == 1
}

// unheard says why a program was not listened to to its end; nil: it said nothing more.
func unheard(err error) error {
	if long, ok := errors.AsType[*process.LimitError](err); ok {
		return fmt.Errorf("%w: %w", errBroken, long)
	}
	return nil
}

// order tells the program what to run.
func (p *program) order() error {
	w := strictjson.NewWriter(len(p.code) + 128)
	w.Raw("code", strictjson.Quote(p.code)) // also where it is empty
	w.Raw("most", fmt.Appendf(nil, `{"calls":%d,"bytes":%d}`, maxInFlight, maxLine))
	return p.write(w.Done())
}

func (p *program) write(text []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.conn.Write(append(text, '\n'))
	return err
}

// begin makes a call when there is a place for it. False: its number is taken.
func (p *program) begin(ctx context.Context, places chan struct{}, calls *sync.WaitGroup, l line) bool {
	id := *l.ID
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return true // nobody waits for it any more
	}
	ctx, end := context.WithCancelCause(ctx)
	p.mu.Lock()
	_, taken := p.open[id]
	if !taken {
		p.open[id] = end
	}
	p.mu.Unlock()
	if taken {
		end(nil)
		return false
	}
	p.made++
	over := p.made > p.t.o.MaxCalls
	name, args := l.Tool, bytes.Clone(l.Args)
	calls.Go(func() {
		defer end(nil)
		answer := p.refused()
		if !over {
			answer = p.answer(ctx, name, args)
		}
		p.mu.Lock()
		delete(p.open, id) // before it learns the answer: the number is free then
		p.mu.Unlock()
		<-places
		p.reply(id, answer)
	})
	return true
}

// running is how many calls run.
func (p *program) running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// cancel ends a call, if it still runs.
func (p *program) cancel(id int64) {
	p.mu.Lock()
	end := p.open[id]
	p.mu.Unlock()
	if end != nil {
		end(tool.Errorf(tool.CodeCancelled, "the program cancelled the call"))
	}
}

// An answer is what a program is told of a call.
type answer struct {
	output json.RawMessage
	failed *tool.Error
}

// refused is the answer to a call beyond those that a program may make.
func (p *program) refused() answer {
	return answer{failed: tool.Errorf(tool.CodeQuotaExceeded,
		"a program makes at most %d calls; `code: {run: {max_calls: ...}}` of its source allows more", p.t.o.MaxCalls).
		Because("too_many_calls")}
}

// answer makes a call as its caller's own, one deeper than that of the program and in its session.
func (p *program) answer(ctx context.Context, name string, args json.RawMessage) answer {
	c := p.call.Inner(p.names.resolve(ctx, p.t.Engine, p.call.Caller, name), args)
	c.Session = p.call.Session
	r, err := p.t.Engine.Invoke(ctx, c, tool.Discard)
	switch {
	case err != nil:
		return answer{failed: p.names.meant(name, tool.AsError(err))}
	case r.Ask != nil:
		ask, _ := strictjson.Marshal(map[string]any{"ask": r.Ask})
		return answer{failed: &tool.Error{
			Code: "asked", Details: ask,
			Message: "it asks something, which nobody can answer within a program: " + r.Ask.Message,
		}}
	case r.OK:
		return answer{output: r.Output}
	case r.Failure == nil:
		return answer{failed: tool.Errorf(tool.CodeToolError, "the tool said no: %s", r.Summary)}
	}
	return answer{failed: r.Failure}
}

// reply tells the program what came of a call. That it has ended meanwhile is no error.
func (p *program) reply(id int64, a answer) {
	text := a.document(id)
	p.mu.Lock()
	p.answered += int64(len(text))
	much := p.answered > maxBytes
	p.mu.Unlock()
	if much {
		text = answer{failed: tool.Errorf(tool.CodeQuotaExceeded,
			"a program is answered at most %d bytes in all: ask for less", maxBytes).Because("too_many_bytes")}.document(id)
	}
	_ = p.write(text)
}

// maxDetails is how much of an error's details a program gets.
const maxDetails = 64 << 10

// document writes an answer, on one line.
func (a answer) document(id int64) []byte {
	w := strictjson.NewWriter(len(a.output) + 64)
	w.Raw("id", strconv.AppendInt(nil, id, 10))
	if a.failed == nil {
		w.Raw("output", oneLine(a.output))
		return w.Done()
	}
	e := strictjson.NewWriter(256)
	e.Text("code", string(a.failed.Code))
	e.Raw("message", strictjson.Quote(a.failed.Message))
	if a.failed.Reason != "" {
		e.Text("reason", a.failed.Reason)
	}
	if n := len(a.failed.Details); 0 < n && n <= maxDetails {
		e.Raw("details", oneLine(a.failed.Details))
	}
	w.Raw("error", e.Done())
	return w.Done()
}

// oneLine is JSON without a line's end in it, and null where there is none.
func oneLine(raw json.RawMessage) []byte {
	switch {
	case len(raw) == 0:
		return []byte("null")
	case bytes.IndexByte(raw, '\n') < 0:
		return raw
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return []byte("null") // what a tool gave was checked
	}
	return b.Bytes()
}
