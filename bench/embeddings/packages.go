package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed packages.txt
var packageList string

// A pkg is one line of packages.txt: a public package, pinned by the digest of its archive.
type pkg struct {
	use     string // train or eval
	kind    string // go, npm, deb or src (a Debian source): who holds it
	name    string
	version string
	digest  string // SHA-256 of the archive, in hex
}

func (p pkg) String() string { return p.kind + " " + p.name + " " + p.version }

// parsePackages reads the list: one package a line, five words, # begins a comment.
func parsePackages(list string) ([]pkg, error) {
	var all []pkg
	seen := map[string]int{}
	for n, line := range strings.Split(list, "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) < 4 || len(f) > 5 {
			return nil, fmt.Errorf("packages.txt:%d: want use, kind, name, version and digest", n+1)
		}
		p := pkg{use: f[0], kind: f[1], name: f[2], version: f[3]}
		if len(f) == 5 { // otherwise it is yet to be pinned, and fetching it says the digest
			p.digest = f[4]
		}
		if p.use != "train" && p.use != "eval" {
			return nil, fmt.Errorf("packages.txt:%d: %q is neither train nor eval", n+1, p.use)
		}
		if first, again := seen[p.kind+" "+p.name]; again {
			return nil, fmt.Errorf("packages.txt:%d: %s is on line %d already: "+
				"what is evaluated must not be trained on", n+1, p.name, first)
		}
		seen[p.kind+" "+p.name] = n + 1
		all = append(all, p)
	}
	return all, nil
}
