package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	approvaltools "toolpost/builtin/approval"
	assettools "toolpost/builtin/asset"
	leasetools "toolpost/builtin/lease"
	trusttools "toolpost/builtin/trust"
	"toolpost/config"
	"toolpost/engine"
	"toolpost/engine/approval"
	"toolpost/engine/ask"
	"toolpost/engine/audit"
	"toolpost/engine/idempotency"
	"toolpost/engine/lease"
	"toolpost/engine/session"
	"toolpost/host/offlimits"
	"toolpost/host/secret"
	"toolpost/store"
	"toolpost/store/postgres"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

// StoreOptions is the store section of a config.
type StoreOptions struct {
	URL string `yaml:"url" doc:"sqlite:FILE, postgres://USER:PASSWORD@HOST/DATABASE, or none; default: sqlite:toolpost.db in the state folder"`
	// How long things are kept. A serving program removes them.
	Retention config.Duration `yaml:"retention" doc:"how long records of calls are kept; default: forever"`
	Sessions  config.Duration `yaml:"sessions" doc:"how long an unchanged session is kept; default: forever"`
	Assets    config.Duration `yaml:"assets" doc:"how long an asset is kept after the last call that produced it; default: forever"`

	Jobs  config.Duration `yaml:"jobs" schema:"default=24h" doc:"how long a finished job is kept"`
	Plans config.Duration `yaml:"plans" doc:"how long a finished plan is kept; default: forever"`

	Audit       audit.Settings       `yaml:"audit" doc:"what is recorded about calls"`
	Idempotency idempotency.Settings `yaml:"idempotency" doc:"how repeated calls are recognised"`
}

// storeOptions reads the store section of a config. Without a config file there is no store.
func storeOptions(cfg *config.Config) (o StoreOptions, err error) {
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
	o, err := storeOptions(cfg)
	return o.URL != noStore, err
}

// OpenStore returns the store of a config, or nil if there is none. It opens nothing before the first use.
func OpenStore(cfg *config.Config) (*store.DB, StoreOptions, error) {
	o, err := storeOptions(cfg)
	if err != nil {
		return nil, o, err
	}
	db, err := openStoreAt(cfg, &o)
	return db, o, err
}

func openStoreAt(cfg *config.Config, o *StoreOptions) (*store.DB, error) {
	options := store.Options{
		Key: func() ([]byte, error) { return auditKey(cfg, o.Audit.Key) }, Mark: auditMark(cfg, o.URL),
	}
	switch scheme, rest, _ := strings.Cut(o.URL, ":"); scheme {
	case noStore:
		return nil, nil
	case "sqlite":
		return sqlite.Open(offlimits.Under(cfg.Dir, rest), options)
	case "postgres", "postgresql":
		return postgres.Open(o.URL, options)
	default:
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"%.40q does not begin as the URL of a store does: write sqlite:FILE, postgres://... or none", scheme)
	}
}

// CopyStore copies the store of a config to another URL, at which there must be none yet, and verifies the audit log of the
// copy. The key that signs the log stays the same.
func CopyStore(ctx context.Context, cfg *config.Config, url string) (*audit.Report, error) {
	if err := copyIsPrivate(cfg, url); err != nil {
		return nil, err
	}
	from, o, err := OpenStore(cfg)
	if err != nil {
		return nil, err
	}
	o.URL = url
	to, err := openStoreAt(cfg, &o)
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
	file, ok := strings.CutPrefix(url, "sqlite:")
	if !ok {
		return nil
	}
	file = offlimits.Under(cfg.Dir, file)
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
		text, err := os.ReadFile(path)
		if err == nil {
			key, err := hex.DecodeString(strings.TrimSpace(string(text)))
			if err != nil || len(key) < 16 {
				return nil, tool.Errorf(tool.CodeUnavailable,
					"%s has no key for the audit log; expected 16 bytes or more, as hexadecimal digits", path)
			}
			return key, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, tool.Errorf(tool.CodeUnavailable, "the key of the audit log cannot be read: %w", err)
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

// digestKey returns the key for digests of arguments. It is derived from the key that signs the log: programs that share a
// store have that one in common, since none accepts a log that another key has signed. A key in the store itself would be
// available to all readers of the digests.
func digestKey(cfg *config.Config, path string) ([]byte, error) {
	key, err := auditKey(cfg, path)
	if err != nil {
		return nil, err
	}
	sum, err := secret.NewKeyed(func() ([]byte, error) { return key, nil }).Sum("key for digests")
	return sum[:], err
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

// leases are what the stage and the tools need of leases.
type leases interface {
	lease.Leases
	leasetools.Leases
}

// assets are what the stage and the tools need of assets.
type assets interface {
	session.Assets
	assettools.Assets
}

// keepers are the parts of the engine that keep data.
type keepers struct {
	leases      leases
	assets      assets
	idempotency engine.Stage
	session     engine.Stage
	questions   *ask.Questions
	approvals   *approval.Approvals
	state       func(ctx context.Context, caller, session string) (json.RawMessage, error)
	keys        *secret.Keyed // nil if nothing that it seals outlives this program
}

// assetDir returns the folder of the files that the store indexes.
func (n *Node) assetDir() string { return filepath.Join(n.cfg.StateDir(), "assets") }

// keepIn returns the parts that keep data: in the node's store, or in memory if there is none; then nothing is written.
func (n *Node) keepIn() keepers {
	window := idempotency.Options{TTL: n.storing.Idempotency.Window, Max: n.storing.Idempotency.Entries}
	if n.store == nil {
		files, states := new(store.Assets), new(store.Sessions)
		return keepers{
			new(store.Leases), files, idempotency.New(window).For, session.Stage(states, files),
			ask.New(ask.Options{Others: approval.IsID}), n.approvalsIn(new(store.Approvals), nil), states.State, nil,
		}
	}
	window.Digests = secret.NewKeyed(func() ([]byte, error) { return digestKey(n.cfg, n.storing.Audit.Key) })
	if n.storing.Idempotency.Durable {
		window.Outcomes = n.store.Outcomes()
	}
	n.trail = audit.New(audit.Options{
		Log: n.store.Audit(), Redactor: n.redactor, Values: n.recorded(), Redact: n.storing.Audit.Redact,
		Digests: window.Digests, Logger: n.o.Log,
	})
	files := n.store.Assets(n.assetDir(), 0)
	return keepers{
		n.store.Leases(), files, idempotency.New(window).For, session.Stage(n.store.Sessions(), files),
		ask.New(ask.Options{Marks: n.store.Outcomes(), Keys: window.Digests, Others: approval.IsID}),
		n.approvalsIn(n.store.Approvals(), window.Digests), n.store.Sessions().State, window.Digests,
	}
}

// approvalsIn makes the approvals, over a store that keeps them.
func (n *Node) approvalsIn(approvals approval.Store, digests *secret.Keyed) *approval.Approvals {
	return approval.New(approval.Options{
		Store: approvals, Decider: decider{n}, Digests: digests, Log: n.o.Log,
		Redact: func(args json.RawMessage) json.RawMessage { return n.redactor.JSON(n.redactByName(args)) },
	})
}

// A decider calls the tool approvals.decide through the engine, which is opened after the approvals.
type decider struct{ n *Node }

const decideTool = config.OwnSource + "." + approvaltools.Decide

// May implements approval.Decider.
func (d decider) May(ctx context.Context, p tool.Principal) error {
	_, err := d.n.lookup(ctx, p, decideTool)
	return err
}

// Decide implements approval.Decider.
func (d decider) Decide(ctx context.Context, c *tool.Call, args json.RawMessage) error {
	_, err := d.n.engine.Invoke(ctx, c.Inner(decideTool, args), tool.Discard)
	return err
}

// recorded lists the tools whose arguments are recorded with their values: those of the config, and the decisions of
// operators about upstream tools and of approvers about calls, which mean nothing without their subject.
func (n *Node) recorded() tool.Patterns {
	return append(slices.Clone(n.storing.Audit.Values), config.OwnSource+"."+trusttools.Approve,
		decideTool, config.OwnSource+"."+approvaltools.Revoke)
}

// How often a serving program looks for calls of ended programs, and for expired data; and how often it repeats a message
// about an unusable store.
const (
	lookAfter   = 2 * time.Second
	expireAfter = time.Hour
	sayAgain    = time.Minute
)

// housekeeping records the calls of ended programs and the records that wait in memory, and removes expired data, until ctx
// ends.
func (n *Node) housekeeping(ctx context.Context) {
	var expired, said time.Time
	complain := func(what string, err error) {
		if err != nil && ctx.Err() == nil && time.Since(said) >= sayAgain {
			said = time.Now()
			n.o.Log.Error(what, "error", message(err))
		}
	}
	for {
		lost, err := n.store.Audit().Recover(ctx)
		complain("calls that were interrupted cannot be recorded", err)
		if lost > 0 {
			n.o.Log.Warn("calls were interrupted when a program ended; nobody knows what came of them", "calls", lost)
		}
		complain("plans that were interrupted cannot be gone on with", n.recoverPlans(ctx))
		n.trail.Flush(ctx)
		if time.Since(expired) >= expireAfter {
			expired = time.Now()
			complain("what is too old cannot be removed from the store", n.expire(ctx))
		}
		if !tool.Sleep(ctx, lookAfter) {
			return
		}
	}
}

func (n *Node) expire(ctx context.Context) error {
	before := func(keep config.Duration) time.Time { return time.Now().Add(-time.Duration(keep)) }
	errs := []error{n.store.Tidy(ctx)}
	if keep := n.storing.Retention; keep > 0 {
		removed, err := n.store.Audit().Prune(ctx, before(keep))
		errs = append(errs, err)
		if removed > 0 {
			n.o.Log.Info("old records were removed", "calls", removed)
		}
	}
	if keep := n.storing.Sessions; keep > 0 {
		_, err := n.store.Sessions().Expire(ctx, before(keep))
		errs = append(errs, err)
	}
	if keep := n.storing.Plans; keep > 0 {
		_, err := n.store.Plans().Expire(ctx, before(keep))
		errs = append(errs, err)
	}
	if keep := n.storing.Assets; keep > 0 {
		_, err := n.store.Assets(n.assetDir(), 0).Expire(ctx, before(keep))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
