// Package storage keeps what outlives a call: the records of calls, leases, assets, sessions, approvals, pins, jobs and
// plans. They are in the store of the config, or in memory if it has none.
package storage

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/engine/audit"
	"toolpost/engine/idempotency"
	"toolpost/host/secret"
	"toolpost/store"
	"toolpost/store/postgres"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

// Options is the store section of a config.
type Options struct {
	URL         string `yaml:"url" kind:"path" doc:"sqlite:FILE, postgres://USER:PASSWORD@HOST/DATABASE, or none; default: sqlite:toolpost.db in the state folder"`
	Key         string `yaml:"key" kind:"path" doc:"file with the key of seals and digests, the same on each machine that shares the store; default: a key in the store for PostgreSQL, one made from audit.key for SQLite"`
	Connections int    `yaml:"connections" schema:"default=4" doc:"how many connections to PostgreSQL a program opens at most, 3 or more"`
	// How long things are kept. A serving program removes them.
	Retention config.Duration `yaml:"retention" doc:"how long records of calls are kept; default: forever"`
	Sessions  config.Duration `yaml:"sessions" doc:"how long an unchanged session is kept; default: forever"`
	Assets    config.Duration `yaml:"assets" doc:"how long an asset is kept after the last call that produced it; default: forever"`

	Jobs  config.Duration `yaml:"jobs" schema:"default=24h" doc:"how long a finished job is kept"`
	Plans config.Duration `yaml:"plans" doc:"how long a finished plan is kept; default: forever"`

	Audit       audit.Settings       `yaml:"audit" doc:"what is recorded about calls"`
	Idempotency idempotency.Settings `yaml:"idempotency" doc:"how repeated calls are recognised"`
}

// optionsOf reads the store section of a config. Without a config file there is no store.
func optionsOf(cfg *config.Config) (o Options, err error) {
	if err := cfg.Store.Decode(&o); err != nil {
		return o, err
	}
	usual := noStore
	if cfg.Path != "" {
		usual = usualStore(cfg)
	}
	o.URL = cmp.Or(o.URL, usual)
	return o, nil
}

// storeFile is the default store of a config, in its state folder.
const storeFile = "toolpost.db"

// usualStore returns the URL of that store as people would write it: relative to the config's folder, if it is below that.
func usualStore(cfg *config.Config) string {
	path := filepath.Join(cfg.StateDir(), storeFile)
	if rel, err := filepath.Rel(cfg.Dir, path); err == nil && filepath.IsLocal(rel) {
		path = rel
	}
	return "sqlite:" + path
}

// noStore is the URL that means no store.
const noStore = "none"

// HasStore reports whether the effects of a config's tools outlive the program.
func HasStore(cfg *config.Config) (bool, error) {
	o, err := optionsOf(cfg)
	return o.URL != noStore, err
}

// Server returns the kind of the store of a config if it is a database of a server, or "".
func Server(cfg *config.Config) string {
	o, err := optionsOf(cfg)
	kind, _ := kindOf(cfg, o.URL)
	if err != nil || kind.Open == nil || kind.File {
		return ""
	}
	return kind.Schemes[0]
}

// Open returns the store of a config, or nil if there is none. It opens nothing before the first use.
func Open(cfg *config.Config) (*store.DB, Options, error) {
	o, err := optionsOf(cfg)
	if err != nil {
		return nil, o, err
	}
	db, err := openAt(cfg, &o)
	return db, o, err
}

func openAt(cfg *config.Config, o *Options) (*store.DB, error) {
	options := store.Options{
		Key: func() ([]byte, error) { return auditKey(cfg, o.Audit.Key) }, Mark: auditMark(cfg, o.URL),
		Connections: o.Connections, Keep: time.Duration(o.Retention),
	}
	if o.URL == noStore {
		return nil, nil
	}
	kind, address := kindOf(cfg, o.URL)
	if kind.Open == nil {
		var forms []string
		for _, k := range kinds() {
			forms = append(forms, k.Form)
		}
		scheme, _, _ := strings.Cut(o.URL, ":")
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"%.40q does not begin as the URL of a store does: write %s or none", scheme, strings.Join(forms, ", "))
	}
	return kind.Open(address, options)
}

// OpenJournal opens the file in which a worker notes what became of calls, in a state folder.
func OpenJournal(state string) (j *store.OutcomeTable, end func() error, err error) {
	db, err := sqlite.Kind().Open(filepath.Join(state, "journal.db"), store.Options{Alone: true})
	if err != nil {
		return nil, nil, err
	}
	return db.Outcomes(), db.Close, nil
}

// kinds lists the kinds of stores.
func kinds() []store.Kind { return []store.Kind{sqlite.Kind(), postgres.Kind()} }

// kindOf returns the kind of the store at a URL, or the zero value, and its address: the URL, or a path.
func kindOf(cfg *config.Config, url string) (store.Kind, string) {
	scheme, rest, _ := strings.Cut(url, ":")
	for _, k := range kinds() {
		switch {
		case !slices.Contains(k.Schemes, scheme), k.File && rest == "":
		case k.File:
			return k, offlimits.Under(cfg.Dir, rest)
		default:
			return k, url
		}
	}
	return store.Kind{}, ""
}

// Place returns a URL that means the same in every folder, for one that was typed in this folder, and where the store is, for
// people: any URL but that of a file may contain a password.
func Place(url string) (absolute, shown string, err error) {
	kind, _ := kindOf(&config.Config{}, url)
	scheme, file, _ := strings.Cut(url, ":")
	if !kind.File {
		return url, scheme, nil
	}
	path, err := filepath.Abs(file)
	return scheme + ":" + path, file, err
}

// Copy copies the store of a config to another URL, at which there must be none yet, and verifies the audit log of the
// copy. The key that signs the log stays the same.
func Copy(ctx context.Context, cfg *config.Config, url string) (*audit.Report, error) {
	url, err := config.AtHome(url) // no shell replaces the ~ after sqlite:
	if err != nil {
		return nil, err
	}
	if err := copyIsPrivate(cfg, url); err != nil {
		return nil, err
	}
	from, o, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	o.URL = url
	to, err := openAt(cfg, &o)
	if err == nil && (from == nil || to == nil) {
		err = tool.Errorf(tool.CodeInvalidInput, "there is no store to copy; a store has a URL such as sqlite:FILE")
	}
	for _, db := range []*store.DB{from, to} {
		if db != nil {
			defer func() { _ = db.Close() }()
		}
	}
	if err != nil {
		return nil, err
	}
	if err := from.CopyTo(ctx, to); err != nil {
		return nil, err
	}
	return to.Audit().Verify(ctx)
}

// copyIsPrivate refuses an existing file that others can read: a copy contains everything that callers said.
func copyIsPrivate(cfg *config.Config, url string) error {
	kind, file := kindOf(cfg, url)
	if !kind.File {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil // it is created for its owner alone, or creating it fails with the reason
	}
	own, ok := info.Sys().(*syscall.Stat_t)
	if info.Mode().Perm()&0o077 == 0 && ok && int(own.Uid) == os.Geteuid() {
		return nil
	}
	return tool.Errorf(tool.CodeConflict, "%s is there, and others than you can read it; name a file that is not there yet", file)
}

// Claim returns the files of the store of a config, and the key of its log.
func Claim(cfg *config.Config) (c offlimits.Claim) {
	var o Options
	_ = cfg.Store.Decode(&o)
	if kind, address := kindOf(cfg, o.URL); kind.Claim != nil {
		c = kind.Claim(address)
	}
	// the state folder is kept as a whole
	c.Keeps = slices.DeleteFunc(c.Keeps, func(path string) bool { return offlimits.Within(filepath.Clean(path), cfg.StateDir()) })
	c.Keeps = append(c.Keeps, offlimits.Given(cfg.Dir, o.Audit.Key, o.Key)...)
	return c
}

// auditMark names the file that holds the last known position of a store's audit log. For the usual store the name does not
// depend on the place of the state folder, which can be moved as a whole.
func auditMark(cfg *config.Config, url string) string {
	if url == usualStore(cfg) {
		url = "sqlite:" + filepath.Join(config.StateName, storeFile)
	}
	sum := sha256.Sum256([]byte(url))
	return offlimits.Under(cfg.Dir, filepath.Join(cfg.StateDir(), "audit-"+hex.EncodeToString(sum[:4])+".mark"))
}

// auditKey reads the key that signs the audit log, or makes one.
func auditKey(cfg *config.Config, path string) ([]byte, error) {
	path = offlimits.Under(cfg.Dir, cmp.Or(path, filepath.Join(cfg.StateDir(), "audit.key")))
	for {
		key, err := readKey(path, "the audit log")
		if !errors.Is(err, fs.ErrNotExist) {
			return key, err
		}
		if target, err := os.Readlink(path); err == nil { // no key can be created in its place
			return nil, tool.Errorf(tool.CodeUnavailable,
				"the key of the audit log cannot be read: %s is a link to %s, which is not there", path, target)
		}
		if err := makeKey(path); err != nil {
			return nil, tool.Errorf(tool.CodeUnavailable, "the key of the audit log cannot be made: %w", err)
		}
	}
}

// readKey reads a file with a key.
func readKey(path, of string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the key of %s cannot be read: %w", of, err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) < 16 {
		return nil, tool.Errorf(tool.CodeUnavailable,
			"%s has no key for %s; expected 16 bytes or more, as hexadecimal digits", path, of)
	}
	return key, nil
}

// key returns the key of digests and seals. Programs that share a store have it in common: from a file, if the config names
// one; otherwise in a database that machines share. In SQLite, it is derived from the key that signs the log, which the
// programs of one machine share: a key in the store would be available to all readers of the digests. The first program of a
// database stores the key that it had so, so that what was sealed before a move or an update can still be opened.
func (s *Storage) key() ([]byte, error) {
	own := func() ([]byte, error) { return auditKey(s.cfg, s.o.Audit.Key) }
	if s.o.Key != "" {
		own = func() ([]byte, error) { return sharedKey(s.cfg, s.o.Key) }
	}
	derived := func() ([]byte, error) {
		sum, err := secret.NewKeyed(own).Sum("key for digests")
		return sum[:], err
	}
	if s.o.Key != "" || !s.DB.Served() {
		return derived()
	}
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	return s.DB.SharedKey(ctx, derived)
}

// sealingKey returns the key that seals connections. It is never in the store: a reader of the store, or of a copy of it, must not
// be able to open them. So hubs of a fleet, which share a store, need a file with the same key.
func (s *Storage) sealingKey() ([]byte, error) {
	switch inFleet := !s.cfg.Section("fleet").Equal(config.Section{}); {
	case s.o.Key != "":
		return sharedKey(s.cfg, s.o.Key)
	case inFleet && s.DB.Served():
		return nil, tool.Errorf(tool.CodeUnavailable, "hubs that share a store cannot keep connections without a key outside of it: give each the same "+
			"file in `store: {key: FILE}`")
	}
	return auditKey(s.cfg, s.o.Audit.Key)
}

// keyTimeout bounds reading the key of the store. Calls wait for it.
const keyTimeout = 5 * time.Second

// sharedKey reads the key of a config for the programs that share its store. None is made: it would be another on each
// machine.
func sharedKey(cfg *config.Config, path string) ([]byte, error) {
	return readKey(offlimits.Under(cfg.Dir, path), "the store")
}

// makeKey makes a new key. If another program is faster, its key stays.
func makeKey(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails: it ends the program instead
	if err := offlimits.WriteNew(path, hex.EncodeToString(key)+"\n"); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Problem returns an error if the config names a key that cannot be used.
func (s *Storage) Problem() error {
	if s.DB == nil {
		return nil
	}
	if s.o.Key != "" {
		if _, err := sharedKey(s.cfg, s.o.Key); err != nil {
			return err
		}
	}
	if s.o.Audit.Key == "" {
		return nil
	}
	if _, err := os.Lstat(offlimits.Under(s.cfg.Dir, s.o.Audit.Key)); errors.Is(err, fs.ErrNotExist) {
		return nil // it is created on first use
	}
	_, err := auditKey(s.cfg, s.o.Audit.Key)
	return err
}
