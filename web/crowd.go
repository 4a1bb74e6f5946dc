package web

import (
	"container/list"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"toolpost/identity"
	"toolpost/tool"
)

// A crowd bounds the connections of an HTTP server. If it is full, or has too many strangers, a new connection replaces
// the one that has been waiting longest without a request, so connections that are opened and left alone keep no client
// out. Set admit as the server's ConnContext and watch as its ConnState, and call belongs with the caller of each
// request.
type crowd struct {
	bounds identity.Bounds
	refuse func(*tool.Error) (body []byte)

	sending sync.WaitGroup // refusals in progress

	mu        sync.Mutex
	members   map[net.Conn]*member
	strangers int
	of        identity.PerCaller[int] // connections
	waiting   map[bool]*list.List     // connections without a request, longest first; true for those of known callers
}

// A member is a connection.
type member struct {
	conn   net.Conn
	known  bool
	caller string
	asked  bool          // it has had a request
	since  time.Time     // when it was opened, or became idle
	place  *list.Element // in its waiting list; nil while it has a request
}

// newCrowd makes a crowd. refuse returns the body for a connection that is refused.
func newCrowd(b identity.Bounds, refuse func(*tool.Error) (body []byte)) *crowd {
	return &crowd{
		bounds: b, refuse: refuse, members: map[net.Conn]*member{}, of: identity.PerCaller[int]{},
		waiting: map[bool]*list.List{false: list.New(), true: list.New()},
	}
}

type memberKey struct{}

// admit takes a new connection, or closes it or another one. The next connection waits for admit to return, so the
// refusal is sent in the background.
func (c *crowd) admit(ctx context.Context, conn net.Conn) context.Context {
	m := &member{conn: conn}
	if away := c.enter(m); away != nil {
		c.sending.Go(func() { c.send(away) })
	}
	return context.WithValue(ctx, memberKey{}, m)
}

// enter returns the connection that has to leave, or nil.
func (c *crowd) enter(m *member) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := len(c.members) >= c.bounds.All
	var away *member
	if full || c.strangers >= c.bounds.Strangers {
		away = c.longest()
	}
	switch {
	case full && away == nil:
		return m
	case away != nil && (full || !away.known && time.Since(away.since) > identity.Patience):
		c.leave(away)
	default:
		away = nil
	}
	c.members[m.conn] = m
	c.strangers++
	c.wait(m)
	return away
}

// wait puts a connection at the end of those that wait for a request.
func (c *crowd) wait(m *member) {
	c.serve(m)
	m.since, m.place = time.Now(), c.waiting[m.known].PushBack(m)
}

// serve marks a connection as not waiting.
func (c *crowd) serve(m *member) {
	if m.place != nil {
		c.waiting[m.known].Remove(m.place)
		m.place = nil
	}
}

// longest returns the connection that has been waiting longest: a stranger's, or else one between two requests.
func (c *crowd) longest() *member {
	for _, known := range []bool{false, true} {
		if first := c.waiting[known].Front(); first != nil {
			return first.Value.(*member)
		}
	}
	return nil
}

func (c *crowd) leave(m *member) {
	if c.members[m.conn] != m {
		return
	}
	delete(c.members, m.conn)
	c.serve(m)
	if !m.known {
		c.strangers--
		return
	}
	c.of.Add(m.caller, -1)
}

// empties waits until there are no connections, at most as long as given.
func (c *crowd) empties(most time.Duration) {
	gone := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.members) == 0
	}
	for end := time.Now().Add(most); !gone() && time.Now().Before(end); {
		time.Sleep(min(most/50, lastWords/10))
	}
}

// watch follows the state of a connection.
func (c *crowd) watch(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[conn]
	if m == nil {
		return
	}
	switch state {
	case http.StateActive:
		m.asked = true
		c.serve(m)
	case http.StateIdle:
		c.wait(m)
	case http.StateClosed, http.StateHijacked:
		c.leave(m)
	}
}

// belongs assigns a request, and so its connection, to a caller. It returns an error if the caller has too many.
func (c *crowd) belongs(ctx context.Context, p tool.Principal) error {
	m, _ := ctx.Value(memberKey{}).(*member)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m == nil || c.members[m.conn] != m || m.known && m.caller == p.ID:
		return nil
	case c.of[p.ID] >= c.bounds.Each:
		return tool.Errorf(tool.CodeQuotaExceeded,
			"%q has %d connections already: close some, or use one for several requests", p.ID, c.bounds.Each).
			Because("connections").RetryAfter(time.Second)
	}
	c.leave(m)
	m.known, m.caller = true, p.ID
	c.members[m.conn] = m
	c.of.Add(p.ID, 1)
	return nil
}

// send closes a connection, with an explanation if one can be sent at once. A client that has had an answer expects
// that a connection may end between two requests, and gets none.
func (c *crowd) send(m *member) {
	conn := m.conn
	defer func() { _ = conn.Close() }()
	if over, ok := conn.(*tls.Conn); ok { // the explanation would have to wait for the handshake
		conn = over.NetConn()
		return
	}
	if m.asked {
		return
	}
	body := c.refuse(tool.Errorf(tool.CodeUnavailable,
		"too many connections are open, and this one has not shown who it is of; try again").Because("busy"))
	// Nothing was written before, so the buffer has room: the bound is for a machine too busy to write at once.
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	head := "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n" +
		"Retry-After: 1\r\n\r\n"
	_, _ = conn.Write(append([]byte(head), body...))
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, _ = io.CopyN(io.Discard, conn, 4<<10) // else the unread input would discard the answer
	}
}
