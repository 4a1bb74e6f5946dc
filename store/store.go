package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"strings"
	"time"

	"toolpost/config/offlimits"
	"toolpost/engine/approval"
	"toolpost/engine/audit"
	"toolpost/engine/idempotency"
	"toolpost/engine/job"
	"toolpost/engine/lease"
	"toolpost/engine/member"
	"toolpost/engine/pin"
	"toolpost/engine/quota"
	"toolpost/engine/session"
	"toolpost/plan"
	"toolpost/store/auditlog"
	"toolpost/store/database"
	"toolpost/wire/regex"
)

// A DB keeps durable data. Many goroutines may use it, and several programs may have it open at once.
type DB struct {
	*database.DB
	steps [][]string // of the tables
	audit *AuditTable

	outcomes *OutcomeTable

	adds, ends *database.Batch // of jobs
}

// The ports that this package implements, for readers of a stage who wonder what its store is.
var (
	_    audit.Log            = (*AuditTable)(nil)
	_    idempotency.Outcomes = (*OutcomeTable)(nil)
	_, _ lease.Leases         = (*LeaseTable)(nil), (*Leases)(nil)
	_, _ session.States       = (*SessionTable)(nil), (*Sessions)(nil)
	_, _ session.Assets       = (*AssetTable)(nil), (*Assets)(nil)
	_    job.CallerStore      = (*JobTable)(nil)
	_    job.OperatorStore    = (*JobTable)(nil)
	_    job.Ledger           = (*JobTable)(nil)
	_    job.Bell             = (*DB)(nil)
	_, _ pin.Pins             = (*PinTable)(nil), (*Pins)(nil)
	_    plan.Store           = (*PlanTable)(nil)
	_, _ approval.Store       = (*ApprovalTable)(nil), (*Approvals)(nil)
	_    quota.Shared         = (*QuotaTable)(nil)
	_    member.Store         = (*FleetTable)(nil)
)

// Options of a DB. The zero value is useful.
type Options struct {
	// Key returns the key that signs the head of a lane of the audit log. It is called on first use. Programs with the same
	// key share a lane. Without one the log is chained and not signed.
	Key func() ([]byte, error)
	// Columns are the columns of the audit log; nil means audit.Columns. Tests add some.
	Columns audit.Table
	// More are further steps of the tables. Tests add some.
	More []string
	// Mark names a file, outside the database, that records how far the log has come; empty for none.
	Mark string
	// Keep is how long records are kept; 0 means for ever. Records that another program has removed earlier are missed.
	Keep time.Duration
	// Silence is how long a lane of the audit log may have no anchor before another program closes it; default a day.
	Silence time.Duration
	// Grace is how long a program may take to come back after the database was away, and three fifths of it how long if it alone has
	// lost its connection; the default is ten seconds, if that can happen.
	Grace time.Duration
	// Reach is how long a write waits for a database that cannot be reached; default five seconds.
	Reach time.Duration
	// Alone means that no other program uses the database: then outcomes are remembered by the time for which this one runs, since the
	// clock of its machine may be set.
	Alone bool
	// Connections is how many connections to a database server there may be; 0 means 4.
	Connections int
}

// A Kind is a kind of store: what the URLs with its schemes mean. Its address is what Open and Claim get: the URL, or the path
// if the rest of the URL is that of a file.
type Kind struct {
	Schemes []string
	Form    string // how its URLs are written, for messages
	File    bool
	Open    func(address string, o Options) (*DB, error) // opens nothing before the first use
	Claim   func(address string) offlimits.Claim         // the files that no tool may see
}

// New makes a store over two handles of the same database: one for reading, one for writing, of which one connection is
// used. It owns both from then on. Nothing is opened before the first use, which also brings the tables up to date; if
// that fails, the next use tries again.
func New(d database.Dialect, reads, writes *sql.DB, o Options) *DB {
	log := auditlog.New(o.Columns, o.Key, o.Mark, o.Keep, o.Silence)
	steps := migrations(log, o.More)
	adds, ends := &database.Batch{Do: addJobs}, &database.Batch{Do: endJobs}
	outcomes := &OutcomeTable{alone: o.Alone}
	db := log.Open(d, reads, writes, database.Options{
		Steps: steps, Often: []string{askSession, askBase, askPatches}, Batches: []*database.Batch{adds, ends}, Grace: o.Grace, Reach: o.Reach,
		Tend: outcomes.upkeep,
	})
	outcomes.db = db
	return &DB{db, steps, log, outcomes, adds, ends}
}

// Close ends the use of the database. Writes in progress end first; later ones fail.
func (db *DB) Close() error {
	db.audit.Finish()
	return db.DB.Close()
}

// SharedKey returns the key that all programs of the store have in common. The first one of them stores its own.
func (db *DB) SharedKey(ctx context.Context, own func() ([]byte, error)) (key []byte, err error) {
	read := func(a database.Querier) error {
		_, err := database.Row(a, `SELECT secret FROM shared_key`, nil, &key)
		return err
	}
	if err := read(db.Query(ctx)); err != nil || key != nil {
		return key, err
	}
	mine, err := own()
	if err != nil {
		return nil, err
	}
	err = db.Do(true, func(t *database.Tx) error {
		if err := t.Exec(`INSERT INTO shared_key (id, secret) VALUES (1, ?) ON CONFLICT (id) DO NOTHING`, mine); err != nil {
			return err
		}
		return read(t)
	}, "shared key")
	return key, err
}

// An AuditTable is the log of all calls.
type AuditTable = auditlog.Table

// Audit returns the log of all calls.
func (db *DB) Audit() *AuditTable { return db.audit }

//go:embed migrations
var files embed.FS

var comments = regex.Lazy(`(?m)^--.*\n`)

// migrations lists the steps from an empty database to the tables of this version, one file each. A released step never
// changes: another one follows it. Type names are those of SQLite; a Dialect replaces some of them. Times are
// microseconds since 1970, in UTC. The tables of the log, and their changes, are derived from the list of its columns.
func migrations(log *AuditTable, more []string) [][]string {
	var steps [][]string
	all, _ := files.ReadDir("migrations") // it is embedded
	for n := 1; n <= len(all); n++ {
		text, err := files.ReadFile(fmt.Sprintf("migrations/%d.sql", n))
		if err != nil {
			panic(err) // a number is missing
		}
		steps = append(steps, statements(string(text)))
	}
	for _, text := range more {
		steps = append(steps, statements(text))
	}
	return log.Grow(steps)
}

// statements splits the text of a step. A mark at its beginning stays.
func statements(text string) (all []string) {
	for _, mark := range []string{database.Expands, database.Readable, database.Contracts} {
		if strings.HasPrefix(text, mark+"\n") {
			all = append(all, mark)
		}
	}
	for statement := range strings.SplitSeq(comments().ReplaceAllString(text, ""), ";\n") {
		if statement = strings.TrimSpace(statement); statement != "" {
			all = append(all, statement)
		}
	}
	return all
}
