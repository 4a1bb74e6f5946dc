package alphahuman

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
)

// noSkill is the error of a folder that is named as a skill and is none.
func noSkill(dir string) error {
	if why := almost(dir); why != nil {
		return why
	}
	return tool.Errorf(tool.CodeUnavailable, "%s is not a skill: it has neither %s nor %s",
		dir, strings.Join(manifestFiles(), ", "), skillFile)
}

// almost says why a folder that looks like a skill is none; nil: it does not look like one. Whoever put it there would
// look for it in vain. A folder with nothing but documents and data is not meant.
func almost(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "%s cannot be read: %w", dir, reason(err))
	}
	for _, looks := range []func(dir, name string) string{misnamed, otherFormat, unstarted, nested} {
		for _, e := range entries {
			if why := looks(dir, e.Name()); why != "" {
				return tool.Errorf(tool.CodeUnavailable, "%s is not a skill: %s", dir, why)
			}
		}
	}
	return nil
}

func misnamed(_, name string) string {
	for _, right := range append(manifestFiles(), skillFile) {
		if strings.EqualFold(name, right) {
			return fmt.Sprintf("it has %s, which has to be named %s", name, right)
		}
	}
	return ""
}

func otherFormat(_, name string) string {
	base, ext := parts(name)
	formats := []string{".yaml", ".yml", ".toml", ".json5", ".jsonc"}
	if base != "manifest" && base != "skill" || !slices.Contains(formats, ext) {
		return ""
	}
	return fmt.Sprintf("it has %s; a manifest is JSON, in %s", name, strings.Join(manifestFiles(), " or "))
}

// unstarted knows the file that a program starts with, or that says what it needs, by the names that are usual.
func unstarted(_, name string) string {
	base, ext := parts(name)
	starts := slices.Contains([]string{"skill", "main", "__main__", "index", "server", "app"}, base) &&
		slices.Contains([]string{".py", ".js", ".mjs", ".cjs", ".ts", ".sh"}, ext)
	if !starts && !slices.Contains([]string{requirementsFile, "package.json", "pyproject.toml"}, name) {
		return ""
	}
	return fmt.Sprintf("it has %s, but no %s that says how it is started, and no %s",
		name, strings.Join(manifestFiles(), " or "), skillFile)
}

// parts returns the name of a file, in small letters, without its extension, and that.
func parts(name string) (base, ext string) {
	name = strings.ToLower(name)
	ext = filepath.Ext(name)
	return strings.TrimSuffix(name, ext), ext
}

func nested(dir, name string) string {
	if strings.HasPrefix(name, ".") || !isSkill(filepath.Join(dir, name)) {
		return ""
	}
	return fmt.Sprintf("%s in it is one; name %s with `skills` in a source of its own", jsonrpc.Clip(name), dir)
}
