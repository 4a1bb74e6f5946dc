package quota

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestOperatorsSeeWhoIsClosestToTheLimits(t *testing.T) {
	clk := newClock()
	q := limited(t, clk, `{name: each, per: [caller, tool], rate: 10/m, reason: be gentle}`,
		`{name: all, units: 100/h, cost: {a: 3}, concurrency: 4}`)
	if u := q.Usage(2); len(u) != 2 || u[0].Counted != 0 || len(u[0].Fullest) != 1 || u[0].Fullest[0].Used != 0 || len(u[1].Fullest) != 2 {
		t.Errorf("at first: %+v", u)
	}
	for who, calls := range map[string]int{"ada": 4, "bob": 7, "eve": 1} {
		for range calls {
			if e := try(q, spec("a"), by(who), done); e != nil {
				t.Fatal(e)
			}
		}
	}
	inside := tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		u := q.Usage(2)
		got := fmt.Sprintf("%+v", u)
		want := `[{Name:each For:for each caller and tool Counted:3 Reason:be gentle Fullest:[` +
			`{Limit:rate Words:10 calls a minute Who:caller bob, tool s.a Used:8 Of:10} {Limit:rate Words:10 calls a minute Who:caller ada, tool s.a Used:4 Of:10}]} ` +
			`{Name:all For:for all together Counted:1 Reason: Fullest:[{Limit:units Words:100 units an hour Who:all calls Used:39 Of:100} ` +
			`{Limit:concurrency Words:4 calls at the same time Who:all calls Used:1 Of:4}]}]`
		kit.Equal(t, got, want)
		return &tool.Result{OK: true}, nil
	})
	if e := try(q, spec("a"), by("bob"), inside); e != nil {
		t.Fatal(e)
	}
	clk.move(2 * time.Hour)
	if u := q.Usage(2); u[0].Counted+u[1].Counted != 0 || u[0].Fullest[0].Used != 0 {
		t.Errorf("much later: %+v", u)
	}
	// A caller cannot make it keep much.
	if e := try(q, spec("a"), by(strings.Repeat("ü", 5000)), done); e != nil {
		t.Fatal(e)
	}
	if who := q.Usage(1)[0].Fullest[0].Who; len(who) > maxWho || !strings.HasPrefix(who, "caller ü") {
		t.Errorf("%d bytes: %s", len(who), who)
	}
}
