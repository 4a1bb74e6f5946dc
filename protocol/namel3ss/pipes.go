package namel3ss

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"toolpost/tool"
)

// drainTime is how long a reader waits for more, once everyone who could write is dead.
const drainTime = 5 * time.Second

// pipes are some pipes of one call.
type pipes struct {
	r, w     []*os.File
	ctx      context.Context // of the call
	patience time.Duration
	draining atomic.Bool
}

func newPipes(ctx context.Context, n int) (*pipes, error) {
	p := &pipes{ctx: ctx, patience: drainTime}
	for range n {
		r, w, err := os.Pipe()
		if err != nil {
			p.close()
			return nil, tool.Errorf(tool.CodeUnavailable,
				"no more pipes for the call: %w; raise the limit of open files (ulimit -n)", err)
		}
		p.r, p.w = append(p.r, r), append(p.w, w)
	}
	return p, nil
}

// drain says that every writer is dead. The end must come now, but a tool may have handed a pipe to a
// process that is not ours, so nobody waits for ever.
func (p *pipes) drain() {
	p.draining.Store(true)
	for _, r := range p.r {
		_ = r.SetReadDeadline(time.Now().Add(p.patience))
	}
}

// reader reads one of the pipes. While the call lives, a caller who takes the events slowly loses none
// of them: only waiting for more is bounded.
func (p *pipes) reader(i int) pipeReader { return pipeReader{p, p.r[i]} }

type pipeReader struct {
	of *pipes
	f  *os.File
}

func (r pipeReader) Read(b []byte) (int, error) {
	if r.of.draining.Load() && r.of.ctx.Err() == nil {
		_ = r.f.SetReadDeadline(time.Now().Add(r.of.patience))
	}
	return r.f.Read(b)
}

func (p *pipes) close() {
	closeAll(p.r)
	closeAll(p.w)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
