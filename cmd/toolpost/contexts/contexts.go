// Package contexts keeps the servers that a user has named.
package contexts

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"

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
