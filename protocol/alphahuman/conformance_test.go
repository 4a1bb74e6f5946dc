package alphahuman

import (
	"os"
	"path/filepath"
	"testing"

	"toolpost/host/spawn"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

// A skill is a worker that lives on between calls: processes that it starts belong to it and end with it, so that no call
// can end them (Spawn). Python writes numbers in its own way (Digits).
func TestRunnerConformsWithSkillsOfTheFirstGeneration(t *testing.T) {
	tooltest.Run(t, tooltest.Subject{
		New: func(t testing.TB) tool.Handler {
			r, _ := open(t, Options{Skill: "testdata/first"})
			return r
		},
		Without: tooltest.Events | tooltest.Spawn | tooltest.Digits,
	})
}

func TestRunnerConformsWithSkillsOfTheSecondGeneration(t *testing.T) {
	tooltest.Run(t, tooltest.Subject{
		New: func(t testing.TB) tool.Handler {
			r, _ := open(t, Options{Skill: "testdata/second"})
			return r
		},
		Without: tooltest.Spawn | tooltest.Digits,
	})
}

// doorSkill is a skill folder whose program is this test program as a Door.
func doorSkill(t testing.TB) string {
	dir := filepath.Join(t.TempDir(), "door")
	program := kit.Must(os.Executable())(t)
	manifest := kit.Must(strictjson.Marshal(map[string]any{
		"runtime": map[string]any{"type": "subprocess", "command": program, "args": []string{}}, "tick_interval": 0,
	}))(t)
	kit.Write(t, filepath.Join(dir, manifestFile), string(manifest))
	return dir
}

// The first generation has no events; everything else passes through our door and our runner.
func TestDoorAndRunnerConformInTheFirstGeneration(t *testing.T) {
	skill := doorSkill(t)
	tooltest.Run(t, tooltest.Subject{
		New: func(t testing.TB) tool.Handler {
			r, _ := open(t, Options{Skill: skill, Options: spawn.Options{Env: map[string]string{doorEnv: "1"}}})
			return r
		},
		Without: tooltest.Events,
	})
}

func TestDoorAndRunnerConformInTheSecondGeneration(t *testing.T) {
	skill := doorSkill(t)
	tooltest.Run(t, tooltest.Subject{
		New: func(t testing.TB) tool.Handler {
			r, _ := open(t, Options{Skill: skill, Generation: 2, Concurrency: 64, Options: spawn.Options{Env: map[string]string{doorEnv: "1"}}})
			return r
		},
	})
}
