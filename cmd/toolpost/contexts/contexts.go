// Package contexts keeps the servers that a user has named.
package contexts

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/wire/nearest"
	"toolpost/wire/strictjson"
)

// Contexts are the servers that a user has named, in a file that only this user can read.
type Contexts struct {
	Current  string            `json:"current,omitempty"`
	Contexts map[string]Server `json:"contexts"`
}

// A Server is one that has a name.
type Server struct {
	URL   string `json:"url"`
	Token string `json:"token,omitempty"` // never printed
	CA    string `json:"ca,omitempty"`
	Login *Login `json:"login,omitempty"` // of a person, in place of a token
}

// A Login is what a person got from a provider.
type Login struct {
	Provider string   `json:"provider"` // its name
	Issuer   string   `json:"issuer"`
	ClientID string   `json:"client_id"`
	Scopes   []string `json:"scopes,omitempty"`
	ID       string   `json:"id_token"`                // never printed
	Refresh  string   `json:"refresh_token,omitempty"` // likewise
	Expires  int64    `json:"expires"`                 // of the ID token, in Unix seconds
}

// At returns the name of a context with a login at a server, or "".
func (c Contexts) At(url string) string {
	for _, name := range c.Names() {
		if one := c.Contexts[name]; one.Login != nil && strings.TrimSuffix(one.URL, "/") == strings.TrimSuffix(url, "/") {
			return name
		}
	}
	return ""
}

// Change reads the file of contexts, changes them, and writes it, while no other program does. Without a change nothing is
// written.
func Change(ctx context.Context, change func(*Contexts) (changed bool, err error)) error {
	return config.Locked(ctx, config.ContextsFile(), func() error {
		known, err := Read()
		if err != nil {
			return err
		}
		changed, err := change(&known)
		if changed {
			err = errors.Join(err, known.Write())
		}
		return err
	})
}

// Read reads the file of contexts; without one, or with the empty one that hides it from tools, there are none.
func Read() (known Contexts, err error) {
	path := config.ContextsFile()
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Contexts{Contexts: map[string]Server{}}, nil
	}
	if err == nil && info.Size() > 0 && info.Mode().Perm()&0o077 != 0 {
		err = errors.New("other users can read the tokens in it; `chmod 600` it, and get new tokens")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err == nil && len(text) > 0 {
		err = strictjson.Unmarshal(text, &known)
	}
	if known.Contexts == nil { // the file can say null
		known.Contexts = map[string]Server{}
	}
	if err != nil {
		err = tool.Errorf(tool.CodeInvalidInput, "the file of contexts, %s, cannot be used: %w", path, err)
	}
	return known, err
}

// Get returns a context that exists.
func (c Contexts) Get(name string) (Server, error) {
	one, ok := c.Contexts[name]
	if !ok {
		return one, tool.Errorf(tool.CodeNotFound, "there is no context %q%s", name, nearest.Suggest(name, c.Names(),
			"; `toolpost context add` makes one"))
	}
	return one, nil
}

// Names returns the names of the contexts in order.
func (c Contexts) Names() []string { return slices.Sorted(maps.Keys(c.Contexts)) }

// Write replaces the file of contexts.
func (c Contexts) Write() error {
	text, err := strictjson.Marshal(c)
	if err == nil {
		err = config.WritePrivate(config.ContextsFile(), text)
	}
	return err
}
