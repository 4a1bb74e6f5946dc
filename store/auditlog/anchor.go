package auditlog

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"math"
	"time"

	"toolpost/engine/audit"
	"toolpost/store/database"
)

// An anchor says how far a lane had come. The anchors of all lanes are one chain, and the signed head of each lane names the
// last one that it added, and so signs all before: a program that has the key of one lane can change neither the rows that were
// anchored before an anchor of another lane, nor remove a lane. A log of one lane has no anchors: who has its key could make
// them again, too.
type anchor struct {
	seq   int64
	kind  string
	lane  int64 // the one that added it
	about int64 // the lane of the row: for a cut, another one
	row   place // the last row of that lane; for a trim, the last anchor that was removed
	at    int64
	hash  []byte
}

// The kinds of anchors.
const (
	anchorHead = "head"
	anchorTrim = "trim" // earlier anchors were removed because they were too old
	anchorCut  = "cut"  // the rows of a lane that is not in use any more were removed for the same reason
	// A lane has had no anchor for a day, so its programs may be gone for good, perhaps before they could anchor what they wrote
	// last: another program names its last row. One that was only idle, or asleep, goes on after that row, and with its next
	// anchor the lane is open again. To begin another lane would protect from nothing: who has the key can do either.
	anchorClose = "close"
)

// How long a lane without an anchor counts as in use, and how often programs look for others.
const (
	usualSilence = 24 * time.Hour
	closeEvery   = time.Hour
)

// How many rows there may be without an anchor, before the next second.
const mostUnanchored = 1000

const anchorColumns = `seq, kind, lane, about, row_seq, row_number, row_hash, at, hash`

func readAnchor(rows *sql.Rows) (x anchor, err error) {
	err = rows.Scan(&x.seq, &x.kind, &x.lane, &x.about, &x.row.seq, &x.row.number, &x.row.hash, &x.at, &x.hash)
	return x, err
}

// chained returns the hash of the anchor: of the one before, of what it says, and of the key of the lane that added it.
func (x *anchor) chained(before, public []byte) []byte {
	b := append([]byte("toolpost audit anchor"), before...)
	for _, n := range []int64{x.seq, x.lane, x.about, x.row.seq, x.row.number, x.at} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	b = appendSized(appendSized(appendSized(b, x.kind), string(x.row.hash)), string(public))
	sum := sha256.Sum256(b)
	return sum[:]
}

// keepAnchor anchors the lane of this program, if it has other rows than at the last anchor and there are other lanes.
func (a *Table) keepAnchor() error {
	n := a.unanchored.Load()
	if n <= 0 || !a.shared.Load() {
		return nil
	}
	err := a.db.Do(false, func(t *database.Tx) error {
		h, err := a.openHead(t)
		if err != nil {
			return err
		}
		// another program of this lane may have been faster
		known, err := database.Row(t, `SELECT 1 FROM audit_anchor WHERE row_seq = ? AND lane = ? AND kind = ?`,
			[]any{h.seq, h.lane, anchorHead}, new(int))
		if err != nil || known {
			return err
		}
		if err := a.addAnchor(t, &h, anchorHead, h.lane, place{h.seq, h.number, h.hash}); err != nil {
			return err
		}
		return a.closeOthers(t, &h)
	}, a.keys(anchors)...)
	if err == nil {
		a.unanchored.Add(-n)
	}
	return err
}

// closeOthers closes the lanes that have been silent. Their rows cannot change, so no key of theirs is needed.
func (a *Table) closeOthers(t *database.Tx, h *head) error {
	now := time.Now()
	if now.Sub(a.looked) < min(closeEvery, a.silence) {
		return nil
	}
	others, err := database.List(t, readHead, askHeads+` WHERE id <> ? AND anchor > 0 AND number > cut_number`, h.lane+1)
	for _, o := range others {
		var silent, known bool
		if err == nil {
			silent, err = o.silent(t, database.Micros(now.Add(-a.silence)))
		}
		if err != nil || !silent || !o.genuine(nil) {
			continue
		}
		known, err = database.Row(t, `SELECT 1 FROM audit_anchor WHERE row_seq = ? AND about = ? AND kind IN (?, ?)`,
			[]any{o.seq, o.lane, anchorClose, anchorCut}, new(int))
		if err == nil && !known {
			err = a.addAnchor(t, h, anchorClose, o.lane, place{o.seq, o.number, o.hash})
		}
	}
	if err == nil {
		t.After(func() { a.looked = now })
	}
	return err
}

// addAnchor adds an anchor, and signs the head that names it. Times never go back, whatever the clocks of the programs say:
// so an anchor proves how old those before it are at least. It is not added to a chain in which they do, which would sign it.
func (a *Table) addAnchor(t *database.Tx, h *head, kind string, about int64, row place) error {
	before := anchor{hash: genesis()}
	if _, err := database.Row(t, `SELECT seq, lane, at, hash FROM audit_anchor ORDER BY seq DESC LIMIT 1`, nil, &before.seq,
		&before.lane, &before.at, &before.hash); err != nil {
		return err
	}
	back, err := database.Row(t, `SELECT 1 FROM audit_anchor x JOIN audit_anchor y ON y.seq = x.seq + 1
		WHERE x.seq >= ? AND y.at < x.at LIMIT 1`, []any{h.anchor}, new(int))
	switch {
	case err != nil:
		return err
	case before.seq < h.anchor || back:
		return forged("has lost anchors, or has some that no program made")
	}
	now := database.Micros(time.Now())
	if before.at > now+dayLength {
		a.warn("an anchor of the audit log is dated in the future: what other lanes have recorded, and anchors, are not removed before; "+
			"check the clocks of the programs", "anchor", before.seq, "lane", before.lane, "date", time.UnixMicro(before.at).UTC())
	}
	x := anchor{seq: before.seq + 1, kind: kind, lane: h.lane, about: about, row: row, at: max(before.at, now)}
	x.hash = x.chained(before.hash, h.public)
	err = t.Exec(`INSERT INTO audit_anchor (`+anchorColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, x.seq, x.kind, x.lane,
		x.about, x.row.seq, x.row.number, x.row.hash, x.at, x.hash)
	if err != nil {
		return err
	}
	h.anchor, h.anchorHash = x.seq, x.hash
	return a.closeHead(t, h)
}

// silent reports whether a lane has had no anchor since a time. If its last one was trimmed, it is older than the first one
// that is left. A lane that was closed since then is silent only if an anchor of its own shows that its last row is older.
func (h *head) silent(q database.Querier, since int64) (bool, error) {
	var at int64
	found, err := database.Row(q, `SELECT at FROM audit_anchor WHERE seq >= ? ORDER BY seq LIMIT 1`, []any{h.anchor}, &at)
	if err != nil || h.anchor == 0 || !found || at >= since {
		return false, err
	}
	late, err := database.Row(q, `SELECT 1 FROM audit_anchor x WHERE row_seq = ? AND about = ? AND kind = ? AND at >= ? AND NOT EXISTS
		(SELECT 1 FROM audit_anchor y WHERE y.row_seq = x.row_seq AND y.lane = x.about AND y.kind = ?) LIMIT 1`,
		[]any{h.seq, h.lane, anchorClose, since, anchorHead}, new(int))
	return err == nil && !late, err
}

// oldest is the time before which other programs may remove the rows of a lane.
func (a *Table) oldest() int64 {
	if a.keep == 0 {
		return math.MinInt64
	}
	return database.Micros(time.Now().Add(-a.keep))
}

// trim removes the anchors from before a time, except the last of them, which shows how old the others were, and those that a
// lane with rows names. The cuts among them are made again.
func (a *Table) trim(t *database.Tx, before time.Time) error {
	h, err := a.openHead(t)
	if err != nil {
		return err
	}
	old, err := database.List(t, readAnchor, `SELECT `+anchorColumns+` FROM audit_anchor WHERE seq <
		(SELECT MAX(seq) FROM audit_anchor WHERE seq < COALESCE((SELECT MIN(seq) FROM audit_anchor WHERE at >= ?), ?) AND seq <=
			(SELECT COALESCE(MIN(anchor), ?) FROM audit_head WHERE anchor > 0 AND number > cut_number AND NOT EXISTS
				(SELECT 1 FROM audit_anchor WHERE kind = ? AND about = id - 1 AND row_number = number)))
		ORDER BY seq DESC LIMIT 1`, database.Micros(before), int64(math.MaxInt64), int64(math.MaxInt64), anchorCut)
	if err != nil || len(old) == 0 {
		return err
	}
	cuts, err := database.List(t, readAnchor, `SELECT `+anchorColumns+` FROM audit_anchor x WHERE kind = ? AND seq <= ? AND EXISTS
		(SELECT 1 FROM audit_head h WHERE h.id = x.about + 1 AND h.number = x.row_number AND h.anchor BETWEEN 1 AND x.seq)`,
		anchorCut, old[0].seq)
	if err != nil {
		return err
	}
	for _, x := range cuts {
		if err := a.addAnchor(t, &h, anchorCut, x.about, x.row); err != nil {
			return err
		}
	}
	if err := a.addAnchor(t, &h, anchorTrim, h.lane, place{old[0].seq, 0, old[0].hash}); err != nil {
		return err
	}
	return t.Exec(`DELETE FROM audit_anchor WHERE seq <= ?`, old[0].seq)
}

// pruneOthers removes the rows of other lanes that have had neither rows nor anchors since a time: the programs that would
// remove them are gone. A lane without anchors proves nothing about its age, and stays. The transaction is alone.
func (a *Table) pruneOthers(t *database.Tx, before time.Time) (removed int64, err error) {
	h, err := a.openHead(t)
	if err != nil {
		return 0, err
	}
	others, err := database.List(t, readHead, askHeads+` WHERE id <> ?`, h.lane+1)
	for _, o := range others {
		var lo, hi, last int64
		if err != nil {
			break
		}
		_, err = database.Row(t, `SELECT COALESCE(MIN(first_seq), 0), COALESCE(MAX(last_seq), 0), COALESCE(MAX(day), ?)
			FROM audit_day WHERE `+ofLane, append([]any{int64(math.MaxInt64)}, kindRange(o.lane)...), &lo, &hi, &last)
		if err != nil || last >= dayOf(database.Micros(before)) || !o.genuine(nil) {
			continue
		}
		var gone bool
		if gone, err = o.silent(t, database.Micros(before)); err != nil || !gone {
			continue
		}
		if err = a.addAnchor(t, &h, anchorCut, o.lane, place{o.seq, o.number, o.hash}); err != nil {
			break
		}
		var n int64
		n, err = t.Count(`DELETE FROM audit WHERE seq >= ? AND seq <= ? AND lane = ?`, lo, hi, o.lane)
		removed += n
		for _, table := range []string{
			`audit_day WHERE ` + ofLane, `audit_took WHERE ` + ofLane, `audit_path WHERE ` + ofLane,
			`audit_kind WHERE ` + inLane,
		} {
			if err == nil {
				err = t.Exec(`DELETE FROM `+table, kindRange(o.lane)...)
			}
		}
	}
	return removed, err
}

// adopt takes over the cut that another program has made in the lane, unless that was too early: then Verify reports it.
func (a *Table) adopt(t *database.Tx, h *head) error {
	cuts, err := database.List(t, readAnchor, `SELECT `+anchorColumns+` FROM audit_anchor WHERE seq = ?`, h.cutBy)
	if err != nil || len(cuts) == 0 || cuts[0].row.number <= h.cutNumber {
		return err
	}
	x := cuts[0].row
	if gone, err := h.silent(t, a.oldest()); err != nil || !gone || x.number != h.number || !bytes.Equal(x.hash, h.hash) {
		return err
	}
	h.cutSeq, h.cutNumber, h.cutHash = x.seq, x.number, x.hash
	return nil
}

// begin prepares the head of a lane without rows for the first one: the anchor that it names may have been removed.
func (h *head) begin(t *database.Tx) error {
	if h.anchor == 0 || h.number > h.cutNumber {
		return nil
	}
	known, err := database.Row(t, `SELECT 1 FROM audit_anchor WHERE seq = ?`, []any{h.anchor}, new(int))
	if err == nil && !known {
		h.anchor, h.anchorHash = 0, genesis()
	}
	return err
}

// readAnchors checks the chain of anchors, that each lane names the last one that it signed, and that other programs than this
// one have removed only what was old enough.
func (v *verifier) readAnchors() error {
	at := anchor{hash: genesis()}
	trims, err := database.List(v, readAnchor, `SELECT `+anchorColumns+` FROM audit_anchor WHERE kind = ?
		ORDER BY seq DESC LIMIT 1`, anchorTrim)
	for _, x := range trims {
		at = anchor{seq: x.row.seq, hash: x.row.hash}
	}
	if err != nil {
		return err
	}
	trimmed := at.seq
	err = v.Each(func(rows *sql.Rows) error {
		x, err := readAnchor(rows)
		if err != nil {
			return err
		}
		before := at
		at = x
		if before.seq == trimmed && len(trims) > 0 && trims[0].lane != v.own.lane && x.at >= v.oldest {
			if err := v.find(0, "anchors up to %d were removed before their time, by lane %d", trimmed, trims[0].lane); err != nil {
				return err
			}
		}
		return v.linkAnchor(&before, &x)
	}, `SELECT `+anchorColumns+` FROM audit_anchor ORDER BY seq`)
	if err != nil {
		return err
	}
	if at.seq > 0 {
		v.report.Anchor = audit.Point{Seq: at.seq, Hash: hex.EncodeToString(at.hash)}
	}
	for _, c := range v.inOrder() {
		if err := v.checkCut(c); err != nil {
			return err
		}
		empty := c.number == c.cutNumber
		if c.last.seq == 0 && (c.anchor == 0 || empty && c.anchor <= trimmed) ||
			c.last.seq == c.anchor && bytes.Equal(c.last.hash, c.anchorHash) {
			continue
		}
		if err := v.find(0, "anchors of lane %d are missing or were added: its head names anchor %d, and the last one is %d",
			c.lane, c.anchor, c.last.seq); err != nil {
			return err
		}
	}
	return nil
}

// checkCut reports a lane whose rows another program than this one has removed too early, or not all of them.
func (v *verifier) checkCut(c *chain) error {
	gone, err := c.silent(v, v.oldest)
	switch {
	case c.early && c != v.own:
		c.cutter = c.lane
	case err != nil, !c.closed, c.number == c.cutNumber && bytes.Equal(c.hash, c.at.hash) && (gone || c.cutter == v.own.lane):
		return err
	}
	return v.find(c.cutSeq, "rows up to %d of lane %d were removed before their time, by lane %d", c.cutSeq, c.lane, c.cutter)
}

// linkAnchor checks one anchor against the one before it.
func (v *verifier) linkAnchor(before, x *anchor) error {
	c := v.lanes[x.lane]
	if c == nil {
		v.sure = min(v.sure, x.seq)
		return v.find(0, "anchor %d is of lane %d, which is missing", x.seq, x.lane)
	}
	c.last = *x
	switch {
	case x.kind != anchorHead:
	case x.row.number > c.cutNumber:
		c.anchors++
	case !c.closed && x.at >= v.oldest+dayLength: // a program removes days of its calls, by a clock of its own
		c.early = true
	}
	switch o := v.lanes[x.about]; {
	case o == nil || x.row.number <= o.cutNumber:
	case x.kind == anchorClose:
		o.ends = append(o.ends, *x)
	case x.kind == anchorCut:
		o.at, o.cutSeq, o.cutNumber, o.anchors, o.closed, o.cutter = x.row, x.row.seq, x.row.number, 0, true, x.lane
		o.ends = nil
	}
	switch {
	case x.seq != before.seq+1 || x.at < before.at:
		v.sure = min(v.sure, x.seq)
		return v.find(0, "anchor %d follows anchor %d: something is missing or was added", x.seq, before.seq)
	case !bytes.Equal(x.hash, x.chained(before.hash, c.public)):
		v.sure = min(v.sure, x.seq)
		return v.find(0, "anchor %d or the one before it was changed", x.seq)
	}
	return nil
}
