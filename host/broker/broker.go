// Package broker runs NATS servers in this process.
package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Listen sets the address of a server, as HOST:PORT; port 0 means any.
func Listen(o *server.Options, address string) error {
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(port, 10, 16)
	if o.Host, o.Port = host, int(n); n == 0 {
		o.Port = server.RANDOM_PORT
	}
	return cmp.Or(err, bad)
}

// Start starts a server, and waits until it takes connections; an error has the server's own text. The lines of its log begin with
// a name. If it is quiet, its warnings and errors, which are about connections, are logged at the level debug.
func Start(srv *server.Server, log *slog.Logger, name string, quiet bool) error {
	w := &words{log: log, name: name, quiet: quiet}
	srv.SetLoggerV2(w, false, false, false)
	srv.Start()
	for end := time.Now().Add(10 * time.Second); w.last() == "" && time.Now().Before(end); {
		if srv.ReadyForConnections(20 * time.Millisecond) {
			return nil
		}
	}
	return errors.New(cmp.Or(w.last(), "it was not ready in time"))
}

// Stop ends a server, and every connection to it.
func Stop(srv *server.Server) {
	srv.Shutdown()
	srv.WaitForShutdown()
}

// words receives the log of a server. Unlike the server's own logger it never ends the process.
type words struct {
	log   *slog.Logger
	name  string
	quiet bool
	fatal atomic.Value // the text of the last fatal error
}

func (w *words) last() string {
	text, _ := w.fatal.Load().(string)
	return text
}

func (w *words) say(level slog.Level, format string, v []any) {
	if w.quiet {
		level = slog.LevelDebug
	}
	if w.log.Enabled(context.Background(), level) {
		w.log.Log(context.Background(), level, w.name+": "+fmt.Sprintf(format, v...))
	}
}

// Noticef implements server.Logger. The server's notices are details to us.
func (w *words) Noticef(format string, v ...any) { w.say(slog.LevelDebug, format, v) }

// Warnf implements server.Logger.
func (w *words) Warnf(format string, v ...any) { w.say(slog.LevelWarn, format, v) }

// Errorf implements server.Logger.
func (w *words) Errorf(format string, v ...any) { w.say(slog.LevelError, format, v) }

// Debugf implements server.Logger.
func (w *words) Debugf(format string, v ...any) { w.say(slog.LevelDebug, format, v) }

// Tracef implements server.Logger.
func (w *words) Tracef(format string, v ...any) { w.say(slog.LevelDebug, format, v) }

// Fatalf implements server.Logger.
func (w *words) Fatalf(format string, v ...any) {
	w.fatal.Store(fmt.Sprintf(format, v...))
	w.say(slog.LevelError, format, v) // Start returns it too
}
