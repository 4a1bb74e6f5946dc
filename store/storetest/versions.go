package storetest

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"toolpost/engine/session"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// remembered is how many versions of a session can be had at least.
const remembered = 100

func earlierVersions(t *testing.T, k Kind) {
	address, db := k.made(t)
	s, raw := db.Sessions(), k.Raw(t, address)
	rng := rand.New(rand.NewPCG(13, 14))
	model := []object{{}} // the state at each version
	for n := range 220 {
		next, version := object{}, int64(0)
		if n%110 == 109 {
			version = must[int64](t)(s.Reset(t.Context(), "ada", "s"))
			kept := count(t, raw, `SELECT COUNT(*) FROM session_patch`)
			holds(t, kept <= remembered, "%d versions are remembered", kept)
		} else {
			p := randomPatch(rng, 2)
			p[name("k%d", n)] = true // each version has something of all before it
			next = strictjson.Merge(model[n], p)
			version = must[int64](t)(s.PatchAt(t.Context(), "ada", "s", int64(n), []object{p}))
		}
		model = append(model, next)
		needs(t, version == int64(n+1), "version %d after %d changes", version, n+1)
		if n%40 == 0 {
			sameAsModel(t, s, model)
		}
	}
	sameAsModel(t, s, model)
	for _, version := range []int64{-1, 0, 10, 221} {
		gives(t, errOf(s.At(t.Context(), "ada", "s", version)), tool.CodeNotFound, "version %d", version)
	}
	isAt(t, must[session.State](t)(s.At(t.Context(), "ada", "other", 0)), 0, object{}, "nobody has changed it")
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
		isAt(t, st, int64(version), model[version], "version %d of %d", version, last)
		needs(t, !t.Failed() && !st.Changed.IsZero(), "version %d of %d changed at %v", version, last, st.Changed)
	}
}

func watching(t *testing.T, k Kind) {
	db, otherDB := k.two(t)
	s, other := db.Sessions(), otherDB.Sessions()
	const changes = remembered // as many as cannot be missed, however late one looks
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; n <= changes && !t.Failed(); n++ {
			gives(t, other.Patch(context.Background(), "ada", "s", []object{{"n": name("%d", n)}}), success)
		}
	})
	defer wg.Wait()
	for seen := int64(0); seen < changes && !t.Failed(); {
		st, more, err := s.Next(t.Context(), "ada", "s", seen)
		works(t, err)
		if !more {
			continue
		}
		seen++
		isAt(t, st, seen, object{"n": name("%d", seen)})
	}
	wg.Wait()
	for _, c := range []struct {
		what, name    string
		seen, version int64
		more          bool
	}{
		{"there is nothing more", "s", changes, 0, false},
		{"it was removed", "gone", 5, 0, true},
		{"it was removed and came again", "s", changes + 5, 1, true},
	} {
		st, more, err := s.Next(t.Context(), "ada", c.name, c.seen)
		holds(t, more == c.more && st.Version == c.version && err == nil, "%s: %+v, %v, %v", c.what, st, more, err)
	}
}

// A store of the version before, whose history has no marks, is brought up to date: no state changes, and versions
// that can be made again are right.
func withoutMarks(t *testing.T, k Kind) {
	address, db := k.made(t)
	before := db.Sessions()
	rng := rand.New(rand.NewPCG(15, 16))
	const changes = 110
	model := []object{{}}
	for n := range changes {
		p := randomPatch(rng, 2)
		model = append(model, strictjson.Merge(model[n], p))
		works(t, before.Patch(t.Context(), "ada", "s", []object{p}))
	}
	must[int64](t)(before.PatchAt(t.Context(), "ada", "small", 0, []object{{"a": "b"}}))
	run(t, k.Raw(t, address),
		`DROP TABLE session_mark`, `DROP TABLE token`, `DROP TABLE asset_caller`, `DROP TABLE job`,
		`DROP TABLE job_event`, `ALTER TABLE lease DROP COLUMN caller`, `DROP TABLE program`,
		`ALTER TABLE outcome DROP COLUMN lost_at`, `DELETE FROM toolpost_schema WHERE version > 2`)
	after := k.open(t, address).Sessions()
	isAt(t, get(t, after, "s"), changes, model[changes])
	for version := range changes + 1 {
		st, err := after.At(t.Context(), "ada", "s", int64(version))
		if tool.CodeOf(err) == tool.CodeNotFound && version < changes {
			continue
		}
		works(t, err)
		isAt(t, st, int64(version), model[version], "version %d", version)
	}
	isAt(t, must[session.State](t)(after.At(t.Context(), "ada", "small", 1)), 1, object{"a": "b"})
}
