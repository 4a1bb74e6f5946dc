package forks

import (
	"context"
	"io"
	"os"
	"sync/atomic"
	"time"

	"toolpost/host/process"
	"toolpost/tool"
)

// DrainTime is how long a reader waits for more, once every writer is dead.
const DrainTime = 5 * time.Second

// Pipes are the pipes of one call.
type Pipes struct {
	R, W     []*os.File
	ctx      context.Context // of the call
	Patience time.Duration   // DrainTime by default
	draining atomic.Bool
}

// NewPipes makes n pipes for the call of ctx. If there is no call yet, see For.
func NewPipes(ctx context.Context, n int) (*Pipes, error) {
	p := &Pipes{ctx: ctx, Patience: DrainTime}
	for range n {
		r, w, err := os.Pipe()
		if err != nil {
			p.Close()
			return nil, tool.Errorf(tool.CodeUnavailable,
				"no more pipes for the call: %w; raise the limit of open files (ulimit -n)", err)
		}
		p.R, p.W = append(p.R, r), append(p.W, w)
	}
	return p, nil
}

// For assigns them to the call of ctx, before they are read.
func (p *Pipes) For(ctx context.Context) { p.ctx = ctx }

// Drain records that every writer is dead. The end must come now, but a tool may have passed a pipe to a process that is
// not ours, so the wait is bounded.
func (p *Pipes) Drain() {
	p.draining.Store(true)
	for _, r := range p.R {
		_ = r.SetReadDeadline(time.Now().Add(p.Patience))
	}
}

// Reader reads one of the pipes. While the call lives, a slow consumer loses no events: only waiting for more is bounded.
func (p *Pipes) Reader(i int) io.Reader { return pipeReader{p, p.R[i]} }

type pipeReader struct {
	of *Pipes
	f  *os.File
}

// Read implements io.Reader.
func (r pipeReader) Read(b []byte) (int, error) {
	if r.of.draining.Load() && r.of.ctx.Err() == nil {
		_ = r.f.SetReadDeadline(time.Now().Add(r.of.Patience))
	}
	return r.f.Read(b)
}

// Close closes both ends of all of them.
func (p *Pipes) Close() {
	process.CloseAll(p.R)
	process.CloseAll(p.W)
}
