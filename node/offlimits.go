package node

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"toolpost/config"
	"toolpost/host/offlimits"
	"toolpost/host/secret"
	"toolpost/identity"
	"toolpost/protocol/all"
	"toolpost/store/sqlite"
)

// offLimits lists what no tool of a config sees or changes. It is made of the whole config, since a folder that one
// source may write can have what another one starts from. What cannot be read starts nothing: whoever needs it says
// why.
func (n *Node) offLimits(cfg *config.Config, from map[string]secret.From) *offlimits.List {
	l := &offlimits.List{Absent: []string{cfg.StateDir() + "/"}, Config: cfg.Path}
	l.Add(storeClaim(cfg))
	l.Add(secret.Claim(cfg.Dir, from))
	var callers identity.Options
	_ = cfg.Callers.Decode(&callers)
	for _, issuer := range callers.JWT {
		if !strings.Contains(issuer.JWKS, "://") {
			l.Add(offlimits.Claim{Starts: offlimits.Given(cfg.Dir, issuer.JWKS)})
		}
	}
	for _, d := range cfg.Doors {
		claim, _ := all.DoorClaim(d, cfg.Dir)
		l.Add(claim)
	}
	if socket, ok := strings.CutPrefix(n.o.Listen, "unix:"); ok { // of the command line, where paths start where it stands
		if path, err := filepath.Abs(socket); err == nil {
			l.Add(offlimits.Claim{Keeps: []string{path}})
		}
	}
	for _, src := range cfg.Sources {
		l.Add(n.claim(src))
	}
	return l
}

// claim is what a source says about files.
func (n *Node) claim(src config.Source) offlimits.Claim {
	p, err := n.protocol(src.Protocol)
	if err != nil || p.Claim == nil {
		return offlimits.Claim{}
	}
	claim, _ := p.Claim(src) // who cannot be read is not opened either
	return claim
}

// storeClaim is what the store keeps: the key of its log, and the files of SQLite, which come and go. Some of those lie
// beside what a link leads to.
func storeClaim(cfg *config.Config) offlimits.Claim {
	var o StoreOptions
	_ = cfg.Store.Decode(&o)
	c := postgresClaim(o.URL)
	c.Keeps = append(c.Keeps, offlimits.Given(cfg.Dir, o.Audit.Key)...)
	file, ok := strings.CutPrefix(o.URL, "sqlite:")
	if !ok || file == "" {
		return c
	}
	file = offlimits.Under(cfg.Dir, file)
	if real, err := filepath.EvalSymlinks(file); err == nil && real != filepath.Clean(file) {
		c.Keeps = append(c.Keeps, sqlite.Files(real)...)
	}
	if !offlimits.Within(filepath.Clean(file), cfg.StateDir()) { // else the folder is kept as a whole
		c.Keeps = append(c.Keeps, sqlite.Files(file)...)
	}
	return c
}

// postgresClaim is what an URL of PostgreSQL has of files, which start where this program was started.
func postgresClaim(text string) (c offlimits.Claim) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return c
	}
	dir, err := os.Getwd()
	if err != nil {
		return c
	}
	q := u.Query()
	c.Keeps = offlimits.Given(dir, q.Get("sslkey"), q.Get("passfile"), q.Get("servicefile"))
	c.Starts = offlimits.Given(dir, q.Get("sslcert"))
	if root := q.Get("sslrootcert"); root != "system" { // no file, but the machine's own
		c.Starts = append(c.Starts, offlimits.Given(dir, root)...)
	}
	return c
}
