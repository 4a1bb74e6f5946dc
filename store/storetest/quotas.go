package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/engine/quota"
	"toolpost/store"
	"toolpost/tool"
)

// limited returns a tool behind a rule that three programs have in common.
func limited(
	ctx context.Context, dbs []*store.DB, rule quota.Rule, run func(),
) (calls []func() error, settle func()) {
	var all []*quota.Quotas
	for _, db := range dbs {
		q := quota.New(quota.Options{Shared: db.Quotas()})
		q.Replace([]quota.Rule{rule})
		all = append(all, q)
		next := func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			run()
			return &tool.Result{OK: true}, nil
		}
		h := q.For(&tool.Spec{Name: "t"})(tool.HandlerFunc(next))
		calls = append(calls, func() error { return errOf(h.Invoke(ctx, &tool.Call{Tool: "t"}, tool.Discard)) })
	}
	return calls, func() {
		for _, q := range all {
			q.Settle(context.Background(), false)
		}
	}
}

func (k Kind) three(t *testing.T) (string, []*store.DB) {
	address, db := k.made(t)
	return address, []*store.DB{db, k.open(t, address), k.open(t, address)}
}

// No window has more calls than the rule allows, and nearly all of them are used, although one program has 90 % of the
// calls. A busy machine gets several tries for the latter.
func quotas(t *testing.T, k Kind) {
	const burst, rate, whole = 20, 10, 4 * time.Second
	_, dbs := k.three(t)
	for try := 1; ; try++ {
		rule := quota.Rule{Name: name("try %d", try), Burst: burst}
		works(t, rule.Rate.UnmarshalText([]byte("10/s")))
		calls, settle := limited(t.Context(), dbs, rule, func() {})
		type admitted struct{ after, before time.Time } // it was admitted between the two
		var mu sync.Mutex
		var got []admitted
		begun := time.Now()
		together(4, func(i int) {
			for time.Since(begun) < whole {
				if i == 3 {
					settle()
					time.Sleep(time.Second)
					continue
				}
				after := time.Now()
				switch err := calls[i](); {
				case err == nil:
					mu.Lock()
					got = append(got, admitted{after, time.Now()})
					mu.Unlock()
				case tool.CodeOf(err) != tool.CodeQuotaExceeded:
					t.Error(err)
				}
				time.Sleep([]time.Duration{2 * time.Millisecond, 40 * time.Millisecond, 40 * time.Millisecond}[i])
			}
		})
		for _, first := range got {
			for _, last := range got {
				in := 0
				for _, one := range got {
					in += flag(!one.after.Before(first.after) && !one.before.After(last.before))
				}
				most := burst + rate*last.before.Sub(first.after).Seconds() + 1
				needs(t, in == 0 || float64(in) <= most, "%d calls, and %.1f are allowed", in, most)
			}
		}
		of := burst + rate*time.Since(begun).Seconds()
		t.Logf("%d of %.0f", len(got), of)
		if float64(len(got)) >= 0.9*of {
			return
		}
		needs(t, try < 6, "%d of %.0f were used", len(got), of)
	}
}

// What a program has taken and not reported in time may have been used.
func unreported(t *testing.T, k Kind) {
	a, b := k.two(t)
	d := quota.Draw{Bucket: [32]byte{1}, Gain: 1, Full: 1e9, Need: 1, Want: 4e8, For: time.Millisecond}
	begun := time.Now()
	got := must[quota.Share](t)(a.Quotas().Draw(t.Context(), d))
	equal(t, got.Held, 4e8)
	time.Sleep(5 * time.Millisecond)
	d.Want = 1e9
	got = must[quota.Share](t)(b.Quotas().Draw(t.Context(), d))
	restored := time.Since(begun).Microseconds()
	holds(t, got.Held >= 6e8 && got.Held <= 6e8+restored, "%d, and %d were restored", got.Held, restored)
	d.Need, d.Want, d.Used = 1e6, 1e6, 4e8
	got = must[quota.Share](t)(a.Quotas().Draw(t.Context(), d))
	holds(t, got.Held == 0 && got.Wait > 0 && got.Wait <= time.Second, "%+v: what was used counts twice, or not", got)
}

func flag(so bool) int {
	if so {
		return 1
	}
	return 0
}

func concurrency(t *testing.T, k Kind) {
	address, dbs := k.three(t)
	var running, most, done atomic.Int64
	calls, settle := limited(t.Context(), dbs, quota.Rule{Name: "c", Concurrency: 5}, func() {
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(10 * time.Millisecond)
		running.Add(-1)
		done.Add(1)
	})
	begun := time.Now()
	together(12, func(i int) {
		for time.Since(begun) < time.Second {
			if err := calls[i%3](); err != nil && tool.CodeOf(err) != tool.CodeQuotaExceeded {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
		}
	})
	holds(t, most.Load() <= 5 && done.Load() > 5, "%d calls ran at the same time, and %d in all", most.Load(), done.Load())
	time.Sleep(1100 * time.Millisecond)
	settle()
	raw := k.Raw(t, address)
	equal(t, count(t, raw, `SELECT COUNT(*) FROM quota_share`), 0, "programs that run nothing hold")
	run(t, raw, `INSERT INTO quota_share (bucket, owner, held, until_at) SELECT bucket, 'gone', 5, 0 FROM quota`)
	works(t, calls[0](), "the calls of a program that is gone have ended")
}
