package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"toolpost/bench/attempt"
	"toolpost/node"
	"toolpost/protocol/singularity"
)

const (
	natsCallers = 64
	natsEach    = 64 // requests of each caller in a turn
	natsBody    = `{"message":"hello","n":42,"list":[1,2,3]}`
)

// natsDoor compares requests to an echo tool with requests to a responder that returns its input. Both are clients of one
// server; the callers share a third client.
func natsDoor(ctx context.Context, l *lab) row {
	url := l.natsServer()
	n := l.openNode(ctx, filepath.Join(l.dir, "nats"), map[string]string{"toolpost.yaml": echoConfig}, node.Options{})
	ready := make(chan struct{})
	door := singularity.NewDoor(singularity.DoorOptions{
		Connect: singularity.Connect{URL: url}, Ready: func(string) { close(ready) },
	})
	serve(ctx, l, ready, func(ctx context.Context) error { return door.Serve(ctx, n.Handler(), n.Catalog()) })
	bare := attempt.Must(nats.Connect(url))
	defer bare.Close()
	attempt.Must(bare.QueueSubscribe("bare.echo", "bare", func(m *nats.Msg) { _ = m.Respond(m.Data) }))
	attempt.Check(bare.Flush())
	nc := attempt.Must(nats.Connect(url))
	defer nc.Close()
	m, r := compare(41, clock(requests(nc, "tools.execute.echo")), clock(requests(nc, "bare.echo")))
	return ofTheRate(natsCallers*natsEach, m, r, 0.75)
}

func (l *lab) natsServer() (url string) {
	s := attempt.Must(server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
	}))
	s.Start()
	l.atEnd(func() error { s.Shutdown(); s.WaitForShutdown(); return nil })
	if !s.ReadyForConnections(10 * time.Second) {
		attempt.Check(errors.New("the NATS server did not start within 10 s"))
	}
	return s.ClientURL()
}

// requests makes the requests of one turn, in sequence for every caller.
func requests(nc *nats.Conn, subject string) func() error {
	return storm(natsCallers, natsEach, func() error {
		m, err := nc.Request(subject, []byte(natsBody), 30*time.Second)
		if err == nil && !bytes.Contains(m.Data, []byte(`"message":"hello"`)) {
			err = fmt.Errorf("unexpected answer %q", m.Data)
		}
		return err
	})
}
