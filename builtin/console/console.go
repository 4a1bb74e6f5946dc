// Package console has the tool that makes links to the console: console.link. So a link can be had through every
// door, by whoever may call it, for themselves.
package console

import (
	"context"
	"time"

	"toolpost/builtin/define"
	"toolpost/tool"
	"toolpost/web/console"
)

// Links makes the codes of links.
type Links interface {
	// Link gives a code with which a browser signs in as somebody, once, until the time that it gives too.
	Link(p tool.Principal) (code string, until time.Time, err error)
}

// A Link is what the tool gives. Whoever has it signs in with all the rights of the caller, also one who sees the
// caller's calls by a token that may do less: so its name speaks of a secret, and nobody who shows calls shows it.
type Link struct {
	Path    string    `json:"secret_path" doc:"to open behind the address of the HTTP door"`
	Expires time.Time `json:"expires"`
}

// New makes the tool.
func New(links Links) *define.Set {
	run := func(_ context.Context, c *define.Call, _ struct{}) (Link, error) {
		if err := c.Told("a link"); err != nil {
			return Link{}, err
		}
		code, until, err := links.Link(c.Caller)
		c.Summary = "a link to the console for " + c.Caller.ID
		return Link{Path: console.Open(code), Expires: until}, err
	}
	return define.NewSet(define.New(tool.Spec{
		Name:        "console.link",
		Description: "Makes a link with which a browser signs in to the console as the caller, once and within a minute.",
	}, run))
}
