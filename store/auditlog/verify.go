package auditlog

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"toolpost/config"

	"toolpost/engine/audit"
	"toolpost/engine/member"
	"toolpost/engine/persist"
	"toolpost/store/database"
	"toolpost/tool"
)

// maxFindings is how many findings are reported; one is enough to know.
const maxFindings = 20

// Verify checks every row of the log. Its findings are in the report; an error means that it could not check. The
// points, if any, must be in the log.
func (a *Table) Verify(ctx context.Context, points ...audit.Point) (*audit.Report, error) {
	return a.VerifyTelling(ctx, func(_, _ int64) error { return nil }, points...)
}

// tellRows is how often VerifyTelling reports progress, in rows.
const tellRows = 1000

// VerifyTelling is Verify with progress: it calls tell now and then with the number of rows checked and of all rows. An
// error of tell ends it.
func (a *Table) VerifyTelling(
	ctx context.Context, tell func(rows, all int64) error, points ...audit.Point,
) (*audit.Report, error) {
	s, err := a.signer()
	if err != nil {
		return nil, err
	}
	v := &verifier{
		layout: a.layout, mark: &a.mark, oldest: a.oldest(), signer: s, points: points, seed: maphash.MakeSeed(), used: map[int64]bool{},
		tell: tell, sums: newSums(), report: &audit.Report{Findings: []audit.Finding{}, Lanes: []audit.Lane{}},
		own: &chain{head: head{lane: -1, hash: genesis(), cutHash: genesis()}}, lanes: map[int64]*chain{}, sure: math.MaxInt64,
	}
	err = a.read(ctx, v.look)
	if errors.Is(err, errEnough) {
		err = nil
	}
	if ctx.Err() != nil {
		return nil, tool.AsError(context.Cause(ctx))
	}
	if persist.Away(err) || errors.Is(err, database.ErrUnconnected) ||
		err != nil && tool.AsError(err).Reason == database.ReasonNewer { // nothing is wrong with the log
		return nil, err
	}
	if err != nil && len(v.report.Findings) == 0 { // a log that cannot be read is damaged
		v.report.Findings = append(v.report.Findings, audit.Finding{
			What: "the log cannot be read: " + tool.AsError(err).Message,
		})
	}
	v.report.Findings = append(v.report.Findings, v.receipts...)
	return v.report, nil
}

var errEnough = errors.New("enough was found")

// A verifier checks the log once, in one snapshot.
type verifier struct {
	*database.Reader
	*layout
	signer signer
	mark   *mark
	oldest int64 // see Table
	points []audit.Point
	report *audit.Report

	lanes map[int64]*chain
	own   *chain // of this program; empty if it has none
	sure  int64  // the first anchor that proves nothing
	kinds map[int64]kindID
	used  map[int64]bool
	sums  *sums // of all rows, except the durations and the paths
	// The durations and the paths of all rows, each as one number: each counts as the hash of its key under a seed that
	// could not be known before. The number is the same for the rows and for the sums of the same rows, in any order.
	seed         maphash.Seed
	tooks, paths uint64
	tell         func(rows, all int64) error

	shared   map[int64]*tool.Record // the kinds
	members  []member.Member        // of the fleet
	receipts []audit.Finding        // about receipts
}

// A chain is a lane, up to the last row that was read.
type chain struct {
	head
	at   place
	rows int64
	lost bool // it has no head

	last          anchor   // of those that it added
	ends          []anchor // those that close it, and name rows that have not been read
	shut          bool     // the last row that was read is such an end
	anchors       int64    // those that name rows which are not cut off
	proof, proven int64    // an anchor, and the row up to which it proves the lane
	broken        bool
	closed        bool  // another program has removed its rows
	early         bool  // it has removed rows that it anchored not long ago
	cutter        int64 // the lane of the program that has removed rows
}

func (v *verifier) find(seq int64, format string, args ...any) error {
	v.report.Findings = append(v.report.Findings, audit.Finding{Seq: seq, What: fmt.Sprintf(format, args...)})
	if len(v.report.Findings) >= maxFindings {
		return errEnough
	}
	return nil
}

func (v *verifier) look(r *database.Reader) error {
	v.Reader = r
	for _, step := range []func() error{v.intact, v.tenants, v.readHeads, v.readAnchors, v.readKinds, v.readMembers, v.readRows, v.readDays, v.readTooks,
		v.readPaths, v.readUnused, v.checkMark} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// intact runs the database's own check.
func (v *verifier) intact() error {
	damage, err := v.Damage()
	if err == nil && damage != "" {
		return v.find(0, "the database is damaged: %s", damage)
	}
	return err
}

// tenants looks for rows that were given to a tenant, which this version does not do.
func (v *verifier) tenants() error {
	for _, table := range []string{"audit", "audit_kind", "audit_day", "audit_took", "audit_path", "audit_head", "audit_anchor"} {
		var n int
		if _, err := database.Row(v, `SELECT COUNT(*) FROM `+table+` WHERE tenant <> ''`, nil, &n); err != nil {
			return err
		}
		if n > 0 {
			if err := v.find(0, "rows of table %s have a tenant: %d", table, n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *verifier) readHeads() error {
	heads, err := database.List(v, readHead, askHeads+` ORDER BY id`)
	if err != nil {
		return err
	}
	last, cut := &v.own.head, &v.own.head
	for _, h := range heads {
		c := &chain{head: h, at: place{h.cutSeq, h.cutNumber, h.cutHash}}
		v.lanes[h.lane] = c
		if h.old() || bytes.Equal(h.public, v.signer.public) {
			v.own, v.report.Signed = c, len(v.signer.secret) > 0
		}
		if last.seq <= h.seq {
			last = &c.head
		}
		if cut.cutSeq <= h.cutSeq {
			cut = &c.head
		}
		if !h.genuine(v.signer.secret) {
			what := v.name(h.lane) + " was not signed with its key"
			if h.old() {
				what = "the log was not signed with this key"
			}
			if err := v.find(0, "the head of %s", what); err != nil {
				return err
			}
		}
	}
	if len(heads) == 0 { // there are no rows either
		v.report.Signed = len(v.signer.secret) > 0
	}
	v.report.Cut = audit.Point{Seq: cut.cutSeq, Hash: hex.EncodeToString(cut.cutHash)}
	v.report.Head = audit.Point{Seq: last.seq, Hash: hex.EncodeToString(last.hash)}
	return nil
}

// name returns the name of a lane for people: most logs have only one.
func (v *verifier) name(lane int64) string {
	if lane == 0 && len(v.lanes) < 2 {
		return "the log"
	}
	return "lane " + strconv.FormatInt(lane, 10)
}

func (v *verifier) readKinds() error {
	kinds, err := v.readAllKinds(v.Reader)
	if err != nil {
		return err
	}
	v.kinds, v.shared = map[int64]kindID{}, kinds
	type own struct {
		lane   int64
		digest [sha256.Size]byte
	}
	seen := map[own]bool{}
	for id, k := range kinds {
		digest := sha256.Sum256(v.appendKind(nil, k))
		if seen[own{id >> kindBits, digest}] {
			if err := v.find(0, "kind %d is there twice", id); err != nil {
				return err
			}
		}
		seen[own{id >> kindBits, digest}], v.kinds[id] = true, kindID{id, digest}
	}
	return nil
}

func (v *verifier) readRows() error {
	var all int64
	for _, c := range v.lanes {
		all += c.number - c.cutNumber
	}
	// the cut of another lane proves nothing: its program may say there what it likes
	if err := v.atPoint(v.own.at.seq, v.own.at.hash); err != nil {
		return err
	}
	some := make([]row, 0, rowsAtOnce)
	err := v.Each(func(rows *sql.Rows) error {
		var x row
		var by, lane, number sql.NullInt64
		if err := rows.Scan(append(exactly(into(v.inRow, &x.Record, &x.kind, &x.doc)), &x.hash, &by, &lane, &number,
			&x.named.row.hash)...); err != nil {
			return err
		}
		x.named.seq, x.named.lane, x.named.row.number = by.Int64, lane.Int64, number.Int64
		if some = append(some, x); len(some) < rowsAtOnce {
			return nil
		}
		full := some
		some = some[:0]
		return v.checkRows(full, all)
	}, `SELECT `+v.rowNames+`, kind, detail, hash, anchor, of_lane, row_number, row_hash FROM audit LEFT JOIN
		(SELECT seq AS anchor, lane AS of_lane, row_seq, row_number, row_hash FROM audit_anchor WHERE kind = '`+anchorHead+`') named
		ON row_seq = seq ORDER BY seq`)
	if !errors.Is(err, errEnough) {
		err = cmp.Or(v.checkRows(some, all), err) // first what is wrong before a row that cannot be read
	}
	if err != nil {
		return err
	}
	for _, c := range v.inOrder() {
		if err := v.checkEnd(c); err != nil {
			return err
		}
	}
	for _, p := range v.points {
		why := "and it was once"
		if p.Seq <= v.report.Cut.Seq {
			why = "its time was over: compare with a later one"
		}
		if err := v.find(p.Seq, "row %d is not in the log, %s", p.Seq, why); err != nil {
			return err
		}
	}
	return nil
}

// A row is a row of the log, with what can be computed of it apart from the others.
type row struct {
	tool.Record
	kind  int64
	doc   string
	hash  []byte
	named anchor // the anchor that names it; seq is 0 if there is none

	before []byte // the hash of the row before it in its lane
	sum    [sha256.Size]byte
	bad    error // its paths cannot be read

	signed  bool  // it has a receipt
	receipt error // what is wrong with that
}

// rowsAtOnce is how many rows are held in memory, to be computed in parallel.
const rowsAtOnce = 512

// checkRows checks rows in their order. Their hashes are computed before that, by all processors: that of a row needs only
// what is stored of the one before, so lanes, and the parts of a long lane, do not wait for each other.
func (v *verifier) checkRows(some []row, all int64) error {
	last := map[int64][]byte{}
	for i := range some {
		x := &some[i]
		if c := v.lanes[x.Lane]; c != nil && last[x.Lane] == nil {
			last[x.Lane] = c.at.hash
		}
		x.before, last[x.Lane] = last[x.Lane], x.hash
	}
	var computing sync.WaitGroup
	for part := range slices.Chunk(some, len(some)/runtime.GOMAXPROCS(0)+1) {
		computing.Go(func() {
			for i := range part {
				x := &part[i]
				x.sum = v.chain(x.before, v.kinds[x.kind].digest, &x.Record, x.doc)
				x.bad = readTouches(x.doc, &x.Record)
				x.receipt = v.checkReceipt(x)
			}
		})
	}
	computing.Wait()
	for i := range some {
		if err := v.checkRow(&some[i], all); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) checkRow(x *row, all int64) error {
	if v.report.Rows++; v.report.Rows%tellRows == 0 {
		if err := v.tell(v.report.Rows, all); err != nil {
			return err
		}
	}
	for _, check := range []func(*row) error{v.link, v.prove, v.atEnd} {
		if err := check(x); err != nil {
			return err
		}
	}
	if err := v.atPoint(x.Seq, x.hash); err != nil {
		return err
	}
	v.countReceipt(x)
	return v.add(x)
}

// inOrder returns the lanes by number.
func (v *verifier) inOrder() (all []*chain) {
	for _, lane := range slices.Sorted(maps.Keys(v.lanes)) {
		all = append(all, v.lanes[lane])
	}
	return all
}

// prove compares a row with the anchor of its lane that names it, if there is one.
func (v *verifier) prove(x *row) error {
	c, by := v.lanes[x.Lane], &x.named
	if by.seq == 0 {
		return nil
	}
	c.anchors--
	return v.proves(c, by, x, by.lane == x.Lane && by.row.number == c.at.number)
}

// atEnd compares a row with every anchor by which its lane was closed there. Such an anchor can be anyone's, so a later one does
// not replace an earlier one.
func (v *verifier) atEnd(x *row) (err error) {
	c := v.lanes[x.Lane]
	for c.shut = false; err == nil && len(c.ends) > 0 && c.ends[0].row.number == c.at.number; c.ends = c.ends[1:] {
		c.shut, err = true, v.proves(c, &c.ends[0], x, c.ends[0].row.seq == x.Seq)
	}
	return err
}

func (v *verifier) proves(c *chain, by *anchor, x *row, there bool) error {
	switch {
	case !there || !bytes.Equal(x.hash, by.row.hash):
		return v.broke(c, x.Seq, "row %d is another than anchor %d says", x.Seq, by.seq)
	case by.seq < v.sure && !c.broken:
		c.proof, c.proven = by.seq, x.Seq
	}
	return nil
}

// broke reports that a lane is broken, and what the anchors prove of it nevertheless.
func (v *verifier) broke(c *chain, seq int64, format string, args ...any) error {
	if !c.broken && c.proof > 0 {
		format, args = format+"; rows up to %d of lane %d are proven by anchor %d", append(args, c.proven, c.lane, c.proof)
	}
	c.broken = true
	return v.find(seq, format, args...)
}

// checkEnd compares the end of a lane with its head.
func (v *verifier) checkEnd(c *chain) error {
	if c.lost {
		return nil
	}
	key := sha256.Sum256(c.public)
	v.report.Lanes = append(v.report.Lanes, audit.Lane{
		Lane: c.lane, Key: hex.EncodeToString(key[:8]), Own: c == v.own, Rows: c.rows,
		Closed: c.closed || c.shut,
		Head:   audit.Point{Seq: c.seq, Hash: hex.EncodeToString(c.hash)},
	})
	switch {
	case c.at.seq != c.seq || c.at.number != c.number:
		return v.broke(c, c.at.seq, "%s ends at row %d, and its head says %d", v.name(c.lane), c.at.seq, c.seq)
	case !bytes.Equal(c.at.hash, c.hash):
		return v.broke(c, c.at.seq, "the head of %s does not fit its last row", v.name(c.lane))
	case c.anchors != 0, len(c.ends) > 0:
		return v.broke(c, 0, "anchors name rows of %s that it does not have", v.name(c.lane))
	}
	return nil
}

// link checks one row against the one before it in its lane.
func (v *verifier) link(r *row) error {
	c := v.lanes[r.Lane]
	if c == nil {
		c = &chain{head: head{lane: r.Lane}, lost: true}
		v.lanes[r.Lane] = c
		if err := v.find(r.Seq, "row %d is in lane %d, whose head is missing", r.Seq, r.Lane); err != nil {
			return err
		}
	}
	before := c.at
	c.at = place{r.Seq, cmp.Or(r.Number, r.Seq), r.hash}
	c.rows++
	if c.lost {
		return nil
	}
	_, known := v.kinds[r.kind]
	v.used[r.kind] = true
	switch {
	case c.at.number != before.number+1 || r.Seq <= before.seq:
		return v.broke(c, r.Seq, "row %d follows row %d%s: something is missing or was added", r.Seq, before.seq, v.of(r.Lane))
	case !known || r.kind>>kindBits != r.Lane:
		return v.broke(c, r.Seq, "row %d refers to kind %d, which is missing", r.Seq, r.kind)
	case !bytes.Equal(r.hash, r.sum[:]):
		return v.broke(c, r.Seq, "row %d, its kind or the row before it%s was changed", r.Seq, v.of(r.Lane))
	}
	return nil
}

// of says in which lane a row is, if there are several.
func (v *verifier) of(lane int64) string {
	if len(v.lanes) < 2 {
		return ""
	}
	return " in " + v.name(lane)
}

// atPoint marks a point as found, and reports one whose hash differs.
func (v *verifier) atPoint(seq int64, hash []byte) error {
	for i, p := range v.points {
		switch {
		case p.Seq != seq:
		case p.Hash != hex.EncodeToString(hash):
			return v.find(seq, "row %d is another than it once was", seq)
		default:
			v.points = append(v.points[:i:i], v.points[i+1:]...)
			return nil
		}
	}
	return nil
}

// add adds a row to the expected sums.
func (v *verifier) add(x *row) error {
	if x.bad != nil {
		return v.find(x.Seq, "row %d cannot be read: %v", x.Seq, x.bad)
	}
	v.sums.add(x.kind, &x.Record)
	v.tooks += v.take(v.sums.tooks)
	v.paths += v.take(v.sums.paths)
	return nil
}

// take empties counts, and returns them as one number.
func (v *verifier) take(counts map[sumKey]int64) (sum uint64) {
	for key, n := range counts {
		sum += maphash.Comparable(v.seed, key) * uint64(n)
	}
	clear(counts)
	return sum
}

func (k *sumKey) date() string { return startOfDay(k.day).Format(time.DateOnly) }

func (v *verifier) readDays() error {
	days := v.sums.days
	err := v.Each(func(rows *sql.Rows) error {
		var k sumKey
		var d daySum
		if err := rows.Scan(exactly(dayTally().into(&k, &d))...); err != nil {
			return err
		}
		want, ok := days[k]
		delete(days, k)
		if !ok || d != want {
			return v.find(0, "the sums of %s do not follow from the rows", k.date())
		}
		return nil
	}, `SELECT day, kind, n, took, longest, bytes_in, bytes_out, first_seq, last_seq FROM audit_day`)
	if err != nil {
		return err
	}
	for k := range days {
		return v.find(0, "sums of %s are missing", k.date())
	}
	return nil
}

func (v *verifier) readTooks() error { return v.readCounts("durations", tookTally(), v.tooks) }

func (v *verifier) readPaths() error { return v.readCounts("sums of paths", pathTally(), v.paths) }

func (v *verifier) readCounts(what string, t tally[int64], want uint64) error {
	var sum uint64
	err := v.Each(func(rows *sql.Rows) error {
		var k sumKey
		var n int64
		if err := rows.Scan(exactly(t.into(&k, &n))...); err != nil {
			return err
		}
		if n <= 0 || n > v.report.Rows*maxTouches { // a multiple of 2⁶² could add nothing
			return v.find(0, "the %s of %s do not follow from the rows", what, k.date())
		}
		sum += maphash.Comparable(v.seed, k) * uint64(n)
		return nil
	}, `SELECT day, `+t.keys+`, n FROM `+t.table)
	if err == nil && sum != want {
		return v.find(0, "the %s do not follow from the rows", what)
	}
	return err
}

// readUnused finds kinds that no row refers to. A kind is only ever added together with its row.
func (v *verifier) readUnused() error {
	for id := range v.kinds {
		if !v.used[id] {
			if err := v.find(0, "kind %d belongs to no row", id); err != nil {
				return err
			}
		}
	}
	return nil
}

// A mark is a Point of the log that is kept outside of the database, signed with the key: an empty log shows nothing of
// what it has lost, and a log that was restored to an earlier state verifies.
type mark struct {
	path string
	seen time.Time // when it was last kept; used by tend alone
}

// markEvery is how often a mark is kept while calls are recorded. It takes a durable transaction.
const markEvery = 5 * time.Second

func signMark(key []byte, p audit.Point) string {
	m := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(m, "toolpost audit mark %s", p)
	return hex.EncodeToString(m.Sum(nil))
}

// read returns the kept point; Seq is 0 if there is none.
func (m *mark) read(key []byte) (p audit.Point, err error) {
	if m.path == "" {
		return p, nil
	}
	text, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	point, signature, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if p, err = audit.ParsePoint(point); err != nil || !hmac.Equal([]byte(signature), []byte(signMark(key, p))) {
		return audit.Point{}, errors.New("it was not signed with this key; put back the audit.key of this " +
			"log, or delete audit-*.mark and audit-*.first, and go on in a new lane")
	}
	return p, nil
}

// first returns the mark of the first row. It outlives the other: without it, a log that was deleted together with its
// mark, and begun again, would verify.
func (m *mark) first() *mark {
	if m.path == "" {
		return m
	}
	return &mark{path: strings.TrimSuffix(m.path, filepath.Ext(m.path)) + ".first"}
}

func (m *mark) write(key []byte, p audit.Point) error {
	return config.WritePrivate(m.path, []byte(p.String()+" "+signMark(key, p)+"\n"))
}

// keepMark records the end of the log, if calls were recorded since the last time. A mark that is no longer in the log
// stays: it shows that something is missing.
func (a *Table) keepMark() error {
	if a.mark.path == "" || !a.moved.Swap(false) {
		return nil
	}
	s, err := a.signer()
	if err != nil {
		return err
	}
	key := s.secret
	known, bad := a.mark.first().read(key)
	var next, first audit.Point
	look := func(t *database.Tx) error {
		h, err := a.openHead(t)
		next = audit.Point{Seq: h.seq, Hash: hex.EncodeToString(h.hash)}
		if err != nil {
			return err
		}
		if first = (audit.Point{}); h.cutNumber == 0 && known.Seq == 0 {
			if first, err = firstOf(t, h.lane); err != nil {
				return err
			}
		}
		kept, err := a.mark.read(key)
		if err != nil || kept.Seq <= h.cutSeq {
			return err
		}
		lost := forged("does not hold its mark any more")
		hash, err := database.Only(t, lost, database.Value[[]byte], hashOf, kept.Seq)
		if err == nil && hex.EncodeToString(hash) != kept.Hash {
			return lost
		}
		return err
	}
	// durable, so that the log never ends before its mark
	err = a.db.Do(true, look, a.keys()...)
	if err == nil {
		err = a.mark.write(key, next)
	}
	if err == nil && bad == nil && known.Seq == 0 && first.Seq > 0 {
		err = a.mark.first().write(key, first)
	}
	if err != nil {
		a.moved.Store(true)
	}
	return err
}

// firstOf returns the first row of a lane.
func firstOf(t *database.Tx, lane int64) (p audit.Point, err error) {
	var hash []byte
	found, err := database.Row(t, `SELECT seq, hash FROM audit WHERE lane = ? ORDER BY seq LIMIT 1`, []any{lane}, &p.Seq, &hash)
	if err == nil && !found {
		err = forged("has no first row")
	}
	p.Hash = hex.EncodeToString(hash)
	return p, err
}

// checkMark reports a log that does not contain its mark.
func (v *verifier) checkMark() error {
	m, both := v.mark, v.mark.path+" and "+v.mark.first().path
	p, err := m.read(v.signer.secret)
	switch {
	case err != nil:
		return v.find(0, "the mark of the log, %s, cannot be used: %v", m.path, err)
	case p.Seq <= v.own.cutSeq:
		return v.checkFirst(m.first())
	case v.report.Rows == 0:
		return v.find(0, "the log is empty, and it had %d rows once: it was deleted or replaced. If that was you, "+
			"delete %s too", p.Seq, both)
	}
	hashes, err := database.List(v, database.Value[[]byte], hashOf, p.Seq)
	switch {
	case err != nil:
		return err
	case len(hashes) == 0:
		return v.find(p.Seq, "the log ends at row %d, and it had %d rows once: it was replaced by another or an "+
			"earlier one. If that was you, delete %s too", v.own.seq, p.Seq, m.path)
	case hex.EncodeToString(hashes[0]) != p.Hash:
		return v.find(p.Seq, "row %d is another than it once was: the log was replaced by another. If that was you, "+
			"delete %s too", p.Seq, both)
	}
	return v.checkFirst(m.first())
}

// checkFirst reports a log that was deleted together with its mark, and perhaps begun again.
func (v *verifier) checkFirst(m *mark) error {
	p, err := m.read(v.signer.secret)
	switch {
	case err != nil:
		return v.find(0, "the mark of the log's first row, %s, cannot be used: %v", m.path, err)
	case p.Seq <= v.own.cutSeq:
		return nil
	}
	hashes, err := database.List(v, database.Value[[]byte], hashOf, p.Seq)
	if err == nil && (len(hashes) == 0 || hex.EncodeToString(hashes[0]) != p.Hash) {
		return v.find(0, "the log is gone: calls were recorded here before those of this log, and neither they nor "+
			"their mark is left. If that was you, delete %s too", m.path)
	}
	return err
}
