// Package spawn starts the programs of a source of tools. What the config of a source says of every program, whatever
// it speaks, is one struct here, and one function makes a command of it: its folder, its environment and secrets, and
// the walls or the container around it.
package spawn

import (
	"maps"
	"os"
	"strings"

	"toolpost/config"
	"toolpost/host/container"
	"toolpost/host/offlimits"
	"toolpost/host/secret"
	"toolpost/host/walls"
	"toolpost/tool"
)

// Options are the fields that a source of every protocol has whose programs we start. They are embedded in the
// protocol's own.
type Options struct {
	Dir     string            `yaml:"dir" doc:"folder in which programs are found and run, from the folder of the config, which is the default; in a container: the working folder there"`
	Env     map[string]string `yaml:"env" doc:"environment beside PATH, HOME, LANG and TMPDIR"`
	PassEnv []string          `yaml:"pass_env" doc:"names of environment variables that are passed on"`
	secret.Grant
	Timeout    config.Duration   `yaml:"timeout" doc:"of one call; default: that of the protocol, else limits.timeout"`
	Guarantees tool.Guarantees   `yaml:"guarantees" doc:"what the tools must not be able to do"`
	Walls      walls.Options     `yaml:"walls" doc:"what the tools may do; default: read their own folder, start programs, 512 MiB, 128 processes, no network"`
	Container  container.Options `yaml:"container" doc:"the container that the tools run in, if it has an image"`
}

// Of returns the options of a configured source before they are decoded: where its secrets are, and what its tools
// never see.
func Of(src config.Source) Options {
	return Options{Grant: secret.Grant{Vault: src.Secrets}, Walls: walls.Options{OffLimits: src.OffLimits}}
}

// Check finds what would otherwise only fail, or mislead, when a tool is called.
func (o Options) Check() error {
	for name := range o.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return tool.Errorf(tool.CodeInvalidInput, "%q cannot be the name of an environment variable", name)
		}
	}
	if o.Timeout < 0 {
		return tool.Errorf(tool.CodeInvalidInput, "timeout cannot be negative")
	}
	return o.Container.Check()
}

func (o Options) contained() bool { return o.Container.Image != "" }

// Folder is where programs are found and run, of a config in base.
func (o Options) Folder(base string) string { return offlimits.Under(base, o.Dir) }

// Claim says which files a command starts from, and which its program may change, of a config in base.
func (o Options) Claim(base string, argv []string) offlimits.Claim {
	c := o.Walls.Claim(base)
	if c.Starts = o.Container.Starts(base); !o.contained() {
		c.Starts = append(c.Starts, offlimits.Argv(o.Folder(base), argv, c.Writes)...)
	}
	return c
}

// Given are the variables that somebody chose for the programs, by name.
func (o Options) Given() map[string]string {
	vars := map[string]string{}
	for _, name := range o.PassEnv {
		if value, ok := os.LookupEnv(name); ok {
			vars[name] = value
		}
	}
	maps.Copy(vars, o.Env)
	return vars
}
