package secret

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"toolpost/host/process"
	"toolpost/tool"
)

// A Source gives values by name: a Vault, or what the config of a source of tools has of one (config.Source.Secrets).
type Source interface {
	Secret(name string) (string, error)
}

// A Grant is what the config of a source of tools says about secrets. It is embedded in the options of a protocol.
type Grant struct {
	Secrets     []string `yaml:"secrets" doc:"names of secrets that the tools get, each as a variable of its name"`
	SecretFiles []string `yaml:"secret_files" doc:"names of secrets that the tools get as open files; a variable NAME_FD has the number of the descriptor"`
	Vault       Source   `yaml:"-"` // nil: there are none
}

// Give gives a child its secrets. Allowed is what its guarantees say of them. Done is to be called when the child has
// been started, or has not.
func (g Grant) Give(cmd *process.Command, allowed []string) (done func(), err error) {
	if len(g.Secrets)+len(g.SecretFiles) == 0 {
		return func() {}, nil
	}
	vars, err := Environment(g.Vault, g.Secrets, allowed)
	if err != nil {
		return nil, err
	}
	const first = 3 // of process.Command.Files
	files, numbers, err := Descriptors(g.Vault, g.SecretFiles, allowed, first+len(cmd.Files))
	if err != nil {
		return nil, err
	}
	cmd.Env = slices.Concat(cmd.Env, vars, numbers)
	cmd.Files = slices.Concat(cmd.Files, files)
	return func() {
		for _, f := range files {
			_ = f.Close()
		}
	}, nil
}

// Environment returns the secrets that a tool's source declares as variables, NAME=value, in the order of the names.
// allowed is the tool's list of secrets (tool.Guarantees.SecretsAllowed): one that is not on it is left out; nil
// leaves out none. A secret without a value is an error: the tool is not to be run without it.
func Environment(from Source, names, allowed []string) ([]string, error) {
	granted, err := grant(from, names, allowed)
	if err != nil {
		return nil, err
	}
	env := make([]string, len(granted))
	for i, g := range granted {
		env[i] = g.name + "=" + g.value
	}
	return env, nil
}

// Descriptors returns the same secrets as files, for tools whose environment others may read: each is to become a
// descriptor of the child, the first of them the one that is given (3 for process.Command.Files), and a variable
// NAME_FD tells its number. The caller closes the files, once the child has been started.
func Descriptors(from Source, names, allowed []string, first int) (files []*os.File, env []string, err error) {
	granted, err := grant(from, names, allowed)
	if err != nil {
		return nil, nil, err
	}
	for i, g := range granted {
		f, err := Sealed(g.name, g.value)
		if err != nil {
			for _, f := range files {
				_ = f.Close()
			}
			return nil, nil, tool.Errorf(tool.CodeUnavailable, "the secret %s cannot be handed over as a file: %w",
				g.name, err)
		}
		files = append(files, f)
		env = append(env, g.name+"_FD="+strconv.Itoa(first+i))
	}
	return files, env, nil
}

type known struct{ name, value string }

// grant returns the secrets that are both declared and allowed, each once.
func grant(from Source, names, allowed []string) ([]known, error) {
	var granted []known
	for i, name := range names {
		if allowed != nil && !slices.Contains(allowed, name) || slices.Contains(names[:i], name) {
			continue
		}
		if from == nil {
			from = (*Vault)(nil)
		}
		value, err := from.Secret(name)
		if err != nil {
			return nil, err
		}
		granted = append(granted, known{name, value})
	}
	return granted, nil
}

// Sealed makes a file in memory that can be read and not be changed.
func Sealed(name, value string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = strings.NewReader(value).WriteTo(f)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS,
			unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
