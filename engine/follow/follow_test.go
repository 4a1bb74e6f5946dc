package follow_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/engine/follow"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestFollowersAreBounded(t *testing.T) {
	all := follow.New()
	begin := func(caller string) *follow.Follower {
		t.Helper()
		return kit.Must(all.Begin(tool.Principal{ID: caller}))(t)
	}
	refused := func(caller string) {
		t.Helper()
		kit.Refused(t, kit.Err(all.Begin(tool.Principal{ID: caller})), tool.CodeQuotaExceeded, "", caller)
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
		f := kit.Must(all.Begin(tool.Principal{ID: "ada"}))(t)
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
		kit.Equal(t, waits(t.Context(), nil, true, ""), time.Minute, "without news it looked after")
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
