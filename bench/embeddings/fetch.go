package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	fetchers     = 4
	fetchTimeout = 10 * time.Minute
)

// A fetcher keeps the archives of packages in a folder and gets those that are missing, each with the program that
// knows its registry: go, npm or apt-get. Which hosts these ask is the machine's business.
type fetcher struct {
	dir string
	log func(format string, args ...any)
}

// archive is where a package lies once it is fetched.
func (f *fetcher) archive(p pkg) string {
	name := strings.NewReplacer("/", "!", "@", "").Replace(p.name)
	return filepath.Join(f.dir, p.kind, name+"@"+p.version+".archive")
}

// fetch gets every package that is missing and checks the digest of each.
func (f *fetcher) fetch(ctx context.Context, packages []pkg) error {
	if err := f.prepareApt(ctx, packages); err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(fetchers)
	failures := make([]error, len(packages))
	for i, p := range packages {
		g.Go(func() error {
			failures[i] = f.fetchOne(ctx, p)
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(failures...)
}

func (f *fetcher) fetchOne(ctx context.Context, p pkg) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if _, err := os.Stat(f.archive(p)); err != nil {
		if err := f.download(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		f.log("fetched %s", p)
	}
	digest, err := digestOf(f.archive(p))
	switch {
	case err != nil:
		return err
	case p.digest == "":
		return fmt.Errorf("%s: it is not pinned; its digest is %s", p, digest)
	case digest != p.digest:
		return fmt.Errorf("%s: the archive has the digest %s, packages.txt says %s; remove %s to fetch it again", p,
			digest, p.digest, f.archive(p))
	}
	return nil
}

func (f *fetcher) download(ctx context.Context, p pkg) error {
	tmp, err := os.MkdirTemp(f.dir, "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	var got string
	switch p.kind {
	case "go":
		got, err = fetchGo(ctx, tmp, p)
	case "npm":
		got, err = fetchNpm(ctx, tmp, p)
	case "src":
		got, err = f.fetchSource(ctx, tmp, p)
	case "deb":
		got, err = f.fetchDeb(ctx, tmp, p)
	default:
		err = fmt.Errorf("no registry is called %q; there are go, npm, deb and src", p.kind)
	}
	if err != nil {
		return err
	}
	return moveInto(f.archive(p), got)
}

func fetchGo(ctx context.Context, tmp string, p pkg) (string, error) {
	out, err := output(ctx, tmp, nil, "go", "mod", "download", "-json", p.name+"@"+p.version)
	if err != nil {
		return "", err
	}
	var m struct{ Zip string }
	if err := json.Unmarshal(out, &m); err != nil {
		return "", err
	}
	return copyTo(tmp, m.Zip)
}

func fetchNpm(ctx context.Context, tmp string, p pkg) (string, error) {
	if _, err := output(ctx, tmp, nil, "npm", "pack", "--silent", "--pack-destination", tmp,
		p.name+"@"+p.version); err != nil {
		return "", err
	}
	return single(filepath.Join(tmp, "*.tgz"))
}

// fetchSource gets the upstream archive of a Debian source package.
func (f *fetcher) fetchSource(ctx context.Context, tmp string, p pkg) (string, error) {
	revision, err := f.revision(ctx, p, "showsrc", "--only-source")
	if err != nil {
		return "", err
	}
	args := []string{
		"source", "-qq", "--download-only", "--tar-only", "-o", "APT::Sandbox::User=root", p.name + "=" + revision,
	}
	if _, err := output(ctx, tmp, f.aptEnv(), "apt-get", args...); err != nil {
		return "", err
	}
	return single(filepath.Join(tmp, "*.orig.tar.*"))
}

// fetchDeb gets a Debian package.
func (f *fetcher) fetchDeb(ctx context.Context, tmp string, p pkg) (string, error) {
	revision, err := f.revision(ctx, p, "show")
	if err != nil {
		return "", err
	}
	if _, err := output(ctx, tmp, f.aptEnv(), "apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root",
		p.name+"="+revision); err != nil {
		return "", err
	}
	return single(filepath.Join(tmp, "*.deb"))
}

// revision finds the full version whose record has the pinned digest, because Debian's revisions come and go; of a
// package that is not pinned yet, any of the version.
func (f *fetcher) revision(ctx context.Context, p pkg, show ...string) (string, error) {
	records, err := output(ctx, f.dir, f.aptEnv(), "apt-cache", append(show, p.name)...)
	if err != nil {
		return "", err
	}
	for _, record := range strings.Split(string(records), "\n\n") {
		revision := ""
		for _, line := range strings.Split(record, "\n") {
			if v, ok := strings.CutPrefix(line, "Version: "); ok {
				revision = v
			}
		}
		if upstream(revision) == p.version && strings.Contains(record, p.digest) {
			return revision, nil
		}
	}
	return "", fmt.Errorf("no revision of %s with the pinned digest is offered", p.version)
}

// upstream takes the epoch and the Debian revision off a version.
func upstream(version string) string {
	if _, after, ok := strings.Cut(version, ":"); ok {
		version = after
	}
	if i := strings.LastIndexByte(version, '-'); i >= 0 {
		version = version[:i]
	}
	return version
}

// prepareApt makes package lists beside the machine's own: most machines have none of sources.
func (f *fetcher) prepareApt(ctx context.Context, packages []pkg) error {
	missing := false
	for _, p := range packages {
		if _, err := os.Stat(f.archive(p)); err != nil && (p.kind == "deb" || p.kind == "src") {
			missing = true
		}
	}
	if !missing {
		return nil
	}
	for _, d := range []string{"parts", "lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(f.dir, "apt", d), 0o755); err != nil {
			return err
		}
	}
	if err := f.writeSources(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	// A registry of the machine without sources fails the update; what is missing then shows at its package.
	if _, err := output(ctx, f.dir, f.aptEnv(), "apt-get", "update", "-qq"); err != nil {
		f.log("apt-get update: %v", err)
	}
	return nil
}

// writeSources turns the machine's list of Debian's registries into one that has their sources too.
func (f *fetcher) writeSources() error {
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
		if err := os.WriteFile(filepath.Join(f.dir, "apt", "parts", filepath.Base(name)), text, 0o644); err != nil {
			return err
		}
	}
	apt := filepath.Join(f.dir, "apt")
	conf := fmt.Sprintf("Dir::Etc::sourcelist \"/dev/null\";\nDir::Etc::sourceparts %q;\nDir::State::lists "+
		"%q;\nDir::Cache %q;\n",
		filepath.Join(apt, "parts"), filepath.Join(apt, "lists"), filepath.Join(apt, "cache"))
	return os.WriteFile(filepath.Join(apt, "apt.conf"), []byte(conf), 0o644)
}

func (f *fetcher) aptEnv() []string {
	return []string{"APT_CONFIG=" + filepath.Join(f.dir, "apt", "apt.conf")}
}

// output runs a program and gives what it prints; the end of its complaint is in the error.
func output(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		text := strings.TrimSpace(stderr.String())
		return nil, fmt.Errorf("%s %s: %w: %s", name, args[0], err, text[max(0, len(text)-500):])
	}
	return out, nil
}

// single finds the one archive that a program left behind.
func single(pattern string) (string, error) {
	names, err := filepath.Glob(pattern)
	for i := 0; i < len(names); {
		if strings.HasSuffix(names[i], ".asc") {
			names = append(names[:i], names[i+1:]...)
		} else {
			i++
		}
	}
	if err == nil && len(names) != 1 {
		err = fmt.Errorf("want one archive, got %d", len(names))
	}
	if err != nil {
		return "", err
	}
	return names[0], nil
}

func copyTo(dir, from string) (string, error) {
	in, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer in.Close()
	out, err := os.Create(filepath.Join(dir, "copy"))
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, in)
	return out.Name(), errors.Join(err, out.Close())
}

func moveInto(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.Rename(from, to)
}

func digestOf(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
