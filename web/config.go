package web

import (
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"

	"toolpost/config/offlimits"
	"toolpost/identity"
	"toolpost/tool"
)

// Config is the part of a config that sets the address of a door, and which callers it admits without credentials. A
// door with options of its own embeds it.
type Config struct {
	Listen  string   `yaml:"listen" kind:"listen" doc:"address to listen on, or unix:PATH for a Unix socket; doors with the same address share it"`
	Mode    string   `yaml:"mode" schema:"default=\"0600\"" doc:"permissions of the Unix socket"`
	TLS     TLSFiles `yaml:"tls" doc:"serve TLS with these files; default: no TLS"`
	Hosts   []string `yaml:"hosts" doc:"Host headers to accept, in addition to the listen address and localhost; an address such as 0.0.0.0 also answers to every IP address"`
	Origins []string `yaml:"origins" doc:"browser origins to accept, in addition to our own"`
	identity.Anonymous
}

// Options returns the options of a front that the config sets. Relative paths start at dir.
func (c Config) Options(dir string) (Options, error) {
	o := Options{Listen: c.Listen, Hosts: c.Hosts, Origins: c.Origins, TLS: c.TLS}
	if c.Listen != "" {
		if err := CheckListen(c.Listen); err != nil {
			return o, err
		}
	}
	for _, path := range []*string{&o.TLS.Cert, &o.TLS.Key, &o.TLS.ClientCA} {
		if *path != "" {
			*path = offlimits.Under(dir, *path)
		}
	}
	path, unix := strings.CutPrefix(c.Listen, UnixPrefix)
	if path != "" && unix {
		o.Listen = UnixPrefix + offlimits.Under(dir, path)
	}
	if c.Mode == "" {
		return o, nil
	}
	mode, err := strconv.ParseUint(c.Mode, 8, 32)
	if err != nil || mode == 0 || mode > 0o777 || !unix {
		return o, tool.Errorf(tool.CodeInvalidInput,
			"the mode %q of the HTTP door: it is that of a Unix socket, in octal digits such as \"0660\"", c.Mode)
	}
	o.Mode = fs.FileMode(mode)
	return o, nil
}

// Claim returns the files that belong to the door. A program that could change its authorities could come in as any
// caller, and a tool that finds its socket is taken for the user who runs it.
func (c Config) Claim(dir string) offlimits.Claim {
	claim := offlimits.Claim{Keeps: offlimits.Given(dir, c.TLS.Key), Starts: offlimits.Given(dir, c.TLS.Cert, c.TLS.ClientCA)}
	if socket, ok := strings.CutPrefix(c.Listen, UnixPrefix); ok {
		claim.Keeps = append(claim.Keeps, offlimits.Given(dir, socket)...)
	}
	return claim
}

// URL returns the URL for clients of a front that listens on addr.
func (o Options) URL(addr string) string {
	switch {
	case strings.HasPrefix(o.Listen, UnixPrefix):
		return UnixPrefix + addr
	case o.TLS.on():
		return "https://" + addr
	}
	return "http://" + addr
}

// InClear reports whether other machines reach a front with this URL, and without TLS.
func InClear(url string) bool {
	rest, plain := strings.CutPrefix(url, "http://")
	host, _, err := net.SplitHostPort(strings.TrimRight(rest, "/"))
	ip := net.ParseIP(host)
	return plain && err == nil && host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// EncryptAdvice says what to do about a front that is InClear.
const EncryptAdvice = "tokens and results cross the network without encryption: add `tls: {cert: cert.pem, key: key.pem}`, or listen " +
	"on 127.0.0.1 behind a proxy with a certificate"

// Share takes from a second door at the same address the options that the first has left out: it is enough if one of
// them sets how to listen there. It returns the name of an option on which the two disagree, or "".
func (o *Options) Share(with Options) (disagree string) {
	switch {
	case !agree(&o.TLS, with.TLS):
		return "tls"
	case !agree(&o.Mode, with.Mode):
		return "mode"
	case !agreeLists(&o.Hosts, with.Hosts):
		return "hosts"
	case !agreeLists(&o.Origins, with.Origins):
		return "origins"
	}
	return ""
}

func agree[T comparable](a *T, b T) bool {
	orElse(a, b)
	return b == *new(T) || *a == b
}

func agreeLists(a *[]string, b []string) bool {
	if len(*a) == 0 {
		*a = b
	}
	return len(b) == 0 || slices.Equal(*a, b)
}
