package auditlog_test

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"toolpost/engine/member"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/wire/receipt"
	"toolpost/wire/strictjson"
)

// A signer is a key of a node of a fleet.
type signer struct {
	nkeys.KeyPair
	public string
}

func newSigner(t *testing.T) signer {
	pair := kit.Must(nkeys.CreateUser())(t)
	return signer{pair, kit.Must(pair.PublicKey())(t)}
}

// ran returns the record of a call that a node ran, with its receipt, which may say something else than the record.
func (s signer) ran(t *testing.T, node string, at time.Time, change func(*receipt.Receipt)) *tool.Record {
	r := &tool.Record{
		Time: at, Call: "c1", Tool: "mark", Source: "site", Args: []byte(`{"id": "it's"}`), Node: node, Outcome: tool.OutcomeOK,
		Duration: time.Second,
	}
	salt := []byte("0123456789abcdef")
	digest := sha256.Sum256(slices.Concat(salt, r.Args))
	doc := receipt.Receipt{
		Version: 1, Node: node, Call: r.Call, Attempt: 1, Source: r.Source, Tool: r.Tool, Arguments: hex.EncodeToString(digest[:]),
		Outcome: r.Outcome, Walls: []string{"no_network", "sandbox"}, Stopped: []receipt.Stopped{}, Begin: at, End: at,
	}
	if change != nil {
		change(&doc)
	}
	text := kit.Must(strictjson.Marshal(&doc))(t)
	signature := kit.Must(s.Sign([]byte("toolpost receipt v1\n" + string(text))))(t)
	r.Receipt = kit.Must(strictjson.Marshal(receipt.Signed{Document: string(text), Signature: signature, Key: s.public, Salt: salt}))(t)
	return r
}

// with returns a record with another receipt.
func with(t *testing.T, r *tool.Record, change func(*receipt.Signed)) *tool.Record {
	s := kit.Must(receipt.Read(r.Receipt))(t)
	change(&s)
	r.Receipt = kit.Must(strictjson.Marshal(&s))(t)
	return r
}

// keys are a store of a fleet that began a day ago with the nodes one, two and out. Half a day ago one got another key, and out was
// evicted.
type keys struct {
	*store.DB
	raw *sql.DB
	signers
	early, late time.Time // before and after that
}

type signers struct{ one, later, two, out, stranger signer }

func newSigners(t *testing.T) signers {
	return signers{newSigner(t), newSigner(t), newSigner(t), newSigner(t), newSigner(t)}
}

func newKeys(t *testing.T, s signers) *keys {
	path, now := filepath.Join(t.TempDir(), "store.db"), time.Now().UTC()
	k := &keys{open(t, path, "own"), kit.SQLite(t, path), s, now.Add(-20 * time.Hour), now.Add(-time.Hour)}
	t.Cleanup(func() { kit.OK(t, k.Close()) })
	for name, s := range map[string]signer{"one": k.one, "two": k.two, "out": k.out} {
		kit.OK(t, k.Fleet().Found(t.Context(), member.Member{ID: name, Name: name, Role: member.Worker, Key: s.public}))
	}
	k.run(t, `UPDATE fleet_key SET since_at = since_at - 86400000000`)
	kit.OK(t, k.Fleet().SetKey(t.Context(), "one", k.one.public, k.later.public))
	kit.OK(t, k.Fleet().Evict(t.Context(), "out"))
	k.run(t, `UPDATE fleet_key SET since_at = since_at - 43200000000 WHERE nkey = '`+k.later.public+`'`)
	k.run(t, `UPDATE fleet_node SET evicted_at = evicted_at - 43200000000 WHERE name = 'out'`)
	return k
}

func (k *keys) run(t *testing.T, statement string) {
	n := kit.Must(kit.Must(k.raw.ExecContext(t.Context(), statement))(t).RowsAffected())(t)
	kit.Equal(t, n > 0, true, statement)
}

func (k *keys) add(t *testing.T, all ...*tool.Record) {
	for _, r := range all {
		kit.OK(t, k.Audit().Append(t.Context(), r, true))
	}
}

// found returns what verifying finds, and the number of receipts that were checked.
func (k *keys) found(t *testing.T) (findings string, receipts int64) {
	r := kit.Must(k.Audit().Verify(t.Context()))(t)
	for _, f := range r.Findings {
		findings += f.What + "\n"
	}
	return findings, r.Receipts
}

// A receipt proves which node ran a call, also by a key that was replaced since, and of a node that was evicted since.
func TestReceiptsProveWhichNodeRanACall(t *testing.T) {
	k := newKeys(t, newSigners(t))
	unsalted := func(s *receipt.Signed) { s.Salt = nil }
	late := with(t, k.one.ran(t, "one", k.late, func(r *receipt.Receipt) { r.Call = "p1" }), unsalted)
	late.Kind, late.Parent = tool.LateOutcome, "p1"
	renamed := k.one.ran(t, "one", k.early, func(r *receipt.Receipt) { r.Tool = "own" })
	renamed.Tool = "site.own"
	hidden := k.one.ran(t, "one", k.early, func(r *receipt.Receipt) { r.Tool = "o\u200bwn" })
	hidden.Tool = tool.VisibleName("o\u200bwn")
	long := k.one.ran(t, "one", k.early, func(r *receipt.Receipt) { r.Tool = strings.Repeat("long ", 99) })
	long.Tool = "site." + strings.Repeat("long ", 99) // the store cuts it
	redacted := with(t, k.two.ran(t, "two", k.late, nil), unsalted)
	redacted.Args = []byte(`{"id":"[redacted]"}`)
	failed := k.two.ran(t, "two", k.late, nil) // at its hub, after its node had answered
	failed.Outcome, failed.Code = tool.OutcomeError, tool.CodeCancelled
	k.add(t, k.one.ran(t, "one", k.early, nil), k.later.ran(t, "one", k.late, nil), k.out.ran(t, "out", k.early, nil), late,
		renamed, hidden, long, redacted, failed, call())
	findings, receipts := k.found(t)
	kit.Equal(t, findings, "")
	kit.Equal(t, receipts, 9)
	k.run(t, `UPDATE audit SET detail = REPLACE(detail, '\"attempt\":1', '\"attempt\":2') WHERE seq = 3`)
	findings, _ = k.found(t)
	kit.Equal(t, findings, "row 3, its kind or the row before it was changed\nthe receipt of row 3 is wrong: its signature is not that of its key\n")
	k.run(t, `UPDATE audit SET detail = REPLACE(detail, '\"attempt\":2', '\"attempt\":1') WHERE seq = 3`)
	k.run(t, `DELETE FROM fleet_key WHERE node = 'out'`)
	findings, _ = k.found(t)
	kit.Equal(t, findings, "the receipt of row 3 is wrong: its key was not that of out then\n")
}

// Who has the key of the log, and not those of the nodes, cannot say what they ran.
func TestAForgedReceiptIsFound(t *testing.T) {
	k := newKeys(t, newSigners(t))
	says := func(change func(*receipt.Receipt)) *tool.Record { return k.one.ran(t, "one", k.early, change) }
	record := func(change func(*tool.Record)) *tool.Record {
		r := says(nil)
		change(r)
		return r
	}
	signed := func(change func(*receipt.Signed)) *tool.Record { return with(t, says(nil), change) }
	const signature, key = "its signature is not that of its key", "its key was not that of "
	const less = "its record does not say which node ran which call of which tool"
	type forged struct {
		r    *tool.Record
		want string
	}
	all := []forged{
		{signed(func(s *receipt.Signed) { s.Document = strings.Replace(s.Document, `"attempt":1`, `"attempt":2`, 1) }), signature},
		{signed(func(s *receipt.Signed) { s.Signature[7] ^= 1 }), signature},
		{signed(func(s *receipt.Signed) { s.Signature = nil }), signature},
		{signed(func(s *receipt.Signed) { s.Key = k.two.public }), signature},
		{signed(func(s *receipt.Signed) { s.Key = "" }), signature},
		{signed(func(s *receipt.Signed) { s.Wrong = "its node has sent none" }), "its hub noted that its node has sent none"},
		{signed(func(s *receipt.Signed) { s.Document = strings.Repeat("x", receipt.Most) }), "it has more than 8192 bytes"},
		{says(func(r *receipt.Receipt) { r.Call = "another" }), `it says call "another", and it should say "c1"`},
		{says(func(r *receipt.Receipt) { r.Version = 2 }), "its version is 2, and this program reads version 1"},
		{says(func(r *receipt.Receipt) { r.Outcome = tool.OutcomeFailed }), `it says outcome "failed", and it should say "ok"`},
		{says(func(r *receipt.Receipt) { r.Arguments = "" }), `it says arguments "", and it should say "`},
		{record(func(r *tool.Record) { r.Call = "c2" }), `it says call "c1", and it should say "c2"`},
		{record(func(r *tool.Record) { r.Tool = "erase" }), `it says tool "mark", and it should say "erase"`},
		{record(func(r *tool.Record) { r.Tool = "other.mark" }), `it says tool "mark", and it should say "other.mark"`},
		{record(func(r *tool.Record) { r.Tool = "erase…" }), `it says tool "mark", and it should say "erase…"`},
		{record(func(r *tool.Record) { r.Tool = "…" }), `it says tool "mark", and it should say "…"`},
		{record(func(r *tool.Record) { r.Tool = "" }), less},
		{record(func(r *tool.Record) { r.Source = "" }), less},
		{record(func(r *tool.Record) { r.Call = "" }), less},
		{record(func(r *tool.Record) { r.Node = "" }), less},
		{record(func(r *tool.Record) { r.Kind, r.Parent = tool.LateOutcome, "" }), less},
		{record(func(r *tool.Record) { r.Outcome, r.Code = tool.OutcomeRefused, tool.CodeAccessDenied }),
			`it says outcome "ok", and it should say "refused"`},
		{record(func(r *tool.Record) { r.Definition = "new" }), `it says definition "", and it should say "new"`},
		{record(func(r *tool.Record) { r.Source = "other" }), `it says source "site", and it should say "other"`},
		{record(func(r *tool.Record) { r.Node = "two" }), `it says node "one", and it should say "two"`},
		{record(func(r *tool.Record) { r.Args = []byte(`{"id": "its"}`) }), `it says arguments "`},
		{record(func(r *tool.Record) { r.Kind, r.Parent = tool.LateOutcome, "p1" }), `it says call "c1", and it should say "p1"`},
		{k.two.ran(t, "one", k.early, nil), key + "one then"},
		{k.stranger.ran(t, "one", k.early, nil), key + "one then"},
		{k.out.ran(t, "out", k.late, nil), key + "out then"},
		{k.one.ran(t, "one", k.late, nil), key + "one then"},
		{k.later.ran(t, "one", k.early, nil), key + "one then"},
		{k.one.ran(t, "one", k.early.Add(-9*time.Hour), nil), key + "one then"},
	}
	for some := range slices.Chunk(all, 15) { // no more findings are reported than 20
		log := newKeys(t, k.signers)
		for _, c := range some {
			log.add(t, c.r)
		}
		findings, receipts := log.found(t)
		kit.Equal(t, receipts, int64(len(some)))
		lines := strings.Split(findings, "\n")
		kit.Equal(t, len(lines), len(some)+1, findings)
		for n, c := range some {
			if want := fmt.Sprintf("the receipt of row %d is wrong: %s", n+1, c.want); !strings.HasPrefix(lines[n], want) {
				t.Errorf("found %q, want %q", lines[n], want)
			}
		}
	}
}

// Bad receipts, however many, hide nothing else that is wrong.
func TestBadReceiptsHideNothing(t *testing.T) {
	k := newKeys(t, newSigners(t))
	for range 30 {
		k.add(t, k.two.ran(t, "one", k.early, nil))
	}
	k.add(t, call())
	k.run(t, `UPDATE audit SET detail = REPLACE(detail, '{', '{ ') WHERE seq = 31`)
	findings, receipts := k.found(t)
	kit.Equal(t, receipts, 30)
	kit.Equal(t, strings.HasPrefix(findings, "row 31, its kind or the row before it was changed\n"), true, findings)
	kit.Equal(t, strings.Count(findings, "the receipt of row"), 20)
}
