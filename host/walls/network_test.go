package walls

import (
	"cmp"
	"net/netip"
	"strings"
	"testing"

	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestANetworkIsOneWordOrAListOfHosts(t *testing.T) {
	for _, c := range []struct {
		network Network
		want    sandbox.Network
		hosts   int
		wrong   string
	}{
		{nil, sandbox.NetworkNone, 0, ""},
		{Network{"none"}, sandbox.NetworkNone, 0, ""},
		{Network{"loopback"}, sandbox.NetworkLoopback, 0, ""},
		{Network{"all"}, sandbox.NetworkAll, 0, ""},
		{Network{"api.example.com"}, sandbox.NetworkEgress, 1, ""},
		{Network{"api.example.com", "*.example.org:8443", "10.0.0.7"}, sandbox.NetworkEgress, 3, ""},
		{Network{"api.example.com", "all"}, 0, 0, "not both"},
		{Network{"none", "none"}, 0, 0, "not both"},
		{Network{"api.example.com", "127.1"}, 0, 0, "127.1"},
	} {
		kind, hosts, err := c.network.kind()
		if c.wrong != "" {
			kit.Refused(t, err, tool.CodeInvalidInput, c.wrong, c.network)
			continue
		}
		if err != nil || kind != c.want || len(hosts) != c.hosts {
			t.Errorf("%v is %v with %v: %v", c.network, kind, hosts, err)
		}
	}
}

func TestAHostIsANameOrAnAddress(t *testing.T) {
	for text, want := range map[string]host{
		"api.example.com":           {name: "api.example.com"},
		"API.Example.com.":          {name: "api.example.com"},
		"api.example.com:8443":      {name: "api.example.com", port: 8443},
		"*.example.com":             {name: "example.com", wild: true},
		"*.Example.com.:81":         {name: "example.com", wild: true, port: 81},
		"localhost":                 {name: "localhost"},
		"_srv.my-host":              {name: "_srv.my-host"},
		"3com.example":              {name: "3com.example"},
		"10.0.0.7":                  {addr: netip.MustParseAddr("10.0.0.7")},
		"10.0.0.7:80":               {addr: netip.MustParseAddr("10.0.0.7"), port: 80},
		"2001:db8::1":               {addr: netip.MustParseAddr("2001:db8::1")},
		"[2001:db8::1]:443":         {addr: netip.MustParseAddr("2001:db8::1"), port: 443},
		"::ffff:10.0.0.7":           {addr: netip.MustParseAddr("10.0.0.7")},
		strings.Repeat("a", 63):     {name: strings.Repeat("a", 63)},
		strings.Repeat("a.", 126):   {name: strings.TrimSuffix(strings.Repeat("a.", 126), ".")},
		"xn--mnchen-3ya.example:81": {name: "xn--mnchen-3ya.example", port: 81},
	} {
		kit.Equal(t, kit.Must(parseHost(text))(t), want, text)
	}
}

func TestInvalidHostsAreErrors(t *testing.T) {
	for _, text := range []string{
		"", ".", "*", "*.", "*:80", "*.*.com", "a.*.com", "*a.example.com", "a..b", ".a", "-:", "a b", "münchen.example", "a/b", "http://a", "user@a",
		"a:", "a:0", "a:65536", "a:x", "a:-1", "a:80:80", "[a", "[::1", "::1%lo", "[fe80::1%eth0]:80", strings.Repeat("a", 64), strings.Repeat("a.", 127) + "a",
		"127.1", "2130706433", "0x7f.1", "0x7f000001", "127.0.0.0x1", "0177.0.0.01", "1.2.3.4.5", "0x", "*.1", "256.1.1.1", "a\x00b", "a\nb",
	} {
		h, err := parseHost(text)
		kit.Refused(t, err, tool.CodeInvalidInput, "api.example.com", text, h)
	}
	_, err := parseHost("https://api.example.com/v1")
	kit.Refused(t, err, tool.CodeInvalidInput, "is a URL")
}

func TestAnEntryCoversItsNamesAndPorts(t *testing.T) {
	for _, c := range []struct {
		entry, name string
		port        uint16
		want        bool
	}{
		{"example.com", "example.com", 80, true},
		{"example.com", "EXAMPLE.com.", 443, true},
		{"example.com", "example.com", 8080, false},
		{"example.com", "example.com", 0, false},
		{"example.com:8080", "example.com", 8080, true},
		{"example.com:8080", "example.com", 443, false},
		{"example.com", "www.example.com", 443, false},
		{"example.com", "example.com..", 443, false},
		{"*.example.com", "www.example.com", 443, true},
		{"*.example.com", "a.b.example.com", 443, true},
		{"*.example.com", "example.com", 443, false},
		{"*.example.com", "badexample.com", 443, false},
		{"*.example.com", "example.com.evil.net", 443, false},
		{"10.0.0.7", "10.0.0.7", 80, true},
		{"10.0.0.7", "10.0.0.7.", 80, true},
		{"10.0.0.7", "::ffff:10.0.0.7", 80, true},
		{"10.0.0.7", "10.0.0.8", 80, false},
		{"10.0.0.7", "10.0.0.07", 80, false},
		{"10.0.0.7", "", 80, false},
		{"::1", "0:0:0:0:0:0:0:1", 80, true},
		{"::1", "::1%lo", 80, false},
	} {
		h := kit.Must(parseHost(c.entry))(t)
		kit.Equal(t, h.covers(newHost(c.name, c.port)), c.want, "%s covers %s:%d", c.entry, c.name, c.port)
	}
}

func FuzzHost(f *testing.F) {
	for _, text := range []string{"api.example.com:443", "*.example.com", "[::1]:80", "127.1", "0x7f.1", "a..b", "::ffff:10.0.0.7"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHost(text)
		if err != nil {
			return
		}
		if h.addr.IsValid() == (h.name != "") || h.name != "" && !isName(h.name) {
			t.Fatalf("%q is %+v", text, h)
		}
		name := h.name
		if h.wild {
			name = "www." + name
		}
		asked := host{name: name, addr: h.addr, port: cmp.Or(h.port, 443)}
		if !h.covers(asked) {
			t.Fatalf("%q does not cover %v", text, asked)
		}
	})
}
