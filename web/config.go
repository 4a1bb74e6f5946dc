package web

import (
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"toolpost/host/offlimits"
	"toolpost/identity"
	"toolpost/tool"
)

// Config is what a config says about where a door of the front stands, and who comes in there without credentials. A
// door with options of its own embeds it.
type Config struct {
	Listen  string   `yaml:"listen" doc:"address to listen on, or unix:PATH for a Unix socket; doors with the same address share it"`
	Mode    string   `yaml:"mode" schema:"default=\"0600\"" doc:"permissions of the Unix socket"`
	TLS     TLSFiles `yaml:"tls" doc:"serve TLS with these files; default: no TLS"`
	Hosts   []string `yaml:"hosts" doc:"Host headers to accept, in addition to the listen address and localhost; an address such as 0.0.0.0 also answers to every IP address"`
	Origins []string `yaml:"origins" doc:"browser origins to accept, in addition to our own"`
	identity.Anonymous
}

// Options gives what the config says of a front's options. Relative paths start at dir.
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

// Claim says which files are the door's own. Whoever could change its authorities could come in as anybody, and a tool
// that finds its socket is taken for the user who runs it.
func (c Config) Claim(dir string) offlimits.Claim {
	claim := offlimits.Claim{Keeps: offlimits.Given(dir, c.TLS.Key), Starts: offlimits.Given(dir, c.TLS.Cert, c.TLS.ClientCA)}
	if socket, ok := strings.CutPrefix(c.Listen, UnixPrefix); ok {
		claim.Keeps = append(claim.Keeps, offlimits.Given(dir, socket)...)
	}
	return claim
}

// URL is where clients find a front once it listens on an address.
func (o Options) URL(addr string) string {
	switch {
	case strings.HasPrefix(o.Listen, UnixPrefix):
		return UnixPrefix + addr
	case o.TLS.on():
		return "https://" + addr
	}
	return "http://" + addr
}

// Share takes over from a second door at the same address what the first has left out: it is enough that one of them
// says how to listen there. It gives the name of an option about which the two disagree, or "".
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
