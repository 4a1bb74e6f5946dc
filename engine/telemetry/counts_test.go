package telemetry_test

import (
	"strings"
	"testing"
	"time"

	"toolpost/engine/telemetry"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestCountsSinceReportsTheDifference(t *testing.T) {
	tel := open(t, telemetry.Options{}, telemetry.Env{})
	h := tel.For(nil)(tool.HandlerFunc(fake))
	invoke := func(name string, times int) {
		for range times {
			_, _ = h.Invoke(t.Context(), &tool.Call{Tool: name}, tool.Discard)
		}
	}
	invoke("works", 3)
	before := tel.Counts()
	invoke("works", 2)
	invoke("refused", 1)
	invoke("asks", 1)
	now := tel.Counts().Since(before)
	if len(now) != 3 || now[telemetry.Of{Tool: "works", Source: "src"}].Calls != 2 {
		t.Errorf("%+v", now)
	}
	all := now.All()
	if all.Calls != 4 || all.Bad != 1 || all.Took <= 0 {
		t.Errorf("%+v", all)
	}
	if p50, p99 := all.Quantile(0.5), all.Quantile(0.99); p50 <= 0 || p50 > p99 || p99 > time.Minute {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
	if none := tel.Counts().Since(tel.Counts()); len(none) != 0 || none.All().Quantile(0.5) != 0 {
		t.Errorf("%+v", none)
	}
}

// What a hub counts is not counted again by the node that runs it, but for the door fleet.
func TestCallsOfHubsAreCountedApart(t *testing.T) {
	tel := open(t, telemetry.Options{}, telemetry.Env{})
	h := tel.For(nil)(tool.HandlerFunc(fake))
	for _, from := range []bool{false, true} {
		_, _ = h.Invoke(t.Context(), &tool.Call{Tool: "works", FromHub: from, Caller: tool.Principal{Door: "http"}}, tool.Discard)
	}
	kit.Equal(t, tel.Counts().All().Calls, 1)
	var text strings.Builder
	kit.OK(t, tel.Metrics(&text))
	kit.Contains(t, text.String(), `toolpost_calls_total{code="",door="fleet",outcome="ok",protocol="fake",source="src",tool="works"} 1`)
	kit.Contains(t, text.String(), `toolpost_calls_total{code="",door="http",outcome="ok",protocol="fake",source="src",tool="works"} 1`)
}

func TestCountsOfAnotherProgramAreAdded(t *testing.T) {
	tel := open(t, telemetry.Options{}, telemetry.Env{})
	_, _ = tel.For(nil)(tool.HandlerFunc(fake)).Invoke(t.Context(), &tool.Call{Tool: "works"}, tool.Discard)
	one := tel.Counts()
	both := one.Add(telemetry.CountsOf(one.List())).All()
	kit.Equal(t, both.Calls, 2)
	kit.Equal(t, both.Took, 2*one.All().Took)
	kit.Equal(t, both.Quantile(1), one.All().Quantile(1))
}
