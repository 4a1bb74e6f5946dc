package sandbox_test

import (
	"strings"
	"testing"

	"toolpost/sandbox"
	"toolpost/tool"
)

func TestAWallThatCannotBeBuiltRefusesTheCall(t *testing.T) {
	for name, g := range map[string]tool.Guarantees{
		"no_filesystem_read":  {NoFilesystemRead: true},
		"no_filesystem_write": {NoFilesystemWrite: true},
		"no_network":          {NoNetwork: true},
		"no_subprocess":       {NoSubprocess: true},
		"no_env_read":         {NoEnvRead: true},
		"no_env_write":        {NoEnvWrite: true},
		"secrets_allowed":     {SecretsAllowed: []string{}},
	} {
		err := sandbox.Cover("greet", g)
		if e := tool.AsError(err); e == nil || e.Code != tool.CodeUnsupported || e.Reason != "coverage_missing" || !strings.Contains(e.Message, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := sandbox.Cover("greet", tool.Guarantees{}); err != nil {
		t.Errorf("nothing was asked for: %v", err)
	}
}
