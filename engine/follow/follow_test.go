package follow_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/engine/follow"
	"toolpost/tool"
)

func TestFollowersAreBounded(t *testing.T) {
	all := follow.New()
	begin := func(caller string) *follow.Follower {
		t.Helper()
		f, err := all.Begin(tool.Principal{ID: caller})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	refused := func(caller string) {
		t.Helper()
		if _, err := all.Begin(tool.Principal{ID: caller}); tool.CodeOf(err) != tool.CodeQuotaExceeded {
			t.Errorf("%s: %v", caller, err)
		}
	}
	first := begin("ada")
	for range follow.MostOfCaller - 1 {
		begin("ada")
	}
	refused("ada")
	first.End()
	begin("ada")
	for i := range follow.MostOfAll - follow.MostOfCaller {
		begin(strconv.Itoa(i))
	}
	refused("bob")
}

func TestAFollowerWaitsForNewsAndEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := follow.New()
		f, err := all.Begin(tool.Principal{ID: "ada"})
		if err != nil {
			t.Fatal(err)
		}
		defer f.End()
		waits := func(ctx context.Context, changed <-chan struct{}, want bool, code tool.Code) time.Duration {
			t.Helper()
			begun := time.Now()
			more, err := f.Wait(ctx, changed, time.Minute)
			if more != want || tool.CodeOf(err) != code {
				t.Errorf("more: %v, %v", more, err)
			}
			return time.Since(begun)
		}
		told := make(chan struct{})
		close(told)
		if d := waits(t.Context(), told, true, ""); d >= time.Second {
			t.Errorf("news took %v", d)
		}
		if d := waits(t.Context(), nil, true, ""); d != time.Minute {
			t.Errorf("without news it looked after %v", d)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		waits(cancelled, nil, false, tool.CodeCancelled)
		time.Sleep(follow.Longest)
		waits(t.Context(), make(chan struct{}), false, "")
		other, _ := all.Begin(tool.Principal{ID: "ada"})
		defer other.End()
		all.Close()
		if more, err := other.Wait(t.Context(), nil, time.Minute); more || err != nil {
			t.Errorf("the program ends: %v, %v", more, err)
		}
	})
}
