package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"toolpost/wire/strictjson"
)

// A wire is the DevTools protocol over two pipes: JSON messages, each followed by a zero byte. The libraries for it have
// a type for each of its thousand messages, which costs every build of the tests more than the browser itself; we use
// twenty.
type wire struct {
	out *os.File // to the browser

	mu      sync.Mutex
	last    int64
	waiting map[int64]chan message
	hearing map[string]func(method string, params json.RawMessage) // by session
	ended   error
}

type message struct {
	ID      int64           `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

func newWire(out *os.File) *wire {
	return &wire{
		out: out, waiting: map[int64]chan message{}, hearing: map[string]func(string, json.RawMessage){},
	}
}

// listen reads the browser's messages until they end.
func (w *wire) listen(in io.Reader) {
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := lines.ReadBytes(0)
		var m message
		if err == nil {
			err = strictjson.Unmarshal(bytes.TrimSuffix(line, []byte{0}), &m)
		}
		if err != nil {
			w.fail(err)
			return
		}
		w.mu.Lock()
		answer, hear := w.waiting[m.ID], w.hearing[m.Session]
		delete(w.waiting, m.ID)
		w.mu.Unlock()
		switch {
		case m.ID != 0 && answer != nil:
			answer <- m
		case m.Method != "" && hear != nil:
			hear(m.Method, m.Params)
		}
	}
}

func (w *wire) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = fmt.Errorf("the browser has ended: %w", err)
	for id, answer := range w.waiting {
		close(answer)
		delete(w.waiting, id)
	}
}

// hear passes the events of a session to f; a nil f removes the listener.
func (w *wire) hear(session string, f func(method string, params json.RawMessage)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hearing[session] = f; f == nil {
		delete(w.hearing, session)
	}
}

// ask sends one request and reads its result into a value; nil discards it.
func (w *wire) ask(ctx context.Context, session, method string, params, into any) error {
	raw, err := strictjson.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan message, 1)
	w.mu.Lock()
	if w.ended != nil {
		w.mu.Unlock()
		return w.ended
	}
	w.last++
	id := w.last
	w.waiting[id] = answer
	body, err := strictjson.Marshal(message{ID: id, Session: session, Method: method, Params: raw})
	if err == nil {
		_, err = w.out.Write(append(body, 0))
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: the browser has ended", method)
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case into == nil:
			return nil
		}
		return strictjson.Unmarshal(m.Result, into)
	case <-ctx.Done():
		return fmt.Errorf("%s: no answer: %w", method, ctx.Err())
	}
}
