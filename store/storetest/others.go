package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/engine/idempotency"
	"toolpost/engine/lease"
	"toolpost/engine/session"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

type object = map[string]any

func decoded(t testing.TB, doc json.RawMessage) object {
	t.Helper()
	v := must[any](t)(strictjson.Decode(doc))
	return v.(object)
}

// randomPatch has nested objects, removals, and texts of all sizes.
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
	address := k.New(t)
	db := k.open(t, address)
	s := db.Sessions()
	if got := string(must[json.RawMessage](t)(s.State(t.Context(), "ada", "s"))); got != `{}` {
		t.Errorf("nobody has patched it: %s", got)
	}
	rng := rand.New(rand.NewPCG(9, 10))
	model := object{}
	changes := int64(Rounds(30, 150, 1000))
	for n := range changes {
		var patches []object
		for range 1 + rng.IntN(3) {
			p := randomPatch(rng, 3)
			patches = append(patches, p)
			model = strictjson.Merge(model, p)
		}
		if err := s.Patch(t.Context(), "ada", "s", patches); err != nil {
			t.Fatal(err)
		}
		st := must[session.State](t)(s.Get(t.Context(), "ada", "s"))
		if d := cmp.Diff(model, decoded(t, st.State)); d != "" || st.Version != n+1 {
			t.Fatalf("after %d changes, version %d: %s", n+1, st.Version, d)
		}
	}
	again := k.open(t, address).Sessions()
	if d := cmp.Diff(model, decoded(t, must[json.RawMessage](t)(again.State(t.Context(), "ada", "s")))); d != "" {
		t.Error(d)
	}
	if v := must[int64](t)(s.Reset(t.Context(), "ada", "s")); v != changes+1 {
		t.Errorf("emptied: version %d", v)
	}
	if st := must[session.State](t)(again.Get(t.Context(), "ada", "s")); string(st.State) != `{}` ||
		st.Version != changes+1 {
		t.Errorf("emptied: %+v", st)
	}
	if n := must[int64](t)(s.Expire(t.Context(), time.Now().Add(time.Hour))); n != 1 {
		t.Errorf("%d sessions expired", n)
	}
	if st := must[session.State](t)(s.Get(t.Context(), "ada", "s")); st.Version != 0 {
		t.Errorf("expired: %+v", st)
	}
}

func patchesRaced(t *testing.T, k Kind) {
	address := k.New(t)
	handles := []*store.DB{k.open(t, address), k.open(t, address)}
	const writers = 64
	each := k.rounds(6, 1000, 1000)
	model := object{}
	var wg sync.WaitGroup
	for i := range writers {
		own := object{}
		for n := range each {
			own[name("p%d", n)] = json.Number(fmt.Sprint(n))
		}
		model[name("w%d", i)] = own
		wg.Go(func() {
			for n := range each {
				p := object{name("w%d", i): object{name("p%d", n): json.Number(fmt.Sprint(n))}}
				if err := handles[i%2].Sessions().Patch(context.Background(), "ada", "s", []object{p}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	st := must[session.State](t)(handles[0].Sessions().Get(t.Context(), "ada", "s"))
	if d := cmp.Diff(model, decoded(t, st.State)); d != "" || st.Version != int64(writers*each) {
		t.Errorf("version %d: %s", st.Version, d)
	}
}

func optimistic(t *testing.T, k Kind) {
	s := k.fresh(t).Sessions()
	v := must[int64](t)(s.PatchAt(t.Context(), "ada", "s", 0, []object{{"a": "1"}}))
	if v != 1 {
		t.Errorf("version %d", v)
	}
	_, err := s.PatchAt(t.Context(), "ada", "s", 0, []object{{"a": "2"}})
	if tool.CodeOf(err) != tool.CodeConflict || !strings.Contains(string(tool.AsError(err).Details), `"version":1`) {
		t.Errorf("an old version: %v", err)
	}
	if st := must[session.State](t)(s.Get(t.Context(), "ada", "s")); string(st.State) != `{"a":"1"}` ||
		st.Version != 1 {
		t.Errorf("%+v", st)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 16 { // of those who saw the same version, one changes it
		wg.Go(func() {
			if _, err := s.PatchAt(context.Background(), "ada", "s", 1, []object{{"a": "3"}}); err == nil {
				mu.Lock()
				won++
				mu.Unlock()
			} else if tool.CodeOf(err) != tool.CodeConflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d won", won)
	}
}

func sessionBounds(t *testing.T, k Kind) {
	s := k.fresh(t).Sessions()
	for _, caller := range []string{"ada", "bob"} {
		if err := s.Patch(t.Context(), caller, "s", []object{{"who": caller}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(must[json.RawMessage](t)(s.State(t.Context(), "ada", "s"))); got != `{"who":"ada"}` {
		t.Errorf("ada sees %s", got)
	}
	big := []object{{"big": strings.Repeat("x", store.MaxStateSize)}}
	if err := s.Patch(t.Context(), "ada", "s", big); tool.CodeOf(err) != tool.CodeQuotaExceeded {
		t.Errorf("a large state: %v", err)
	}
	for range 3 { // replacing is not growing
		if err := s.Patch(t.Context(), "ada", "s",
			[]object{{"half": strings.Repeat("y", store.MaxStateSize/2)}}); err != nil {
			t.Errorf("half of it, again: %v", err)
		}
	}
	if st := must[session.State](t)(s.Get(t.Context(), "ada", "s")); st.Version != 4 {
		t.Errorf("a patch that was refused left something: version %d", st.Version)
	}
	for _, bad := range []string{"a\x00b", "\xff", strings.Repeat("x", 2000)} {
		if err := s.Patch(t.Context(), "ada", bad, []object{{}}); tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("%.10q: %v", bad, err)
		}
		if got, err := s.State(t.Context(), "ada", bad); err != nil || string(got) != `{}` {
			t.Errorf("%.10q: %s, %v", bad, got, err)
		}
	}
}

func reason(err error) string {
	if tool.CodeOf(err) != tool.CodeLeaseRejected {
		return fmt.Sprint(err)
	}
	return tool.AsError(err).Reason
}

func leaseLife(t *testing.T, k Kind) {
	address := k.New(t)
	db := k.open(t, address)
	l, other := db.Leases(), k.open(t, address).Leases()
	for _, bad := range []struct {
		tool string
		tier int
		ttl  time.Duration
	}{{"", 1, 0}, {"a\x00", 1, 0}, {"x", -1, 0}, {"x", 4, 0}, {"x", 1, time.Millisecond}, {"x", 1, time.Hour}} {
		if _, err := l.Issue(t.Context(), "", bad.tool, bad.tier, bad.ttl); tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("%+v: %v", bad, err)
		}
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
		if got := reason(other.Consume(t.Context(), c.token, "ada", c.tool, c.tier)); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	revoked := must[string](t)(l.Issue(t.Context(), "", "rm", 1, time.Minute))
	if err := other.Revoke(t.Context(), "", lease.ID(revoked)); err != nil {
		t.Error(err)
	}
	if got := reason(l.Consume(t.Context(), revoked, "ada", "rm", 1)); got != "revoked" {
		t.Errorf("revoked: %s", got)
	}
	for id, want := range map[string]tool.Code{revoked: tool.CodeConflict, lease.ID(token): tool.CodeConflict, "tok_nosuch": tool.CodeNotFound, "a\x00": tool.CodeNotFound} {
		if err := l.Revoke(t.Context(), "", id); tool.CodeOf(err) != want {
			t.Errorf("revoked when it could not be used: %v", err)
		}
	}
	short := must[string](t)(l.Issue(t.Context(), "", "rm", 1, time.Second))
	time.Sleep(1100 * time.Millisecond)
	if got := reason(l.Consume(t.Context(), short, "ada", "rm", 1)); got != "expired" {
		t.Errorf("expired: %s", got)
	}
	if err := l.Revoke(t.Context(), "", short); tool.CodeOf(err) != tool.CodeConflict {
		t.Errorf("revoked when it was over: %v", err)
	}
	if d := cmp.Diff(map[string]int{"used": 2, "revoked": 1, "expired": 1}, leaseStates(t, other, token)); d != "" {
		t.Error(d)
	}
	if _, err := l.Issue(t.Context(), "", "rm", 1, time.Minute); err != nil {
		t.Error(err)
	}
	if c := must[lease.Counts](t)(l.GC(t.Context())); c != (lease.Counts{Active: 1, Issued: 5, Rejected: 2}) {
		t.Errorf("%+v", c)
	}
}

// leaseStates counts the leases of each state. A listing has no token.
func leaseStates(t *testing.T, l *store.LeaseTable, token string) map[string]int {
	t.Helper()
	states := map[string]int{}
	for _, x := range must[[]lease.Lease](t)(l.List(t.Context(), 0)) {
		states[x.State]++
		if strings.Contains(fmt.Sprintf("%+v", x), token) {
			t.Error("a listing has a token")
		}
	}
	return states
}

func outcomes(t *testing.T, k Kind) {
	address := k.New(t)
	db := k.open(t, address)
	o, other := db.Outcomes(), k.open(t, address).Outcomes()
	scope, input := [32]byte{1}, [32]byte{2}
	claim := func(o *store.OutcomeTable) idempotency.Claim {
		t.Helper()
		return must[idempotency.Claim](t)(o.Claim(t.Context(), scope, input, time.Minute))
	}
	if c := claim(o); !c.Mine {
		t.Errorf("new: %+v", c)
	}
	if c := claim(other); c.Mine || c.Input != input || c.Result != nil || c.Lost {
		t.Errorf("it runs: %+v", c)
	}
	if err := o.Settle(t.Context(), scope, []byte(`{"ok":true}`), time.Minute); err != nil {
		t.Error(err)
	}
	if c := claim(other); c.Mine || string(c.Result) != `{"ok":true}` {
		t.Errorf("it ran: %+v", c)
	}
	if err := o.Settle(t.Context(), scope, nil, 0); err != nil {
		t.Error(err)
	}
	if c := claim(other); !c.Mine {
		t.Errorf("it came to nothing: %+v", c)
	}
	if err := other.Settle(t.Context(), scope, []byte(`1`), time.Microsecond); err != nil {
		t.Error(err)
	}
	time.Sleep(time.Millisecond)
	if c := claim(o); !c.Mine {
		t.Errorf("its time is over: %+v", c)
	}
	if err := other.Settle(t.Context(), [32]byte{9}, []byte(`1`),
		time.Minute); tool.CodeOf(err) != tool.CodeUnavailable {
		t.Errorf("nobody's: %v", err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	mine := 0
	for i := range 32 {
		wg.Go(func() {
			c, err := []*store.OutcomeTable{o, other}[i%2].Claim(context.Background(), [32]byte{7}, input, time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if c.Mine {
				mine++
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if mine != 1 {
		t.Errorf("%d have the key", mine)
	}
}

func assets(t *testing.T, k Kind) {
	dir := t.TempDir()
	address := k.New(t)
	s, raw := k.open(t, address).Assets(filepath.Join(dir, "assets"), 100), k.Raw(t, address)
	write := func(name, text string) tool.Asset {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return tool.Asset{Path: path, MediaType: "text/plain"}
	}
	add := func(a tool.Asset) (tool.Asset, error) {
		f, err := os.Open(a.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return s.Add(t.Context(), "ada", a, f)
	}
	a := must[tool.Asset](t)(add(write("a", "same")))
	b := must[tool.Asset](t)(add(write("b", "same")))
	if a.Path != b.Path || a.SHA256 != b.SHA256 || a.Size != 4 {
		t.Errorf("%+v, %+v", a, b)
	}
	if n := count(t, raw, `SELECT times FROM asset WHERE media_type = 'text/plain' AND size = 4`); n != 2 {
		t.Errorf("it was brought %d times", n)
	}
	if _, err := add(write("c", strings.Repeat("x", 101))); tool.CodeOf(err) != tool.CodeQuotaExceeded {
		t.Errorf("too large: %v", err)
	}
	for _, path := range []string{dir, "/dev/null"} {
		if _, err := add(tool.Asset{Path: path}); err == nil {
			t.Errorf("%s became an asset", path)
		}
	}
	if n := must[int](t)(s.Expire(t.Context(), time.Now().Add(-time.Hour))); n != 0 {
		t.Errorf("%d expired early", n)
	}
	if n := must[int](t)(s.Expire(t.Context(), time.Now().Add(time.Hour))); n != 1 {
		t.Errorf("%d expired", n)
	}
	if n := count(t, raw, `SELECT COUNT(*) FROM asset`); n != 0 {
		t.Errorf("expired: %d are there", n)
	}
	if left := must[[]os.DirEntry](t)(os.ReadDir(filepath.Join(dir, "assets"))); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Whoever brought an asset may fetch it, as they described it; for everybody else there is none.
func assetCallers(t *testing.T, k Kind) {
	dir := t.TempDir()
	address := k.New(t)
	db := k.open(t, address)
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, []byte("same"), 0o600); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(f); string(text) != "same" || err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: %q, %+v, %v", caller, text, got, err)
		}
		if again, err := s.Add(t.Context(), "eve", got, f); err != nil || !cmp.Equal(again, want) {
			t.Errorf("kept already: %+v, %v", again, err)
		}
		_ = f.Close()
	}
	notThere := func(caller, sum string) {
		t.Helper()
		if f, _, err := s.Open(t.Context(), caller, sum); f != nil || tool.CodeOf(err) != tool.CodeNotFound ||
			err.Error() != tool.Errorf(tool.CodeNotFound, "there is no asset %.64q", sum).Error() {
			t.Errorf("%q gets %.70q: %v", caller, sum, err)
		}
	}
	for _, caller := range []string{"eve", "", "Ada", "ad", "\x00", strings.Repeat("x", 100_000)} {
		notThere(caller, a.SHA256)
	}
	for _, sum := range []string{"", "a", "../a", strings.ToUpper(a.SHA256), a.SHA256 + "0", strings.Repeat("0", 64),
		"\x00"} {
		notThere("ada", sum)
	}
	if n := count(t, k.Raw(t, address), `SELECT times FROM asset`); n != 2 {
		t.Errorf("what was opened was counted as brought: %d times", n)
	}
	if n := must[int](t)(s.Expire(t.Context(), time.Now().Add(time.Hour))); n != 1 {
		t.Errorf("%d expired", n)
	}
	notThere("ada", a.SHA256)
	add("bob", tool.Asset{Path: path}, path)
	notThere("ada", a.SHA256) // it was forgotten whose it had been
}

// Many come at once, some with something that is refused, by us or by the database: the others do not notice.
func groupFails(t *testing.T, k Kind) {
	address := k.New(t)
	db := k.open(t, address)
	s, l := db.Sessions(), db.Leases()
	if _, err := l.Issue(t.Context(), "", "poison", 1, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Raw(t, address).ExecContext(t.Context(),
		`CREATE UNIQUE INDEX one_of_each ON lease (tool)`); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			ctx := context.Background()
			var err error
			var want tool.Code
			switch i % 5 {
			case 0:
				_, err = s.PatchAt(ctx, "ada", "s", 1<<40, []object{{"a": "b"}})
				want = tool.CodeConflict
			case 1:
				err = l.Consume(ctx, "tok_nosuch", "ada", "x", 1)
				want = tool.CodeLeaseRejected
			case 2:
				err = db.Audit().Append(ctx, full(), true)
			case 3:
				_, err = l.Issue(ctx, "", "poison", 1, 0)
				want = tool.CodeUnavailable
			default:
				err = s.Patch(ctx, "ada", "s", []object{{name("k%d", i): true}})
			}
			if tool.CodeOf(err) != want {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if st := must[session.State](t)(s.Get(t.Context(), "ada", "s")); len(decoded(t, st.State)) != 12 ||
		st.Version != 12 {
		t.Errorf("%+v", st)
	}
	if r := sound(t, db); r.Rows != 12 {
		t.Errorf("%d rows", r.Rows)
	}
}

// What a job has written before it was refused is undone, and nothing else is.
func refusedLate(t *testing.T, k Kind) {
	db := k.fresh(t)
	s := db.Sessions()
	const tooMuch = store.MaxStateSize
	for i := range int64(Rounds(3, 12, 30)) {
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Patch(context.Background(), "ada", "s",
				[]object{{"big": strings.Repeat("x", tooMuch)}}); tool.CodeOf(err) != tool.CodeQuotaExceeded {
				t.Errorf("too much: %v", err)
			}
		})
		for range 16 {
			wg.Go(func() {
				if err := db.Audit().Append(context.Background(), full(), false); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if v, err := s.PatchAt(t.Context(), "ada", "s", i, []object{{name("k%d", i): true}}); v != i+1 || err != nil {
			t.Fatalf("version %d after %d changes: %v", v, i, err)
		}
	}
	sound(t, db)
}
