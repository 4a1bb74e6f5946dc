package auditlog

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"strconv"

	"toolpost/store/database"
	"toolpost/tool"
)

// A lane is the chain of the programs that have one key, which are those of one state folder. It has rows, kinds and sums of
// its own, so that programs with other keys never wait for it, and a head that only its key can sign. Rows have two numbers:
// one that is dense in the lane, which shows that none is missing, and one that orders the rows of all lanes. The second one
// comes from the store when the row is written: so a call that another one made, or waited for, comes after it, whatever the
// clocks of their machines say.

// A signer has the keys of a lane.
type signer struct {
	secret  []byte // of the state folder; empty means that heads protect against accidents alone
	private ed25519.PrivateKey
	public  ed25519.PublicKey
}

func newSigner(key func() ([]byte, error)) func() (signer, error) {
	return func() (s signer, err error) {
		if s.secret, err = key(); err != nil {
			return s, err
		}
		m := hmac.New(sha256.New, s.secret)
		m.Write([]byte("toolpost audit lane"))
		s.private = ed25519.NewKeyFromSeed(m.Sum(nil))
		s.public = s.private.Public().(ed25519.PublicKey)
		return s, nil
	}
}

// A head is the end of a lane, and where it was cut.
type head struct {
	lane       int64
	public     []byte // the key that checks mac
	seq        int64
	number     int64
	hash       []byte
	cutSeq     int64
	cutNumber  int64
	cutHash    []byte
	epoch      int64 // counts how often kinds were removed
	anchor     int64 // the last one that this lane wrote
	anchorHash []byte
	mac        []byte

	// Not signed: the last row of all lanes, how many there are, and the last anchor by which another program has cut this one.
	top, lanes, cutBy int64
}

// genesis is the hash before the first row.
func genesis() []byte { return make([]byte, sha256.Size) }

const (
	headColumns = `public, seq, number, hash, cut_seq, cut_number, cut_hash, epoch, anchor, anchor_hash, mac`
	askHeads    = `SELECT id - 1, ` + headColumns + `, (SELECT MAX(seq) FROM audit_head), (SELECT COUNT(*) FROM audit_head),
		(SELECT COALESCE(MAX(x.seq), 0) FROM audit_anchor x WHERE x.kind = '` + anchorCut + `' AND x.about = audit_head.id - 1)
		FROM audit_head`
	hashOf = `SELECT hash FROM audit WHERE seq = ?`
)

func (h *head) into() []any {
	return []any{
		&h.lane, &h.public, &h.seq, &h.number, &h.hash, &h.cutSeq, &h.cutNumber, &h.cutHash, &h.epoch, &h.anchor,
		&h.anchorHash, &h.mac, &h.top, &h.lanes, &h.cutBy,
	}
}

func readHead(rows *sql.Rows) (h head, err error) {
	err = rows.Scan(h.into()...)
	return h, err
}

// message returns what a signature covers.
func (h *head) message() []byte {
	b := append(make([]byte, 0, 320), "toolpost audit lane head"...) // with room for the signature
	for _, n := range []int64{h.lane, h.seq, h.number, h.cutSeq, h.cutNumber, h.epoch, h.anchor} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	for _, part := range [][]byte{h.public, h.hash, h.cutHash, h.anchorHash} {
		b = appendSized(b, string(part))
	}
	return b
}

// shared reports whether the lane is anchored: if there are others, or were, since one may be hidden for a while.
func (h *head) shared() bool { return h.lanes > 1 || h.anchor > 0 }

// old reports whether a program that knew no lanes wrote the head.
func (h *head) old() bool { return len(h.public) == 0 }

// genuine reports whether the head was signed with its key. That of an old one is the secret itself.
func (h *head) genuine(secret []byte) bool {
	if !h.old() {
		return len(h.public) == ed25519.PublicKeySize && ed25519.Verify(h.public, h.message(), h.mac)
	}
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("toolpost audit head"))
	for _, n := range []int64{h.seq, h.cutSeq, h.epoch} {
		m.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
	}
	m.Write(h.hash)
	m.Write(h.cutHash)
	return hmac.Equal(h.mac, m.Sum(nil)) && h.lane == 0 && h.number == h.seq && h.cutNumber == h.cutSeq && h.anchor == 0 &&
		len(h.anchorHash) == 0
}

// Keys of writes; see database.Write.
const (
	newLane = "new lane"
	anchors = "anchors"
)

func keyOf(lane int64) string { return "lane " + strconv.FormatInt(lane, 10) }

// keys returns the keys of a write to the lane of this program: none until the lane is known, so that the first write is
// alone.
func (a *Table) keys(more ...string) []string {
	own := a.own.Load()
	switch {
	case own == nil:
		return nil
	case len(more) == 0:
		return own.keys
	}
	return append(more, own.keys...)
}

// A membership is the lane of a program, with the keys of a write to it, which are made once because every call has some.
type membership struct {
	lane int64
	keys []string
}

// openHead reads the head of this program's lane and refuses to build on one that is not genuine: signing what follows would
// make a forgery genuine.
func (a *Table) openHead(t *database.Tx) (h head, err error) {
	s, err := a.signer()
	if err != nil {
		return h, err
	}
	if own := a.own.Load(); own == nil {
		h, err = a.enter(t, &s)
	} else {
		h, err = database.Only(t, forged("has lost its head"), readHead, askHeads+` WHERE id = ?`, own.lane+1)
	}
	signed := append(h.message(), h.mac...)
	switch {
	case err != nil:
		return h, err
	case !h.old() && !bytes.Equal(h.public, s.public), !bytes.Equal(a.seen, signed) && !h.genuine(s.secret):
		return h, forged("has a head that was not signed with this key")
	case h.number < a.last:
		return h, forged("is shorter than it was")
	}
	a.seen = signed
	if a.own.Load() == nil {
		t.After(func() { a.own.Store(&membership{h.lane, []string{keyOf(h.lane)}}) })
	}
	if h.old() {
		h.public, h.anchorHash = s.public, genesis()
	}
	return h, nil
}

// enter finds the lane of this program, or makes one. The transaction is alone.
func (a *Table) enter(t *database.Tx, s *signer) (h head, err error) {
	heads, err := database.List(t, readHead, askHeads+` ORDER BY id`)
	if err != nil {
		return h, err
	}
	for _, h := range heads {
		if h.old() || bytes.Equal(h.public, s.public) { // an old one of another key is refused
			return h, cmp.Or(t.Lock(keyOf(h.lane)), t.Advance(h.top))
		}
	}
	return a.make(t, s, heads)
}

// make makes the next lane.
func (a *Table) make(t *database.Tx, s *signer, others []head) (h head, err error) {
	h = head{public: s.public, hash: genesis(), cutHash: genesis(), anchorHash: genesis(), lanes: int64(len(others)) + 1}
	if len(others) == 0 {
		full, err := database.Row(t, `SELECT 1 FROM audit LIMIT 1`, nil, new(int))
		if err == nil && full {
			err = forged("has rows and no head")
		}
		if err != nil {
			return h, err
		}
	} else {
		h.lane, h.top = others[len(others)-1].lane+1, others[0].top
		if kept, err := a.mark.read(s.secret); err != nil || kept.Seq > 0 {
			return h, forged("has lost the rows of this program")
		}
	}
	err = cmp.Or(t.Lock(newLane), t.Advance(h.top), a.closeHead(t, &h))
	return h, err
}

func forged(how string) *tool.Error {
	return tool.Errorf(tool.CodeUnavailable, "the audit log %s, so nothing is added to it; see `toolpost audit verify`",
		how).Because("audit_forged")
}

// closeHead signs the head and writes it.
func (a *Table) closeHead(t *database.Tx, h *head) error {
	s, err := a.signer()
	if err != nil {
		return err
	}
	signed := h.message()
	h.mac = ed25519.Sign(s.private, signed)
	signed = append(signed, h.mac...)
	a.seen = signed // if it is undone, the head is checked again
	return t.Exec(`INSERT INTO audit_head (id, `+headColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET public = excluded.public, seq = excluded.seq, number = excluded.number,
		hash = excluded.hash, cut_seq = excluded.cut_seq, cut_number = excluded.cut_number, cut_hash = excluded.cut_hash, epoch = excluded.epoch,
		anchor = excluded.anchor, anchor_hash = excluded.anchor_hash, mac = excluded.mac`, h.lane+1,
		h.public, h.seq, h.number, h.hash, h.cutSeq, h.cutNumber, h.cutHash, h.epoch, h.anchor, h.anchorHash, h.mac)
}
