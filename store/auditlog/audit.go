// Package auditlog is the audit log in a database: the chains of records (audit.go, lane.go), what ties them together
// (anchor.go), how the columns of a record are stored (columns.go), the sums of its days (sums.go), queries (query.go,
// series.go), and the check of all of it (verify.go).
package auditlog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/engine/audit"
	"toolpost/store/database"
	"toolpost/tool"
)

// A Table is the log of all calls: one row for each, in chains, one for each key: see lane.go. The hash of a row covers the
// row, its kind, and the hash before it, so that no row can be changed, removed, added or moved without breaking the chain. The
// head records where the chain ends and where it was cut, and is signed with a key that is not in the database. The sums of
// each day are derived from the rows, and Verify computes them again.
//
// So an attacker who can write to the whole database, but has no key, cannot make another chain that passes, nor one
// that ends earlier. A program that finds a head of its own lane which it did not sign adds nothing to it and refuses calls
// that would have to be recorded. Such an attacker can restore an earlier state of the whole database: a program that runs
// meanwhile notices, and so does Verify by the mark that is kept in a file, or by a Point that was kept elsewhere. They
// can also delete the notes of Begin, which are not in the chain, and add a lane of their own, whose program may remove other
// lanes as old as this program would. An attacker who has a key as
// well, as the user that the program runs as has, can rewrite the lane of that key, except what other lanes have anchored
// since (anchor.go): against that only a Point helps, or a copy somewhere else.
type Table struct {
	*layout
	db             *database.DB
	notes, records *database.Batch
	signer         func() (signer, error)
	own            atomic.Pointer[membership] // nil until the lane of this program is known
	mark           mark
	keep           time.Duration // how long rows are kept; 0 means for ever
	silence        time.Duration // how long a lane without an anchor counts as in use
	log            atomic.Pointer[slog.Logger]
	warned         sync.Map      // when each warning was last logged
	moved          atomic.Bool   // the log is longer than its mark
	shared         atomic.Bool   // see head
	unanchored     atomic.Int64  // rows since the last anchor
	hurry          chan struct{} // has an element if there are many of them
	grown          tool.Changes

	// The fields below are used by the leader of a group alone.
	epoch  int64
	cutBy  int64             // see head
	looked time.Time         // for lanes to be closed
	kinds  map[string]kindID // by what appendKind writes
	last   int64             // the end of the lane as this program has seen it
	seen   []byte            // the last head that is known to be genuine
	stray  []string          // notes of calls that were not run, because it was unclear whether they were noted
}

// An entry is a record on its way into the table. It owns the record.
type entry struct {
	*tool.Record
	detail string
	id     string                    // of the note about a call that had begun; empty if there is none
	owner  string                    // of the note, if that is another program
	claim  bool                      // it is the record of another program's call: if several find the note, one adds it
	missed func(*tool.Record, error) // called if no caller waits and it was not added
}

// A place is a row as its lane knows it.
type place struct {
	seq, number int64
	hash        []byte
}

// A kindID is a kind as stored in the database, with its digest in the chain.
type kindID struct {
	id     int64
	digest [sha256.Size]byte
}

// maxKinds is how many kinds are cached.
const maxKinds = 4096

// The ids of kinds begin with their lane. So the sums, which are by kind, are also by lane.
const (
	kindBits = 40
	inLane   = `id >= ? AND id < ?`
	ofLane   = `kind >= ? AND kind < ?`
)

func kindRange(lane int64) []any { return []any{lane << kindBits, (lane + 1) << kindBits} }

// New returns a log that is not in use yet. nil columns mean audit.Columns; key, mark, keep and silence are as in Options.
func New(columns audit.Table, key func() ([]byte, error), path string, keep, silence time.Duration) *Table {
	if key == nil {
		key = func() ([]byte, error) { return nil, nil }
	}
	if columns == nil {
		columns = audit.Columns()
	}
	a := &Table{
		layout: newLayout(columns), signer: sync.OnceValues(newSigner(key)), mark: mark{path: path}, keep: keep,
		silence: cmp.Or(silence, usualSilence), kinds: map[string]kindID{}, hurry: make(chan struct{}, 1),
	}
	a.notes = &database.Batch{Do: a.begin}
	a.records = &database.Batch{Do: a.extend, Name: func(one *database.Write) string {
		return "record " + openID(a.db.Owner, one.Item.(*entry).Record)
	}}
	return a
}

// Open opens a database with this log in it.
func (a *Table) Open(d database.Dialect, reads, writes *sql.DB, o database.Options) *database.DB {
	also := o.Tend
	o.Tend = func() { a.tend(); also() }
	o.Batches, o.Undone, o.Hurry = append([]*database.Batch{a.notes, a.records}, o.Batches...), a.undone, a.hurry
	a.db = database.New(d, reads, writes, o)
	return a.db
}

// Finish makes the mark and the anchors cover the last record, before the database is closed.
func (a *Table) Finish() {
	a.Settle()
	a.tendAnchor()
	_ = a.keepMark() // on an error the previous one stays
}

// LogTo sets the logger for problems that are not those of a caller.
func (a *Table) LogTo(log *slog.Logger) { a.log.Store(log) }

// warn logs a problem, at most once a minute.
func (a *Table) warn(what string, args ...any) {
	last, _ := a.warned.Load(what)
	at, _ := last.(time.Time)
	if log := a.log.Load(); log != nil && time.Since(at) >= time.Minute {
		a.warned.Store(what, time.Now())
		log.Warn(what, args...)
	}
}

// tendAnchor anchors the lane, and is called again soon if that fails.
func (a *Table) tendAnchor() {
	if err := a.keepAnchor(); err != nil {
		a.warn("the audit log cannot be anchored yet: other lanes do not prove the last records of this program", "error",
			tool.AsError(err).Message)
	}
}

// tend anchors the lane, and keeps the mark now and then.
func (a *Table) tend() {
	a.tendAnchor()
	if time.Since(a.mark.seen) >= markEvery {
		if a.moved.Load() {
			a.mark.seen = time.Now()
		}
		_ = a.keepMark() // it retries soon
	}
}

// Begin notes that a call which may change something is about to run. The note survives the end of this program:
// Recover finds it. Append with the same record removes the note.
func (a *Table) Begin(_ context.Context, r *tool.Record) error {
	kept := *r
	a.bound(&kept)
	doc, err := a.all.Marshal(&kept)
	if err != nil {
		return err
	}
	n := &note{openID(a.db.Owner, r), database.Micros(r.Time), string(doc)}
	return a.db.Submit(&database.Write{
		Batch: a.notes, Item: n, Keys: a.keys(), Late: func() { a.stray = append(a.stray, n.id) },
	})
}

// A note records that a call begins.
type note struct {
	id     string
	at     int64
	record string
}

// begin makes the notes of a group.
func (a *Table) begin(t *database.Tx, group []*database.Write) error {
	if _, err := a.openHead(t); err != nil { // a call that Append would refuse does not begin
		return err
	}
	var rows []any
	for _, one := range group {
		n := one.Item.(*note)
		rows = append(rows, n.id, a.db.Owner, n.at, n.record)
	}
	return t.Insert(`INSERT INTO audit_open (id, owner, at, record) VALUES `, 4,
		` ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, at = excluded.at, record = excluded.record`, rows)
}

// openID identifies a call that has begun. Callers may choose the same id for two calls.
func openID(owner string, r *tool.Record) string {
	return database.Digest(owner + "\n" + r.Call + "\n" + r.Caller + "\n" + r.Time.Format(time.RFC3339Nano))
}

// Append adds a record to the log. When it returns nil the record survives the end of this program, and, if durable,
// also a failure of the machine. After an unclear outcome a caller may append it again: it is in the log once. The
// record of a call whose note is gone is not added: another program has taken this one for dead and recorded the call
// as lost.
func (a *Table) Append(_ context.Context, r *tool.Record, durable bool) error {
	e, err := a.entryOf(new(*r))
	if err != nil {
		return err
	}
	return a.db.Submit(&database.Write{Batch: a.records, Item: &e, Keys: a.keys(), Durable: durable})
}

// AppendThen is Append, durably, with another write in the same transaction, which is not done if the record is refused. If
// the other one is refused, the record is added nevertheless.
func (a *Table) AppendThen(r *tool.Record, then *database.Write) error {
	e, err := a.entryOf(new(*r))
	if err != nil {
		return err
	}
	err = a.db.Submit(&database.Write{Batch: a.records, Item: &e, Keys: a.keys(then.Keys...), Durable: true, Then: then})
	return cmp.Or(err, then.Err)
}

// Later adds the record of a call that changed nothing soon, after those that came before it, and calls missed if it
// could not be added. It is lost if the program is killed before that; an orderly end, or a query of the log, writes it
// first.
func (a *Table) Later(r *tool.Record, missed func(*tool.Record, error)) {
	e, err := a.entryOf(r)
	if err != nil {
		missed(r, err)
		return
	}
	own := &struct { // one allocation, as there is one for each call
		database.Write
		entry
	}{database.Write{Batch: a.records, Keys: a.keys(), Done: giveBack}, e}
	own.Item, own.missed = &own.entry, missed
	a.db.Later(&own.Write)
}

// giveBack returns a record that was not added to its caller.
func giveBack(one *database.Write) {
	if one.Err != nil {
		e := one.Item.(*entry)
		e.missed(e.Record, one.Err)
	}
}

// Settle waits until all earlier records are in the log, or were given back.
func (a *Table) Settle() { a.db.Settle() }

// read reads the log, including everything that this program still has to add to it.
func (a *Table) read(ctx context.Context, use func(*database.Reader) error) error {
	a.Settle()
	return a.db.Read(ctx, use)
}

// entryOf bounds a record and makes an entry of it.
func (a *Table) entryOf(r *tool.Record) (e entry, err error) {
	if err := a.raws.Check(r); err != nil {
		return e, err
	}
	if r.Begun { // as in Begin: before names are cut
		e.id = openID(a.db.Owner, r)
	}
	a.bound(r)
	e.Record, e.detail = r, a.detailOf(r)
	return e, nil
}

// extend adds the records of a group to the chain.
func (a *Table) extend(t *database.Tx, group []*database.Write) error {
	h, err := a.openHead(t)
	if err != nil {
		return err
	}
	if h.epoch != a.epoch || h.cutBy != a.cutBy || len(a.kinds) > maxKinds {
		a.epoch, a.cutBy, a.kinds = h.epoch, h.cutBy, map[string]kindID{}
		if err := a.adopt(t, &h); err != nil {
			return err
		}
	}
	if err := h.begin(t); err != nil {
		return err
	}
	if err := a.removeStray(t); err != nil {
		return err
	}
	s := newSums()
	width := len(a.inRow) + 3
	rows := make([]any, 0, len(group)*width)
	hashes := make([]byte, 0, len(group)*sha256.Size)
	ended, err := a.end(t, group)
	if err != nil {
		return err
	}
	var added []*entry
	for _, one := range group {
		e := one.Item.(*entry)
		if e.id != "" && !ended[e.id] {
			one.Err = e.taken()
			continue
		}
		delete(ended, e.id) // it had only one note
		added = append(added, e)
	}
	seqs, err := t.Numbers(len(added), h.top)
	if err != nil {
		return err
	}
	for i, e := range added {
		k, err := a.kindOf(t, h.lane, e.Record)
		if err != nil {
			return err
		}
		h.seq, h.number = seqs[i], h.number+1
		if e.Seq, e.Lane, e.Number = h.seq, h.lane, h.number; e.Number == e.Seq {
			e.Number = 0
		}
		sum := a.chain(h.hash, k.digest, e.Record, e.detail)
		hashes = append(hashes, sum[:]...)
		h.hash = hashes[len(hashes)-len(sum):]
		rows = append(appendValues(rows, a.inRow, e.Record), k.id, e.detail, h.hash)
		s.add(k.id, e.Record)
	}
	if err := t.Insert(a.addRows, width, "", rows); err != nil {
		return err
	}
	if err := s.save(t); err != nil {
		return err
	}
	if err := a.closeHead(t, &h); err != nil {
		return err
	}
	t.After(func() {
		a.last = h.number
		a.moved.Store(true)
		a.shared.Store(h.shared())
		if a.unanchored.Add(int64(len(added))) >= mostUnanchored && h.shared() && len(a.hurry) == 0 {
			a.hurry <- struct{}{} // the leader alone sends, so there is room
		}
		a.grown.Tell()
	})
	return nil
}

// kindOf finds the id of a record's kind, or assigns one. Each lane has kinds of its own.
func (a *Table) kindOf(t *database.Tx, lane int64, r *tool.Record) (kindID, error) {
	key := a.appendKind(make([]byte, 0, 256), r)
	if known, ok := a.kinds[string(key)]; ok {
		return known, nil
	}
	args := appendValues(nil, a.inKind, r)
	id := kindID{digest: sha256.Sum256(key)}
	known, err := database.Row(t, a.findKind, append(args, kindRange(lane)...), &id.id)
	if err == nil && !known {
		id.id = lane << kindBits
		if _, err := database.Row(t, `SELECT MAX(id) FROM audit_kind WHERE `+inLane+` HAVING MAX(id) IS NOT NULL`,
			kindRange(lane), &id.id); err != nil {
			return id, err
		}
		id.id++
		err = t.Exec(a.addKind, append([]any{id.id}, args...)...)
	}
	if err == nil {
		a.kinds[string(key)] = id
	}
	return id, err
}

// undone forgets the kinds that a failed transaction may have added, and the cut that it may have adopted.
func (a *Table) undone() {
	clear(a.kinds)
	a.cutBy = 0
}

// end removes the notes about calls that had begun, and returns those that existed.
func (a *Table) end(t *database.Tx, group []*database.Write) (map[string]bool, error) {
	var ids []any
	for _, one := range group {
		if id := one.Item.(*entry).id; id != "" {
			ids = append(ids, id)
		}
	}
	ended := map[string]bool{}
	err := t.EachOf(func(rows *sql.Rows) error {
		id, err := database.Value[string](rows)
		ended[id] = true
		return err
	}, `DELETE FROM audit_open WHERE id IN (`, `?`, ids, `) RETURNING id`)
	return ended, err
}

// errElsewhere means that another program has recorded the call of a program that is gone.
var errElsewhere = errors.New("another program has recorded the call")

// taken returns the error of a record whose note is gone.
func (e *entry) taken() error {
	if e.claim {
		return errElsewhere
	}
	return tool.Errorf(tool.CodeConflict,
		"another program has recorded this call of %s as lost, since this one was away from the store for too long",
		e.Tool).Because("audit_taken")
}

// removeStray removes the notes of calls that were not run.
func (a *Table) removeStray(t *database.Tx) error {
	ids := a.stray
	for _, id := range ids {
		if err := t.Exec(`DELETE FROM audit_open WHERE id = ?`, id); err != nil {
			return err
		}
	}
	if len(ids) > 0 {
		t.After(func() { a.stray = a.stray[len(ids):] })
	}
	return nil
}

// Recover adds a record for every call that had begun in a program which is gone, and returns these records. If several programs look
// at once, each record is returned to one of them.
func (a *Table) Recover(ctx context.Context) (lost []*tool.Record, err error) {
	left, err := a.orphans(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range left {
		err := a.db.Submit(&database.Write{Batch: a.records, Item: e, Keys: a.keys(database.OwnerKey(e.owner)), Durable: true})
		if errors.Is(err, errElsewhere) {
			continue
		}
		if err != nil {
			return lost, err
		}
		lost = append(lost, e.Record)
	}
	return lost, nil
}

// orphans returns the records of calls whose program is gone.
func (a *Table) orphans(ctx context.Context) (left []*entry, err error) {
	err = a.db.Orphans(ctx, `id, record`, `audit_open WHERE id <> ''`, func(owner string, rows *sql.Rows) error {
		var id, doc string
		if err := rows.Scan(&id, &doc); err != nil {
			return err
		}
		e, err := a.lost(doc)
		if err != nil {
			return err
		}
		e.id, e.claim, e.owner = id, true, owner
		left = append(left, &e)
		return nil
	})
	return left, err
}

// lost returns the record of a call whose outcome is unknown.
func (a *Table) lost(doc string) (entry, error) {
	var r tool.Record
	if err := a.all.Unmarshal([]byte(doc), &r); err != nil { // it is only known that there was a call
		r = tool.Record{Time: time.Now()}
	}
	r.Outcome, r.Code = tool.OutcomeLost, tool.CodeCrash
	return a.entryOf(&r)
}

// Prune removes the rows of the days that are wholly before a time, and their sums: of this program's lane, and of lanes that
// are not in use any more. The lane then starts at the cut: its head keeps the hash of the last removed row. It returns the
// number of rows.
func (a *Table) Prune(ctx context.Context, before time.Time) (removed int64, err error) {
	a.Settle()
	var lane int64
	err = a.db.Do(false, func(t *database.Tx) error {
		h, err := a.openHead(t)
		lane = h.lane
		a.shared.Store(h.shared())
		return err
	}, a.keys()...)
	if err != nil {
		return 0, err
	}
	days, err := database.Reading(ctx, a.db, func(r *database.Reader) ([]int64, error) {
		return database.List(r, database.Value[int64],
			`SELECT DISTINCT day FROM audit_day WHERE `+ofLane+` AND day < ? ORDER BY day`,
			append(kindRange(lane), dayOf(database.Micros(before)))...)
	})
	for _, day := range days { // one at a time, so that others can write in between
		if err != nil || ctx.Err() != nil {
			break
		}
		var n int64
		err = a.db.Do(true, func(t *database.Tx) (err error) {
			n, err = a.prune(t, day)
			return err
		}, a.keys()...)
		removed += n
	}
	if err == nil && a.shared.Load() {
		var n int64
		n, err = database.Writing(a.db, func(t *database.Tx) (int64, error) { return a.pruneOthers(t, before) })
		removed += n
	}
	if err == nil {
		err = a.db.Do(false, func(t *database.Tx) error { return a.trim(t, before) }, a.keys(anchors)...)
	}
	return removed, errors.Join(err, ctx.Err())
}

// prune cuts the lane before the first row of a later day. A row of an earlier day after the cut, as happens when
// clocks disagree, stays until the cut reaches it.
func (a *Table) prune(t *database.Tx, day int64) (int64, error) {
	h, err := a.openHead(t)
	if err != nil {
		return 0, err
	}
	cut := h.seq
	if _, err := database.Row(t, `SELECT COALESCE(MIN(first_seq) - 1, ?) FROM audit_day WHERE `+ofLane+` AND day > ?`,
		append(append([]any{h.seq}, kindRange(h.lane)...), day), &cut); err != nil || cut <= h.cutSeq {
		return 0, err
	}
	last, err := database.List(t, func(rows *sql.Rows) (p place, err error) {
		return p, rows.Scan(&p.seq, &p.number, &p.hash)
	}, `SELECT seq, number, hash FROM audit WHERE lane = ? AND seq <= ? ORDER BY seq DESC LIMIT 1`, h.lane, cut)
	switch {
	case err != nil:
		return 0, err
	case len(last) == 0:
		return 0, forged("has lost rows")
	case last[0].seq <= h.cutSeq:
		return 0, nil
	}
	h.cutSeq, h.cutNumber, h.cutHash, h.epoch = last[0].seq, cmp.Or(last[0].number, last[0].seq), last[0].hash, h.epoch+1
	n, err := t.Count(`DELETE FROM audit WHERE lane = ? AND seq <= ?`, h.lane, cut)
	if err != nil {
		return 0, err
	}
	if err := a.rebuild(t, h.lane, day); err != nil {
		return 0, err
	}
	if err := t.Exec(`DELETE FROM audit_kind WHERE `+inLane+` AND id NOT IN (SELECT kind FROM audit_day)`,
		kindRange(h.lane)...); err != nil {
		return 0, err
	}
	return n, a.closeHead(t, &h)
}

// rebuild recomputes the sums of a lane's days up to one from their remaining rows.
func (l *layout) rebuild(t *database.Tx, lane, day int64) error {
	s := newSums()
	var last int64
	_, err := database.Row(t, `SELECT COALESCE(MAX(last_seq), 0) FROM audit_day WHERE `+ofLane+` AND day <= ?`,
		append(kindRange(lane), day), &last)
	if err != nil {
		return err
	}
	err = t.Each(func(rows *sql.Rows) error {
		var r tool.Record
		var id int64
		var doc string
		if err := rows.Scan(into(l.inRow, &r, &id, &doc)...); err != nil {
			return err
		}
		err := readTouches(doc, &r)
		s.add(id, &r)
		return err
	}, `SELECT `+l.rowNames+`, kind, detail FROM audit WHERE seq <= ? AND at < ? AND lane = ?`, last, (day+1)*dayLength, lane)
	if err != nil {
		return err
	}
	for _, table := range []string{"audit_day", "audit_took", "audit_path"} {
		if err := t.Exec(`DELETE FROM `+table+` WHERE `+ofLane+` AND day <= ?`, append(kindRange(lane), day)...); err != nil {
			return err
		}
	}
	return s.save(t)
}
