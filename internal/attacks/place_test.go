package attacks

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/internal/served"
)

const (
	canary = "CANARY-51f0c2ab"
	banner = "BANNER-0d6e18f4" // in the config, which built-in readers see
	nobody = 65534             // an ordinary user
)

// fixed returns the files and folders that no tool may change, below the folder of the config; some do not exist yet.
func fixed() []string {
	return []string{
		"toolpost.yaml", "app/app.ai", "app/.namel3ss", "app/.namel3ss/tools.yaml", "app/tools", "app/tools/attack.py", "app/packs",
		"app/.venv", "skills/one", "skills/one/skill.py", "skills/one/manifest.json", "events.py", "mcp.py", "host/toolhost.py", "host/probe.so",
		".toolpost", ".toolpost/canary", "data/tp.db", "tls/key.pem", "keys/secret.txt", "store.key",
	}
}

// absent returns those that no tool may read either.
func absent() []string {
	return []string{".toolpost", ".toolpost/canary", "data/tp.db", "data/tp.db-wal", "tls/key.pem", "keys/secret.txt", "store.key", "toolpost.yaml"}
}

// marks returns texts that occur only in absent files. A secret that was read shows as redacted.
func marks() []string {
	return []string{canary[1:], hex.EncodeToString([]byte(canary[1:])), "SQLite format 3", "[secret SECRET]"}
}

// A place is the folder of a config with everything worth attacking in it, all of it writable.
type place struct {
	dir    string
	prog   string // the attacker, in a folder that no tool can write
	beyond string // a folder of the host that belongs to no tool
	uid    int
}

// newPlace writes a place that belongs to a user.
func newPlace(t *testing.T, uid int) *place {
	t.Helper()
	top := kit.Must(os.MkdirTemp("/var/tmp", "attacks"))(t) // not in /tmp, because every room has its own
	t.Cleanup(func() { os.RemoveAll(top) })
	kit.OK(t, os.Chmod(top, 0o755))
	p := &place{dir: top + "/place", prog: top + "/prog/attacker", beyond: top + "/beyond", uid: uid}
	kit.OK(t, os.CopyFS(p.dir, os.DirFS("testdata/place")))
	for _, dir := range []string{p.beyond, p.dir + "/tls", p.dir + "/data", p.dir + "/keys", p.dir + "/work/inner", p.dir + "/.toolpost", top + "/prog"} {
		kit.OK(t, os.MkdirAll(dir, 0o755))
	}
	p.write(t, p.beyond+"/canary", canary, 0o644)
	p.write(t, p.dir+"/.toolpost/canary", canary, 0o600)
	p.write(t, p.dir+"/keys/secret.txt", canary, 0o600)
	p.write(t, p.dir+"/store.key", hex.EncodeToString([]byte(canary))+hex.EncodeToString([]byte(canary)), 0o600)
	p.certificate(t)
	p.write(t, p.prog, attacker(), 0o755)
	return p
}

// attacker is the program, built once.
var attacker = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "attacker")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-buildvcs=false", "-o", dir+"/attacker", "./testdata/attacker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("go build: %v\n%s", err, out))
	}
	program, err := os.ReadFile(dir + "/attacker")
	if err != nil {
		panic(err)
	}
	return string(program)
})

// own gives all its files to the user.
func (p *place) own(t *testing.T) {
	t.Helper()
	if p.uid == os.Geteuid() {
		return
	}
	kit.OK(t, filepath.WalkDir(filepath.Dir(p.dir), func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, p.uid, p.uid))
	}))
}

// serve starts a server as its user.
func (p *place) serve(t *testing.T, bin string) *served.Server {
	t.Helper()
	words := []string{bin}
	if p.uid != os.Geteuid() {
		id := strconv.Itoa(p.uid)
		words = []string{"setpriv", "--reuid", id, "--regid", id, "--clear-groups", bin}
	}
	return served.StartBy(t, words, p.dir, "PATH=/usr/local/bin:/usr/bin:/bin")
}

func (p *place) write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	kit.OK(t, os.WriteFile(path, []byte(text), mode))
}

// certificate makes a certificate for the NATS door. Its key has the canary before its first line: PEM allows any text
// there.
func (p *place) certificate(t *testing.T) {
	t.Helper()
	key := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), Subject: pkix.Name{CommonName: "localhost"}}
	cert := kit.Must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	der := kit.Must(x509.MarshalPKCS8PrivateKey(key))(t)
	p.write(t, p.dir+"/tls/cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})), 0o644)
	p.write(t, p.dir+"/tls/key.pem", canary+"\n"+string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), 0o600)
}

// state returns the state of the fixed files: the identity, mode and content of each.
func (p *place) state(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	for _, name := range fixed() {
		path := filepath.Join(p.dir, name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			state[name] = "not there"
			continue
		}
		kit.OK(t, err)
		st := info.Sys().(*syscall.Stat_t)
		state[name] = fmt.Sprintf("%v, inode %d, %s", info.Mode(), st.Ino, contents(t, path, info))
	}
	return state
}

// contents describes a file's content. The server itself writes to its store, its state and its folder of tools
// (what Python compiles), so for those it is enough that they are the same files.
func contents(t *testing.T, path string, info fs.FileInfo) string {
	t.Helper()
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target := kit.Must(os.Readlink(path))(t)
		return "a link to " + target
	case info.IsDir() || strings.HasSuffix(path, ".db"):
		return "open"
	}
	b := kit.Must(os.ReadFile(path))(t)
	return fmt.Sprintf("%x, of %v", sha256.Sum256(b), info.ModTime())
}

// differences lists what has changed. A missing file may have become an empty folder: the server makes some as mount
// points.
func (p *place) differences(t *testing.T, before map[string]string) (all []string) {
	t.Helper()
	for name, now := range p.state(t) {
		if was := before[name]; was != now && !(was == "not there" && p.isEmptyFolder(name)) {
			all = append(all, fmt.Sprintf("%s was %s and is %s", name, was, now))
		}
	}
	return all
}

func (p *place) isEmptyFolder(name string) bool {
	entries, err := os.ReadDir(filepath.Join(p.dir, name))
	return err == nil && len(entries) == 0
}

// marked lists the setuid and setgid files of the place.
func (p *place) marked(t *testing.T) (all []string) {
	t.Helper()
	kit.OK(t, filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			all = append(all, path)
		}
		return err
	}))
	return all
}
