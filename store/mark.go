package store

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"toolpost/engine/audit"
)

// A mark is a Point of the log that is kept outside of the database, signed with the key: a log that is empty says
// nothing about what it has lost, and one that was put back to an earlier state verifies.
type mark struct {
	path string
	seen time.Time // when it was last kept; for tend alone
}

// markEvery is how often a mark is kept while calls are recorded. It takes a durable transaction.
const markEvery = 5 * time.Second

func signMark(key []byte, p audit.Point) string {
	m := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(m, "toolpost audit mark %s", p)
	return hex.EncodeToString(m.Sum(nil))
}

// read returns the point that was kept; Seq 0: none.
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
		return audit.Point{}, errors.New("it was not signed with this key")
	}
	return p, nil
}

func (m *mark) write(key []byte, p audit.Point) error {
	if err := os.MkdirAll(filepath.Dir(m.path), 0o700); err != nil {
		return err
	}
	return replaceFile(m.path, []byte(p.String()+" "+signMark(key, p)+"\n"))
}

// keepMark keeps the end of the log, where calls were recorded since the last time. A mark that the log does not hold
// any more stays: it is what tells that something is missing.
func (a *AuditTable) keepMark() error {
	if a.mark.path == "" || !a.moved.Swap(false) {
		return nil
	}
	key, err := a.key()
	if err != nil {
		return err
	}
	var next audit.Point
	err = a.db.w.do(true, func(t *tx) error { // durable, so that the log never ends before its mark
		h, err := a.openHead(t)
		next = audit.Point{Seq: h.seq, Hash: hex.EncodeToString(h.hash)}
		if err != nil {
			return err
		}
		kept, err := a.mark.read(key)
		if err != nil || kept.Seq <= h.cutSeq {
			return err
		}
		lost := forged("does not hold its mark any more")
		hash, err := only(t, lost, value[[]byte], hashOf, kept.Seq)
		if err == nil && hex.EncodeToString(hash) != kept.Hash {
			return lost
		}
		return err
	})
	if err == nil {
		err = a.mark.write(key, next)
	}
	if err != nil {
		a.moved.Store(true)
	}
	return err
}

// checkMark finds a log that does not hold its mark.
func (v *verifier) checkMark() error {
	m := v.mark
	p, err := m.read(v.key)
	switch {
	case err != nil:
		return v.find(0, "the mark of the log, %s, cannot be used: %v", m.path, err)
	case p.Seq <= v.head.cutSeq:
		return nil
	case v.report.Rows == 0:
		return v.find(0, "the log is empty, and it had %d rows once: it was deleted or replaced. If that was you, "+
			"delete %s too", p.Seq, m.path)
	}
	hashes, err := list(v, value[[]byte], hashOf, p.Seq)
	switch {
	case err != nil:
		return err
	case len(hashes) == 0:
		return v.find(p.Seq, "the log ends at row %d, and it had %d rows once: it was replaced by another or an "+
			"earlier one. If that was you, delete %s too", v.head.seq, p.Seq, m.path)
	case hex.EncodeToString(hashes[0]) != p.Hash:
		return v.find(p.Seq, "row %d is another than it once was: the log was replaced by another. If that was you, "+
			"delete %s too", p.Seq, m.path)
	}
	return nil
}
