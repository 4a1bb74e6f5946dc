package walls

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"toolpost/kernel"
	"toolpost/tool"
)

// A connPair is one connection of a child, and the one to the host if there is one. Both end with its context.
type connPair struct {
	*egress
	report func(capability, target string)
	child  *side
	head   *head
	in     *bufio.Reader // data from the child

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	began  time.Time
	moved  atomic.Int64 // time of the last read or write, in nanoseconds since it began
	broken atomic.Bool  // it was aborted
}

// A side is one of the two connections of a pair.
type side struct {
	net.Conn
	pair *connPair
}

func (s *side) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	s.pair.move(n)
	return n, err
}

func (s *side) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	s.pair.move(n)
	return n, err
}

// CloseWrite ends the output to the other end.
func (s *side) CloseWrite() {
	if c, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}

// Close resets the connection of a pair that was aborted, so that the other end sees that it broke.
func (s *side) Close() error {
	if tcp, ok := s.Conn.(*net.TCPConn); ok && s.pair.broken.Load() {
		_ = tcp.SetLinger(0)
	}
	return s.Conn.Close()
}

// ended reports whether the other end has closed its direction, even if there is unread data before the end, and whether
// this end is closed, which happens when no process is left in the room.
func (s *side) ended() (half, whole bool) {
	c, ok := s.Conn.(syscall.Conn)
	if !ok {
		return false, false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true, true
	}
	err = raw.Control(func(fd uintptr) { half = kernel.HalfClosed(int(fd)) })
	return half, err != nil
}

func (c *connPair) move(n int) {
	if n > 0 {
		c.moved.Store(int64(time.Since(c.began)))
	}
}

// abort ends the pair so that neither end takes its data for complete.
func (c *connPair) abort() {
	c.broken.Store(true)
	c.cancel()
}

// serve talks to the child until one side ends the connection.
func (c *connPair) serve() {
	defer c.work.Wait()
	defer c.cancel()
	c.work.Go(c.guard)
	c.work.Go(func() { c.close(c.child) })
	_ = c.child.SetReadDeadline(time.Now().Add(c.limits.head))
	first, err := c.in.Peek(1)
	switch {
	case err != nil:
	case first[0] == socksVersion:
		c.serveSOCKS()
	default:
		c.serveHTTP()
	}
}

// guard ends the pair with the child, and when nothing has moved for too long. It checks the child's connection because
// there may be no reader at that moment. A child that is gone differs from one that has closed only its direction by its
// silence alone.
func (c *connPair) guard() {
	tick := time.NewTicker(c.limits.look)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		}
		idle := time.Since(c.began) - time.Duration(c.moved.Load())
		if half, whole := c.child.ended(); whole || idle > c.limits.idle || half && idle > c.limits.half {
			c.abort()
		}
	}
}

// connect connects to a host, and reports a violation if it is not on the list. The connection ends with the pair.
func (c *connPair) connect(t host) (*side, error) {
	_ = c.child.SetReadDeadline(time.Time{})
	c.head.over = true
	conn, err := c.egress.connect(c.ctx, t)
	if err != nil {
		if tool.CodeOf(err) == tool.CodeAccessDenied {
			c.report(capNetwork, t.String())
		}
		return nil, err
	}
	c.move(1)
	peer := &side{Conn: conn, pair: c}
	c.work.Go(func() { c.close(peer) })
	return peer, nil
}

// close waits for the end of the pair, and closes one of its connections.
func (c *connPair) close(s *side) {
	<-c.ctx.Done()
	_ = s.Close()
}

// tunnel passes everything on, in both directions, each until its end.
func (c *connPair) tunnel(peer *side) {
	early, _ := c.in.Peek(c.in.Buffered())
	pass := func(to *side, from io.Reader) {
		if _, err := io.Copy(to, from); err != nil { // it ends the other direction too, and must not look complete
			c.abort()
			return
		}
		to.CloseWrite()
	}
	var there sync.WaitGroup
	there.Go(func() { pass(peer, io.MultiReader(bytes.NewReader(early), c.child)) })
	pass(c.child, peer)
	there.Wait()
}

// part ends a pair after an answer: a child that is still sending would lose the answer if the connection was closed at
// once.
func (c *connPair) part() {
	c.child.CloseWrite()
	_ = c.child.SetReadDeadline(time.Now().Add(c.limits.part))
	_, _ = io.CopyN(io.Discard, c.child, 4<<20)
}

// A head is the data that a child sends before anything is passed on: it is bounded, and kept to be parsed again.
type head struct {
	from io.Reader
	kept bytes.Buffer
	err  error // why it ended
	over bool
}

// begin starts another request, of which a part has been read.
func (h *head) begin(early []byte) {
	h.over, h.err = false, nil
	h.kept.Reset()
	h.kept.Write(early)
}

var errHead = errors.New("the request is too large")

func (h *head) Read(p []byte) (int, error) {
	if h.over {
		return h.from.Read(p)
	}
	left := maxHead - h.kept.Len()
	if left == 0 {
		h.err = errHead
		return 0, errHead
	}
	n, err := h.from.Read(p[:min(len(p), left)])
	h.kept.Write(p[:n])
	h.err = err
	return n, err
}

// The constants of SOCKS5, RFC 1928.
const (
	socksVersion   = 5
	socksConnect   = 1
	socksNoAuth    = 0
	socksNoMethod  = 0xff
	socksIPv4      = 1
	socksName      = 3
	socksIPv6      = 4
	socksOK        = 0
	socksDenied    = 2
	socksNoHost    = 4
	socksRefused   = 5
	socksNoCommand = 7
	socksNoAddress = 8
)

// serveSOCKS serves a SOCKS5 request of the child.
func (c *connPair) serveSOCKS() {
	var start [2]byte
	if _, err := io.ReadFull(c.in, start[:]); err != nil {
		return
	}
	methods := make([]byte, start[1])
	if _, err := io.ReadFull(c.in, methods); err != nil {
		return
	}
	if !slices.Contains(methods, socksNoAuth) {
		_, _ = c.child.Write([]byte{socksVersion, socksNoMethod})
		c.part()
		return
	}
	_, _ = c.child.Write([]byte{socksVersion, socksNoAuth})
	t, reply, err := c.socksTarget()
	if err != nil {
		return
	}
	var peer *side
	covered := reply == socksOK && c.inject.covers(t)
	if reply == socksOK && !covered {
		peer, err = c.connect(t)
		reply = socksReply(err)
	}
	// the local address of the connection is not revealed
	_, _ = c.child.Write([]byte{socksVersion, reply, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	if reply != socksOK {
		c.part()
		return
	}
	if covered {
		c.intercept(t)
		return
	}
	c.tunnel(peer)
}

// socksTarget reads the request. It returns an error if the request does not arrive.
func (c *connPair) socksTarget() (host, byte, error) {
	var start [4]byte // version, command, reserved, kind of address
	if _, err := io.ReadFull(c.in, start[:]); err != nil {
		return host{}, 0, err
	}
	if start[0] != socksVersion || start[1] != socksConnect {
		return host{}, socksNoCommand, nil
	}
	size := map[byte]int{socksIPv4: 4, socksIPv6: 16}[start[3]]
	if start[3] == socksName {
		n, err := c.in.ReadByte()
		if err != nil {
			return host{}, 0, err
		}
		size = int(n)
	}
	if size == 0 {
		return host{}, socksNoAddress, nil
	}
	rest := make([]byte, size+2)
	if _, err := io.ReadFull(c.in, rest); err != nil {
		return host{}, 0, err
	}
	name := string(rest[:size])
	if addr, ok := netip.AddrFromSlice(rest[:size]); ok && start[3] != socksName {
		name = addr.String()
	}
	return newHost(name, binary.BigEndian.Uint16(rest[size:])), socksOK, nil
}

// socksReply returns the reply for the result of a connection.
func socksReply(err error) byte {
	switch {
	case err == nil:
		return socksOK
	case tool.CodeOf(err) == tool.CodeAccessDenied:
		return socksDenied
	case errors.Is(err, syscall.ECONNREFUSED):
		return socksRefused
	}
	return socksNoHost
}
