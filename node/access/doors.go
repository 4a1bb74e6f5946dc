package access

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/identity"
	"toolpost/protocol/all"
	"toolpost/tool"
	"toolpost/web"
)

// Doors makes the doors of the config; o has what they need besides callers. If serving them fails, forget removes a new
// token of the owner that no door has shown: the next start makes another and shows it.
func (a *Access) Doors(o all.DoorOptions) (doors []tool.Door, forget func() error, err error) {
	if o.Fresh, err = a.ownersToken(); err != nil {
		return nil, nil, err
	}
	var shown atomic.Bool
	forget = func() error {
		if o.Fresh == "" || shown.Load() {
			return nil
		}
		return os.Remove(filepath.Join(a.env.Config.StateDir(), identity.TokenFile))
	}
	ready := o.Ready
	o.Ready = func(l all.Listening) {
		shown.Store(true)
		if l.Console {
			a.at.Store(&l.URL)
		}
		ready(l)
	}
	o.Log, o.Listen, o.Version, o.Calls = a.env.Log, a.env.Listen, a.env.Version, a.env.Calls
	o.Gate, o.Named, o.Known = a.Admit, a.named, a.now.Load().Lists
	o.Issuers = func() []string { return a.now.Load().Issuers() }
	o.Keys, o.Console, o.Waiting = a.env.Storage.Keys, a.Console, a.env.Storage.Approvals.Waiting
	if doors, err = all.Doors(a.env.Config, o); err != nil {
		return nil, nil, errors.Join(err, forget())
	}
	return doors, forget, nil
}

// DoorProblems finds what would keep the doors of the config from opening on this machine.
func (a *Access) DoorProblems() (found []config.Problem) {
	doors := all.Problems(a.env.Config, a.now.Load().Lists)
	for _, name := range slices.Sorted(maps.Keys(doors)) {
		found = append(found, config.Problem{About: "door " + name, Err: a.env.Redactor.Error(doors[name])})
	}
	return found
}

// DoorWarnings finds doors whose calls can be read on the network.
func (a *Access) DoorWarnings() (found []config.Problem) {
	for _, name := range all.Unencrypted(a.env.Config) {
		found = append(found, config.Problem{About: "door " + name, Err: errors.New(web.EncryptAdvice)})
	}
	return found
}

// Claims returns the files that the doors of a config and its issuers of tokens use.
func (a *Access) Claims(cfg *config.Config) (claims []offlimits.Claim) {
	var callers identity.Options
	_ = cfg.Callers.Decode(&callers)
	for _, issuer := range callers.JWT {
		if !strings.Contains(issuer.JWKS, "://") {
			claims = append(claims, offlimits.Claim{Starts: offlimits.Given(cfg.Dir, issuer.JWKS)})
		}
	}
	if contexts := config.ContextsFile(); contexts != "" {
		claims = append(claims, offlimits.Claim{Keeps: []string{contexts}})
	}
	for _, d := range cfg.Doors {
		claim, _ := all.DoorClaim(d, cfg.Dir)
		claims = append(claims, claim)
	}
	if socket, ok := strings.CutPrefix(a.env.Listen, "unix:"); ok { // from the command line, so relative to the working folder
		if path, err := filepath.Abs(socket); err == nil {
			claims = append(claims, offlimits.Claim{Keeps: []string{path}})
		}
	}
	return claims
}
