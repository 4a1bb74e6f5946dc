// Package config reads toolpost.yaml into typed values. It is strict: an unknown field, a duplicate
// key or a wrong type is an error that names the file, the line and the column.
package config

import (
	"time"

	"github.com/goccy/go-yaml/ast"
)

// A Config is a whole toolpost.yaml.
type Config struct {
	Path    string // the file it came from; empty: the defaults
	Dir     string // absolute; relative paths in the file start here
	Sources []Source
	Doors   Doors
	Limits  Limits
}

// A Source says where tools come from. Its other fields belong to its protocol, which reads them with
// Decode into its own Options.
type Source struct {
	Name     string
	Protocol string
	Dir      string   // Config.Dir
	node     ast.Node // the whole entry
}

// Decode reads the fields of the source, other than name and protocol, into a struct with yaml tags.
func (s Source) Decode(into any) error { panic("todo") }

// Doors says where calls come in.
type Doors struct {
	HTTP *HTTP `yaml:"http"`
}

// HTTP is the HTTP door.
type HTTP struct {
	Listen  string   `yaml:"listen"`  // address; default 127.0.0.1:8700
	Hosts   []string `yaml:"hosts"`   // Host headers accepted beside the listen address and localhost
	Origins []string `yaml:"origins"` // browser origins accepted beside none
}

// Limits are the defaults of the engine and of every runner.
type Limits struct {
	Timeout time.Duration `yaml:"timeout"` // of a call whose tool says nothing; default 30 s
	Drain   time.Duration `yaml:"drain"`   // how long a shutdown waits for calls in flight; default 10 s
}

// Load reads a file. Parse reads its content. Default is the config of a start without a file.
func Load(path string) (*Config, error)               { panic("todo") }
func Parse(path string, data []byte) (*Config, error) { panic("todo") }
func Default(dir string) *Config                      { panic("todo") }
