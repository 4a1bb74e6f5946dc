package postgres

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"toolpost/store/database"
)

// passedOver is for how long a server that did not answer is passed over, if the URL names others. It would be tried with and without
// TLS, each for half of the time in which the next one should be found, and first again at the next attempt.
const passedOver = 3 * time.Second

// passing returns a dialler that passes over servers which did not answer in at least half of the time for an attempt: one that was
// given up sooner says nothing about its server.
func passing(dial pgconn.DialFunc, timeout time.Duration) pgconn.DialFunc {
	var silent sync.Map // by address: when it was found to be silent
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if at, ok := silent.Load(address); ok && time.Since(at.(time.Time)) < passedOver {
			return nil, database.ErrSilent
		}
		began := time.Now()
		note := func(err error) {
			if time.Since(began) < timeout/2 {
				return
			}
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
				silent.Store(address, time.Now())
			}
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			note(err)
			return nil, err
		}
		return &first{Conn: conn, failed: note}, nil
	}
}

// A first is a connection on which the first answer is awaited.
type first struct {
	net.Conn
	came   atomic.Bool
	failed func(error)
}

// Read implements net.Conn.
func (f *first) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if !f.came.Load() {
		if f.came.Store(n > 0); n == 0 {
			f.failed(err)
		}
	}
	return n, err
}
