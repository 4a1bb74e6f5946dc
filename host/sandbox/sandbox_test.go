//go:build linux

package sandbox_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// guarantees returns each guarantee alone.
func guarantees() map[string]tool.Guarantees {
	return map[string]tool.Guarantees{
		"no_filesystem_read":  {NoFilesystemRead: true},
		"no_filesystem_write": {NoFilesystemWrite: true},
		"no_network":          {NoNetwork: true},
		"no_subprocess":       {NoSubprocess: true},
		"no_env_read":         {NoEnvRead: true},
		"no_env_write":        {NoEnvWrite: true},
		"secrets_allowed":     {SecretsAllowed: []string{}},
	}
}

func TestAWallThatCannotBeBuiltRefusesTheCall(t *testing.T) {
	for name, missing := range map[string]struct {
		layers []string
		names  string
	}{
		"no_filesystem_read":  {[]string{sandbox.LayerMounts, sandbox.LayerLandlock}, sandbox.LayerLandlock},
		"no_filesystem_write": {[]string{sandbox.LayerMounts, sandbox.LayerLandlock}, sandbox.LayerLandlock},
		"no_network":          {[]string{sandbox.LayerSeccomp}, sandbox.LayerSeccomp},
		"no_subprocess":       {[]string{sandbox.LayerNotify}, sandbox.LayerNotify},
		"no_env_read":         {[]string{sandbox.LayerNamespaces, sandbox.LayerLandlock}, sandbox.LayerPid},
		"no_env_write":        {[]string{sandbox.LayerNamespaces, sandbox.LayerLandlock}, sandbox.LayerPid},
		"secrets_allowed":     {[]string{sandbox.LayerNamespaces, sandbox.LayerLandlock}, sandbox.LayerPid},
	} {
		t.Run(name, func(t *testing.T) {
			g := guarantees()[name]
			kit.Check(t, sandbox.Cover("greet", g), "this machine holds it")
			sandbox.Without(t, missing.layers...)
			err := sandbox.Cover("greet", g)
			if e := tool.AsError(err); e == nil || e.Code != tool.CodeUnsupported || e.Reason != sandbox.CoverageMissing ||
				!strings.Contains(e.Message, name) || !strings.Contains(e.Message, missing.names) {
				t.Error(err)
			}
		})
	}
	kit.Check(t, sandbox.Cover("greet", tool.Guarantees{}), "nothing was asked for")
}

func TestEveryLayerIsDescribed(t *testing.T) {
	layers := sandbox.Probe()
	if len(layers) < 10 {
		t.Errorf("there are only %d layers", len(layers))
	}
	for _, l := range layers {
		if l.Name == "" || l.Means == "" || !l.Works && l.Why == "" {
			t.Errorf("%+v", l)
		}
	}
}

func TestGuaranteesOnlyEverTighten(t *testing.T) {
	paths := rapid.SliceOf(rapid.SampledFrom([]string{"/a", "/b", "/c"}))
	rapid.Check(t, func(t *rapid.T) {
		base := sandbox.Profile{
			Readable: paths.Draw(t, "readable"), Writable: paths.Draw(t, "writable"), Executable: paths.Draw(t, "executable"),
			WriteOnly: rapid.Bool().Draw(t, "write only"), Tmp: rapid.Int64Range(0, 2).Draw(t, "tmp"), Unix: rapid.Bool().Draw(t, "unix"),
			Network: sandbox.Network(rapid.IntRange(0, 3).Draw(t, "network")), Proc: sandbox.Proc(rapid.IntRange(0, 2).Draw(t, "proc")),
			Subprocess: rapid.Bool().Draw(t, "subprocess"), NoEnv: rapid.Bool().Draw(t, "no env"),
		}
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		g := tool.Guarantees{NoFilesystemRead: flag("r"), NoFilesystemWrite: flag("w"), NoNetwork: flag("n"), NoSubprocess: flag("s"), NoEnvRead: flag("e")}
		p := sandbox.FromGuarantees(g, base)
		if p.Network > base.Network || p.Proc > base.Proc || p.Tmp > base.Tmp || p.Unix && !base.Unix || p.Subprocess && !base.Subprocess ||
			base.NoEnv && !p.NoEnv || base.WriteOnly && !p.WriteOnly || !slices.Equal(p.Executable, base.Executable) {
			t.Fatalf("%+v became %+v", base, p)
		}
		for _, path := range p.Writable {
			if g.NoFilesystemWrite || !slices.Contains(base.Writable, path) {
				t.Fatalf("%s may be written", path)
			}
		}
		for _, path := range p.Readable {
			if g.NoFilesystemRead || !slices.Contains(base.Readable, path) && (base.WriteOnly || !slices.Contains(base.Writable, path)) {
				t.Fatalf("%s may be read", path)
			}
		}
	})
}

func TestUnenforcedGuaranteeIsRefused(t *testing.T) {
	for name, g := range guarantees() {
		e := tool.AsError(sandbox.Elsewhere("greet", g))
		if e == nil || e.Reason != sandbox.CoverageMissing || !strings.Contains(e.Message, name) {
			t.Errorf("%s: %v", name, e)
		}
	}
	kit.Check(t, sandbox.Elsewhere("greet", tool.Guarantees{}), "nothing was asked for")
}
