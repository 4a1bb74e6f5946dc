package all

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"toolpost/config"
	"toolpost/protocol/rest"
	"toolpost/tool"
)

// DoorOptions is what the doors of a config need beside it.
type DoorOptions struct {
	Log      *slog.Logger
	Listen   string          // address of the HTTP door, in place of what the config says
	Token    string          // of the HTTP door; empty: one is made and kept in the state folder
	NewToken bool            // forget the kept token and make another
	Ready    func(Listening) // called when a door takes calls
}

// Listening says where a door takes calls.
type Listening struct {
	URL   string
	Token string // in clear when it was made just now; it cannot be shown again
}

// Doors makes the doors that the config asks for. They are open once they are served.
func Doors(cfg *config.Config, o DoorOptions) ([]tool.Door, error) {
	http := cfg.Doors.HTTP
	if http == nil {
		return nil, nil
	}
	auth, fresh, err := authenticator(cfg.StateDir(), o)
	if err != nil {
		return nil, err
	}
	return []tool.Door{rest.NewDoor(rest.Options{
		Listen:  cmp.Or(o.Listen, http.Listen),
		Auth:    auth,
		Hosts:   http.Hosts,
		Origins: http.Origins,
		Drain:   time.Duration(cfg.Limits.Drain),
		Log:     o.Log,
		Ready:   func(addr string) { o.Ready(Listening{URL: "http://" + addr, Token: fresh}) },
	})}, nil
}

func authenticator(dir string, o DoorOptions) (auth rest.Authenticator, fresh string, err error) {
	if o.Token != "" {
		auth, err = rest.StaticToken(o.Token)
		return auth, "", err
	}
	if o.NewToken {
		if err := os.Remove(filepath.Join(dir, rest.TokenFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, "", tool.Errorf(tool.CodeUnavailable, "cannot forget the old token: %w", err)
		}
	}
	return rest.FileToken(dir)
}

// A Remote is another Toolpost, used as if it were here.
type Remote interface {
	tool.Handler
	tool.Catalog
}

// Dial gives the Toolpost that serves HTTP at url.
func Dial(url, token string) (Remote, error) { return rest.Dial(url, token) }
