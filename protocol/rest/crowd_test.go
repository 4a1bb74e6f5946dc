package rest_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// crowded opens a door with few places.
func crowded(t *testing.T, b identity.Bounds) *house {
	t.Helper()
	tooltest.NoLeaks(t)
	var s setup
	s.Gate, s.Bounds = people, b
	return open(t, s)
}

func asking(h *house, who string) string {
	return fmt.Sprintf("GET /v1/tools HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer token-of-%s\r\n\r\n", h.addr, who)
}

// ended reports whether the other side has closed a connection, with or without an answer.
func ended(conn net.Conn, r *bufio.Reader) bool {
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, err := r.Peek(1)
	timeout, ok := err.(net.Error)
	return !ok || !timeout.Timeout()
}

// A client that opens connections and sends nothing, or sends it slowly, keeps no other out.
func TestIdleStrangersDoNotBlockCallers(t *testing.T) {
	h := crowded(t, identity.Bounds{All: 8, Strangers: 4, Each: 2})
	conns, readers := make([]net.Conn, 60), make([]*bufio.Reader, 60)
	for i := range conns {
		conns[i], readers[i] = h.raw(t, []string{"", "GET /v1/tools HTTP/1.1\r\nHost:", "\x16\x03\x01"}[i%3])
		if i%20 == 10 { // in between
			conn, r := h.raw(t, asking(h, "ada"))
			if a := readRaw(t, r); a.status != 200 {
				t.Errorf("after %d that say nothing: status %d, %s", i, a.status, a.body)
			}
			conn.Close()
		}
	}
	left, told := make([]int, 0, len(conns)), 0
	for i := range conns {
		left = append(left, i)
	}
	kit.Eventually(t, "end of those that are too many", func() bool {
		left = slices.DeleteFunc(left, func(i int) bool {
			if !ended(conns[i], readers[i]) {
				return false
			}
			if resp, err := http.ReadResponse(readers[i], nil); err == nil {
				resp.Body.Close()
				if resp.StatusCode == 503 && resp.Header.Get("Retry-After") == "1" {
					told++
				}
			}
			return true
		})
		return len(left) <= 8
	})
	if told < 20 {
		t.Errorf("%d were told why they are not open any more", told)
	}
}

func TestConnectionsAreBoundedPerCaller(t *testing.T) {
	h := crowded(t, identity.Bounds{All: 8, Strangers: 4, Each: 2})
	first, r1 := h.raw(t, asking(h, "ada"))
	_, r2 := h.raw(t, asking(h, "ada"))
	for _, r := range []*bufio.Reader{r1, r2} {
		if a := readRaw(t, r); a.status != 200 {
			t.Fatalf("status %d, %s", a.status, a.body)
		}
	}
	_, r3 := h.raw(t, asking(h, "ada"))
	third := readRaw(t, r3)
	third.refused(t, 429, tool.CodeQuotaExceeded)
	if _, err := r3.Peek(1); !strings.Contains(string(third.body), `"reason":"connections"`) || err != io.EOF {
		t.Errorf("%s, and then %v", third.body, err)
	}
	_, eves := h.raw(t, asking(h, "eve"))
	if a := readRaw(t, eves); a.status != 200 {
		t.Errorf("eve: status %d, %s", a.status, a.body)
	}
	kit.Must(fmt.Fprint(first, asking(h, "ada")))(t) // several requests on one connection
	if a := readRaw(t, r1); a.status != 200 {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	first.Close()
	kit.Eventually(t, "a place that has become free", func() bool {
		_, r := h.raw(t, asking(h, "ada"))
		return readRaw(t, r).status == 200
	})
}

// An idle connection between two requests makes room for a caller with a request.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	h := crowded(t, identity.Bounds{All: 4, Strangers: 2, Each: 4})
	for i := range 20 {
		_, r := h.raw(t, asking(h, fmt.Sprint("caller-", i)))
		if a := readRaw(t, r); a.status != 200 {
			t.Fatalf("caller %d: status %d, %s", i, a.status, a.body)
		}
	}
}

// A connection that two callers use, such as a proxy's, counts for the one that used it last.
func TestConnectionCountsForItsLastCaller(t *testing.T) {
	h := crowded(t, identity.Bounds{All: 8, Strangers: 4, Each: 1})
	conn, r := h.raw(t, "")
	for _, who := range []string{"ada", "eve", "ada"} {
		_, _ = fmt.Fprint(conn, asking(h, who))
		if a := readRaw(t, r); a.status != 200 {
			t.Fatalf("%s: status %d, %s", who, a.status, a.body)
		}
	}
	_, other := h.raw(t, asking(h, "eve"))
	if a := readRaw(t, other); a.status != 200 {
		t.Errorf("eve: status %d, %s", a.status, a.body)
	}
}
