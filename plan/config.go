package plan

import (
	"errors"
	"time"

	"toolpost/config"
)

// Settings is the section limits.plans of a config. It has useful zero values.
type Settings struct {
	Tool    time.Duration `yaml:"tool" schema:"default=30s" doc:"how long a tool of a plan may take, with all its attempts"`
	Plan    time.Duration `yaml:"plan" schema:"default=60s" doc:"how long a plan may take; each plan that replaces one that failed has as long"`
	Replans *int          `yaml:"replans" schema:"default=5" doc:"how often a planner is asked for another plan when one fails; 0: never"`
	Overlap int           `yaml:"overlap" schema:"default=16" doc:"how many tools of a plan run at once"`
}

// Validate checks the settings of a config.
func (s *Settings) Validate() error {
	if s.Tool < 0 || s.Plan < 0 || s.Overlap < 0 || s.Replans != nil && (*s.Replans < 0 || *s.Replans > maxReplans) {
		return errors.New("tool, plan and overlap cannot be negative, and replans is from 0 to 20")
	}
	return nil
}

const maxReplans = 20

// Section is the part of the config about plans.
func Section() config.Part {
	return config.Part{Name: "limits.plans", Options: Settings{}, Doc: "how long plans and their tools may take"}
}

// LimitsOf returns the limits of a config.
func LimitsOf(cfg *config.Config) (Limits, error) {
	var s Settings
	err := cfg.Section(Section().Name).Decode(&s)
	return Limits(s), err
}
