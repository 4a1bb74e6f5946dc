package fleet

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/engine/member"
	"toolpost/fleet/certs"
	"toolpost/fleet/invite"
	"toolpost/fleet/membership"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A connection that ends with its hub asks for the address: after a rotation, every connection does.
func TestAHubThatHasEndedHasItsAddress(t *testing.T) {
	f := open(t)
	before := f.hub.address()
	f.hub.Close(t.Context())
	kit.Equal(t, f.hub.address(), before)
}

// A hub whose config has no address listens on the one that the docs name. A worker does not listen, so the test takes no fixed port.
func TestAHubListensByDefault(t *testing.T) {
	f := open(t)
	f.with = func(e *Env) { e.Listen = "" }
	n := f.work("worker", reference(t))
	kit.Equal(t, n.env.Listen, DefaultListen)
}

// A node that took no calls would refuse them all, and no node takes more than its streams.
func TestTheNumberOfPlacesIsBounded(t *testing.T) {
	for places, fits := range map[int]bool{-1: false, 0: true, 1: true, maxStreams: true, maxStreams + 1: false} {
		err := Options{Places: places}.Check()
		kit.Equal(t, err == nil, fits, places, err)
	}
	kit.Refused(t, Options{Places: -1}.Check(), tool.CodeInvalidInput, "fleet.places is -1; write a number from 1 to 4096")
}

func TestATakenPortIsNoticedAtOnce(t *testing.T) {
	taken := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	certificate := kit.Must(kit.Must(certs.New())(t).Server())(t)
	began := time.Now()
	_, err := startServer(taken.Addr().String(), always(&certificate), nil, slog.New(slog.DiscardHandler))
	kit.Equal(t, errors.Is(err, errTaken), true, "%v", err)
	if took := time.Since(began); took > 8*time.Second { // the server would take ten until it gives up
		t.Errorf("it took %v", took)
	}
}

// A node learns of hubs while it gets another key: what it keeps is what it is, or its key is lost with its program.
func TestAnEarlierStateReplacesNoLaterOne(t *testing.T) {
	f := open(t)
	n := f.work("worker", reference(t))
	for i := range 40 {
		var both sync.WaitGroup
		both.Go(func() {
			hubs := slices.Repeat([]string{f.hub.address()}, 2+i%2)
			n.learn(&nats.Msg{Data: kit.Must(strictjson.Marshal(hubs))(t)})
		})
		both.Go(func() {
			kit.Check(t, kit.Err(n.makeKey()))
			kit.Check(t, n.useKey())
		})
		both.Wait()
		n.mu.Lock()
		kept, is := kit.Must(membership.Load(n.env.State))(t), n.pass
		n.mu.Unlock()
		kit.DeepEqual(t, *kept, is)
	}
}

// A hub finds the others in the store, and leaves none that it has found there because it has not heard of it before.
func TestAHubThatStartsKeepsItsLinks(t *testing.T) {
	f := open(t)
	p := f.join("hub2", member.Hub)
	p.Hubs = nil
	slow := &slowLog{Handler: slog.DiscardHandler, connected: make(chan bool, 99)}
	f.with = func(e *Env) { e.Log = slog.New(slow) }
	n := f.start(p, t.TempDir(), reference(t))
	all := n.all()
	kit.MustEqual(t, len(all), 1)
	kit.Equal(t, all[0].address, f.hub.address())
}

// A slowLog lets a hub that starts wait until it has connected to another one.
type slowLog struct {
	slog.Handler
	connected chan bool
}

func (l *slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *slowLog) Handle(_ context.Context, r slog.Record) error {
	switch r.Message {
	case "connected to a hub":
		l.connected <- true
	case "the fleet is open":
		<-l.connected
	}
	return nil
}

// Hubs that restarted may all have other addresses.
func TestAnotherInvitationTellsAMemberWhereTheHubsAre(t *testing.T) {
	f := open(t)
	p, state := f.join("worker", member.Worker), t.TempDir()
	before := len(p.Hubs)
	i := kit.Must(invite.Parse(f.invite(member.Worker)))(t)
	i.Hubs = append(i.Hubs, "127.0.0.1:1")
	kit.OK(t, p.Renew(i, state))
	kit.EqualSlices(t, kit.Must(membership.Load(state))(t).Hubs[before:], []string{"127.0.0.1:1"})
	other := kit.Must(invite.Parse(open(t).invite(member.Worker)))(t)
	kit.Refused(t, p.Renew(other, state), tool.CodeConflict, "this machine belongs to another fleet than this token")
}
