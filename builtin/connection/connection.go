// Package connection has the tools with which callers connect their accounts with providers, each its own: connections.start,
// connections.finish, connections.key, connections.list and connections.remove. No tool returns a value that was connected.
package connection

import (
	"context"
	"time"

	"toolpost/builtin/define"
	"toolpost/engine/connection"
	"toolpost/tool"
)

// Connections are what the tools are about.
type Connections interface {
	Start(ctx context.Context, p tool.Principal, b connection.Begin) (connection.Begun, error)
	Finish(ctx context.Context, p tool.Principal, e connection.End) (name string, done bool, err error)
	Paste(ctx context.Context, p tool.Principal, b connection.Begin, key string) (name string, err error)
	List(ctx context.Context, caller string, lasting bool) ([]connection.Status, error)
	All(ctx context.Context) ([]connection.Status, error)
	Remove(ctx context.Context, caller, name string) (why, err error)
}

// Pasted is the reason why connections.start refuses a connection that has no provider: connections.key takes its key.
const Pasted = connection.Pasted

// New makes the tools. lasting is set if connections outlive the program.
func New(c Connections, lasting bool) *define.Set {
	t := tools{c, lasting}
	own := func(name, description string) tool.Spec { return tool.Spec{Name: name, Description: description} }
	return define.NewSet(
		define.New(own("connections.start", "Begins to connect an account of the caller with a provider: gives the address at which a person agrees."), t.start),
		define.New(own("connections.finish", "Ends what connections.start has begun, with what the provider answered in the browser."), t.finish),
		define.New(own("connections.key", "Keeps a key that the caller has with a provider, in place of the one before."), t.key),
		define.New(tool.Spec{
			Name: "connections.list", Effects: tool.Effects{Reads: true},
			Description: "Lists the connections that the caller has or can have, without their values.",
		}, t.list),
		define.New(own("connections.remove", "Forgets a connection of the caller, and revokes it at the provider."), t.remove),
	)
}

type tools struct {
	c       Connections
	lasting bool
}

// StartArgs are the arguments of connections.start. A link is a text that its caller alone can use, and is not recorded.
type StartArgs struct {
	Name     string `json:"name" doc:"the connection, by its name in the config; a link names it, too"`
	Caller   string `json:"caller" doc:"for operators: an agent of this machine, such as agent/claude, in place of the caller"`
	Link     string `json:"secret_link" doc:"the link that an earlier call asked to open"`
	Redirect string `json:"redirect" doc:"the address that the browser comes back to: on the machine of the person, or /v1/connections/callback/NAME of the console"`
	Device   bool   `json:"device" doc:"give a code that a person types at another device"`
}

// Started is the output of connections.start.
type Started struct {
	Name    string `json:"name"`
	Caller  string `json:"caller"`
	State   string `json:"secret_state" doc:"for connections.finish"`
	URL     string `json:"secret_url" doc:"the page on which a person agrees"`
	Code    string `json:"secret_code,omitzero" doc:"the code that the person types there"`
	EveryMS int64  `json:"every_ms,omitzero" doc:"how often to call connections.finish, with a code"`
}

func (t tools) start(ctx context.Context, c *define.Call, a StartArgs) (Started, error) {
	if err := c.Told("a link"); err != nil {
		return Started{}, err
	}
	b, err := t.c.Start(ctx, c.Caller, connection.Begin{Name: a.Name, Caller: a.Caller, Link: a.Link, Redirect: a.Redirect, Device: a.Device})
	c.Summary = "a link to connect " + b.Name
	return Started{b.Name, b.Caller, b.State, b.URL, b.Code, int64(b.Every / time.Millisecond)}, err
}

// FinishArgs are the arguments of connections.finish.
type FinishArgs struct {
	State  string `json:"secret_state" schema:"required minLength=1" doc:"as connections.start gave it"`
	Code   string `json:"secret_code" doc:"what the provider sent the browser back with; empty for a device"`
	Issuer string `json:"issuer" doc:"the member iss of the provider's answer, if it has one"`
	At     string `json:"at" doc:"the connection at whose address of the console the browser came back, if it did"`
}

// Finished is the output of connections.finish.
type Finished struct {
	Name      string `json:"name"`
	Connected bool   `json:"connected" doc:"false while the person has not decided at another device"`
}

func (t tools) finish(ctx context.Context, c *define.Call, a FinishArgs) (Finished, error) {
	name, done, err := t.c.Finish(ctx, c.Caller, connection.End{State: a.State, Code: a.Code, Issuer: a.Issuer, At: a.At})
	if done {
		c.Summary = name + " is connected"
	}
	return Finished{name, done}, err
}

// KeyArgs are the arguments of connections.key.
type KeyArgs struct {
	Name   string `json:"name" doc:"the connection, by its name in the config; a link names it, too"`
	Caller string `json:"caller" doc:"for operators: an agent of this machine, in place of the caller"`
	Link   string `json:"secret_link" doc:"the link that an earlier call asked to open"`
	Key    string `json:"secret_key" schema:"required minLength=1" doc:"the key; it is recorded nowhere"`
}

func (t tools) key(ctx context.Context, c *define.Call, a KeyArgs) (Finished, error) {
	name, err := t.c.Paste(ctx, c.Caller, connection.Begin{Name: a.Name, Caller: a.Caller, Link: a.Link}, a.Key)
	if err != nil {
		return Finished{}, err
	}
	c.Summary = name + " is connected"
	return Finished{name, true}, nil
}

// ListArgs are the arguments of connections.list.
type ListArgs struct {
	Caller string `json:"caller" doc:"for operators: the connections of this caller"`
	All    bool   `json:"all" doc:"for operators: those of all callers"`
}

// A Status is what is known of a connection.
type Status = connection.Status

// Listed is the output of connections.list.
type Listed struct {
	Connections []Status `json:"connections"`
}

func (t tools) list(ctx context.Context, c *define.Call, a ListArgs) (l Listed, err error) {
	const see = "see connections of others"
	if a.All {
		if err = c.Operating(see); err == nil {
			l.Connections, err = t.c.All(ctx)
		}
		return l, err
	}
	caller, err := whose(c, a.Caller, see)
	if err == nil {
		l.Connections, err = t.c.List(ctx, caller, t.lasting)
	}
	return l, err
}

// whose returns the caller whose connections a call is about: its own, or another one if an operator says so.
func whose(c *define.Call, other, what string) (string, error) {
	switch {
	case other != "" && other != c.Caller.ID:
		return other, c.Operating(what)
	case c.Caller.ID == "":
		return "", tool.Errorf(tool.CodeAccessDenied, "a caller without a name has no connections").Because(connection.SharedName)
	}
	return c.Caller.ID, nil
}

// RemoveArgs are the arguments of connections.remove.
type RemoveArgs struct {
	Name   string `json:"name" schema:"required minLength=1" doc:"the connection"`
	Caller string `json:"caller" doc:"for operators: of this caller"`
}

// Removed is the output of connections.remove.
type Removed struct {
	Name  string `json:"name"`
	Stays string `json:"stays,omitzero" doc:"why the provider may still accept it; it is forgotten here"`
}

func (t tools) remove(ctx context.Context, c *define.Call, a RemoveArgs) (Removed, error) {
	caller, err := whose(c, a.Caller, "remove connections of others")
	if err != nil {
		return Removed{}, err
	}
	why, err := t.c.Remove(ctx, caller, a.Name)
	if err != nil {
		return Removed{}, err
	}
	r := Removed{Name: a.Name}
	if c.Summary = a.Name + " is forgotten"; why != nil {
		r.Stays = tool.AsError(why).Message
	}
	return r, nil
}
