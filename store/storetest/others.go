package storetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/engine/idempotency"
	"toolpost/engine/lease"
	"toolpost/engine/session"
	"toolpost/internal/rounds"
	"toolpost/store"
	"toolpost/store/database"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

type object = map[string]any

func decoded(t testing.TB, doc json.RawMessage) object {
	t.Helper()
	v := must[any](t)(strictjson.Decode(doc))
	return v.(object)
}

// get returns the state of ada's session.
func get(t testing.TB, s *store.SessionTable, name string) session.State {
	t.Helper()
	return must[session.State](t)(s.Get(t.Context(), "ada", name))
}

// isAt checks the version and the content of a state.
func isAt(t testing.TB, st session.State, version int64, doc object, what ...any) {
	t.Helper()
	equal(t, st.Version, version, what...)
	equal(t, decoded(t, st.State), doc, what...)
}

// randomPatch returns a patch with nested objects, removals, and texts of all sizes.
func randomPatch(rng *rand.Rand, depth int) object {
	p := object{}
	for range rng.IntN(4) {
		key := string(rune('a' + rng.IntN(6)))
		switch rng.IntN(5) {
		case 0:
			p[key] = nil
		case 1, 2:
			if depth > 0 {
				p[key] = randomPatch(rng, depth-1)
				continue
			}
			fallthrough
		case 3:
			p[key] = strings.Repeat("x", rng.IntN(300))
		default:
			p[key] = json.Number(fmt.Sprint(rng.IntN(1000), ".50"))
		}
	}
	return p
}

func patchesMerge(t *testing.T, k Kind) {
	db, other := k.two(t)
	s, again := db.Sessions(), other.Sessions()
	equal(t, string(must[json.RawMessage](t)(s.State(t.Context(), "ada", "s"))), `{}`, "nobody has patched it")
	rng := rand.New(rand.NewPCG(9, 10))
	model := object{}
	changes := int64(rounds.Of(30, 1000))
	for n := range changes {
		var patches []object
		for range 1 + rng.IntN(3) {
			p := randomPatch(rng, 3)
			patches = append(patches, p)
			model = strictjson.Merge(model, p)
		}
		works(t, s.Patch(t.Context(), "ada", "s", patches))
		isAt(t, get(t, s, "s"), n+1, model, "after %d changes", n+1)
		needs(t, !t.Failed(), "the model is another")
	}
	equal(t, decoded(t, must[json.RawMessage](t)(again.State(t.Context(), "ada", "s"))), model)
	works(t, s.Patch(t.Context(), "ada", "s", nil))
	isAt(t, get(t, again, "s"), changes+1, model, "no patches change nothing")
	equal(t, must[int64](t)(s.Reset(t.Context(), "ada", "s")), changes+2, "emptied")
	isAt(t, get(t, again, "s"), changes+2, object{}, "emptied")
	equal(t, must[int64](t)(s.Expire(t.Context(), time.Now().Add(time.Hour))), 1, "sessions expired")
	isAt(t, get(t, s, "s"), 0, object{}, "expired")
}

func patchesRaced(t *testing.T, k Kind) {
	db, other := k.two(t)
	const writers = 64
	each := rounds.Of(6, 1000)
	model := object{}
	for i := range writers {
		own := object{}
		for n := range each {
			own[name("p%d", n)] = json.Number(fmt.Sprint(n))
		}
		model[name("w%d", i)] = own
	}
	together(writers, func(i int) {
		s := []*store.DB{db, other}[i%2].Sessions()
		for n := 0; n < each && !t.Failed(); n++ {
			p := object{name("w%d", i): object{name("p%d", n): json.Number(fmt.Sprint(n))}}
			gives(t, s.Patch(context.Background(), "ada", "s", []object{p}), success)
		}
	})
	isAt(t, get(t, db.Sessions(), "s"), int64(writers*each), model)
}

// readAsWritten: no reading connection stays at an earlier state, whatever it queried before.
func readAsWritten(t *testing.T, k Kind) {
	s := k.fresh(t).Sessions()
	each := rounds.Of(20, 200)
	together(12, func(i int) {
		for n := 1; n <= each && !t.Failed(); n++ {
			gives(t, s.Patch(context.Background(), "ada", name("s%d", i), []object{{"n": json.Number(fmt.Sprint(n))}}), success)
			for range 3 {
				isAt(t, get(t, s, name("s%d", i)), int64(n), object{"n": json.Number(fmt.Sprint(n))})
			}
		}
	})
}

func optimistic(t *testing.T, k Kind) {
	s := k.fresh(t).Sessions()
	equal(t, must[int64](t)(s.PatchAt(t.Context(), "ada", "s", 0, []object{{"a": "1"}})), 1)
	_, err := s.PatchAt(t.Context(), "ada", "s", 0, []object{{"a": "2"}})
	holds(t, tool.CodeOf(err) == tool.CodeConflict &&
		strings.Contains(string(tool.AsError(err).Details), `"version":1`), "an old version: %v", err)
	isAt(t, get(t, s, "s"), 1, object{"a": "1"})
	var won atomic.Int64
	together(16, func(int) { // of several that saw the same version, one changes it
		if _, err := s.PatchAt(context.Background(), "ada", "s", 1, []object{{"a": "3"}}); err == nil {
			won.Add(1)
		} else {
			gives(t, err, tool.CodeConflict)
		}
	})
	equal(t, won.Load(), 1, "so many won")
}

func sessionBounds(t *testing.T, k Kind) {
	s := k.fresh(t).Sessions()
	for _, caller := range []string{"ada", "bob"} {
		works(t, s.Patch(t.Context(), caller, "s", []object{{"who": caller}}))
	}
	equal(t, string(must[json.RawMessage](t)(s.State(t.Context(), "ada", "s"))), `{"who":"ada"}`, "ada sees")
	big := []object{{"big": strings.Repeat("x", store.MaxStateSize)}}
	gives(t, s.Patch(t.Context(), "ada", "s", big), tool.CodeQuotaExceeded, "a large state")
	for range 3 { // replacing is not growing
		works(t, s.Patch(t.Context(), "ada", "s", []object{{"half": strings.Repeat("y", store.MaxStateSize/2)}}),
			"half of it, again")
	}
	equal(t, get(t, s, "s").Version, 4, "a patch that was refused left something")
	for _, bad := range []string{"a\x00b", "\xff", strings.Repeat("x", 2000)} {
		gives(t, s.Patch(t.Context(), "ada", bad, []object{{}}), tool.CodeInvalidInput, "%.10q", bad)
		isAt(t, get(t, s, bad), 0, object{}, "%.10q", bad)
	}
}

func reason(err error) string {
	if tool.CodeOf(err) != tool.CodeLeaseRejected {
		return fmt.Sprint(err)
	}
	return tool.AsError(err).Reason
}

func leaseLife(t *testing.T, k Kind) {
	mine, others := k.two(t)
	l, other := mine.Leases(), others.Leases()
	for _, bad := range []struct {
		tool string
		tier int
		ttl  time.Duration
	}{{"", 1, 0}, {"a\x00", 1, 0}, {"x", -1, 0}, {"x", 4, 0}, {"x", 1, time.Millisecond}, {"x", 1, time.Hour}} {
		gives(t, errOf(l.Issue(t.Context(), "", bad.tool, bad.tier, bad.ttl)), tool.CodeInvalidInput, "%+v", bad)
	}
	token := must[string](t)(l.Issue(t.Context(), "", "rm", 2, time.Minute))
	anyTool := must[string](t)(l.Issue(t.Context(), "", "*", 1, time.Minute))
	for _, c := range []struct {
		token, tool string
		tier        int
		want        string
	}{
		{"tok_nosuch", "rm", 1, "not_found"},
		{token, "ls", 1, "tool_mismatch"},
		{token, "rm", 3, "tier_too_low"},
		{anyTool, "rm", 2, "tier_too_low"},
		{token, "rm", 2, "<nil>"},
		{token, "rm", 2, "already_consumed"},
		{anyTool, "whatever", 1, "<nil>"},
	} {
		equal(t, reason(other.Consume(t.Context(), c.token, "ada", c.tool, c.tier)), c.want, "%+v", c)
	}
	revoked := must[string](t)(l.Issue(t.Context(), "", "rm", 1, time.Minute))
	works(t, other.Revoke(t.Context(), "", lease.ID(revoked)))
	equal(t, reason(l.Consume(t.Context(), revoked, "ada", "rm", 1)), "revoked", "revoked")
	for id, want := range map[string]tool.Code{
		revoked: tool.CodeConflict, lease.ID(token): tool.CodeConflict, "tok_nosuch": tool.CodeNotFound,
		"a\x00": tool.CodeNotFound,
	} {
		gives(t, l.Revoke(t.Context(), "", id), want, "revoked when it could not be used")
	}
	short := must[string](t)(l.Issue(t.Context(), "", "rm", 1, time.Second))
	time.Sleep(1100 * time.Millisecond)
	equal(t, reason(l.Consume(t.Context(), short, "ada", "rm", 1)), "expired", "expired")
	gives(t, l.Revoke(t.Context(), "", short), tool.CodeConflict, "revoked when it was over")
	equal(t, leaseStates(t, other, token), map[string]int{"used": 2, "revoked": 1, "expired": 1})
	works(t, errOf(l.Issue(t.Context(), "", "rm", 1, time.Minute)))
	equal(t, must[lease.Counts](t)(l.GC(t.Context())), lease.Counts{Active: 1, Issued: 5, Rejected: 2})
}

// leaseStates counts the leases of each state. A listing has no token.
func leaseStates(t *testing.T, l *store.LeaseTable, token string) map[string]int {
	t.Helper()
	states := map[string]int{}
	for _, x := range must[[]lease.Lease](t)(l.List(t.Context(), 0)) {
		states[x.State]++
		holds(t, !strings.Contains(fmt.Sprintf("%+v", x), token), "a listing has a token")
	}
	return states
}

func marks(t *testing.T, k Kind) {
	ctx := t.Context()
	db, other := k.two(t)
	mine, theirs := db.Outcomes(), other.Outcomes()
	q, ada, eve := [32]byte{1}, [32]byte{2}, [32]byte{3}
	needs(t, must[bool](t)(mine.Mark(ctx, q, ada, time.Hour)), "the first answer")
	needs(t, must[bool](t)(theirs.Mark(ctx, q, ada, time.Hour)), "the same one, begun again elsewhere")
	needs(t, !must[bool](t)(theirs.Mark(ctx, q, eve, time.Hour)), "another one")
	needs(t, !must[bool](t)(mine.Mark(ctx, q, eve, time.Hour)), "another one, where the first was")
	needs(t, must[bool](t)(theirs.Mark(ctx, [32]byte{4}, eve, time.Hour)), "an answer to another question")
}

func outcomes(t *testing.T, k Kind) {
	db, otherDB := k.two(t)
	o, other := db.Outcomes(), otherDB.Outcomes()
	scope, input := [32]byte{1}, [32]byte{2}
	claim := func(o *store.OutcomeTable) idempotency.Claim {
		t.Helper()
		c := must[idempotency.Claim](t)(o.Claim(t.Context(), scope, input, "", time.Minute))
		return idempotency.Claim{Mine: c.Mine, Input: c.Input, Result: c.Result, Lost: c.Lost, Away: c.Away, Call: c.Call}
	}
	holds(t, claim(o).Mine, "new")
	equal(t, claim(other), idempotency.Claim{Input: input}, "it runs")
	works(t, o.Settle(t.Context(), scope, []byte(`{"ok":true}`), time.Minute))
	equal(t, claim(other), idempotency.Claim{Input: input, Result: []byte(`{"ok":true}`)}, "it ran")
	works(t, o.Settle(t.Context(), scope, nil, 0))
	holds(t, claim(other).Mine, "it came to nothing")
	works(t, other.Settle(t.Context(), scope, []byte(`1`), time.Microsecond))
	time.Sleep(time.Millisecond)
	holds(t, claim(o).Mine, "its time is over")
	works(t, o.Settle(t.Context(), scope, nil, 0))
	first := must[idempotency.Claim](t)(o.Claim(t.Context(), scope, input, "first", time.Minute))
	holds(t, first.Mine, "it is free")
	works(t, other.Lose(t.Context(), scope, time.Minute))
	equal(t, claim(other), idempotency.Claim{Input: input, Call: "first"}, "another program cannot lose it")
	works(t, o.Lose(t.Context(), scope, time.Minute))
	equal(t, claim(other), idempotency.Claim{Input: input, Call: "first", Lost: true}, "it is lost")
	c, known, err := other.Known(t.Context(), scope, time.Minute)
	gives(t, err, success)
	holds(t, known && c.Lost && c.Call == "first", "%+v", c)
	_, known, err = other.Known(t.Context(), [32]byte{8}, time.Minute)
	gives(t, err, success)
	holds(t, !known, "nobody has claimed it")
	scope = [32]byte{10}
	holds(t, claim(o).Mine, "who asks does not claim")
	gives(t, other.Settle(t.Context(), [32]byte{9}, []byte(`1`), time.Minute), tool.CodeUnavailable, "nobody's")
	var mine atomic.Int64
	together(32, func(i int) {
		c, err := []*store.OutcomeTable{o, other}[i%2].Claim(context.Background(), [32]byte{7}, input, "", time.Minute)
		gives(t, err, success)
		if c.Mine {
			mine.Add(1)
		}
	})
	equal(t, mine.Load(), 1, "so many have the key")
}

func assets(t *testing.T, k Kind) {
	dir := t.TempDir()
	address, db := k.made(t)
	s, raw := db.Assets(filepath.Join(dir, "assets"), 100), k.Raw(t, address)
	write := func(name, text string) tool.Asset {
		path := filepath.Join(dir, name)
		works(t, os.WriteFile(path, []byte(text), 0o600))
		return tool.Asset{Path: path, MediaType: "text/plain"}
	}
	add := func(a tool.Asset) (tool.Asset, error) {
		f := must[*os.File](t)(os.Open(a.Path))
		defer f.Close()
		return s.Add(t.Context(), "ada", a, f)
	}
	a := must[tool.Asset](t)(add(write("a", "same")))
	b := must[tool.Asset](t)(add(write("b", "same")))
	holds(t, a.Path == b.Path && a.SHA256 == b.SHA256 && a.Size == 4, "%+v, %+v", a, b)
	equal(t, count(t, raw, `SELECT times FROM asset WHERE media_type = 'text/plain' AND size = 4`), 2,
		"it was brought so often")
	gives(t, errOf(add(write("c", strings.Repeat("x", 101)))), tool.CodeQuotaExceeded, "too large")
	for _, path := range []string{dir, "/dev/null"} {
		gives(t, errOf(add(tool.Asset{Path: path})), tool.CodeInvalidInput, "%s as an asset", path)
	}
	equal(t, must[int](t)(s.Expire(t.Context(), time.Now().Add(-time.Hour))), 0, "expired early")
	equal(t, must[int](t)(s.Expire(t.Context(), time.Now().Add(time.Hour))), 1, "expired")
	equal(t, count(t, raw, `SELECT COUNT(*) FROM asset`), 0, "expired, and still there")
	equal(t, len(must[[]os.DirEntry](t)(os.ReadDir(filepath.Join(dir, "assets")))), 0, "files are left")
}

// A caller that brought an asset may fetch it, as it described it; for all others it does not exist.
func assetCallers(t *testing.T, k Kind) {
	dir := t.TempDir()
	address, db := k.made(t)
	path := filepath.Join(dir, "a")
	works(t, os.WriteFile(path, []byte("same"), 0o600))
	s := db.Assets(filepath.Join(dir, "assets"), 0)
	add := func(caller string, a tool.Asset, path string) tool.Asset {
		f := must[*os.File](t)(os.Open(path))
		defer f.Close()
		return must[tool.Asset](t)(s.Add(t.Context(), caller, a, f))
	}
	a := add("ada", tool.Asset{AssetID: "1", MediaType: "text/plain", Path: path}, path)
	add("bob", tool.Asset{AssetID: "2", MediaType: "text/html", Path: path}, path)
	for caller, want := range map[string]tool.Asset{
		"ada": {AssetID: "1", MediaType: "text/plain", SHA256: a.SHA256, Size: 4, Path: a.Path},
		"bob": {AssetID: "2", MediaType: "text/html", SHA256: a.SHA256, Size: 4, Path: a.Path},
	} {
		f, got, err := s.Open(t.Context(), caller, a.SHA256)
		works(t, err)
		equal(t, string(must[[]byte](t)(io.ReadAll(f))), "same", caller)
		equal(t, got, want, caller)
		equal(t, must[tool.Asset](t)(s.Add(t.Context(), "eve", got, f)), want, "kept already")
		_ = f.Close()
	}
	notThere := func(caller, sum string) {
		t.Helper()
		f, _, err := s.Open(t.Context(), caller, sum)
		want := tool.Errorf(tool.CodeNotFound, "there is no asset %.64q", sum)
		holds(t, f == nil && tool.CodeOf(err) == tool.CodeNotFound && err.Error() == want.Error(),
			"%.70q gets %.70q: %v", caller, sum, err)
	}
	for _, caller := range []string{"eve", "", "Ada", "ad", "\x00", strings.Repeat("x", 100_000)} {
		notThere(caller, a.SHA256)
	}
	for _, sum := range []string{"", "a", "../a", strings.ToUpper(a.SHA256), a.SHA256 + "0", strings.Repeat("0", 64),
		"\x00"} {
		notThere("ada", sum)
	}
	equal(t, count(t, k.Raw(t, address), `SELECT times FROM asset`), 2, "what was opened was counted as brought")
	equal(t, must[int](t)(s.Expire(t.Context(), time.Now().Add(time.Hour))), 1, "expired")
	notThere("ada", a.SHA256)
	add("bob", tool.Asset{Path: path}, path)
	notThere("ada", a.SHA256) // its earlier owner was forgotten
}

// Many write at once, and some writes are refused, by us or by the database: the others are not affected.
func groupFails(t *testing.T, k Kind) {
	address, db := k.made(t)
	s, l := db.Sessions(), db.Leases()
	works(t, errOf(l.Issue(t.Context(), "", "poison", 1, 0)))
	run(t, k.Raw(t, address), `CREATE UNIQUE INDEX one_of_each ON lease (tool)`)
	together(60, func(i int) {
		ctx := context.Background()
		switch i % 5 {
		case 0:
			gives(t, errOf(s.PatchAt(ctx, "ada", "s", 1<<40, []object{{"a": "b"}})), tool.CodeConflict)
		case 1:
			gives(t, l.Consume(ctx, "tok_nosuch", "ada", "x", 1), tool.CodeLeaseRejected)
		case 2:
			gives(t, db.Audit().Append(ctx, full(), true), success)
		case 3:
			gives(t, errOf(l.Issue(ctx, "", "poison", 1, 0)), tool.CodeUnavailable)
		default:
			gives(t, s.Patch(ctx, "ada", "s", []object{{name("k%d", i): true}}), success)
		}
	})
	st := get(t, s, "s")
	holds(t, len(decoded(t, st.State)) == 12 && st.Version == 12, "%+v", st)
	equal(t, sound(t, db).Rows, 12, "rows")
}

// The writes of a job that is then refused are undone, and nothing else is.
func refusedLate(t *testing.T, k Kind) {
	db := k.fresh(t)
	s := db.Sessions()
	const tooMuch = store.MaxStateSize
	for i := range int64(rounds.Of(3, 30)) {
		together(17, func(n int) {
			if n > 0 {
				gives(t, db.Audit().Append(context.Background(), full(), false), success)
				return
			}
			gives(t, s.Patch(context.Background(), "ada", "s", []object{{"big": strings.Repeat("x", tooMuch)}}),
				tool.CodeQuotaExceeded, "too much")
		})
		equal(t, must[int64](t)(s.PatchAt(t.Context(), "ada", "s", i, []object{{name("k%d", i): true}})), i+1)
	}
	sound(t, db)
}

// A statement may run later than the one after it was asked for: in its order, and its error is that of the write.
func inOrder(t *testing.T, k Kind) {
	address, db := k.made(t)
	const add = `INSERT INTO shared_key (id, secret) VALUES (?, ?)`
	secret := []byte("s")
	works(t, db.Do(true, func(t *database.Tx) error {
		n, err := int64(0), t.Exec(add, 1, secret)
		if err == nil {
			n, err = t.Count(`UPDATE shared_key SET id = 2 WHERE id = 1`)
		}
		if err == nil && n != 1 {
			err = errors.New("the row is not there")
		}
		return cmp.Or(err, t.Exec(add, 1, secret))
	}))
	gives(t, db.Do(true, func(t *database.Tx) error { return cmp.Or(t.Exec(add, 3, secret), t.Exec(add, 2, secret)) }),
		tool.CodeUnavailable, "a row that exists")
	equal(t, count(t, k.Raw(t, address), `SELECT COUNT(*) FROM shared_key`), 2)
}

func sharedKey(t *testing.T, k Kind) {
	address, db := k.made(t)
	keys := make([]string, 4)
	var all sync.WaitGroup
	for i := range keys {
		one := k.open(t, address)
		all.Go(func() {
			key, err := one.SharedKey(t.Context(), func() ([]byte, error) { return fmt.Appendf(nil, "own key of %d", i), nil })
			holds(t, err == nil, "%v", err)
			keys[i] = string(key)
		})
	}
	all.Wait()
	last := must[[]byte](t)(db.SharedKey(t.Context(), nil))
	for _, key := range keys {
		equal(t, key, string(last))
	}
}
