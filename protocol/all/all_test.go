package all_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"toolpost/config"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/protocol/all"
	"toolpost/tool"
)

// Every protocol must be strict about configs: an unknown field is refused, with its place.
func TestEveryProtocolRefusesAFieldThatItDoesNotKnow(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range all.Protocols() {
		t.Run(p.Name, func(t *testing.T) {
			if seen[p.Name] {
				t.Error("listed twice")
			}
			seen[p.Name] = true
			text := "sources: [{name: a, protocol: " + p.Name + ", no_such_field: 1}]"
			cfg := kit.Must(config.Parse(filepath.Join(t.TempDir(), "toolpost.yaml"), []byte(text)))(t)
			r, err := p.Open(t.Context(), cfg.Sources[0], slog.New(slog.DiscardHandler))
			if err == nil {
				_ = r.Close(t.Context())
			}
			kit.Refused(t, err, tool.CodeInvalidInput, "", "opened with")
		})
	}
}

func TestDoorsAreThoseOfTheConfig(t *testing.T) {
	cfg := config.Default(t.TempDir())
	kit.Refused(t, kit.Err(all.Doors(cfg, all.DoorOptions{})),
		tool.CodeInternal, "", "doors where nobody asks who comes in")
	nobody := func(context.Context, identity.Credentials) (tool.Principal, error) {
		return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "nobody comes in")
	}
	if doors, err := all.Doors(cfg, all.DoorOptions{Gate: nobody}); err != nil || len(doors) != 1 {
		t.Errorf("with the door that is there by default: %v, %v", doors, err)
	}
	cfg.Doors = nil
	kit.Equal(t, len(kit.Must(all.Doors(cfg, all.DoorOptions{Gate: nobody}))(t)), 0, "without a door")
	for text, want := range map[string]string{
		"doors: {htp: {}}":         `did you mean "http"?`,
		"doors: {http: {port: 1}}": `unknown field "port"`,
	} {
		cfg := kit.Must(config.Parse(filepath.Join(t.TempDir(), "toolpost.yaml"), []byte(text)))(t)
		kit.Fails(t, kit.Err(all.Doors(cfg, all.DoorOptions{Gate: nobody})), want, text)
	}
}
