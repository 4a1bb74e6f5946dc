package node_test

import (
	"log/slog"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
)

// passing counts the calls of a tool that pass before one is refused.
func passing(t *testing.T, n *node.Node, name string) int {
	t.Helper()
	for i := range 20 {
		switch _, code := invoke(t, n, tool.Call{Tool: name}); code {
		case "":
		case tool.CodeQuotaExceeded:
			return i
		default:
			t.Fatal(code)
		}
	}
	return 20
}

const twoFakes = `sources: [{name: a, protocol: fake}, {name: b, protocol: fake}]
`

func TestTheQuotasFollowTheConfigAndKeepTheirCounts(t *testing.T) {
	dir := t.TempDir()
	var logged kit.Buffer
	n := open(t, parse(t, dir, twoFakes), node.Options{Protocols: newFake().protocol(), Log: slog.New(slog.NewTextHandler(&logged, nil))})
	defer shut(t, n)
	reload := func(quotas string) {
		t.Helper()
		n.Reload(t.Context(), parse(t, dir, twoFakes+"limits: {quotas: ["+quotas+"]}"))
	}
	expect := func(when string, a, b int) {
		t.Helper()
		if gotA, gotB := passing(t, n, "a"), passing(t, n, "b"); gotA != a || gotB != b {
			t.Errorf("%s: %d and %d calls passed, not %d and %d", when, gotA, gotB, a, b)
		}
	}
	const same = "{name: one, tools: a, rate: 3/d}"
	expect("without quotas", 20, 20)
	reload(same)
	expect("with a quota", 3, 20)
	reload(same + ", {name: two, sources: b, rate: 5/d}")
	expect("with one more", 0, 5)
	reload("{name: two, sources: b, rate: 6/d}, " + same)
	expect("with one that changed", 0, 6)
	reload("{name: two, sources: [elsewhere], rate: 1/s}")
	expect("after quotas that cannot be read", 0, 0)
	if !strings.Contains(logged.String(), "the one before it stays") || !strings.Contains(logged.String(), "there is no source") {
		t.Errorf("the log says nothing of them:\n%s", logged.String())
	}
	if strings.Contains(logged.String(), "restart to apply") {
		t.Errorf("a restart is asked for:\n%s", logged.String())
	}
	n.Reload(t.Context(), parse(t, dir, twoFakes))
	expect("without quotas again", 20, 20)
}

func TestOtherLimitsNeedARestart(t *testing.T) {
	for _, limits := range []string{"timeout: 7s", "drain: 7s", "queue: {wait: 7s}"} {
		dir := t.TempDir()
		var logged kit.Buffer
		n := open(t, parse(t, dir, twoFakes), node.Options{Protocols: newFake().protocol(), Log: slog.New(slog.NewTextHandler(&logged, nil))})
		n.Reload(t.Context(), parse(t, dir, twoFakes+"limits: {"+limits+"}"))
		kit.Contains(t, logged.String(), "restart to apply", "%s: the log says nothing of a restart", limits)
		shut(t, n)
	}
}

func TestAMistakeInTheQuotasStopsTheStart(t *testing.T) {
	for text, want := range map[string]string{
		"limits: {quotas: [{name: r, rate: 1/s, doors: [ntas]}]}":        `there is no door "ntas"; did you mean "nats"?`,
		"limits: {quotas: [{name: r, rate: 1/s, sources: [v]}]}":         `there is no source "v"`,
		"limits: {quotas: [{name: r, rate: often}]}":                     "toolpost.yaml:2:35: expected a rate",
		"limits: {quotas: {name: r, rate: 1/s}}":                         "expected a list",
		"limits: {quotas: [{name: r, rate: 1/s}, {name: r, rate: 1/s}]}": "two quotas are called",
	} {
		_, err := node.Open(t.Context(), parse(t, t.TempDir(), writes+text), node.Options{})
		kit.Refused(t, err, tool.CodeInvalidInput, want, text)
	}
}
