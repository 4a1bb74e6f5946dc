package run

import (
	"cmp"
	"fmt"
	"time"

	"toolpost/config"
	"toolpost/tool"
)

// Options are the field code.run of a source with protocol builtin: the word off, or limits. The zero value has useful
// limits.
type Options struct {
	Timeout   config.Duration `yaml:"timeout" schema:"default=60s" doc:"time limit of a program, with all that it calls; a caller can only ask for less"`
	Memory    int64           `yaml:"memory" kind:"bytes" schema:"default=536870912" doc:"bytes of memory of a program"`
	MaxCalls  int             `yaml:"max_calls" schema:"default=10000" doc:"calls that one program may make"`
	MaxOutput int             `yaml:"max_output" kind:"bytes" schema:"default=65536" doc:"bytes of what a program prints, of stdout and of stderr each, in a result"`
	Workers   int             `yaml:"workers" schema:"default=8" doc:"programs of a language that run at once; the others wait"`
	Python    string          `yaml:"python" kind:"path" schema:"default=python3" doc:"the Python that runs programs: a name on PATH, or a path; only the packages installed for it can be imported"`
	Node      string          `yaml:"node" kind:"path" schema:"default=node" doc:"the Node.js that runs programs: a name on PATH, or a path"`

	Off bool `yaml:"-"` // there is no tool that runs code
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Options) UnmarshalText(text []byte) error {
	switch string(text) {
	case "on":
		o.Off = false
	case "off":
		o.Off = true
	default:
		return fmt.Errorf("run is on, off, or a mapping of limits, not %q", text)
	}
	return nil
}

// Validate rejects limits within which nothing can run. The config calls it.
func (o *Options) Validate() error {
	const least = 64 << 20
	switch {
	case o.Memory != 0 && o.Memory < least:
		return fmt.Errorf("memory is in bytes, and no interpreter runs in %d: give it 64MiB at the least", o.Memory)
	case o.MaxCalls < 0 || o.MaxOutput < 0 || o.Workers < 0:
		return tool.Errorf(tool.CodeInvalidInput, "a limit of run is negative; give a positive number, or leave it out")
	}
	return nil
}

// withDefaults fills in defaults. Memory stays as it is: if a machine cannot enforce a limit on all processes of a room
// together, the default is enforced on each process, but an explicit limit is refused.
func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, config.Duration(time.Minute))
	o.MaxCalls, o.MaxOutput, o.Workers = cmp.Or(o.MaxCalls, 10_000), cmp.Or(o.MaxOutput, 64<<10), cmp.Or(o.Workers, 8)
	o.Python, o.Node = cmp.Or(o.Python, "python3"), cmp.Or(o.Node, "node")
	return o
}
