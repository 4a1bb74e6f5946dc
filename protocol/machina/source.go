package machina

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/config"
	"toolpost/host/offlimits"
)

// SourceOf returns the name of the source that a host means. Hosts name what they load by the path of a file: that is
// the source whose plugin it is, the first of them, else the only source that there is. A word that is no path must be
// right: a typing error does not lead to some source.
func SourceOf(word string, sources []config.Source) string {
	if slices.ContainsFunc(sources, func(src config.Source) bool { return src.Name == word }) {
		return word
	}
	for _, src := range sources {
		if plugin := pluginOf(src); plugin != "" && sameFile(word, plugin) {
			return src.Name
		}
	}
	if len(sources) == 1 && isPath(word) {
		return sources[0].Name
	}
	return word
}

// isPath tells a path from a name: by its slashes, or because it ends as libraries do.
func isPath(word string) bool {
	switch filepath.Ext(word) {
	case ".so", ".dylib", ".dll":
		return true
	}
	return strings.Contains(word, "/")
}

// pluginOf returns the path of a source's plugin; empty: it has none.
func pluginOf(src config.Source) string {
	if src.Protocol != "machina" {
		return ""
	}
	o, err := optionsOf(src)
	if err != nil || o.Plugin == "" {
		return "" // who opens the source says what is wrong with it
	}
	return offlimits.Under(o.Folder(src.Dir), o.Plugin)
}

// sameFile reports whether two paths are the same, or lead to the same file. A relative one starts where we stand.
func sameFile(a, b string) bool {
	absA, errA := filepath.Abs(a)
	absB, errB := filepath.Abs(b)
	if errA == nil && errB == nil && absA == absB {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
