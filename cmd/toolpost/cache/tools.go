package cache

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/form"
	"toolpost/config"
	"toolpost/wire/strictjson"
)

// Tools are what the shell completes of the tools of a config.
type Tools struct {
	Config string `json:"config"` // the digest of its text
	Tools  []Tool `json:"tools"`
}

// A Tool is one that can be completed.
type Tool struct {
	Name   string       `json:"name"`
	Also   []string     `json:"also"` // other names that call it
	About  string       `json:"about"`
	Inputs []form.Input `json:"inputs"`
}

// Keep keeps the tools of a config.
func (t Tools) Keep(cfg *config.Config) {
	t.Config = cfg.Digest()
	text, err := strictjson.Marshal(t)
	if file := path("tools", cfg.Key()+".json"); file != "" && err == nil {
		_ = config.WritePrivate(file, text) // without it, completion takes longer
	}
}

// ToolsOf returns the tools that were kept for the current text of a config, and their age.
func ToolsOf(cfg *config.Config) (t Tools, age time.Duration, ok bool) {
	file := path("tools", cfg.Key()+".json")
	info, err := os.Stat(file)
	if err != nil || time.Since(info.ModTime()) > kept {
		return t, 0, false
	}
	text, err := os.ReadFile(file)
	ok = err == nil && strictjson.Unmarshal(text, &t) == nil && t.Config == cfg.Digest()
	return t, time.Since(info.ModTime()), ok
}

// Names completes the name of a tool.
func (t Tools) Names(word string) (names []string) {
	for _, one := range t.Tools {
		if strings.HasPrefix(one.Name, word) {
			names = append(names, cobra.CompletionWithDesc(one.Name, one.About))
		}
	}
	return names
}

// Inputs completes the name of an input of a tool.
func (t Tools) Inputs(name, word string) (found []string) {
	i := slices.IndexFunc(t.Tools, func(one Tool) bool { return one.Name == name || slices.Contains(one.Also, name) })
	if i < 0 {
		return nil
	}
	for _, in := range t.Tools[i].Inputs {
		if strings.HasPrefix(in.Name, word) {
			found = append(found, cobra.CompletionWithDesc(in.Name+"=", in.Description))
		}
	}
	return found
}
