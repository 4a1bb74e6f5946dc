package worker

import (
	"context"
	"os"
	"sync"
	"syscall"

	"toolpost/wire/jsonrpc"
)

// pipeAtom is how much the kernel takes into a pipe as a whole or not at all.
const pipeAtom = 4096

// A pipe sends lines to a program. One goroutine, run, writes those that have to wait, so that nobody is held by a
// program that does not read; a line that fits is written at once by whoever has it, which saves a call two changes of
// goroutine.
type pipe struct {
	file *os.File
	out  chan []byte
	gone <-chan struct{} // closed with the program

	writing sync.Mutex
	raw     syscall.RawConn
	try     func(fd uintptr) bool // made once, so that a line costs no memory
	line    []byte
	sent    bool
}

// open gives the pipe its file, before anything is sent.
func (p *pipe) open(f *os.File) (err error) {
	p.file = f
	p.raw, err = f.SyscallConn()
	p.try = func(fd uintptr) bool {
		n, err := syscall.Write(int(fd), p.line)
		p.sent = err == nil && n == len(p.line)
		return true
	}
	return err
}

// Send implements jsonrpc.Writer.
func (p *pipe) Send(ctx context.Context, stop <-chan struct{}, line []byte) error {
	select {
	case <-stop:
	case <-p.gone:
	default:
		if ctx.Err() == nil && p.now(line) {
			return nil
		}
		select {
		case p.out <- line:
			return nil
		case <-stop:
		case <-p.gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return jsonrpc.ErrUnsent
}

// now writes a line if that can be done whole and without waiting.
func (p *pipe) now(line []byte) bool {
	if len(line) > pipeAtom || !p.writing.TryLock() {
		return false
	}
	defer p.writing.Unlock()
	p.line, p.sent = line, false
	err := p.raw.Write(p.try)
	p.line = nil
	return p.sent && err == nil
}

// run writes the lines that wait, to the end of the program. Failed is called for each that could not be written.
func (p *pipe) run(failed func()) {
	for {
		select {
		case line := <-p.out:
			p.writing.Lock()
			_, err := p.file.Write(line)
			p.writing.Unlock()
			if err != nil {
				failed()
			}
		case <-p.gone:
			return
		}
	}
}
