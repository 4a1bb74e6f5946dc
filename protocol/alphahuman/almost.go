package alphahuman

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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

var otherFormats = regexp.MustCompile(`(?i)^(manifest|skill)\.(yaml|yml|toml|json5|jsonc)$`)

func otherFormat(_, name string) string {
	if !otherFormats.MatchString(name) {
		return ""
	}
	return fmt.Sprintf("it has %s; a manifest is JSON, in %s", name, strings.Join(manifestFiles(), " or "))
}

// starters are the files that a program starts with, or that say what it needs, by the names that are usual.
var starters = regexp.MustCompile(`^(?i:(skill|main|__main__|index|server|app)\.(py|js|mjs|cjs|ts|sh))$` +
	`|^(requirements\.txt|package\.json|pyproject\.toml)$`)

func unstarted(_, name string) string {
	if !starters.MatchString(name) {
		return ""
	}
	return fmt.Sprintf("it has %s, but no %s that says how it is started, and no %s",
		name, strings.Join(manifestFiles(), " or "), skillFile)
}

func nested(dir, name string) string {
	if strings.HasPrefix(name, ".") || !isSkill(filepath.Join(dir, name)) {
		return ""
	}
	return fmt.Sprintf("%s in it is one; name %s with `skills` in a source of its own", jsonrpc.Clip(name), dir)
}
