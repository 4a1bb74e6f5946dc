package alphahuman

import (
	"cmp"
	"time"

	"toolpost/config"
	"toolpost/host/spawn"
	"toolpost/tool"
)

// Options are the fields of a source of this protocol: a folder of skills, or a single one.
type Options struct {
	Skills string `yaml:"skills" doc:"folder whose sub-folders with a manifest.json, a skill.json or a SKILL.md are offered"`
	Skill  string `yaml:"skill" doc:"the folder of a single skill"`
	Data   string `yaml:"data" doc:"folder for the files that skills keep; default: .toolpost/skills/SOURCE"`

	spawn.Options // folders of skills are found in its dir, and each skill runs in its own

	Concurrency int `yaml:"concurrency" doc:"calls that one skill gets at once; default: as its manifest says, else one where it calls back, else any number"`
	Generation  int `yaml:"generation" doc:"1: the contract; 2: tools/list and skill/ hooks; default: the skill is asked"`

	StartTimeout config.Duration `yaml:"start_timeout" doc:"for the answer to initialize; default: 30s"`
	HookTimeout  config.Duration `yaml:"hook_timeout" doc:"for each lifecycle hook; default: 10s"`
	Grace        config.Duration `yaml:"grace" doc:"a skill that left a call unanswered and answers nothing for this long is replaced; each step of its shutdown has as long, and never more than 2s; default: 2s"`
	SessionIdle  config.Duration `yaml:"session_idle" doc:"a session without calls for this long is ended; default: 30m"`
	MaxLine      int             `yaml:"max_line" doc:"bytes of one message; default: 16 MiB"`

	Effects tool.Effects `yaml:"effects" doc:"what the tools do to the world"`
	Tier    int          `yaml:"tier" doc:"0 safe .. 3 dangerous"`
}

func (o *Options) check() error {
	switch {
	case (o.Skills == "") == (o.Skill == ""):
		return tool.Errorf(tool.CodeInvalidInput,
			"an alphahuman source needs `skills`, a folder of skills, or `skill`, a single one")
	case o.Tier < 0 || o.Tier > 3:
		return tool.Errorf(tool.CodeInvalidInput, "tier must be 0, 1, 2 or 3, not %d", o.Tier)
	case o.Generation < 0 || o.Generation > 2:
		return tool.Errorf(tool.CodeInvalidInput, "generation must be 1 or 2, not %d", o.Generation)
	case o.Concurrency < 0 || o.MaxLine < 0:
		return tool.Errorf(tool.CodeInvalidInput, "concurrency and max_line cannot be negative")
	}
	return o.Options.Check()
}

// setDefaults completes what the config leaves out.
func (o *Options) setDefaults() {
	o.StartTimeout = cmp.Or(o.StartTimeout, config.Duration(30*time.Second))
	o.HookTimeout = cmp.Or(o.HookTimeout, config.Duration(10*time.Second))
	o.Grace = cmp.Or(o.Grace, config.Duration(2*time.Second))
	o.SessionIdle = cmp.Or(o.SessionIdle, config.Duration(30*time.Minute))
	o.MaxLine = cmp.Or(o.MaxLine, defaultMaxLine)
}
