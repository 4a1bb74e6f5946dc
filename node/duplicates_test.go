package node_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/node"
	"toolpost/tool"
)

// effects is a protocol with one tool, which has an effect each time it runs.
type effects struct {
	mu  sync.Mutex
	ran map[string]int
}

func (e *effects) protocol() []node.Protocol {
	return []node.Protocol{{Name: "effects", Open: func(context.Context, config.Source, *slog.Logger) (tool.Runner, error) { return e, nil }}}
}

func (e *effects) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{{Name: "pay", Effects: tool.Effects{Writes: true}}}, nil
}

// Invoke takes a moment, in which connections break, and then does it or not: never half of it.
func (e *effects) Invoke(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	var args struct {
		Bill string `json:"bill"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return nil, err
	}
	select {
	case <-time.After(time.Duration(rand.IntN(500)) * time.Microsecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ran[args.Bill]++
	return &tool.Result{OK: true, Output: fmt.Appendf(nil, `{"receipt":"%s, time %d"}`, args.Bill, e.ran[args.Bill])}, nil
}

func (e *effects) Close(context.Context) error { return nil }

// A payer calls the tool through a door, and may hang up in the middle of it.
type payer interface {
	pay(ctx context.Context, bill string) (receipt string, err error)
	cut(bill string) error
	close()
}

func TestDuplicatesOverThreeDoorsWithCutConnectionsHaveOneEffectEach(t *testing.T) {
	keys := rounds.Of(60, 10_000)
	if testing.Short() {
		keys = 60
	}
	const duplicates, callers, token = 8, 16, "sixteen-letters-or-more"
	e := &effects{ran: map[string]int{}}
	ready := make(chan node.Listening, 8)
	n := open(t, parse(t, t.TempDir(), `
sources: [{name: till, protocol: effects}]
doors: {http: {listen: "127.0.0.1:0"}, nats: {listen: "127.0.0.1:0"}}
store: {idempotency: {durable: true, window: 10m}}
`), node.Options{Protocols: e.protocol(), Token: token, Ready: func(l node.Listening) { ready <- l }})
	defer shut(t, n)
	stop := serve(t, n)
	defer stop()
	urls := urlsOf(ready, "http", "nats")

	bills := shuffled(keys, duplicates)
	receipts := make([]string, len(bills))
	var next, cuts atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		payers := []payer{newWebPayer(urls["http"], token), newNATSPayer(t, urls["nats"], token), newPipePayer(t, n)}
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(bills) && !t.Failed(); i = int(next.Add(1)) - 1 {
				p := payers[rand.IntN(len(payers))]
				if rand.IntN(4) == 0 {
					cuts.Add(1)
					kit.Check(t, p.cut(bills[i]), "%T", p)
				}
				var err error
				if receipts[i], err = p.pay(t.Context(), bills[i]); err != nil {
					t.Errorf("%T: %v", p, err)
				}
			}
			for _, p := range payers {
				p.close()
			}
		})
	}
	wg.Wait()
	for i, bill := range bills {
		if want := `{"receipt":"` + bill + `, time 1"}`; receipts[i] != want && !t.Failed() {
			t.Errorf("%s: %s", bill, receipts[i])
		}
	}
	total := 0
	for _, times := range e.ran {
		total += times
	}
	if total != keys || len(e.ran) != keys {
		t.Errorf("%d keys had %d effects", len(e.ran), total)
	}
	t.Logf("%d keys, %d calls and %d cut connections: %d effects", keys, len(bills), cuts.Load(), total)
}

// shuffled lists keys, each several times and close to each other, so that they meet.
func shuffled(keys, times int) (all []string) {
	const block = 32
	for from := 0; from < keys; from += block {
		start := len(all)
		for k := from; k < min(from+block, keys); k++ {
			for range times {
				all = append(all, fmt.Sprintf("bill-%d", k))
			}
		}
		part := all[start:]
		rand.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
	}
	return all
}

// retried repeats a call until it has an outcome: if the first one is cut off, it is cancelled, and so are those that wait
// for it.
func retried(ctx context.Context, try func() (receipt string, code tool.Code, err error)) (string, error) {
	for {
		receipt, code, err := try()
		if err != nil || code == "" || code != tool.CodeCancelled && code != tool.CodeTimeout || ctx.Err() != nil {
			if err == nil && code != "" {
				err = fmt.Errorf("it ended with %s", code)
			}
			return receipt, err
		}
	}
}

// A webPayer calls over HTTP.
type webPayer struct {
	url, token string
	client     *http.Client
}

func newWebPayer(url, token string) *webPayer {
	return &webPayer{url + "/v1/tools/pay/call", token, &http.Client{Transport: &http.Transport{}}}
}

func (p *webPayer) request(ctx context.Context, bill string) *http.Request {
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, p.url, strings.NewReader(`{"bill":"`+bill+`"}`))
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", bill)
	return req
}

func (p *webPayer) pay(ctx context.Context, bill string) (string, error) {
	return retried(ctx, func() (string, tool.Code, error) {
		resp, err := p.client.Do(p.request(ctx, bill))
		if err != nil {
			return "", "", err
		}
		defer resp.Body.Close()
		var answer struct {
			Output json.RawMessage `json:"output"`
			Error  struct {
				Code tool.Code `json:"code"`
			} `json:"error"`
		}
		body, err := io.ReadAll(resp.Body)
		if err == nil {
			err = json.Unmarshal(body, &answer)
		}
		return string(answer.Output), answer.Error.Code, err
	})
}

func (p *webPayer) cut(bill string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(2000))*time.Microsecond)
	defer cancel()
	if resp, err := p.client.Do(p.request(ctx, bill)); err == nil {
		_ = resp.Body.Close()
	}
	return nil
}

func (p *webPayer) close() { p.client.CloseIdleConnections() }

// A natsPayer calls over NATS.
type natsPayer struct {
	url, token string
	conn       *nats.Conn
}

func newNATSPayer(t *testing.T, url, token string) *natsPayer {
	t.Helper()
	p := &natsPayer{url: url, token: token}
	kit.OK(t, p.dial())
	return p
}

func (p *natsPayer) dial() (err error) {
	p.conn, err = nats.Connect(p.url, nats.Token(p.token), nats.Timeout(time.Minute))
	return err
}

func (p *natsPayer) message(bill string) *nats.Msg {
	return &nats.Msg{Subject: "tools.execute.pay", Data: []byte(`{"bill":"` + bill + `"}`), Header: nats.Header{"Idempotency-Key": {bill}}}
}

func (p *natsPayer) pay(ctx context.Context, bill string) (string, error) {
	return retried(ctx, func() (string, tool.Code, error) {
		reply, err := p.conn.RequestMsgWithContext(ctx, p.message(bill))
		if err != nil {
			return "", "", err
		}
		var answer struct {
			Data  json.RawMessage `json:"data"`
			Error *struct {
				Type string `json:"type"`
			} `json:"error"`
		}
		err = json.Unmarshal(reply.Data, &answer)
		if answer.Error == nil {
			return string(answer.Data), "", err
		}
		if bytes.Contains(reply.Data, []byte("cancel")) || answer.Error.Type == "Timeout" {
			return "", tool.CodeCancelled, err
		}
		return "", "", fmt.Errorf("%s", reply.Data)
	})
}

func (p *natsPayer) cut(bill string) error {
	m := p.message(bill)
	m.Reply = nats.NewInbox()
	if err := p.conn.PublishMsg(m); err != nil {
		return err
	}
	if rand.IntN(2) == 0 {
		if err := p.conn.Flush(); err != nil {
			return err
		}
	}
	p.conn.Close()
	return p.dial()
}

func (p *natsPayer) close() { p.conn.Close() }

// A pipePayer is a Machina host that has started us as its toolhost.
type pipePayer struct {
	t    *testing.T
	n    *node.Node
	in   *io.PipeWriter
	out  *bufio.Reader
	hang func() // the host leaves
	gone chan struct{}
}

func newPipePayer(t *testing.T, n *node.Node) *pipePayer {
	t.Helper()
	p := &pipePayer{t: t, n: n}
	p.dial()
	return p
}

func (p *pipePayer) dial() {
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	p.in, p.out, p.gone = inWrite, bufio.NewReader(outRead), make(chan struct{})
	p.hang = func() { _ = inWrite.Close(); _ = outRead.Close() }
	var door tool.Door
	for _, proto := range node.Protocols() {
		if proto.Name == "machina" {
			std := node.Stdio{In: inRead, Out: outWrite, Log: io.Discard, Caller: tool.Principal{ID: "owner", Door: "machina"}}
			var err error
			if door, err = proto.Stdio.Door([]string{"--serve", "till"}, std); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	go func() { // ends when the host has hung up
		defer close(p.gone)
		_ = door.Serve(context.Background(), p.n.Handler(), p.n.Catalog())
		_ = outWrite.Close()
	}()
}

func (p *pipePayer) send(bill string) error {
	_, err := fmt.Fprintf(p.in, `{"aid":"AID.TILL.PAY.v1","inputs":{"bill":"%s"},"idempotency_key":"%s"}`+"\n", bill, bill)
	return err
}

func (p *pipePayer) pay(ctx context.Context, bill string) (string, error) {
	return retried(ctx, func() (string, tool.Code, error) {
		if err := p.send(bill); err != nil {
			return "", "", err
		}
		line, err := p.out.ReadBytes('\n')
		if err != nil {
			return "", "", err
		}
		var answer struct {
			OK     bool   `json:"ok"`
			Output string `json:"output_json"`
		}
		err = json.Unmarshal(line, &answer)
		switch {
		case err == nil && !answer.OK && bytes.Contains(line, []byte("cancel")):
			return "", tool.CodeCancelled, nil
		case err == nil && !answer.OK:
			err = fmt.Errorf("%s", line)
		}
		return answer.Output, "", err
	})
}

func (p *pipePayer) cut(bill string) error {
	err := p.send(bill)
	p.close()
	p.dial()
	return err
}

func (p *pipePayer) close() {
	p.hang()
	<-p.gone
}
