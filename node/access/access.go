// Package access decides who comes in: it opens the doors, and identifies their clients as callers of the config, the
// owner, or holders of issued tokens. It also makes the console, which signs in with links.
package access

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"

	"toolpost/config"
	"toolpost/engine/calls"
	"toolpost/host/secret"
	"toolpost/identity"
	"toolpost/node/storage"
	"toolpost/protocol/all"
	"toolpost/tool"
	"toolpost/web/console"
)

// An Env has what access is made of.
type Env struct {
	Config   *config.Config // of the start: its doors stay
	Storage  *storage.Storage
	Calls    *calls.Log // from which the calls of dismissed callers are ended
	Log      *slog.Logger
	Redactor *secret.Redactor
	Secrets  config.Secrets // of the providers with which people sign in
	Listen   string         // overrides the config's address of the HTTP door and of those that share it
	Token    string         // of the owner; if empty, one is made and kept in the state folder
	NewToken bool           // make another token
	Version  string         // of this program, as doors report it
}

// Access has the callers of the current config.
type Access struct {
	Console *console.Console

	env Env
	now atomic.Pointer[identity.Callers] // nil before the first UseCallers
	// coming are the callers of a config that is being loaded; nil if none is. Sources and secrets may take a long time to
	// open, and a caller that is not among these is refused at once.
	coming atomic.Pointer[identity.Callers]
	owner  atomic.Pointer[identity.Gate] // nil if no door is open, or the config wants none
	at     atomic.Pointer[string]        // the address of the console; nil if it is not served
}

// New makes an access that admits no caller before the first UseCallers.
func New(env Env) *Access {
	a := &Access{env: env}
	o := console.Options{Gate: a.Admit, Callers: a.now.Load, Version: env.Version, Keys: env.Storage.Keys, Log: env.Log}
	if env.Storage.DB != nil { // the codes of its links are valid in every program that shares the store
		o.Marks = env.Storage.DB.Outcomes()
	}
	a.Console = console.New(o)
	return a
}

// ConsoleURL returns the address at which the console is served, or "".
func (a *Access) ConsoleURL() string {
	if at := a.at.Load(); at != nil {
		return *at
	}
	return ""
}

// Admit identifies the caller by its credentials. It is the gate of every door, and uses the current config's callers.
func (a *Access) Admit(ctx context.Context, shown identity.Credentials) (tool.Principal, error) {
	p, err := a.now.Load().Admit(ctx, shown)
	if next := a.coming.Load(); next != nil && err == nil {
		if then, gone := next.Admit(ctx, shown); gone != nil || then.ID != p.ID {
			p, err = tool.Principal{}, cmp.Or(gone, identity.WrongToken())
		}
	}
	return p, a.env.Redactor.Error(err)
}

// Agent returns the caller for an agent of a person that was admitted.
func (a *Access) Agent(p tool.Principal, who identity.Agent) (tool.Principal, error) {
	return a.now.Load().Agent(p, who)
}

// ExpectCallers announces the callers of a config that is being loaded: the others are refused from now on, and their calls
// end. A call may outlive its token, if that has expired.
func (a *Access) ExpectCallers(ctx context.Context, next *identity.Callers) {
	a.coming.Store(next)
	before := a.now.Load() // nil if nothing runs yet
	a.env.Calls.Dismiss(func(p tool.Principal) bool {
		_, was := before.Admit(ctx, identity.Again(p))
		_, err := next.Admit(ctx, identity.Again(p))
		return was == nil && tool.CodeOf(err) == tool.CodeAccessDenied
	})
}

// UseCallers admits the callers of a config that was loaded.
func (a *Access) UseCallers(to *identity.Callers) {
	a.now.Store(to)
	a.coming.Store(nil)
}

// HasOwner reports whether the config admits the owner by a token.
func (a *Access) HasOwner() bool { return a.now.Load().HasOwner() }

// Known returns the rights that the config lists for a caller.
func (a *Access) Known(id string) (*tool.Rights, bool) { return a.now.Load().Known(id) }

// Caller returns the caller of a name, with the rights that the config lists for it.
func (a *Access) Caller(id, door string) tool.Principal {
	rights, _ := a.Known(id)
	return tool.Principal{ID: id, Door: door, Rights: rights}
}

// CallerNames lists the callers that the config knows by name.
func (a *Access) CallerNames() []string {
	var names []string
	for _, one := range a.now.Load().List() {
		names = append(names, one.Name)
	}
	return append(names, identity.Owner, identity.Local)
}

// Knows reports whether the config knows a caller by name.
func (a *Access) Knows(id string) bool { return slices.Contains(a.CallerNames(), id) }

// named returns the caller that a door assigns to all its clients. If a token issuer could use the same name, the caller may
// use nothing.
func (a *Access) named(id, door string) tool.Principal {
	p := a.Caller(id, door)
	if err := a.now.Load().Apart(id); err != nil {
		a.env.Log.Error("the caller whom a door names may use nothing", "door", door, "error", err)
		p.Rights = &tool.Rights{Tools: tool.Patterns{}}
	}
	return p
}

// Anonymous returns the caller for clients without credentials, by the names of the doors that admit them.
func (a *Access) Anonymous() map[string]identity.Anonymous {
	anonymous, _ := all.Check(a.env.Config, a.now.Load().Lists) // errors were reported when the config was read
	return anonymous
}

// ReadCallers reads the callers section of a config, and checks its doors. Nothing changes before ExpectCallers and
// UseCallers.
func (a *Access) ReadCallers(cfg *config.Config) (*identity.Callers, error) {
	var o identity.Options
	if err := cfg.Callers.Decode(&o); err != nil {
		return nil, err
	}
	var people identity.SignIn
	if err := cfg.Section(identity.Section().Name).Decode(&people); err != nil {
		return nil, err
	}
	callers, err := identity.New(o, identity.Env{
		Providers: people.OIDC, Secrets: a.env.Secrets,
		Dir: cfg.Dir, Sources: cfg.RuleSources(), Owner: a.admitOwner, Tokens: a.findToken, Log: a.env.Log,
		Before: a.now.Load(),
	})
	if err == nil {
		_, err = all.Check(cfg, callers.Lists)
	}
	return callers, err
}
