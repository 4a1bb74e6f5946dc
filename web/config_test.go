package web

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// A client of the socket is identified by its user, and a tool has the user of the server.
func TestTheSocketIsKeptFromTools(t *testing.T) {
	for listen, want := range map[string][]string{"unix:run/door.sock": {"/etc/tp/run/door.sock"}, "unix:/run/door.sock": {"/run/door.sock"}, "127.0.0.1:0": nil} {
		if got := (Config{Listen: listen}).Claim("/etc/tp").Keeps; !cmp.Equal(got, want) {
			t.Errorf("%s: %q", listen, got)
		}
	}
}

func TestListenConfigIsStrict(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []Config{
		{Listen: "unix:s", Mode: "rw"}, {Listen: "unix:s", Mode: "0"}, {Listen: "unix:s", Mode: "4777"}, {Listen: "unix:s", Mode: "-1"}, {Mode: "0600"},
	} {
		kit.Refused(t, kit.Err(c.Options(dir)), tool.CodeInvalidInput, "", c)
	}
	o, err := Config{TLS: TLSFiles{Cert: "c", Key: "/k", ClientCA: ""}, Hosts: []string{"h"}, Origins: []string{"o"}}.Options("/d")
	if want := (TLSFiles{Cert: "/d/c", Key: "/k"}); err != nil || o.TLS != want || o.Listen != "" || o.Hosts[0] != "h" || o.Origins[0] != "o" {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestTheConfigSaysHowTheDoorListens(t *testing.T) {
	cfg, err := config.Parse("toolpost.yaml", []byte("doors:\n  http: {listen: \"unix:s\", mode: \"0660\", tls: {cert: c.pem, key: k.pem, client_ca: a.pem}}\n"))
	kit.OK(t, err)
	var c Config
	kit.OK(t, cfg.Doors[0].Decode(&c))
	if want := (Config{Listen: "unix:s", Mode: "0660", TLS: TLSFiles{Cert: "c.pem", Key: "k.pem", ClientCA: "a.pem"}}); !cmp.Equal(c, want) {
		t.Errorf("%+v", c)
	}
	for o, want := range map[*Options]string{
		{}: "http://a:1", {TLS: c.TLS}: "https://a:1", {Listen: "unix:s"}: "unix:a:1",
	} {
		kit.Equal(t, o.URL("a:1"), want, o)
	}
}

func TestASocketHasItsModeBeforeItHasItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln := kit.Must((&net.ListenConfig{Control: private(0o600)}).Listen(t.Context(), "unix", path))(t)
	defer ln.Close()
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestSocketReplacesAFileThatHoldsItsPlaceSinceJustNow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	tools := 3 // that start while the door opens, each of which puts the file there
	ln, err := bindUnix(t.Context(), path, func(string, string, syscall.RawConn) error {
		if tools--; tools < 0 {
			return nil
		}
		return os.WriteFile(path, nil, 0o600)
	})
	kit.OK(t, err)
	kit.OK(t, ln.Close())
}

func TestDoorsOnOneAddressMergeTheirListenOptions(t *testing.T) {
	files := TLSFiles{Cert: "c", Key: "k"}
	all := Options{TLS: files, Mode: 0o660, Hosts: []string{"h"}, Origins: []string{"o"}}
	for what, x := range map[string]struct{ a, b, want Options }{
		"neither": {}, "the first": {all, Options{}, all}, "the second": {Options{}, all, all}, "both": {all, all, all},
		"each something": {Options{TLS: files}, Options{Hosts: []string{"h"}}, Options{TLS: files, Hosts: []string{"h"}}},
	} {
		got := x.a
		if disagree := got.Share(x.b); disagree != "" || !cmp.Equal(got, x.want) {
			t.Errorf("%s: %q, %+v", what, disagree, got)
		}
	}
	for want, other := range map[string]Options{
		"tls": {TLS: TLSFiles{Cert: "c", Key: "another"}}, "mode": {Mode: fs.FileMode(0o600)},
		"hosts": {Hosts: []string{"h", "i"}}, "origins": {Origins: []string{"p"}},
	} {
		got := all
		kit.Equal(t, got.Share(other), want, "they disagree about")
	}
}
