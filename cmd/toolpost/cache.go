package main

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

// cached returns the path of a file in the user's cache, or "" if there is none.
func cached(folder, name string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "toolpost", folder, name)
}

// How long a question can be answered, and its id is kept; and how long a copy of an asset is kept, which its server still has.
const (
	questionFor = 24 * time.Hour
	assetFor    = 24 * time.Hour
)

// removeOlder removes the files of a folder that were written longer ago than this. What cannot be removed stays for the next time.
func removeOlder(dir string, age time.Duration) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > age {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// abbreviate keeps the id of a question, which is as long as the question, and returns a short one for people. If it cannot
// be kept, it returns the id itself.
func abbreviate(id string) string {
	sum := sha256.Sum256([]byte(id))
	short := "q-" + hex.EncodeToString(sum[:4])
	path := cached("questions", short)
	if path == "" || len(id) <= 40 || config.WritePrivate(path, []byte(id)) != nil {
		return clean(id)
	}
	removeOlder(filepath.Dir(path), questionFor)
	return short
}

var shortQuestion = regex.Lazy(`^q-[0-9a-f]{8}$`)

// expand returns the id that abbreviate has kept, or the id itself if it is another.
func expand(id string) string {
	if !shortQuestion().MatchString(id) {
		return id
	}
	if long, err := os.ReadFile(cached("questions", id)); err == nil {
		return string(long)
	}
	return id
}

// fetching makes calls on a server elsewhere: it copies the assets of a call to this machine, and gives the events the paths
// of the copies.
type fetching struct{ node.Remote }

// Invoke implements tool.Handler.
func (f fetching) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	return f.Remote.Invoke(ctx, c, tool.SinkFunc(func(ev tool.Event) (err error) {
		if ev.Kind != tool.KindAsset {
			return out.Emit(ev)
		}
		a := read[tool.Asset](ev)
		if path, failed := f.fetch(ctx, a); failed == nil {
			a.Path = path
			ev.Data = raw(a)
		} else {
			err = out.Emit(tool.NewEvent(tool.KindLog, tool.Log{
				Level: "warn", Message: "the asset " + a.AssetID + " stays on the server: " + tool.AsError(failed).Message,
			}))
		}
		return cmp.Or(err, out.Emit(ev))
	}))
}

// fetch copies an asset into the user's cache, and removes old copies.
func (f fetching) fetch(ctx context.Context, a tool.Asset) (string, error) {
	name, content, err := f.Asset(ctx, a)
	if err != nil {
		return "", err
	}
	path := cached("assets", a.SHA256[:16]+"-"+name)
	err = config.WritePrivate(path, content)
	removeOlder(filepath.Dir(path), assetFor)
	return path, err
}

// completions are what the shell completes of the tools of a config.
type completions struct {
	Config string            `json:"config"` // the digest of its text
	Tools  []completableTool `json:"tools"`
}

type completableTool struct {
	Name   string   `json:"name"`
	Also   []string `json:"also"` // other names that call it
	About  string   `json:"about"`
	Inputs []input  `json:"inputs"`
}

// How long a catalogue is used, since tools of other servers change without the config; and how long it is not renewed for a
// name that is not in it.
const (
	catalogueFor = 24 * time.Hour
	renewedAfter = time.Minute
)

// remember keeps the tools of this config for completion, if all sources have listed theirs.
func (a *app) remember(tools []listed) (known completions) {
	cfg, err := a.load()
	whole := err == nil && !a.away() && a.played == nil
	for _, t := range tools {
		whole = whole && t.err == nil
		if t.err == nil && t.spec.Name != "" && clean(t.spec.Name) == t.spec.Name {
			known.Tools = append(known.Tools, completableTool{
				t.spec.Name, append([]string{t.spec.Source + "." + t.spec.Name}, t.spec.Aliases...), firstLine(t.spec), inputsOf(t.spec.Input),
			})
		}
	}
	if !whole {
		return known
	}
	known.Config = cfg.Digest()
	if path := cached("tools", cfg.Key()+".json"); path != "" {
		_ = config.WritePrivate(path, raw(known)) // without it, completion takes longer
	}
	return known
}

// remembered returns the tools that remember has kept for the current text of the config, and their age.
func (a *app) remembered() (known completions, age time.Duration, ok bool) {
	cfg, err := a.load()
	if err != nil || a.played != nil || a.server.url != "" {
		return known, 0, false
	}
	path := cached("tools", cfg.Key()+".json")
	info, err := os.Stat(path)
	if err != nil || time.Since(info.ModTime()) > catalogueFor {
		return known, 0, false
	}
	text, err := os.ReadFile(path)
	ok = err == nil && strictjson.Unmarshal(text, &known) == nil && known.Config == cfg.Digest()
	return known, time.Since(info.ModTime()), ok
}
