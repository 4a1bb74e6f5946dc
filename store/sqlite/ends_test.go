package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"toolpost/engine/idempotency"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

// The store does not take the ends of claims for a while. Then another program learns of them, without a further attempt.
func TestEndsOfClaimsAreWrittenOnceTheStoreTakesThem(t *testing.T) {
	path, ctx := filepath.Join(t.TempDir(), "x.db"), t.Context()
	opened := func() *store.OutcomeTable {
		db := kit.Must(sqlite.Kind().Open(path, store.Options{}))(t)
		t.Cleanup(func() { kit.OK(t, db.Close()) })
		return db.Outcomes()
	}
	o, other, raw := opened(), opened(), kit.SQLite(t, path)
	claim := func(o *store.OutcomeTable, n byte) idempotency.Claim {
		return kit.Must(o.Claim(ctx, [32]byte{n}, [32]byte{n}, "", time.Minute))(t)
	}
	for n := range byte(4) {
		kit.Equal(t, claim(o, n+1).Mine, true, "new")
	}
	kit.Must(raw.ExecContext(ctx, `ALTER TABLE outcome RENAME TO elsewhere`))(t)
	for what, err := range map[string]error{
		"an outcome":              o.Settle(ctx, [32]byte{1}, []byte(`"1"`), time.Minute),
		"that it is lost":         o.Lose(ctx, [32]byte{2}, time.Minute),
		"that there is none":      o.Settle(ctx, [32]byte{3}, nil, 0),
		"that it is claimed anew": o.Settle(ctx, [32]byte{4}, nil, 0),
	} {
		kit.Refused(t, err, tool.CodeUnavailable, "no such table", what)
	}
	kit.Must(raw.ExecContext(ctx, `ALTER TABLE elsewhere RENAME TO outcome`))(t)
	kit.Equal(t, string(claim(o, 1).Result), `"1"`, "its own program knows the outcome at once")
	kit.Equal(t, claim(o, 2).Lost, true)
	kit.Equal(t, claim(o, 4).Mine, true, "its own program does not wait for a call that does not run")
	kit.Eventually(t, "the outcome is there", func() bool { return string(claim(other, 1).Result) == `"1"` })
	kit.Eventually(t, "the key is lost", func() bool { return claim(other, 2).Lost })
	kit.Eventually(t, "the key is free", func() bool { return claim(other, 3).Mine })
	kit.Equal(t, claim(other, 4).Mine, false, "a key that was claimed again")
}

// A table of outcomes says how far back nothing was forgotten because there were too many.
func TestReachOfOutcomes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db := kit.Must(sqlite.Kind().Open(path, store.Options{}))(t)
	defer func() { kit.OK(t, db.Close()) }()
	o := db.Outcomes()
	reach := func() time.Duration { return kit.Must(o.Reach(t.Context()))(t) }
	kit.Equal(t, kit.Must(o.Claim(t.Context(), [32]byte{1}, [32]byte{2}, "c1", 48*time.Hour))(t).Mine, true)
	kit.OK(t, o.Settle(t.Context(), [32]byte{1}, []byte(`1`), 48*time.Hour))
	kit.Equal(t, reach() > 1000*time.Hour, true)
	now := time.Now()
	raw := kit.SQLite(t, path)
	kit.Must(raw.ExecContext(t.Context(), `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99_999)
		INSERT INTO outcome (scope, input, owner, at, expires_at, result) SELECT randomblob(32), randomblob(32), 'x', ? - i * 1000000, ?, '1' FROM n`,
		now.UnixMicro(), now.Add(48*time.Hour).UnixMicro()))(t)
	kit.Equal(t, reach() >= 90_000*time.Second && reach() < 91_000*time.Second, true, reach())
	c := kit.Must(o.Claim(t.Context(), [32]byte{1}, [32]byte{2}, "c1", time.Hour))(t)
	kit.Equal(t, c.Age < time.Minute && time.Since(now) < c.Age+time.Minute, true, c.Age)
}
