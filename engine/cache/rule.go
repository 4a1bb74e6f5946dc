package cache

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"toolpost/tool"
)

// Bounds on what a config may say, and on what is kept.
const (
	maxRules  = 100
	maxTTL    = 24 * time.Hour
	maxResult = 1 << 20  // bytes of one result
	maxTotal  = 64 << 20 // bytes of all
)

// A Rule is an entry of limits.cache. Of several that match a tool the first counts.
type Rule struct {
	Tools      tool.Patterns `yaml:"tools" doc:"names of tools, whatever their source, or source.name; only tools that declare to read and do nothing else are kept"`
	TTL        time.Duration `yaml:"ttl" doc:"how long a result may be given again, such as 30s; at most a day"`
	MaxBytes   int           `yaml:"max_bytes" doc:"how large a result may be to be kept; default: 1 MiB, which is also the most"`
	Shared     bool          `yaml:"shared" doc:"whether all callers share the results; default: each has its own"`
	Invalidate tool.Patterns `yaml:"invalidate" doc:"tools of other sources whose calls make the results old; a call that may change something on the same source always does"`
}

// Validate implements config's validator.
func (r *Rule) Validate() error {
	switch {
	case len(r.Tools) == 0:
		return errors.New("a cache without tools keeps nothing; name them, such as `tools: [readFile]`")
	case r.TTL <= 0 || r.TTL > maxTTL:
		return fmt.Errorf("the cache of %s has no ttl between 0 and %v; say how old a result may be, such as "+
			"`ttl: 30s`", r.Tools, maxTTL)
	case r.MaxBytes < 0 || r.MaxBytes > maxResult:
		return fmt.Errorf("the cache of %s: max_bytes is %d; it must be 1 to %d", r.Tools, r.MaxBytes, maxResult)
	}
	return nil
}

// names reports whether the rule asks for the tool by its name, not by a pattern that may have met it by chance.
func (r *Rule) names(ref tool.Ref) bool {
	return slices.ContainsFunc(r.Tools, func(p tool.Pattern) bool { return p.Plain() && p.Match(ref) })
}
