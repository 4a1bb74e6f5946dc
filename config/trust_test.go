package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/tool"
)

const stranger = 12345 // a user that does not exist

// A ground is a folder with a config in ground/a/b/toolpost.yaml that only we could have written.
func ground(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	in := filepath.Join(dir, "a/b")
	kit.OK(t, errors.Join(os.MkdirAll(in, 0o755), os.WriteFile(filepath.Join(in, config.FileName), []byte("sources: []\n"), 0o644)))
	return dir
}

func TestConfigWritableByOthersIsNotTrusted(t *testing.T) {
	root := os.Geteuid() == 0
	for name, c := range map[string]struct {
		do   func(dir string) error
		at   string // the path of the config; default a/b/toolpost.yaml
		why  []string
		root bool
	}{
		"as it is":               {do: func(string) error { return nil }},
		"a group's file":         {do: func(d string) error { return os.Chmod(d+"/a/b/toolpost.yaml", 0o664) }, why: []string{"toolpost.yaml may be written by the group", "mode 0664", "chmod g-w"}},
		"everybody's file":       {do: func(d string) error { return os.Chmod(d+"/a/b/toolpost.yaml", 0o646) }, why: []string{"written by everybody", "chmod go-w"}},
		"a group's folder":       {do: func(d string) error { return os.Chmod(d+"/a/b", 0o775) }, why: []string{"/a/b may be written by the group", "mode 0775", "chmod g-w"}},
		"a group's folder above": {do: func(d string) error { return os.Chmod(d+"/a", 0o775) }, why: []string{"/a may be written by the group"}},
		"a sticky folder":        {do: func(d string) error { return os.Chmod(d+"/a", 0o777|os.ModeSticky) }},
		"a sticky file":          {do: func(d string) error { return os.Chmod(d+"/a/b/toolpost.yaml", 0o666|os.ModeSticky) }, why: []string{"written by everybody"}},
		"a stranger's file":      {do: func(d string) error { return os.Chown(d+"/a/b/toolpost.yaml", stranger, -1) }, why: []string{"belongs to user 12345", "mode 0644"}, root: true},
		"a stranger's folder":    {do: func(d string) error { return os.Chown(d+"/a", stranger, -1) }, why: []string{"/a belongs to user 12345"}, root: true},
		"a link":                 {do: func(d string) error { return os.Symlink("a/b/toolpost.yaml", d+"/link") }, at: "link"},
		"a link to another place": {do: func(d string) error {
			return errors.Join(os.Symlink(d+"/a/b/toolpost.yaml", d+"/link"), os.Chmod(d+"/a", 0o777))
		}, at: "link", why: []string{"/a may be written by everybody"}},
		"a linked folder": {do: func(d string) error { return errors.Join(os.Symlink("a/../a/b", d+"/link"), os.Chmod(d+"/a/b", 0o777)) }, at: "link/toolpost.yaml", why: []string{"/a/b may be written by everybody"}},
		"a link in a bad folder": {do: func(d string) error {
			return errors.Join(os.Mkdir(d+"/c", 0o755), os.Symlink("../a/b/toolpost.yaml", d+"/c/link"), os.Chmod(d+"/c", 0o777))
		}, at: "c/link", why: []string{"/c may be written by everybody"}},
		"a stranger's link": {do: func(d string) error {
			return errors.Join(os.Symlink("a/b/toolpost.yaml", d+"/link"), os.Lchown(d+"/link", stranger, -1))
		}, at: "link", why: []string{"/link belongs to user 12345"}, root: true},
		"a link to itself":          {do: func(d string) error { return os.Symlink("link", d+"/link") }, at: "link", why: []string{"too many levels"}},
		"a folder":                  {do: func(string) error { return nil }, at: "a/b", why: []string{"it is a folder"}},
		"none":                      {do: func(string) error { return nil }, at: "a/c", why: []string{"no such config file"}},
		"not a folder on the way":   {do: func(string) error { return nil }, at: "a/b/toolpost.yaml/x", why: []string{"not a directory"}},
		"a relative path with dots": {do: func(string) error { return nil }, at: "a/b/../b/toolpost.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root && !root {
				t.Skip("only root gives files away")
			}
			dir := ground(t)
			kit.OK(t, c.do(dir))
			at := "a/b/toolpost.yaml"
			if c.at != "" {
				at = c.at
			}
			cfg, err := config.LoadTrusted(filepath.Join(dir, at))
			if (err == nil) != (c.why == nil) || err == nil && cfg == nil {
				t.Fatalf("got %v", err)
			}
			for _, want := range c.why {
				kit.Contains(t, err.Error(), want, "%v does not say", err)
			}
			if e := config.Trusted(filepath.Join(dir, at)); (e == nil) != (err == nil) {
				t.Errorf("%v, and %v", e, err)
			}
			if err != nil && strings.Contains(err.Error(), "could have been") && tool.CodeOf(err) != tool.CodeAccessDenied {
				t.Error(tool.CodeOf(err))
			}
		})
	}
}
