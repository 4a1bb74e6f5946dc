package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"toolpost/bench/attempt"
)

const (
	fetchers     = 4
	fetchTimeout = 10 * time.Minute
)

// A fetcher keeps the archives of packages in a folder and downloads missing ones, each with the program for its
// registry: go, npm or apt-get. The machine's configuration decides which hosts these contact.
type fetcher struct {
	teller
	dir string
}

// archive returns the path of a fetched package.
func (f *fetcher) archive(p pkg) string {
	name := strings.NewReplacer("/", "!", "@", "").Replace(p.name)
	return filepath.Join(f.dir, p.kind, name+"@"+p.version+".archive")
}

func (f *fetcher) lacks(p pkg) bool {
	_, err := os.Stat(f.archive(p))
	return err != nil
}

// fetch downloads every missing package and checks the digest of each.
func (f *fetcher) fetch(ctx context.Context, packages []pkg) error {
	if err := attempt.Do(func() { f.prepareApt(ctx, packages) }); err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(fetchers)
	failures := make([]error, len(packages))
	step, end := f.steps("fetching packages", len(packages))
	defer end()
	for i, p := range packages {
		g.Go(func() error {
			if err := attempt.Do(func() { f.fetchOne(ctx, p) }); err != nil {
				failures[i] = fmt.Errorf("%s: %w", p, err)
			}
			step()
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(failures...)
}

func (f *fetcher) fetchOne(ctx context.Context, p pkg) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if f.lacks(p) {
		attempt.Check(os.MkdirAll(filepath.Dir(f.archive(p)), 0o755))
		f.download(ctx, p)
		f.log("fetched %s", p)
	}
	switch digest := fmt.Sprintf("%x", sha256.Sum256(attempt.Must(os.ReadFile(f.archive(p))))); {
	case p.digest == "":
		attempt.Check(fmt.Errorf("it is not pinned; its digest is %s", digest))
	case digest != p.digest:
		attempt.Check(fmt.Errorf("the archive has the digest %s, packages.txt says %s; remove %s to fetch it again",
			digest, p.digest, f.archive(p)))
	}
}

// download runs the program for a package's registry and stores the archive.
func (f *fetcher) download(ctx context.Context, p pkg) {
	tmp := attempt.Must(os.MkdirTemp(f.dir, "fetch-"))
	defer os.RemoveAll(tmp)
	var command []string
	archive, revision := "", "" // archive is the pattern of its name
	switch p.kind {
	case "go":
		f.copyModule(ctx, tmp, p)
		return
	case "npm":
		command = []string{"npm", "pack", "--silent", "--pack-destination", tmp, p.name + "@" + p.version}
		archive = "*.tgz"
	case "src": // the upstream archive of a Debian source package
		revision = f.revision(ctx, p, "showsrc", "--only-source")
		command = []string{"apt-get", "source", "-qq", "--download-only", "--tar-only"}
		archive = "*.orig.tar.*"
	case "deb":
		revision = f.revision(ctx, p, "show")
		command = []string{"apt-get", "download", "-qq"}
		archive = "*.deb"
	default:
		attempt.Check(fmt.Errorf("no registry is called %q; there are go, npm, deb and src", p.kind))
	}
	if revision != "" {
		command = append(command, "-o", "APT::Sandbox::User=root", p.name+"="+revision)
	}
	attempt.Must(f.output(ctx, tmp, command...))
	attempt.Check(os.Rename(single(filepath.Join(tmp, archive)), f.archive(p)))
}

// copyModule copies the archive of a module from the machine's module cache, in which go stores it.
func (f *fetcher) copyModule(ctx context.Context, tmp string, p pkg) {
	var m struct{ Zip string }
	out := attempt.Must(f.output(ctx, tmp, "go", "mod", "download", "-json", p.name+"@"+p.version))
	attempt.Check(json.Unmarshal(out, &m))
	half := filepath.Join(tmp, "copy")
	attempt.Check(os.WriteFile(half, attempt.Must(os.ReadFile(m.Zip)), 0o644))
	attempt.Check(os.Rename(half, f.archive(p)))
}

// revision finds the full version whose record has the pinned digest, because Debian's revisions come and go. For a
// package that is not pinned yet it takes any revision of the version.
func (f *fetcher) revision(ctx context.Context, p pkg, show ...string) string {
	records := attempt.Must(f.output(ctx, f.dir, slices.Concat([]string{"apt-cache"}, show, []string{p.name})...))
	for record := range strings.SplitSeq(string(records), "\n\n") {
		_, rest, _ := strings.Cut("\n"+record, "\nVersion: ")
		revision, _, _ := strings.Cut(rest, "\n")
		if upstream(revision) == p.version && strings.Contains(record, p.digest) {
			return revision
		}
	}
	attempt.Check(fmt.Errorf("no revision of %s with the pinned digest is offered", p.version))
	return ""
}

// upstream removes the epoch and the Debian revision from a version.
func upstream(version string) string {
	if _, after, ok := strings.Cut(version, ":"); ok {
		version = after
	}
	if i := strings.LastIndexByte(version, '-'); i >= 0 {
		version = version[:i]
	}
	return version
}

// prepareApt makes package lists apart from the machine's own, because most machines have no lists of sources.
func (f *fetcher) prepareApt(ctx context.Context, packages []pkg) {
	missing := func(p pkg) bool { return (p.kind == "deb" || p.kind == "src") && f.lacks(p) }
	if !slices.ContainsFunc(packages, missing) {
		return
	}
	for _, d := range []string{"parts", "lists/partial", "cache/archives/partial"} {
		attempt.Check(os.MkdirAll(filepath.Join(f.dir, "apt", d), 0o755))
	}
	f.writeSources()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	// If a registry of the machine has no sources, the update fails; a missing package is reported later.
	if _, err := f.output(ctx, f.dir, "apt-get", "update", "-qq"); err != nil {
		f.log("apt-get update: %v", err)
	}
}

// writeSources derives from the machine's list of Debian registries one that includes their sources.
func (f *fetcher) writeSources() {
	apt := filepath.Join(f.dir, "apt")
	lists, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	for _, name := range append(lists, "/etc/apt/sources.list") {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		switch filepath.Ext(name) {
		case ".sources":
			text = bytes.ReplaceAll(text, []byte("Types: deb\n"), []byte("Types: deb deb-src\n"))
		case ".list":
			text = append(bytes.ReplaceAll(append([]byte("\n"), text...), []byte("\ndeb "), []byte("\ndeb-src ")),
				text...)
		default:
			continue
		}
		attempt.Check(os.WriteFile(filepath.Join(apt, "parts", filepath.Base(name)), text, 0o644))
	}
	conf := fmt.Sprintf("Dir::Etc::sourcelist \"/dev/null\";\nDir::Etc::sourceparts %q;\nDir::State::lists %q;\n"+
		"Dir::Cache %q;\n", filepath.Join(apt, "parts"), filepath.Join(apt, "lists"), filepath.Join(apt, "cache"))
	attempt.Check(os.WriteFile(filepath.Join(apt, "apt.conf"), []byte(conf), 0o644))
}

// output runs a program and returns its output; an error includes the end of its stderr.
func (f *fetcher) output(ctx context.Context, dir string, command ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "APT_CONFIG="+filepath.Join(f.dir, "apt", "apt.conf"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		text := strings.TrimSpace(stderr.String())
		return nil, fmt.Errorf("%s %s: %w: %s", command[0], command[1], err, text[max(0, len(text)-500):])
	}
	return out, nil
}

// single finds the one archive that a program left behind.
func single(pattern string) string {
	names, _ := filepath.Glob(pattern)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, ".asc") })
	if len(names) != 1 {
		attempt.Check(fmt.Errorf("want one archive, got %d", len(names)))
	}
	return names[0]
}

//go:embed packages.txt
var packageList string

// A pkg is one line of packages.txt: a public package, pinned by the digest of its archive.
type pkg struct {
	use     string // train or eval
	kind    string // its registry: go, npm, deb or src (a Debian source)
	name    string
	version string
	digest  string // SHA-256 of the archive, in hex
}

func (p pkg) String() string { return p.kind + " " + p.name + " " + p.version }

// parsePackages reads the list: one package per line, five words, # begins a comment.
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
		if len(f) == 5 { // otherwise it is not pinned yet, and fetching it reports the digest
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
