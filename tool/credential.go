package tool

import (
	"context"
	"slices"
)

// A Credential is the caller's account or key at a provider, for one call. A runner sends its value to the provider's hosts
// and nowhere else: a program behind walls holds a placeholder, which the proxy of its room replaces on the way out. The value is
// never part of an event, a record, an error or a log.
type Credential struct {
	Connection string   // the name of the connection in the config
	Hosts      []string // that the value may be sent to, each written as in walls.network
	Methods    []string // of HTTP; empty means all
	Paths      []string // patterns with * for the paths of requests; empty means all
	Env        string   // the variable of a program that holds the placeholder; empty if it gets none
	Header     string   // how a runner that makes the request itself sends the value: "Authorization: Bearer {key}"
	Exposed    bool     // the config gives programs the value itself, in Env, because they pin certificates

	// Again says how its caller connects it again, after a colon; empty if that is not known here.
	Again string `json:"-"`
	// Value returns the current value, which is renewed ahead of its expiry.
	Value func(context.Context) (string, error) `json:"-"`
	// Used notes in the record of the call that the value was sent to a host. It may be called at any time and often.
	Used func(host string) `json:"-"`
}

// SameHosts reports whether two credentials may be sent to the same places.
func (c *Credential) SameHosts(o *Credential) bool {
	return slices.Equal(c.Hosts, o.Hosts) && slices.Equal(c.Methods, o.Methods) && slices.Equal(c.Paths, o.Paths)
}

// String names the connection only, so that a credential can be logged.
func (c *Credential) String() string { return "connection " + c.Connection }
