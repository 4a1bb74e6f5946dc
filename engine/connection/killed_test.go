package connection_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/engine/connection"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

// renewsFor makes this test binary a program that renews the tokens of the callers that it names.
const renewsFor = "TOOLPOST_TEST_RENEWS_FOR"

// A sharer is a store that several programs share. Claims last as long as it says.
type sharer struct {
	connection.Store
	lasts   time.Duration
	refused atomic.Int32 // claims
}

func (s *sharer) Claim(ctx context.Context, r connection.Row, _ time.Duration) (bool, error) {
	mine, err := s.Store.Claim(ctx, r, s.lasts)
	if !mine {
		s.refused.Add(1)
	}
	return mine, err
}

// sharing opens the store of a folder, and returns a program that uses it.
func sharing(t *testing.T, dir string, lasts time.Duration) (*program, *sharer) {
	t.Helper()
	db := kit.Must(sqlite.Open(filepath.Join(dir, "store.db"), store.Options{}))(t)
	t.Cleanup(func() { kit.Check(t, db.Close()) })
	s := &sharer{Store: db.Connections(), lasts: lasts}
	return started(t, s, "k", "", kit.Read(t, filepath.Join(dir, "toolpost.yaml"))), s
}

// renews is the program, if this process is one: it makes a call of each caller.
func renews(t *testing.T, lasts time.Duration) bool {
	t.Helper()
	callers := strings.Fields(os.Getenv(renewsFor))
	if len(callers) == 0 {
		return false
	}
	one, _ := sharing(t, ".", lasts)
	fmt.Println("ready")
	_, _ = fmt.Scanln()
	var all sync.WaitGroup
	for _, who := range callers {
		all.Go(func() { _, _ = one.call(t, tool.Call{Caller: caller(who)}) }) // it may be killed at any time
	}
	all.Wait()
	return true
}

// A renewer is such a program.
type renewer struct {
	cmd   *exec.Cmd
	ended chan struct{}
	begin func()
}

// renewing starts a program for callers, which does nothing before begin.
func renewing(t *testing.T, dir string, callers ...string) *renewer {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	r := &renewer{ended: make(chan struct{})}
	r.cmd = exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+name+"$")
	r.cmd.Dir, r.cmd.Env = dir, append(os.Environ(), renewsFor+"="+strings.Join(callers, " "))
	in, out := kit.Must(r.cmd.StdinPipe())(t), kit.Must(r.cmd.StdoutPipe())(t)
	kit.OK(t, r.cmd.Start())
	kit.Equal(t, kit.Must(bufio.NewReader(out).ReadString('\n'))(t), "ready\n")
	r.begin = func() { _, _ = fmt.Fprintln(in) }
	go func() {
		_ = r.cmd.Wait() // "killed" is the expected error
		close(r.ended)
	}()
	return r
}

// kill ends it, and returns when it has ended.
func (r *renewer) kill() {
	_ = r.cmd.Process.Kill() // it may have ended
	<-r.ended
}

// expired lets callers connect, and waits until their tokens have expired. Later ones live for an hour.
func (p *provider) expired(t *testing.T, one *program, rows connection.Store, callers ...string) {
	t.Helper()
	for _, who := range callers {
		one.connect(t, who)
	}
	last := callers[len(callers)-1]
	kit.Eventually(t, "the tokens have expired", func() bool {
		return time.Now().After(kit.Must(rows.Find(t.Context(), last, "git"))(t).Expires)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lasts = 3600
}

// The moments at which a program is killed.
const (
	anyMoment    = iota
	atRequest    // the provider does nothing
	beforeAnswer // the provider has granted another token
	afterAnswer  // soon
	moments
)

// killsAt lets the provider kill a program at a moment.
func (p *provider) killsAt(moment int, r *renewer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away, p.during = nil, nil
	switch moment {
	case anyMoment:
		time.AfterFunc(rand.N(30*time.Millisecond), r.kill)
	case atRequest:
		p.away = func() bool { r.kill(); return true }
	case beforeAnswer:
		p.during = r.kill
	case afterAnswer:
		p.during = func() { time.AfterFunc(rand.N(10*time.Millisecond), r.kill) }
	}
}

// each is how many callers a program has that is killed.
const each = 3

// Afterwards each caller goes on, with the newest token, or is told to connect again: that only if the provider has
// replaced its refresh token in an answer that nothing has stored, and does not accept the one before.
func TestKilledRenewalEndsInATokenOrARefusal(t *testing.T) {
	const claims = 3 * time.Second
	if renews(t, claims) {
		return
	}
	t.Parallel()
	for name, grace := range map[string]bool{"without grace": false, "with grace": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, dir, kills := newProvider(t, 1), t.TempDir(), rounds.Of(16, 400)
			p.grace = grace
			kit.Write(t, filepath.Join(dir, "toolpost.yaml"), oauthConfig(p, "client_id: c,"))
			one, rows := sharing(t, dir, claims)
			var callers []string
			for n := range kills * each {
				callers = append(callers, fmt.Sprint("caller", n))
			}
			p.expired(t, one, rows, callers...)
			for n := range kills {
				r := renewing(t, dir, callers[n*each:][:each]...)
				p.killsAt(n%moments, r)
				r.begin()
				kit.Receive(t, "its end", r.ended)
			}
			p.killsAt(moments, nil)
			p.comeBack(t, one, callers)
		})
	}
}

// comeBack checks what callers have after their program was killed.
func (p *provider) comeBack(t *testing.T, one *program, callers []string) {
	t.Helper()
	var all sync.WaitGroup
	var lost atomic.Int32
	for i, who := range callers {
		replaced := p.count(who) > 0
		all.Go(func() {
			r, err := one.call(t, tool.Call{Caller: caller(who)})
			if err != nil {
				kit.Refused(t, err, tool.CodeAccessDenied, "connect again: run `toolpost connections add git")
				kit.Equal(t, tool.AsError(err).Reason, connection.Refused)
				moment := i / each % moments
				kit.Equal(t, !p.grace && replaced && moment != atRequest, true, who, "was refused, which was killed at", moment)
				lost.Add(1)
				return
			}
			kit.Equal(t, r.Summary, p.newestOf(who))
		})
	}
	all.Wait()
	t.Logf("%d of %d callers connect again", lost.Load(), len(callers))
	kit.Equal(t, lost.Load() > 0, !p.grace, "callers that connect again")
	for _, s := range kit.Must(one.All(t.Context()))(t) {
		kit.Equal(t, s.State == connection.Connected || s.State == connection.Lost, true, s.Caller, s.State)
		if s.State == connection.Lost {
			one.connect(t, s.Caller)
		}
	}
	one.At(func() time.Time { return time.Now().Add(time.Hour) })
	for _, who := range callers { // with the refresh token that is stored now
		kit.Equal(t, one.value(t, who), p.newestOf(who))
	}
}

func (p *provider) newestOf(who string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.newest[who]
}

// A program that renews a token is killed: others do not use the same refresh token before its claim ends, and then
// once.
func TestClaimOfAKilledProgramEnds(t *testing.T) {
	const claims = 5 * time.Second
	if renews(t, claims) {
		return
	}
	t.Parallel()
	p, dir := newProvider(t, 1), t.TempDir()
	kit.Write(t, filepath.Join(dir, "toolpost.yaml"), oauthConfig(p, "client_id: c,"))
	other, rows := sharing(t, dir, claims)
	p.expired(t, other, rows, "ada")
	came, left := make(chan struct{}), make(chan struct{})
	leave := sync.OnceFunc(func() { close(left) })
	t.Cleanup(leave)
	p.during = func() { close(came); <-left }
	r := renewing(t, dir, "ada")
	r.begin()
	kit.Receive(t, "the request", came)
	ended := make(chan error, 1)
	go func() { ended <- kit.Err(other.call(t, tool.Call{Caller: caller("ada")})) }()
	tried := func(times int32) {
		t.Helper()
		until := rows.refused.Load() + times
		uses := func() int { return p.count("ada") + p.count("") }
		kit.Eventually(t, "it tries to claim the row", func() bool {
			return rows.refused.Load() >= until || uses() > 1
		})
		kit.MustEqual(t, uses(), 1, "uses of the refresh token")
	}
	tried(3)
	r.kill()
	p.killsAt(moments, nil)
	leave()
	tried(3)
	kit.Refused(t, kit.Receive(t, "the outcome", ended), tool.CodeAccessDenied, "connect again")
	kit.Equal(t, p.count(""), 1, "uses of a refresh token that was replaced")
}
