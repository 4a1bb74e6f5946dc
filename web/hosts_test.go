package web

import (
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

func TestOnlyADoorOnEveryAddressAnswersToEveryAddress(t *testing.T) {
	everywhere := &net.TCPAddr{IP: net.IPv6zero, Port: 8700}
	here := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8700}
	for host, want := range map[string][2]bool{ // with a listener on every address, with the other one
		"127.0.0.1:8700": {true, true}, "localhost:8700": {true, true}, "[::1]:8700": {true, true},
		"10.0.0.7:8700": {true, false}, "10.0.0.7": {true, false}, "[2001:db8::1]:9": {true, false}, "[2001:db8::1]": {true, false},
		"tools.example.org": {true, true}, "TOOLS.example.org:8700": {true, true}, "tools.example.org:1": {false, false},
		"evil.example:8700": {false, false}, "10.0.0.7.evil.example": {false, false}, "0x7f.1": {false, false},
		"[::1%evil.example]:8700": {false, false}, "[fe80::1%$(id)]": {false, false},
		"": {false, false}, "[": {false, false}, ":8700": {false, false}, "10.0.0.7:8700:1": {false, false}, "010.0.0.7": {false, false},
	} {
		names := []string{"tools.example.org"}
		got := [2]bool{hostsOf(everywhere, "0.0.0.0:8700", names).have(host), hostsOf(here, "127.0.0.1:8700", names).have(host)}
		kit.Equal(t, got, want, host)
	}
	if !hostsOf(&net.UnixAddr{Net: "unix"}, "unix:x", nil).have("anything") {
		t.Error("a Unix socket asks for a host")
	}
}

func TestTheAddressesOfTheMachineAreTold(t *testing.T) {
	if got := Addresses("10.0.0.7:80"); len(got) != 1 || got[0] != "10.0.0.7:80" {
		t.Error(got)
	}
	got := Addresses("[::]:80")
	kit.Equal(t, got[0], "127.0.0.1:80", got)
	for _, one := range got {
		if host, port, err := net.SplitHostPort(one); err != nil || port != "80" || net.ParseIP(host) == nil {
			t.Errorf("%q: %v", one, err)
		}
	}
}

func TestInvalidListenAddressIsExplained(t *testing.T) {
	for _, ok := range []string{"127.0.0.1:0", ":8700", "[::]:1", "localhost:80", "a-b.example.org:65535", "unix:x", "[fe80::1%eth0]:1"} {
		kit.Check(t, CheckListen(ok), ok)
	}
	for bad, why := range map[string]string{
		"8700": "missing port", "localhost": "missing port", "127.0.0.1:": "a port is", ":65536": "a port is", ":+1": "a port is", ":http": "a port is",
		"300.0.0.1:1": "neither", "a b:1": "neither", "::1:80": "too many colons", "unix:": "socket", "unix:" + strings.Repeat("x", 108): "socket",
		"http://127.0.0.1:80": "too many colons",
	} {
		if err := CheckListen(bad); err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "127.0.0.1:8700") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Parts of the request that the page shows must not become markup.
func TestThePageShowsNoMarkupOfOthers(t *testing.T) {
	s := newServer(New(Options{}).o, []Door{{
		Routes: doorWith("x").Routes, Offers: []Offer{{Path: "/<b>", What: "<i>", Try: "curl URL/<u>"}},
	}}, &net.UnixAddr{Net: "unix"}, nil, nil)
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	r.Host = `a"><script>alert(1)</script>`
	r.Header.Set("Accept", "text/html")
	s.ServeHTTP(w, r)
	if body := w.Body.String(); w.Code != 200 || strings.Contains(body, "<script") || strings.Contains(body, "<b>") || strings.Contains(body, "<u>") ||
		!strings.Contains(body, "&lt;script&gt;") {
		t.Errorf("%d %s", w.Code, body)
	}
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") || w.Header().Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%v", w.Header())
	}
}
