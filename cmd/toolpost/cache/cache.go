// Package cache keeps, in the user's cache, what later commands need: the ids of questions, copies of assets, and the names
// that the shell completes.
package cache

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	"toolpost/config"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// path returns the path of a file in the user's cache, or "" if there is none.
func path(folder, name string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "toolpost", folder, name)
}

// kept is how long a file is used: a question can be answered for a day, a server still has the asset, and tools of other
// servers change without the config.
const kept = 24 * time.Hour

// removeOlder removes the files of a folder that were written longer ago than this. What cannot be removed stays for the next time.
func removeOlder(dir string, age time.Duration) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > age {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// Abbreviate keeps the id of a question, which is as long as the question, and returns a short one for people. If it cannot
// be kept, it returns the id itself.
func Abbreviate(id string) string {
	sum := sha256.Sum256([]byte(id))
	short := "q-" + hex.EncodeToString(sum[:4])
	file := path("questions", short)
	if file == "" || len(id) <= 40 || config.WritePrivate(file, []byte(id)) != nil {
		return tool.VisibleName(id)
	}
	removeOlder(filepath.Dir(file), kept)
	return short
}

var shortQuestion = regex.Lazy(`^q-[0-9a-f]{8}$`)

// Expand returns the id that Abbreviate has kept, or the id itself if it is another.
func Expand(id string) string {
	if !shortQuestion().MatchString(id) {
		return id
	}
	if long, err := os.ReadFile(path("questions", id)); err == nil {
		return string(long)
	}
	return id
}

// Fetching makes calls on a server elsewhere: it copies the assets of a call to this machine, and gives the events the paths
// of the copies.
type Fetching struct{ node.Remote }

// Invoke implements tool.Handler.
func (f Fetching) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	return f.Remote.Invoke(ctx, c, tool.SinkFunc(func(ev tool.Event) (err error) {
		if ev.Kind != tool.KindAsset {
			return out.Emit(ev)
		}
		var a tool.Asset
		failed := strictjson.Unmarshal(ev.Data, &a)
		if failed == nil {
			a.Path, failed = f.fetch(ctx, a)
		}
		if failed == nil {
			ev.Data = tool.NewEvent(ev.Kind, a).Data
		} else {
			err = out.Emit(tool.NewEvent(tool.KindLog, tool.Log{
				Level: "warn", Message: "the asset " + a.AssetID + " stays on the server: " + tool.AsError(failed).Message,
			}))
		}
		return cmp.Or(err, out.Emit(ev))
	}))
}

// fetch copies an asset into the user's cache, and removes old copies.
func (f Fetching) fetch(ctx context.Context, a tool.Asset) (string, error) {
	name, content, err := f.Asset(ctx, a)
	if err != nil {
		return "", err
	}
	file := path("assets", a.SHA256[:16]+"-"+name)
	err = config.WritePrivate(file, content)
	removeOlder(filepath.Dir(file), kept)
	return file, err
}
