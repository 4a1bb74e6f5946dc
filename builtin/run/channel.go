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
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// The bounds of a channel.
const (
	maxInFlight = 64        // concurrent calls of a program; at this number its channel is not read
	maxLine     = 4 << 20   // bytes of one call, and of a result
	maxBytes    = 256 << 20 // bytes of everything that a program sends, and of all answers to it
)

func lineLimits() bounded.LineLimits { return bounded.LineLimits{Line: maxLine, Total: maxBytes} }

// A program is a running program, as the host sees it.
type program struct {
	t              *Tools
	call           *tool.Call // the call that it runs for: the parent of all of its calls
	code           string
	events         tool.Sink
	stdout, stderr *define.Stream

	made   int // calls
	names  names
	unread bool // its process ended before it had read its code

	mu       sync.Mutex // guards what follows, and writes to conn
	conn     io.Writer
	answered int64                             // bytes
	open     map[int64]context.CancelCauseFunc // running calls, by the program's own number for them
	late     int                               // calls that ran, or were read, after the program had ended
}

func (p *program) stderrLines() func([]byte) { return define.Lines(p.stderr) }

// A line is a line that a program writes to its channel. A call consists of a name, the arguments, and a number for the
// answer. Nothing else that belongs to a call has a field here, and a line with unknown fields is rejected.
type line struct {
	ID     *int64          `json:"id"`
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args"`
	Cancel *int64          `json:"cancel"`
	Return json.RawMessage `json:"return"`
	Raised *raised         `json:"raised"`
}

// said is the final message of a program.
type said struct {
	result json.RawMessage
	raised *raised // nil if it returned
	left   int     // calls that still ran when it returned: they were not awaited
}

// raised is an uncaught exception.
type raised struct {
	Type    string  `json:"type"`
	Message string  `json:"message"`
	Code    string  `json:"code"` // of a failed call; empty for another exception
	Frames  []frame `json:"frames"`
}

// A frame is a place in the program.
type frame struct {
	Line int    `json:"line"`
	In   string `json:"in"`
}

var errBroken = errors.New("it wrote to the channel of its calls what is no call")

// talkThen calls talk, and then ends the program: at once if it sent no final message, otherwise if it does not end by
// itself soon.
func (p *program) talkThen(
	ctx context.Context, end func(), conn io.Writer, lines *bounded.Lines,
) (*said, error) {
	last, err := p.talk(ctx, conn, lines)
	if last == nil {
		end()
	}
	time.AfterFunc(process.LastBreath, end)
	return last, err
}

// talk reads from a program until its final message, or its end, and makes its calls. They end with ctx, and with the
// program; none still runs when talk returns.
func (p *program) talk(ctx context.Context, conn io.Writer, lines *bounded.Lines) (*said, error) {
	over := tool.Errorf(tool.CodeCancelled, "the program that made the call has ended")
	ctx, end := context.WithCancelCause(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer end(over)
	p.conn, p.open = conn, map[int64]context.CancelCauseFunc{}
	if p.unread = p.order() != nil; p.unread {
		return nil, nil // it has ended; its exit explains more
	}
	places := make(chan struct{}, maxInFlight)
	for {
		text, err := lines.Next()
		if err != nil {
			// The kernel reports this for a socket that was closed with unread data. As long as nothing was answered, that
			// data is the order.
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

// alone reports whether a line has exactly one meaning.
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

// unheard returns why a program was cut off before its end, or nil if it just sent nothing more.
func unheard(err error) error {
	if long, ok := errors.AsType[*bounded.LimitError](err); ok {
		return fmt.Errorf("%w: %w", errBroken, long)
	}
	return nil
}

// order sends the program its code.
func (p *program) order() error {
	w := strictjson.NewWriter(len(p.code) + 128)
	w.Raw("code", strictjson.Quote(p.code)) // even if it is empty
	w.Raw("most", fmt.Appendf(nil, `{"calls":%d,"bytes":%d}`, maxInFlight, maxLine))
	return p.write(w.Done())
}

func (p *program) write(text []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.conn.Write(append(text, '\n'))
	return err
}

// begin makes a call when there is a place for it. It returns false if its number is taken.
func (p *program) begin(ctx context.Context, places chan struct{}, calls *sync.WaitGroup, l line) bool {
	id := *l.ID
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // places get free, too, once all calls end
		p.mu.Lock()
		defer p.mu.Unlock()
		p.late++
		return true // the result is not needed any more
	}
	life := ctx
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
		delete(p.open, id) // before the answer is sent: the number is free from then on
		ended := life.Err() != nil
		if ended {
			p.late++
		}
		p.mu.Unlock()
		<-places
		if !ended || answer.failed == nil { // otherwise the program could raise that its call was cancelled, before it ends itself
			p.reply(id, answer)
		}
	})
	return true
}

// running returns how many calls run, or ran when the program ended: its last lines may be read after that.
func (p *program) running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open) + p.late
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

// An answer is what a program receives for a call.
type answer struct {
	output json.RawMessage
	failed *tool.Error
}

// refused is the answer to a call beyond the program's limit.
func (p *program) refused() answer {
	return answer{failed: tool.Errorf(tool.CodeQuotaExceeded,
		"a program makes at most %d calls; `code: {run: {max_calls: ...}}` of its source allows more", p.t.o.MaxCalls).
		Because("too_many_calls")}
}

// answer makes a call on behalf of the program's caller, one level deeper than the program's own call and in its session.
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
			Message: "it asks a question, which cannot be answered within a program: " + r.Ask.Message,
		}}
	case r.OK:
		return answer{output: r.Output}
	case r.Failure == nil:
		return answer{failed: tool.Errorf(tool.CodeToolError, "the tool said no: %s", r.Summary)}
	}
	return answer{failed: r.Failure}
}

// reply sends the program the answer to a call. It is not an error if the program has ended meanwhile.
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

// maxDetails is how much of an error's details a program receives.
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
	e.Text("reason", a.failed.Reason)
	if n := len(a.failed.Details); 0 < n && n <= maxDetails {
		e.Raw("details", oneLine(a.failed.Details))
	}
	w.Raw("error", e.Done())
	return w.Done()
}

// oneLine returns JSON without newlines, or null if it is empty.
func oneLine(raw json.RawMessage) []byte {
	switch {
	case len(raw) == 0:
		return []byte("null")
	case bytes.IndexByte(raw, '\n') < 0:
		return raw
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return []byte("null") // the output of a tool was checked
	}
	return b.Bytes()
}
