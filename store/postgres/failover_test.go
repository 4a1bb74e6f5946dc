package postgres_test

import (
	"context"
	"database/sql"
	"maps"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/internal/netns"
	"toolpost/internal/pg"
	"toolpost/internal/rounds"
	"toolpost/store"
	"toolpost/store/database"
	"toolpost/tool"
)

// A writer with both servers in its URL goes on at the new primary, however the old one failed, and what was
// acknowledged is there. A primary that comes back does not know that there is another: neither it nor its clients may
// do harm.
func TestFailOverLosesAndDoublesNothing(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	primary, standby, address := twoServers(t)
	l := loadOf(t, address)
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	l.begin(ctx, t, &work)
	for n := range 2 * rounds.Of(1, 10) {
		l.goOn(t)
		how := []syscall.Signal{syscall.SIGINT, syscall.SIGKILL}[n%2]
		primary.Stop(how)
		l.failOver(t, how.String(), standby, address)
		primary, standby = standby, standby.Standby(t)
	}
	l.goOn(t)
	// A client that is cut off together with the primary, and goes on when both are back.
	near := newLoad(open(t, standby.With(primary.Address(address)), store.Options{}))
	work.Go(func() { near.record(ctx, t, 100) })
	work.Go(func() { near.run(ctx, t) })
	near.goOn(t)
	primary.Cut(t, true)
	l.failOver(t, "cut off", standby, address)
	l.goOn(t)
	primary.Cut(t, false)
	near.goOn(t)
	_, err := pg.Raw(t, standby.Address(address)).ExecContext(t.Context(), endOthers)
	kit.OK(t, err)
	l.goOn(t)
	stop()
	work.Wait()
	maps.Copy(l.records, near.records)
	l.check(t)
	l.db = open(t, standby.Address(address), store.Options{})
	l.check(t)
}

// A primary whose processes hang, while its machine goes on and acknowledges what it gets, is left for the new primary too.
func TestAPrimaryThatHangsIsLeft(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	primary, standby, address := twoServers(t)
	l := loadOf(t, address)
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	l.begin(ctx, t, &work)
	l.goOn(t)
	began, frozen, reads := make(chan bool), make(chan bool), make(chan error)
	for _, again := range []bool{true, false} { // the second hangs at its end
		go func() {
			reads <- l.db.Read(t.Context(), func(r *database.Reader) error {
				one := func() error { return r.Each(func(*sql.Rows) error { return nil }, `SELECT 1`) }
				err := one()
				began <- true
				if <-frozen; again {
					err = one()
				}
				return err
			})
		}()
		<-began
	}
	var rings atomic.Int64
	work.Go(func() { l.db.Listen(ctx, func() { rings.Add(1) }) })
	kit.Eventually(t, "it listens", func() bool { return rings.Load() > 0 })
	primary.Freeze(true)
	defer primary.Freeze(false)
	close(frozen)
	l.failOver(t, "hangs", standby, address)
	for range 2 {
		if err := kit.Receive(t, "the end of a read", reads); err != nil {
			kit.Refused(t, err, tool.CodeUnavailable, "the server hangs")
		}
	}
	for range 5 {
		l.goOn(t)
	}
	heard := rings.Load()
	kit.Eventually(t, "it listens to the new primary", func() bool { l.db.Ring(ctx); return rings.Load() > heard+1 })
	stop()
	work.Wait()
	l.check(t)
}

// twoServers are a primary and its synchronous standby, in networks of their own, and the address of a database at the primary.
func twoServers(t *testing.T) (primary, standby *pg.Server, address string) {
	t.Helper()
	primary = pg.New(t)
	address = primary.Database(t)
	primary.Apart(t)
	return primary, primary.Standby(t), address
}

// loadOf is load on a database, with both servers in its URL.
func loadOf(t *testing.T, address string) *load {
	t.Helper()
	name := kit.Must(url.Parse(address))(t).Path
	return newLoad(open(t, "postgres://toolpost@10.9.1.2,10.9.2.2"+name+"?target_session_attrs=read-write", store.Options{}))
}

// begin lets the load begin, until ctx ends.
func (l *load) begin(ctx context.Context, t *testing.T, work *sync.WaitGroup) {
	t.Helper()
	for i := range 4 {
		work.Go(func() { l.record(ctx, t, i) })
	}
	work.Go(func() { l.run(ctx, t) })
}

// failOver promotes a standby, and waits until calls succeed again.
func (l *load) failOver(t *testing.T, how string, standby *pg.Server, address string) {
	t.Helper()
	standby.Promote(t)
	promoted := time.Now()
	kit.Until(t, func() error { return patch(l.db, how) })
	wrote := time.Since(promoted)
	kit.Until(t, func() error { return kit.Err(l.db.Sessions().State(t.Context(), "ada", "s")) })
	took, begun := time.Since(promoted), time.Now()
	kit.OK(t, pg.Raw(t, standby.Address(address)).PingContext(t.Context()))
	bare := time.Since(begun)
	t.Logf("%s: a write succeeded %v after the promotion, and a read %v; connecting took %v", how, wrote, took, bare)
	if took > 5*time.Second+20*bare { // more only on a machine that is slow right now
		t.Errorf("%s: it took %v", how, took)
	}
}
