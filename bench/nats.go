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
	"golang.org/x/sync/errgroup"

	"toolpost/node"
	"toolpost/protocol/singularity"
)

const (
	natsCallers = 64
	natsEach    = 64 // requests of each caller in a turn
	natsBody    = `{"message":"hello","n":42,"list":[1,2,3]}`
)

// natsDoor compares requests to an echo tool with requests to a responder that sends back what it got. Both
// are clients of one server, and the callers another.
func natsDoor(ctx context.Context, l lab) (_ row, err error) {
	url, stop, err := natsServer()
	if err != nil {
		return row{}, err
	}
	defer stop()
	n, err := openNode(ctx, filepath.Join(l.dir, "nats"), map[string]string{"toolpost.yaml": echoConfig})
	if err != nil {
		return row{}, err
	}
	defer func() { err = errors.Join(err, closeNode(n)) }()
	closeDoor, err := openDoor(ctx, url, n)
	if err != nil {
		return row{}, err
	}
	defer func() { err = errors.Join(err, closeDoor()) }()
	bare, err := respond(url)
	if err != nil {
		return row{}, err
	}
	defer bare.Close()
	nc, err := nats.Connect(url)
	if err != nil {
		return row{}, err
	}
	defer nc.Close()
	m, r, err := compare(41, clock(requests(nc, "tools.execute.echo")), clock(requests(nc, "bare.echo")))
	return ofTheRate(natsCallers*natsEach, m, r, 0.6), err
}

func natsServer() (url string, stop func(), err error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		return "", nil, err
	}
	stop = func() { s.Shutdown(); s.WaitForShutdown() }
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		stop()
		return "", nil, errors.New("the NATS server did not start within 10 s")
	}
	return s.ClientURL(), stop, nil
}

// openDoor waits until the door takes requests; what it returns closes the door.
func openDoor(ctx context.Context, url string, n *node.Node) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	door := singularity.NewDoor(singularity.DoorOptions{
		Connect: singularity.Connect{URL: url}, Ready: func(string) { close(ready) },
	})
	go func() { ended <- door.Serve(ctx, n.Handler(), n.Catalog()) }()
	select {
	case <-ready:
		return func() error { cancel(); return <-ended }, nil
	case err := <-ended:
		cancel()
		return nil, fmt.Errorf("the door did not open: %w", err)
	}
}

// respond starts the reference.
func respond(url string) (*nats.Conn, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	_, err = nc.QueueSubscribe("bare.echo", "bare", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	if err = errors.Join(err, nc.Flush()); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// requests makes the requests of one turn, every caller one after the other.
func requests(nc *nats.Conn, subject string) func() error {
	return func() error {
		var g errgroup.Group
		for range natsCallers {
			g.Go(func() error {
				for range natsEach {
					m, err := nc.Request(subject, []byte(natsBody), 30*time.Second)
					if err != nil {
						return err
					}
					if !bytes.Contains(m.Data, []byte(`"message":"hello"`)) {
						return fmt.Errorf("unexpected answer %q", m.Data)
					}
				}
				return nil
			})
		}
		return g.Wait()
	}
}
