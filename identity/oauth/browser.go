package oauth

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// An Answer is what a provider sends the browser back with.
type Answer struct{ Code, State, Issuer string }

// AwaitBrowser shows the link and waits for the browser. A request with another state belongs to another login, or to
// none, and is ignored.
func AwaitBrowser(
	ctx context.Context, callback net.Listener, link string, show func(string),
) (a Answer, err error) {
	u, err := url.Parse(link)
	if err != nil {
		return a, err
	}
	returned := make(chan url.Values, 1)
	var answering sync.WaitGroup
	answering.Go(func() {
		for {
			conn, err := callback.Accept()
			if err != nil {
				return
			}
			// Browsers open connections that they do not use: those must not block the others.
			answering.Go(func() { answerBrowser(conn, u.Query().Get("state"), returned) })
		}
	})
	defer answering.Wait()
	defer callback.Close()
	show(link)
	select {
	case <-ctx.Done():
		return a, ctx.Err()
	case q := <-returned:
		if q.Get("code") == "" { // its error text is not shown: the sender has not been verified yet
			return a, errors.New("access was not granted")
		}
		return Answer{Code: q.Get("code"), State: q.Get("state"), Issuer: q.Get("iss")}, nil
	}
}

// Bounds on requests to the loopback address. Any process on this machine can connect to it.
const (
	browserTime = 5 * time.Second
	maxBrowser  = 64 << 10 // bytes of a request
)

// answerBrowser reads one request and answers it. An HTTP server would be too much for one page that is shown once.
func answerBrowser(conn net.Conn, state string, returned chan<- url.Values) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(browserTime))
	req, err := http.ReadRequest(bufio.NewReader(io.LimitReader(conn, maxBrowser)))
	if err != nil {
		return
	}
	q := req.URL.Query()
	status, page := "200 OK", "Thank you. You can close this window and go back to Toolpost.\n"
	ours := req.Method == http.MethodGet && q.Get("state") == state
	if !ours {
		status, page = "400 Bad Request", "This is not the login that is waited for.\n"
	}
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, len(page), page)
	if ours {
		select {
		case returned <- q:
		default: // the browser repeated the request
		}
	}
}
