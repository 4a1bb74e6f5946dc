package storetest

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/engine/session"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// remembered is how many versions of a session can be had at least.
const remembered = 100

func earlierVersions(t *testing.T, k Kind) {
	address := k.New(t)
	s, raw := k.open(t, address).Sessions(), k.Raw(t, address)
	rng := rand.New(rand.NewPCG(13, 14))
	model := []object{{}} // the state at each version
	for n := range 220 {
		next, version := object{}, int64(0)
		if n%110 == 109 {
			version = must[int64](t)(s.Reset(t.Context(), "ada", "s"))
			if n := count(t, raw, `SELECT COUNT(*) FROM session_patch`); n > remembered {
				t.Errorf("%d versions are remembered", n)
			}
		} else {
			p := randomPatch(rng, 2)
			p[name("k%d", n)] = true // each version has something of all before it
			next = strictjson.Merge(model[n], p)
			version = must[int64](t)(s.PatchAt(t.Context(), "ada", "s", int64(n), []object{p}))
		}
		model = append(model, next)
		if version != int64(n+1) {
			t.Fatalf("version %d after %d changes", version, n+1)
		}
		if n%40 == 0 {
			sameAsModel(t, s, model)
		}
	}
	sameAsModel(t, s, model)
	for _, version := range []int64{-1, 0, 10, 221} {
		if _, err := s.At(t.Context(), "ada", "s", version); tool.CodeOf(err) != tool.CodeNotFound {
			t.Errorf("version %d: %v", version, err)
		}
	}
	if st := must[session.State](t)(s.At(t.Context(), "ada", "other", 0)); string(st.State) != `{}` || st.Version != 0 {
		t.Errorf("nobody has changed it: %+v", st)
	}
}

// sameAsModel looks at the versions that must be remembered, some in the middle and both ends.
func sameAsModel(t *testing.T, s *store.SessionTable, model []object) {
	t.Helper()
	last := len(model) - 1
	for _, version := range []int{last, last - 1, last - 7, last - 50, last - remembered + 1} {
		if version <= 0 {
			continue
		}
		st := must[session.State](t)(s.At(t.Context(), "ada", "s", int64(version)))
		if d := cmp.Diff(model[version], decoded(t, st.State)); d != "" || st.Version != int64(version) ||
			st.Changed.IsZero() {
			t.Fatalf("version %d of %d, %d changed at %v: %s", version, last, st.Version, st.Changed, d)
		}
	}
}

func watching(t *testing.T, k Kind) {
	address := k.New(t)
	s, other := k.open(t, address).Sessions(), k.open(t, address).Sessions()
	const changes = remembered // as many as cannot be missed, however late one looks
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := range changes {
			if err := other.Patch(context.Background(), "ada", "s", []object{{"n": name("%d", n+1)}}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer wg.Wait()
	for seen := int64(0); seen < changes && !t.Failed(); {
		st, more, err := s.Next(t.Context(), "ada", "s", seen)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			continue
		}
		if seen++; st.Version != seen || decoded(t, st.State)["n"] != name("%d", seen) {
			t.Fatalf("after version %d: %d, %s", seen-1, st.Version, st.State)
		}
	}
	wg.Wait()
	if _, more, err := s.Next(t.Context(), "ada", "s", changes); more || err != nil {
		t.Errorf("there is nothing more: %v, %v", more, err)
	}
	if st, more, err := s.Next(t.Context(), "ada", "gone", 5); !more || st.Version != 0 || err != nil {
		t.Errorf("it was removed: %+v, %v, %v", st, more, err)
	}
	if st, more, err := s.Next(t.Context(), "ada", "s", changes+5); !more || st.Version != 1 || err != nil {
		t.Errorf("it was removed and came again: %+v, %v, %v", st, more, err)
	}
}

// A store of the version before, whose history has no marks, is brought up to date: no state changes, and versions
// that can be made again are right.
func withoutMarks(t *testing.T, k Kind) {
	address := k.New(t)
	before := k.open(t, address).Sessions()
	rng := rand.New(rand.NewPCG(15, 16))
	const changes = 110
	model := []object{{}}
	for n := range changes {
		p := randomPatch(rng, 2)
		model = append(model, strictjson.Merge(model[n], p))
		if err := before.Patch(t.Context(), "ada", "s", []object{p}); err != nil {
			t.Fatal(err)
		}
	}
	must[int64](t)(before.PatchAt(t.Context(), "ada", "small", 0, []object{{"a": "b"}}))
	raw := k.Raw(t, address)
	for _, statement := range []string{
		`DROP TABLE session_mark`, `DROP TABLE token`, `DROP TABLE asset_caller`, `DROP TABLE job`,
		`DROP TABLE job_event`,
		`ALTER TABLE lease DROP COLUMN caller`,
		`DROP TABLE program`, `ALTER TABLE outcome DROP COLUMN lost_at`,
		`DELETE FROM toolpost_schema WHERE version > 2`,
	} {
		if _, err := raw.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	after := k.open(t, address).Sessions()
	st := must[session.State](t)(after.Get(t.Context(), "ada", "s"))
	if d := cmp.Diff(model[changes], decoded(t, st.State)); d != "" || st.Version != changes {
		t.Errorf("version %d: %s", st.Version, d)
	}
	for version := range changes + 1 {
		st, err := after.At(t.Context(), "ada", "s", int64(version))
		if tool.CodeOf(err) == tool.CodeNotFound && version < changes {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(model[version], decoded(t, st.State)); d != "" {
			t.Errorf("version %d: %s", version, d)
		}
	}
	if st := must[session.State](t)(after.At(t.Context(), "ada", "small", 1)); string(st.State) != `{"a":"b"}` {
		t.Errorf("%+v", st)
	}
}
