package storage

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	approvaltools "toolpost/builtin/approval"
	assettools "toolpost/builtin/asset"
	leasetools "toolpost/builtin/lease"
	"toolpost/builtin/operate"
	trusttools "toolpost/builtin/trust"
	"toolpost/config"
	"toolpost/engine/approval"
	"toolpost/engine/ask"
	"toolpost/engine/audit"
	"toolpost/engine/connection"
	"toolpost/engine/idempotency"
	"toolpost/engine/job"
	"toolpost/engine/lease"
	"toolpost/engine/persist"
	"toolpost/engine/pin"
	"toolpost/engine/quota"
	"toolpost/engine/session"
	"toolpost/host/secret"
	"toolpost/plan"
	"toolpost/store"
	"toolpost/tool"
)

// Storage has the parts of a node that keep data.
type Storage struct {
	DB          *store.DB    // nil if everything is kept in memory
	Trail       *audit.Trail // nil if there is no DB
	Pins        *pin.Registry
	Leases      leases
	Assets      assets
	Idempotency func(*tool.Spec) tool.Middleware
	Session     func(*tool.Spec) tool.Middleware
	Questions   *ask.Questions
	Connections connection.Store
	Sealing     *secret.Keyed // of connections, with a key that is not in the store; nil if they end with this program
	Approvals   *approval.Approvals
	State       func(ctx context.Context, caller, session string) (json.RawMessage, error)
	Keys        *secret.Keyed // nil if nothing that it seals outlives this program
	Jobs        *job.Queue    // nil if there is no DB; made by Bind
	Plans       *plan.Executor
	Faults      *persist.Faults
	Lost        func([]*tool.Record) // gets the records of calls whose program has ended meanwhile

	o        Options
	cfg      *config.Config
	log      *slog.Logger
	redactor *secret.Redactor
	late     idempotency.Late
	engine   config.Engine
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

// New makes the storage of a config. It opens nothing before the first use. Calls need Bind. late finds what became of a call on
// another machine.
func New(cfg *config.Config, lasting bool, log *slog.Logger, r *secret.Redactor, late idempotency.Late) (*Storage, error) {
	o, err := optionsOf(cfg)
	if !lasting {
		o.URL = noStore
	}
	var db *store.DB
	if err == nil {
		db, err = openAt(cfg, &o)
	}
	if err != nil {
		return nil, err
	}
	s := &Storage{DB: db, Plans: new(plan.Executor), o: o, cfg: cfg, log: log, redactor: r, late: late}
	_, name, _ := Place(o.URL)
	s.Faults = &persist.Faults{Log: log, Store: name}
	if db == nil {
		s.keepInMemory()
	} else {
		db.Audit().LogTo(log)
		s.keepInStore()
	}
	return s, nil
}

// keepInMemory makes the parts that keep data until the program ends: nothing is written.
func (s *Storage) keepInMemory() {
	files, states := new(store.Assets), new(store.Sessions)
	s.Pins = &pin.Registry{Pins: new(store.Pins)}
	s.Leases, s.Assets = new(store.Leases), files
	s.Idempotency, s.Session = idempotency.New(s.window()).For, session.Stage(states, files)
	s.Connections, s.Questions = new(store.Connections), ask.New(ask.Options{Others: othersQuestion})
	s.Approvals = s.approvalsIn(new(store.Approvals))
	s.State = states.State
}

// keepInStore makes the parts that keep data in the store, so that programs that share it agree.
func (s *Storage) keepInStore() {
	window, files := s.window(), s.files()
	s.Keys = secret.NewKeyed(s.key)
	window.Digests = s.Keys
	inFleet := !s.cfg.Section("fleet").Equal(config.Section{}) // a call may go on without its hub
	if s.o.Idempotency.Durable || s.DB.Served() || inFleet {
		window.Outcomes, window.Late = s.DB.Outcomes(), s.late
	}
	s.Trail = audit.New(audit.Options{
		Log: s.DB.Audit(), Redactor: s.redactor, Values: s.recorded(), Redact: s.o.Audit.Redact, Digests: s.Keys, Logger: s.log,
		Faults: s.Faults,
	})
	s.Pins = &pin.Registry{Pins: s.DB.Pins(), Lasting: true}
	s.Leases, s.Assets = s.DB.Leases(), files
	s.Idempotency, s.Session = idempotency.New(window).For, session.Stage(s.DB.Sessions(), files)
	s.Connections, s.Sealing = s.DB.Connections(), secret.NewKeyed(s.sealingKey)
	s.Questions = ask.New(ask.Options{Marks: s.DB.Outcomes(), Keys: s.Keys, Others: othersQuestion})
	s.Approvals = s.approvalsIn(s.DB.Approvals())
	s.State = s.DB.Sessions().State
}

// othersQuestion reports whether an id is that of a question which another stage than ask answers.
func othersQuestion(id string) bool { return approval.IsID(id) || connection.IsID(id) }

// Marks remembers which links were used, with the programs that share the store.
func (s *Storage) Marks() ask.Marks {
	if s.DB == nil {
		return ask.NewMemory()
	}
	return s.DB.Outcomes()
}

// Quotas returns the counts that programs on several machines share, or nil.
func (s *Storage) Quotas() quota.Shared {
	if s.DB == nil || !s.DB.Served() {
		return nil
	}
	return s.DB.Quotas()
}

func (s *Storage) window() idempotency.Options {
	return idempotency.Options{TTL: s.o.Idempotency.Window, Max: s.o.Idempotency.Entries}
}

// files returns the assets whose index is in the store.
func (s *Storage) files() *store.AssetTable {
	return s.DB.Assets(filepath.Join(s.cfg.StateDir(), "assets"), 0)
}

// approvalsIn makes the approvals, over a store that keeps them.
func (s *Storage) approvalsIn(approvals approval.Store) *approval.Approvals {
	return approval.New(approval.Options{
		Store: approvals, Decider: decider{s}, Digests: s.Keys, Log: s.log, Redact: s.RedactArgs,
		Config: s.cfg.Path, Write: s.approveAlways,
	})
}

// approveAlways adds an approval to the config, which is read again soon.
func (s *Storage) approveAlways(one approval.Standing) error {
	own, err := config.OpenOwn(s.cfg.Path)
	if err != nil {
		return err
	}
	defer own.Close()
	text, err := config.AddTo(s.cfg.Path, own.Text, approval.Section().Name, "", one.Fields())
	if err != nil {
		return err
	}
	return own.Replace(text, own.Mode)
}

// RedactByName removes the values of arguments whose names suggest secrets.
func (s *Storage) RedactByName(args json.RawMessage) json.RawMessage {
	return audit.Redacted(args, s.o.Audit.Redact)
}

// RedactArgs also removes the values of secrets.
func (s *Storage) RedactArgs(args json.RawMessage) json.RawMessage {
	return s.redactor.JSON(s.RedactByName(args))
}

// SpeaksOfSecrets reports whether a name suggests that its value is a secret.
func (s *Storage) SpeaksOfSecrets(name string) bool {
	return audit.SpeaksOfSecrets(name, s.o.Audit.Redact)
}

// A decider calls the tool approvals.decide through the engine.
type decider struct{ s *Storage }

const decideTool = config.OwnSource + "." + approvaltools.Decide

// May implements approval.Decider.
func (d decider) May(ctx context.Context, p tool.Principal) error {
	_, err := d.s.engine.Lookup(ctx, p, decideTool)
	return err
}

// Decide implements approval.Decider.
func (d decider) Decide(ctx context.Context, c *tool.Call, args json.RawMessage) error {
	_, err := d.s.engine.Invoke(ctx, c.Inner(decideTool, args), tool.Discard)
	return err
}

// recorded lists the tools whose arguments are recorded with their values: those of the config, and the decisions of
// operators about upstream tools and of approvers about calls, which mean nothing without their subject.
func (s *Storage) recorded() tool.Patterns {
	return append(slices.Clone(s.o.Audit.Values), config.OwnSource+"."+trusttools.Approve,
		decideTool, config.OwnSource+"."+approvaltools.Revoke)
}

// Usage describes the store to an operator; nil if there is none.
func (s *Storage) Usage(ctx context.Context) *operate.Store {
	if s.DB == nil {
		return nil
	}
	kind, _, _ := strings.Cut(s.o.URL, ":")
	u := &operate.Store{Kind: kind, Waiting: s.Trail.Left()}
	var err error
	if u.Bytes, err = s.DB.Size(ctx); err == nil {
		u.Calls, err = s.DB.Audit().Head(ctx)
	}
	if err != nil { // an operator wants to know about a store that is away
		u.Error = tool.AsError(s.redactor.Error(err)).Message
	}
	return u
}

// Usable returns an error if calls that may change something are refused, because they cannot be recorded. It waits for the
// store only until that has answered for the first time, and not for long.
func (s *Storage) Usable() error {
	if s.DB == nil || s.DB.Usable() && !s.Trail.Waits() {
		return nil
	}
	kind, _, _ := strings.Cut(s.o.URL, ":")
	return tool.Errorf(tool.CodeUnavailable, "the store (%s) cannot be used, so calls that may change something are refused; "+
		"the log says why", kind).Because("audit_unavailable")
}

// Sessions returns the sessions of the store as the session tools see them: nothing that they store contains a secret.
func (s *Storage) Sessions() Sessions { return Sessions{s.DB.Sessions(), s.redactor} }

// Sessions are sessions of a store, from which secrets are kept away.
type Sessions struct {
	*store.SessionTable
	redactor *secret.Redactor
}

// PatchAt implements the interface of the session tools.
func (s Sessions) PatchAt(
	ctx context.Context, caller, session string, seen int64, patches []map[string]any,
) (int64, error) {
	clean := make([]map[string]any, len(patches))
	for i, p := range patches {
		clean[i], _ = s.redactor.Value(p).(map[string]any) // it stays an object
	}
	return s.SessionTable.PatchAt(ctx, caller, session, seen, clean)
}

// lastWrites is how long a program that ends waits for a store that is away, with records that it still has.
const lastWrites = 5 * time.Second

// Close writes the records that wait, and closes the store. No call is running, or none that is waited for.
func (s *Storage) Close(ctx context.Context) error {
	if s == nil || s.DB == nil {
		return nil
	}
	s.DB.Audit().Settle() // records that it does not accept are in the trail afterwards
	ctx, stop := context.WithTimeout(ctx, lastWrites)
	defer stop()
	for s.Trail.Settle(ctx); s.Trail.Left() > 0 && tool.Sleep(ctx, 100*time.Millisecond); {
		s.Trail.Settle(ctx)
	}
	if left := s.Trail.Left(); left > 0 {
		s.log.Error("calls are missing from the audit log: the store did not take their records to the end",
			append([]any{"calls", left}, s.Faults.Last()...)...)
	}
	return s.DB.Close()
}
