package all

import (
	"context"
	"io"

	"toolpost/protocol/alphahuman"
)

// Skills is what people do with skill folders.
type Skills struct{}

// A Skill is a skill folder as it was read.
type Skill = alphahuman.Skill

// A SkillFinding is what is wrong with one.
type SkillFinding = alphahuman.Finding

// List reads every skill below a folder; one that cannot be used is listed with the reason.
func (Skills) List(dir string) ([]*Skill, error) { return alphahuman.List(dir) }

// Check looks at one skill folder without running anything.
func (Skills) Check(dir string) []SkillFinding { return alphahuman.Check(dir) }

// New writes a working Python skill into a new folder of dir and gives its path.
func (Skills) New(dir, name string) (string, error) { return alphahuman.New(dir, name) }

// Install puts what a Python skill needs into an environment of its own. What pip says goes to log.
func (Skills) Install(ctx context.Context, dir string, log io.Writer) error {
	return alphahuman.Install(ctx, dir, log)
}
