package file

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// sensitiveNames are the names, in lower case, that are neither read nor listed, as files or as folders:
// secrets, private keys, and our own state.
func sensitiveNames() []string {
	return []string{
		".env", ".env.*", "credentials.json", "*.key", "*.pem", "*.p12", "*.pfx",
		"id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh",
		".netrc", ".git-credentials", ".pgpass", ".toolpost",
	}
}

// sensitivePath reports whether any part of a path has a sensitive name.
func sensitivePath(name string) bool {
	return slices.ContainsFunc(strings.Split(name, string(filepath.Separator)), sensitiveName)
}

func sensitiveName(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(sensitiveNames(), func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // our patterns are well formed
		return ok
	})
}
