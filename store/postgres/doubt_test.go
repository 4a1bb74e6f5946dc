package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/engine/audit"
	"toolpost/engine/idempotency"
	"toolpost/engine/job"
	"toolpost/engine/persist"
	"toolpost/internal/kit"
	"toolpost/internal/pg"
	"toolpost/store"
	"toolpost/store/postgres"
	"toolpost/tool"
)

// A wire is a connection to a server that can lose the answer to a COMMIT, and can be cut.
type wire struct {
	swallow atomic.Bool // the answer to the next COMMIT is lost, with its connection
	sever   atomic.Bool // and from that COMMIT on the server is unreachable
	cut     atomic.Bool // the server is unreachable
}

// newWire puts a wire in front of the server of an address, and returns the address on its side.
func newWire(t *testing.T, address string) (*wire, string) {
	w := &wire{}
	return w, inFront(t, address, w.carry)
}

// inFront listens in a folder, in place of the server of an address, and gives each connection to serve, with the server's
// socket. It returns the address of the folder.
func inFront(t *testing.T, address string, serve func(client net.Conn, socket string)) (near string) {
	t.Helper()
	const name = ".s.PGSQL.5432"
	u := kit.Must(url.Parse(address))(t)
	q, dir := u.Query(), t.TempDir()
	socket := filepath.Join(q.Get("host"), name)
	l := kit.Must(net.Listen("unix", filepath.Join(dir, name)))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c, socket)
		}
	}()
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	return u.String()
}

// carry carries one connection, until either side ends it.
func (w *wire) carry(client net.Conn, socket string) {
	defer client.Close()
	server, err := net.Dial("unix", socket)
	if err != nil || w.cut.Load() {
		return
	}
	defer server.Close()
	var lose atomic.Bool
	go func() {
		defer client.Close()
		for b := make([]byte, 1<<16); ; {
			n, err := server.Read(b)
			if err != nil || lose.Load() { // the server has done it, but the answer is lost
				return
			}
			if _, err := client.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	for b := make([]byte, 1<<16); ; {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		if bytes.Contains(b[:n], []byte("COMMIT")) && w.swallow.CompareAndSwap(true, false) {
			w.cut.Store(w.sever.Load()) // here, and not by the waiting test: the writer reconnects within a millisecond
			lose.Store(true)
		}
		if _, err := server.Write(b[:n]); err != nil {
			return
		}
	}
}

func rowsOf(t *testing.T, db *store.DB) (calls []string) {
	t.Helper()
	err := db.Audit().Log(t.Context(), audit.Filter{}, false, func(r *tool.Record) error {
		calls = append(calls, r.Call)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// A COMMIT that happened but was not answered is looked up, and not repeated.
func TestACommitWithoutAnAnswerIsLookedUp(t *testing.T) {
	address := pg.New(t).Database(t)
	w, through := newWire(t, address)
	// With so short a reach there is one attempt after the loss, however slow the machine is, and however long the
	// transaction took.
	db, err := postgres.Open(through, store.Options{Reach: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	add := func(call string) error {
		return db.Audit().Append(context.Background(), &tool.Record{
			Time: time.Unix(1, 0), Call: call, Tool: "t", Outcome: tool.OutcomeOK,
		}, true)
	}
	if err := add("a"); err != nil {
		t.Fatal(err)
	}
	w.swallow.Store(true)
	if err := add("b"); err != nil || w.swallow.Load() {
		t.Errorf("the answer was lost, and then it was looked up: %v", err)
	}
	if got := rowsOf(t, db); len(got) != 2 {
		t.Errorf("%v", got)
	}
	jobs := db.Jobs()
	made := job.Job{ID: "j", Caller: "ada", Tool: "t", Made: time.Now(), Lease: "tok", Call: []byte(`{}`)}
	if err := jobs.Add(t.Context(), made, 9, 9); err != nil {
		t.Fatal(err)
	}
	w.cutAt(t, func() error { return add("c") })
	w.cutAt(t, func() error {
		for end := time.Now().Add(time.Minute); ; {
			switch got, err := jobs.Claim(context.Background(), 1, nil); {
			case err != nil:
				return err
			case len(got) == 1 && got[0].Lease == "tok":
				made = got[0]
				return nil
			case len(got) > 0 || time.Now().After(end):
				return fmt.Errorf("the job did not come: %+v", got)
			}
			time.Sleep(10 * time.Millisecond) // a job whose Claim was not answered is begun once the store has looked it up
		}
	})
	w.cutAt(t, func() error { return jobs.Settle(context.Background(), &made, "done", []byte(`{}`), nil) })
	var key, input [32]byte
	outcomes := db.Outcomes()
	w.cutAt(t, func() error {
		c, err := outcomes.Claim(context.Background(), key, input, "", time.Minute)
		if err == nil && !c.Mine {
			t.Errorf("a key that was claimed unheard is nobody's: %+v", c)
		}
		return err
	})
	if got := rowsOf(t, db); len(got) != 3 {
		t.Errorf("%v", got)
	}
}

// cutAt loses the answer to a write, and the connection to the server with it, for longer than the store waits. Then it
// repeats the write.
func (w *wire) cutAt(t *testing.T, write func() error) {
	t.Helper()
	for tries := 1; ; tries++ {
		w.sever.Store(true)
		w.swallow.Store(true)
		err := write()
		w.sever.Store(false)
		w.cut.Store(false)
		told := tool.AsError(err)
		if told != nil && told.Reason == persist.Unclear {
			break
		}
		// The wire may have taken the COMMIT of a write that the store makes by itself. Then this one did not begin.
		if told == nil || told.Code != tool.CodeUnavailable || tries == 5 {
			t.Errorf("nobody knew, and was told: %v", err)
			break
		}
	}
	if err := write(); err != nil || w.swallow.Load() {
		t.Errorf("and then: %v", err)
	}
}

// A key that was claimed, or taken, by a write without an answer is free for other programs: its call does not run.
func TestKeyIsFreeAfterAClaimWithoutAnAnswer(t *testing.T) {
	address := pg.New(t).Database(t)
	w, through := newWire(t, address)
	mine := open(t, through, store.Options{Reach: time.Nanosecond}).Outcomes()
	lost, other := open(t, address, store.Options{}).Outcomes(), open(t, address, store.Options{}).Outcomes()
	claims := func(o *store.OutcomeTable, key [32]byte) (idempotency.Claim, error) {
		return o.Claim(t.Context(), key, [32]byte{9}, "call", time.Minute)
	}
	claimed, taken, page := [32]byte{1}, [32]byte{2}, [32]byte{3}
	kit.Must(claims(lost, taken))(t)
	kit.OK(t, lost.Lose(t.Context(), taken, time.Minute))
	from := kit.Must(claims(mine, taken))(t)
	w.cutOnce(t, func() error { return kit.Err(mine.Claim(t.Context(), page, [32]byte{}, "", time.Minute)) })
	w.cutOnce(t, func() error { return kit.Err(claims(mine, claimed)) })
	kit.Eventually(t, "another program has the key", func() bool { return kit.Must(claims(other, claimed))(t).Mine })
	w.cutOnce(t, func() error { return kit.Err(mine.Take(t.Context(), taken, from, "repeat", time.Minute)) })
	kit.Eventually(t, "another program has the key that was taken", func() bool { return kit.Must(claims(other, taken))(t).Mine })
	kit.Equal(t, kit.Must(claims(other, page))(t).Mine, false, "the claim of no call may have been seen, and stays")
}

// cutOnce loses the answer to a write, as cutAt does, and does not repeat it.
func (w *wire) cutOnce(t *testing.T, write func() error) {
	t.Helper()
	for range 5 {
		w.sever.Store(true)
		w.swallow.Store(true)
		err := write()
		w.sever.Store(false)
		w.cut.Store(false)
		if persist.Doubtful(err) {
			return
		}
	}
	t.Error("no write is in doubt")
}
