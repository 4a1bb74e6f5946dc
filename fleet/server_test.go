package fleet

import (
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"toolpost/engine/member"
	"toolpost/fleet/certs"
	"toolpost/internal/kit"
	"toolpost/tool"
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

// Hubs that restarted may all have other addresses.
func TestAnotherInvitationTellsAMemberWhereTheHubsAre(t *testing.T) {
	f := open(t)
	p, state := f.join("worker", member.Worker), t.TempDir()
	before := len(p.Hubs)
	i := kit.Must(ParseInvitation(f.invite(member.Worker)))(t)
	i.Hubs = append(i.Hubs, "127.0.0.1:1")
	kit.OK(t, p.Renew(i, state))
	kit.EqualSlices(t, kit.Must(LoadPass(state))(t).Hubs[before:], []string{"127.0.0.1:1"})
	other := kit.Must(ParseInvitation(open(t).invite(member.Worker)))(t)
	kit.Refused(t, p.Renew(other, state), tool.CodeConflict, "this machine belongs to another fleet than this token")
}
