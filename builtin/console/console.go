// Package console has the tool console.link, which makes links to the console. So any caller that may call it gets a link
// for itself, through every door.
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
	// Link returns a code with which a browser signs in as p, once, and the time until which it is valid.
	Link(p tool.Principal) (code string, until time.Time, err error)
}

// A Link is the output of the tool. Its holder signs in with all rights of the caller. That includes a reader of the
// caller's calls whose token may do less, so its name marks it as a secret, and views of calls do not show it.
type Link struct {
	Path    string    `json:"secret_path" doc:"path to append to the address of the HTTP door"`
	URL     string    `json:"url,omitzero" doc:"that address, if this program serves"`
	Expires time.Time `json:"expires"`
}

// New makes the tool; url returns the address of the console, or "" if it is not served.
func New(links Links, url func() string) *define.Set {
	run := func(_ context.Context, c *define.Call, _ struct{}) (Link, error) {
		if err := c.Told("a link"); err != nil {
			return Link{}, err
		}
		code, until, err := links.Link(c.Caller)
		c.Summary = "a link to the console for " + c.Caller.ID
		return Link{Path: console.Open(code), URL: url(), Expires: until}, err
	}
	return define.NewSet(define.New(tool.Spec{
		Name:        "console.link",
		Description: "Makes a link with which a browser signs in to the console as the caller, once and within a minute.",
	}, run))
}
