package catalogue

import (
	"errors"
	"testing"

	"toolpost/engine"
	"toolpost/internal/kit"
)

// Another node takes no source from this one: what it brings under the same name counts only while this node's own is dead.
func TestASourceOfThisNodeIsItsOwn(t *testing.T) {
	remote := func(name string) engine.Binding { return engine.Binding{Name: name, Remote: true} }
	c := &Catalogue{env: Env{Remote: func() []engine.Binding { return []engine.Binding{remote("open"), remote("dead"), remote("far")} }}}
	for _, b := range c.withRemote([]engine.Binding{{Name: "toolpost"}, {Name: "open"}, {Name: "dead", Err: errors.New("it does not open")}}) {
		kit.Equal(t, b.Remote, b.Name == "dead" || b.Name == "far", b.Name)
	}
}
