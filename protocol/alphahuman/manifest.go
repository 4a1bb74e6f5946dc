package alphahuman

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// The files of a skill folder.
const (
	manifestFile     = "manifest.json"
	otherManifest    = "skill.json"
	skillFile        = "SKILL.md"
	programFile      = "skill.py"
	requirementsFile = "requirements.txt"
	venvFolder       = ".venv"
)

// manifestFiles lists the possible names of a manifest. If both files exist, the first one counts.
func manifestFiles() []string { return []string{manifestFile, otherManifest} }

// A Manifest is a manifest.json or a skill.json. Unknown fields are ignored.
type Manifest struct {
	ID, Name, Description, Version string

	Runtime      Runtime
	Env          []string      // names of variables that are passed through
	Tick         time.Duration // 0 means no ticks
	Dependencies []string      // Python packages, in the form of requirements.txt
	Concurrency  int           // calls that the skill can take at once; 0 if not given
}

// A Runtime describes how a skill is started.
type Runtime struct {
	Type    string   `json:"type"`    // subprocess, python or node
	Command string   `json:"command"` // for subprocess
	Args    []string `json:"args"`
	Entry   string   `json:"-"` // for python and node: the file to run
}

// Ticks come once a minute by default, and never more often than every second.
const (
	defaultTick = time.Minute
	minTick     = time.Second
)

const maxManifest = 1 << 20

// parseManifest reads a manifest. Errors name the file and the field.
func parseManifest(file string, data []byte) (*Manifest, error) {
	fields := map[string]json.RawMessage{}
	err := strictjson.Object(data, func(name, value []byte) error {
		if string(value) != "null" {
			fields[string(name)] = value
		}
		return nil
	})
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w", file, err)
	}
	m, tick := &Manifest{}, float64(defaultTick.Milliseconds()) // milliseconds, the unit of existing manifests
	for _, f := range []struct {
		name string
		into any
	}{
		{"id", &m.ID}, {"name", &m.Name}, {"description", &m.Description}, {"version", &m.Version},
		{"entry", &m.Runtime.Entry}, {"env", &m.Env}, {"tick_interval", &tick},
		{"dependencies", &m.Dependencies}, {"concurrency", &m.Concurrency},
	} {
		if err := readField(file, f.name, fields[f.name], f.into); err != nil {
			return nil, err
		}
	}
	if err := m.readRuntime(file, fields["runtime"]); err != nil {
		return nil, err
	}
	if tick > 0 {
		m.Tick = max(time.Duration(tick*float64(time.Millisecond)), minTick)
	}
	return m, m.check(file, tick)
}

func readField(file, name string, value json.RawMessage, into any) error {
	if value == nil {
		return nil
	}
	if err := strictjson.Unmarshal(value, into); err != nil {
		return fieldError(file, name, "%s", jsonrpc.Misread(err))
	}
	return nil
}

func fieldError(file, name, format string, args ...any) error {
	return tool.Errorf(tool.CodeInvalidInput, "%s: field %s: %s", file, name, fmt.Sprintf(format, args...))
}

// readRuntime reads the contract's object, or the name of a language.
func (m *Manifest) readRuntime(file string, value json.RawMessage) error {
	switch strictjson.KindOf(value) {
	case "nothing":
		return fieldError(file, "runtime",
			`missing; say how the skill is started, such as {"type":"subprocess","command":"python3","args":["skill.py"]}`)
	case "object":
		if err := readField(file, "runtime", value, &m.Runtime); err != nil {
			return err
		}
		m.Runtime.Type = cmp.Or(m.Runtime.Type, "subprocess")
	default:
		return readField(file, "runtime", value, &m.Runtime.Type)
	}
	return nil
}

// check finds errors that would otherwise only show, or mislead, when the skill is started.
func (m *Manifest) check(file string, tick float64) error {
	r := &m.Runtime
	switch {
	case r.Type == "subprocess" && r.Command == "":
		return fieldError(file, "runtime", "a subprocess needs a command")
	case (r.Type == "python" || r.Type == "node") && r.Entry == "":
		return fieldError(file, "entry", "missing; name the file that %s runs", r.Type)
	case !slices.Contains([]string{"subprocess", "python", "node"}, r.Type):
		return fieldError(file, "runtime", "%.40q cannot be run; known are subprocess, python and node", r.Type)
	case strings.HasPrefix(r.Entry, "-"):
		return fieldError(file, "entry", "%.40q is not a file", r.Entry)
	case m.Concurrency < 0:
		return fieldError(file, "concurrency", "cannot be negative")
	case tick < 0 || tick > float64(math.MaxInt64/time.Millisecond):
		return fieldError(file, "tick_interval", "%v is not a number of milliseconds", tick)
	}
	for _, name := range m.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fieldError(file, "env", "%.40q cannot be the name of a variable", name)
		}
	}
	return nil
}

// venvPython returns the Python of a skill's own environment, or usual if it has none.
func venvPython(dir, usual string) (string, error) {
	venv := filepath.Join(dir, venvFolder)
	if !exists(venv) {
		return usual, nil
	}
	python := filepath.Join(venv, "bin", "python")
	if _, err := exec.LookPath(python); err != nil {
		return "", tool.Errorf(tool.CodeUnavailable,
			"%s exists, but %s cannot be run; remove the folder and run `toolpost skill install %s`: %w", venv, python,
			dir, err)
	}
	return python, nil
}

// python reports whether the skill is written in Python.
func (m *Manifest) python() bool {
	return m.Runtime.Type == "python" || strings.HasPrefix(filepath.Base(m.Runtime.Command), "python")
}
