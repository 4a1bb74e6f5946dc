package store

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"sync"
	"time"

	"toolpost/engine/approval"
	"toolpost/store/database"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// An ApprovalTable keeps approvals. Its rows have the whole entry as JSON, and beside it the columns for lookups.
type ApprovalTable struct {
	db    *database.DB
	swept sweeper
}

// Approvals returns the table of approvals.
func (db *DB) Approvals() *ApprovalTable { return &ApprovalTable{db: db.DB} }

// approvalsKept is how long an approval is kept after it is over.
const approvalsKept = 30 * 24 * time.Hour

// Add implements approval.Store.
func (a *ApprovalTable) Add(_ context.Context, e approval.Entry, b approval.Bounds) (approval.Entry, error) {
	if err := checkApproval(&e); err != nil {
		return e, err
	}
	return database.Writing(a.db, func(t *database.Tx) (approval.Entry, error) {
		now := time.Now()
		if a.swept.due(now) {
			if err := t.Exec(`DELETE FROM approval WHERE over_at < ?`, database.Micros(now.Add(-approvalsKept))); err != nil {
				return e, err
			}
		}
		open, err := openApprovals(t, e.Again)
		if err != nil || len(open) > 0 && open[0].At(now) == approval.Waiting {
			return append(open, e)[0], err
		}
		var own, all int
		like := "" // agents that name themselves count as one: each could take a new name for each call
		if tool.SelfNamed(e.Caller) {
			like = tool.SelfPrefix + "%"
		}
		_, err = database.Row(t, `SELECT COUNT(*), COALESCE(SUM(CASE WHEN caller = ? OR caller LIKE ? THEN 1 ELSE 0 END), 0) FROM approval `+
			`WHERE state = ? AND until_at > ?`, []any{e.Caller, like, approval.Waiting, database.Micros(now)}, &all, &own)
		if err == nil {
			err = tooManyApprovals(e.Caller, own, all, b)
		}
		if err != nil {
			return e, err
		}
		return e, putApproval(t, &e, `INSERT INTO approval (caller, tool, state, again, job, remembered, made_at, until_at, `+
			`over_at, entry, id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
	})
}

// checkApproval refuses an entry that does not fit into a row.
func checkApproval(e *approval.Entry) error {
	if database.Plain(e.Caller, database.MaxName) != e.Caller || database.Plain(e.Ref, 2*maxLeaseName) != e.Ref {
		return tool.Errorf(tool.CodeInvalidInput,
			"the name of the caller or the tool is too long for an approval, or not text")
	}
	return nil
}

func tooManyApprovals(caller string, own, all int, b approval.Bounds) error {
	switch {
	case own >= b.PerCaller:
		return tool.Errorf(tool.CodeQuotaExceeded, "%d calls of %q wait for an approval already, and %d is the most; "+
			"try again when some are decided", own, caller, b.PerCaller).Because("approvals")
	case all >= b.All:
		return tool.Errorf(tool.CodeQuotaExceeded, "%d calls wait for an approval already, and %d is the most; "+
			"try again when some are decided", all, b.All).Because("approvals")
	}
	return nil
}

// putApproval writes an entry with a statement whose last parameter is its id.
func putApproval(t *database.Tx, e *approval.Entry, statement string) error {
	doc, err := strictjson.Marshal(e)
	if err != nil {
		return tool.Errorf(tool.CodeInternal, "an approval cannot be written as JSON: %w", err)
	}
	over := sql.NullInt64{Int64: database.Micros(e.Over()), Valid: !e.Over().IsZero()}
	return t.Exec(statement, e.Caller, e.Ref, e.State, e.Again, e.Job, flag(e.Remembered()), database.Micros(e.Asked),
		database.Micros(e.Until), over, string(doc), e.ID)
}

// Change implements approval.Store. No other writer overlaps: change sees the current entry.
func (a *ApprovalTable) Change(
	ctx context.Context, id string, change func(*approval.Entry) error,
) (approval.Entry, error) {
	e, err := database.Writing(a.db, func(t *database.Tx) (approval.Entry, error) {
		e, err := database.Only(t, noApproval(id), scanApproval, someApprovals+` WHERE id = ?`, database.Plain(id, database.MaxName))
		if err != nil {
			return e, err
		}
		if err := change(&e); err != nil {
			return e, err
		}
		return e, putApproval(t, &e, `UPDATE approval SET caller = ?, tool = ?, state = ?, again = ?, job = ?, `+
			`remembered = ?, made_at = ?, until_at = ?, over_at = ?, entry = ? WHERE id = ?`)
	})
	if err == nil && e.Job != "" && e.State != approval.Used {
		a.db.Ring(ctx) // its job goes on
	}
	return e, err
}

func noApproval(id string) error {
	return tool.Errorf(tool.CodeNotFound, "there is no approval %.64q", id)
}

const someApprovals = `SELECT entry FROM approval`

// scanApproval reads a row of someApprovals.
func scanApproval(rows *sql.Rows) (e approval.Entry, err error) {
	var doc []byte
	if err := rows.Scan(&doc); err != nil {
		return e, err
	}
	if err := strictjson.Unmarshal(doc, &e); err != nil {
		return e, tool.Errorf(tool.CodeInternal, "an approval in the store cannot be read: %w", err)
	}
	return e, nil
}

// Find implements approval.Store.
func (a *ApprovalTable) Find(ctx context.Context, id string) (approval.Entry, error) {
	return database.Only(a.db.Query(ctx), noApproval(id), scanApproval, someApprovals+` WHERE id = ?`, database.Plain(id, database.MaxName))
}

// Open implements approval.Store.
func (a *ApprovalTable) Open(ctx context.Context, again string) (e approval.Entry, ok bool, err error) {
	open, err := openApprovals(a.db.Query(ctx), again)
	if err != nil || len(open) == 0 {
		return e, false, err
	}
	return open[0], true, nil
}

// openApprovals returns the one that a call can pick up. If one was given back there may be another; the older one
// comes first.
func openApprovals(a database.Querier, again string) ([]approval.Entry, error) {
	if again == "" {
		return nil, nil
	}
	return database.List(a, scanApproval, someApprovals+` WHERE again = ? AND again <> '' ORDER BY made_at, id LIMIT 1`, again)
}

// List implements approval.Store.
func (a *ApprovalTable) List(ctx context.Context, f approval.Filter) ([]approval.Entry, error) {
	where, args := ` WHERE 1 = 1`, []any{}
	for _, is := range []struct{ column, value string }{{"state", f.State}, {"caller", f.Caller}, {"tool", f.Ref}} {
		if is.value != "" {
			where, args = where+` AND `+is.column+` = ?`, append(args, database.Plain(is.value, 2*maxLeaseName))
		}
	}
	if f.Remembered {
		where += ` AND remembered <> 0`
	}
	some := []approval.Entry{}
	err := a.db.Query(ctx).Each(func(rows *sql.Rows) error { // there can be more of them than fit into memory
		e, err := scanApproval(rows)
		if err != nil || f.Keep != nil && !f.Keep(&e) {
			return err
		}
		if some = append(some, e); len(some) == database.AtMost(f.Most) {
			return database.ErrStop
		}
		return nil
	}, someApprovals+where+` ORDER BY made_at DESC, id`, args...)
	return some, err
}

// Approvals keeps approvals in memory. The zero value is ready to use.
type Approvals struct {
	mu   sync.Mutex
	kept map[string]approval.Entry
}

// Add implements approval.Store.
func (a *Approvals) Add(_ context.Context, e approval.Entry, b approval.Bounds) (approval.Entry, error) {
	if err := checkApproval(&e); err != nil {
		return e, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(a.kept, func(_ string, x approval.Entry) bool {
		over := x.Over()
		return !over.IsZero() && over.Before(now.Add(-approvalsKept))
	})
	if open, ok := a.open(e.Again); ok && open.At(now) == approval.Waiting {
		return open, nil
	}
	own, all := 0, 0
	for _, x := range a.kept {
		waits := x.At(now) == approval.Waiting
		own, all = own+flag(waits && (x.Caller == e.Caller || tool.SelfNamed(x.Caller) && tool.SelfNamed(e.Caller))), all+flag(waits)
	}
	if err := tooManyApprovals(e.Caller, own, all, b); err != nil {
		return e, err
	}
	if a.kept == nil {
		a.kept = map[string]approval.Entry{}
	}
	a.kept[e.ID] = e
	return e, nil
}

// Change implements approval.Store.
func (a *Approvals) Change(
	_ context.Context, id string, change func(*approval.Entry) error,
) (approval.Entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.kept[id]
	if !ok {
		return e, noApproval(id)
	}
	if err := change(&e); err != nil {
		return e, err
	}
	a.kept[id] = e
	return e, nil
}

// Find implements approval.Store.
func (a *Approvals) Find(_ context.Context, id string) (approval.Entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.kept[id]
	if !ok {
		return e, noApproval(id)
	}
	return e, nil
}

// Open implements approval.Store.
func (a *Approvals) Open(_ context.Context, again string) (approval.Entry, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.open(again)
	return e, ok, nil
}

func (a *Approvals) open(again string) (oldest approval.Entry, ok bool) {
	for _, e := range a.kept {
		if e.Again == again && again != "" && (!ok || e.Asked.Before(oldest.Asked)) {
			oldest, ok = e, true
		}
	}
	return oldest, ok
}

// List implements approval.Store.
func (a *Approvals) List(_ context.Context, f approval.Filter) ([]approval.Entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := []approval.Entry{}
	for _, e := range a.kept {
		if (f.State == "" || e.State == f.State) && (f.Caller == "" || e.Caller == f.Caller) &&
			(f.Ref == "" || e.Ref == f.Ref) && (!f.Remembered || e.Remembered()) && (f.Keep == nil || f.Keep(&e)) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b approval.Entry) int {
		return cmp.Or(b.Asked.Compare(a.Asked), cmp.Compare(a.ID, b.ID))
	})
	return all[:min(len(all), database.AtMost(f.Most))], nil
}
