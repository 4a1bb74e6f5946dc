package node_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/protocol/singularity"
	"toolpost/tool"
	"toolpost/web"
)

const guests = twoTools + `
callers: {list: {guest: {tools: "read*"}, ci: {tools: "*"}}}
`

// meet serves a config, lets independent clients connect to its doors, and returns the outcome of each.
func meet(t *testing.T, text string) map[string]string {
	t.Helper()
	const token = "sixteen-letters-or-more"
	cfg := parse(t, t.TempDir(), text)
	ready := make(chan node.Listening, 8)
	n := open(t, cfg, node.Options{Protocols: newFake().protocol(), Token: token, Ready: func(l node.Listening) { ready <- l }})
	defer shut(t, n)
	defer serve(t, n)()
	var names []string
	for _, d := range cfg.Doors {
		names = append(names, d.Name)
	}
	urls := urlsOf(ready, names...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "python3", "testdata/anonymous.py", urls["http"], urls["nats"], urls["namel3ss"], token).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(out)) {
		what, outcome, _ := strings.Cut(strings.TrimSpace(line), ": ")
		got[what] = outcome
	}
	return got
}

const violation = "-ERR 'Authorization Violation'"

// refused is the outcome for clients without valid credentials, whatever a config says.
func refused() map[string]string {
	want := map[string]string{
		"http, the owner's token": "reads writes", "http, its own origin": "401", "http, another host": "421",
		"namel3ss, the owner's token": "ok", "nats, the owner's token": "ok", "nats, a form of a page": "closed", "nats, no CONNECT": violation,
	}
	for _, shown := range []string{"a wrong token", "an empty token", "an empty header", "another scheme", "a wrong password", "an empty password", "two headers"} {
		want["http, "+shown], want["namel3ss, "+shown] = "401", "401"
	}
	for _, sign := range []string{
		"an empty origin", "another site", "the same site", "an address that was typed", "an image", "a link", "a cookie", "an old browser", "a proxy", "another proxy",
	} {
		want["http, "+sign], want["namel3ss, "+sign] = "401", "401"
	}
	for _, sign := range []string{"an origin", "no origin that it would tell"} {
		want["http, "+sign], want["namel3ss, "+sign] = "403", "403"
	}
	want["http, an empty origin"], want["namel3ss, an empty origin"] = "403", "403"
	for _, shown := range []string{
		"a wrong token", "a user without a password", "an unknown user", "a wrong password", "a wrong password alone", "a JWT", "a key", "a signature",
	} {
		want["nats, "+shown] = violation
	}
	return want
}

func with(all map[string]string, more map[string]string) map[string]string {
	for what, outcome := range more {
		all[what] = outcome
	}
	return all
}

func TestAnonymousClientIsTheCallerOfItsDoor(t *testing.T) {
	got := meet(t, guests+`
doors:
  http: {listen: "127.0.0.1:0", anonymous: guest}
  nats: {listen: "localhost:0", anonymous: guest}
  namel3ss: {listen: "[::1]:0", anonymous: guest}
`)
	want := with(refused(), map[string]string{
		"http, nothing": "reads", "http, a URL with the owner's token": "reads", "http, fetch of Node": "reads",
		"http, a tool that it may use": "200", "http, a tool that it may not use": "404",
		"nats, nothing": "ok", "nats, next to nothing": "ok", "nats, the catalogue": "reads", "nats, a tool that it may not use": `NotFound: no tool named "writes"`,
		"namel3ss, nothing": "ok", "namel3ss, a URL with the owner's token": "ok", "namel3ss, a tool that it may not use": "unknown_tool",
	})
	kit.Equal(t, cmp.Diff(want, got), "")
}

func TestAnonymousClientIsRefusedByDefault(t *testing.T) {
	got := meet(t, guests+`
doors: {http: {listen: "127.0.0.1:0"}, nats: {listen: "127.0.0.1:0"}, namel3ss: {listen: "127.0.0.1:0"}}
`)
	want := with(refused(), map[string]string{
		"http, nothing": "401", "http, a URL with the owner's token": "401", "http, fetch of Node": "401",
		"http, a tool that it may use": "401", "http, a tool that it may not use": "401",
		"nats, nothing": violation, "nats, next to nothing": violation, "nats, the catalogue": violation, "nats, a tool that it may not use": violation,
		"namel3ss, nothing": "401", "namel3ss, a URL with the owner's token": "401", "namel3ss, a tool that it may not use": "401",
	})
	kit.Equal(t, cmp.Diff(want, got), "")
}

func TestAnonymousClientAtAUnixSocket(t *testing.T) {
	const doors = "doors: {http: {listen: \"unix:s\", anonymous: guest}}\n"
	for callers, want := range map[string]string{
		guests: "reads writes", // the user who runs the server, as ever
		strings.Replace(guests, "ci: {", "ci: {users: [4294967294], ", 1):                   "reads",        // a user that the config does not know
		strings.Replace(guests, "ci: {", fmt.Sprintf("ci: {users: [%d], ", os.Getuid()), 1): "reads writes", // one that it knows
	} {
		got := meet(t, callers+doors)
		if got["http, nothing"] != want || got["http, the owner's token"] != "reads writes" {
			t.Errorf("%s: who shows nothing sees %q, not %q; the owner sees %q", callers, got["http, nothing"], want, got["http, the owner's token"])
		}
		for _, shown := range []string{"a wrong token", "an empty token", "a wrong password", "two headers"} {
			kit.Equal(t, got["http, "+shown], "401", callers, shown)
		}
	}
}

func TestInvalidAnonymousIsAConfigError(t *testing.T) {
	for doors, want := range map[string]string{
		`http: {anonymous: nobody}`:                                                      `4:27: anonymous: "nobody" is not a caller of this config; add it to callers, such as`,
		`http: {anonymous: owner}`:                                                       `"owner" is not a caller of this config and cannot be one; name another`,
		`namel3ss: {anonymous: local}`:                                                   `"local" is not a caller of this config and cannot be one; name another`,
		`http: {anonymous_anywhere: true}`:                                               "add `anonymous: NAME`, or leave it out",
		`http: {listen: "0.0.0.0:0", anonymous: guest}`:                                  "listen on 127.0.0.1 or a Unix socket, or add `anonymous_anywhere: true`",
		`http: {listen: ":0", anonymous: guest}`:                                         "add `anonymous_anywhere: true`",
		`http: {listen: "[::]:0", anonymous: guest}`:                                     "add `anonymous_anywhere: true`",
		`namel3ss: {listen: "192.0.2.1:0", anonymous: guest}`:                            "add `anonymous_anywhere: true`",
		`nats: {listen: "0.0.0.0:0", anonymous: guest}`:                                  "add `anonymous_anywhere: true`",
		`nats: {url: "nats://127.0.0.1:1", anonymous: guest}`:                            "say `caller: guest` instead",
		`nats: {url: "nats://127.0.0.1:1", anonymous: guest, anonymous_anywhere: true}`:  "say `caller: guest` instead",
		`nats: {url: "nats://127.0.0.1:1", caller: guest, anonymous_anywhere: true}`:     "say `caller: NAME` instead",
		`http: {anonymous: [guest]}`:                                                     "expected a string, got a list",
		`nats: {embedded: true, listen: "127.0.0.1:0", caller: guest, anonymous: guest}`: "caller of the NATS door goes with url",
	} {
		text := strings.TrimSpace(guests) + "\ndoors: {" + doors + "}\n"
		_, err := node.Open(t.Context(), parse(t, t.TempDir(), text), node.Options{Protocols: newFake().protocol()})
		kit.Refused(t, err, tool.CodeInvalidInput, want, doors)
	}
}

// If the text of an address does not show whether it is private, that is checked when the door listens.
func TestAnonymousIsCheckedOnTheAddressThatIsListenedOn(t *testing.T) {
	guest := identity.Anonymous{Name: "guest"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // otherwise an open door would serve forever
	defer cancel()
	gate := func(context.Context, identity.Credentials) (tool.Principal, error) { return tool.Principal{}, nil }
	_, nats := singularity.StartServer(singularity.ServerOptions{Listen: "0.0.0.0:0", Gate: gate, Anonymous: guest})
	for door, err := range map[string]error{
		"http": web.New(web.Options{Listen: "0.0.0.0:0", Gate: gate}, web.Door{Name: "x"}, web.Door{Name: "y", Anonymous: guest}).Serve(ctx, nil, nil),
		"nats": nats,
	} {
		kit.Refused(t, err, tool.CodeInvalidInput, "anonymous_anywhere", door)
	}
}

func TestAnonymousIsForAddressesOfThisMachine(t *testing.T) {
	// A flag overrides the config.
	cfg := parse(t, t.TempDir(), guests+`doors: {http: {listen: "127.0.0.1:0", anonymous: guest}}`)
	n := open(t, cfg, node.Options{Protocols: newFake().protocol(), Token: "sixteen-letters-or-more", Listen: "0.0.0.0:0"})
	defer shut(t, n)
	kit.Refused(t, n.Serve(t.Context()), tool.CodeInvalidInput, "anonymous_anywhere", "served")
	a := identity.Anonymous{Name: "guest"}
	for address, ok := range map[string]bool{"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true, "0.0.0.0:1": false, "[::]:1": false, "192.0.2.1:1": false} {
		addr := kit.Must(net.ResolveTCPAddr("tcp", address))(t)
		if err := a.CheckOn(addr); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
		kit.Check(t, (identity.Anonymous{Name: "guest", Anywhere: true}).CheckOn(addr), "%s, said twice", address)
	}
	for _, addr := range []net.Addr{&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, nil} { // an unknown address is not private
		if a.CheckOn(addr) == nil {
			t.Errorf("%v was taken for private", addr)
		}
	}
}

func TestAnonymousAnywhereOpensPublicAddresses(t *testing.T) {
	got := meet(t, guests+`
doors:
  http: {listen: "0.0.0.0:0", hosts: ["0.0.0.0"], anonymous: guest, anonymous_anywhere: true}
  nats: {listen: "0.0.0.0:0", anonymous: guest, anonymous_anywhere: true}
`)
	for what, want := range map[string]string{
		"http, nothing": "reads", "nats, nothing": "ok", "http, a wrong token": "401", "http, an origin": "403", "http, another site": "401", "nats, a wrong token": violation,
		"http, a proxy": "reads", // it states itself that everyone may come
	} {
		kit.Equal(t, got[what], want, what)
	}
}

// A caller that a reload removes is unknown from then on, even on open connections.
func TestReloadChangesTheRightsOfAnonymousCallers(t *testing.T) {
	dir := t.TempDir()
	doors := "doors: {http: {anonymous: guest}}\n"
	s := newStreet(t, parse(t, dir, guests+doors))
	shown := identity.Credentials{Door: "http", Anonymous: "guest"}
	p, err := s.n.Admit(t.Context(), shown)
	if err != nil || p.ID != "guest" || p.Door != "http" || p.Rights == nil || len(p.Rights.Tools) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	s.n.Reload(t.Context(), parse(t, dir, twoTools+"callers: {list: {guest: {tools: [writes]}}}\n"+doors))
	kit.Equal(t, kit.Must(s.n.Admit(t.Context(), shown))(t).Rights.Tools[0], "writes", "after a reload")
	s.n.Reload(t.Context(), parse(t, dir, twoTools+"callers: {list: {ci: {tools: [writes]}}}\n"+doors))
	kit.Equal(t, kit.Must(s.n.Admit(t.Context(), shown))(t).ID, "guest", "a config that names nobody was taken")
	s.n.Reload(t.Context(), parse(t, dir, twoTools+"callers: {list: {ci: {tools: [writes]}}}\n"))
	kit.Refused(t, kit.Err(s.n.Admit(t.Context(), shown)), tool.CodeAccessDenied, "", "a caller that is gone came in")
}
