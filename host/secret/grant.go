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

// Give gives a child its secrets. Allowed is what its guarantees say of them (tool.Guarantees.SecretsAllowed): a secret
// that is not on that list is left out; nil leaves out none. One without a value is an error: the tool is not to be run
// without it. Done is to be called when the child has been started, or has not.
func (g Grant) Give(cmd *process.Command, allowed []string) (done func(), err error) {
	vars, err := grant(g.Vault, g.Secrets, allowed)
	if err != nil {
		return nil, err
	}
	inFiles, err := grant(g.Vault, g.SecretFiles, allowed)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	done = func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	cmd.Env, cmd.Files = slices.Clip(cmd.Env), slices.Clip(cmd.Files)
	for _, s := range vars {
		cmd.Env = append(cmd.Env, s.name+"="+s.value)
	}
	for _, s := range inFiles { // for tools whose environment others may read
		f, err := sealed(s.name, s.value)
		if err != nil {
			done()
			return nil, tool.Errorf(tool.CodeUnavailable, "the secret %s cannot be handed over as a file: %w", s.name, err)
		}
		const first = 3 // of process.Command.Files
		cmd.Env = append(cmd.Env, s.name+"_FD="+strconv.Itoa(first+len(cmd.Files)))
		files, cmd.Files = append(files, f), append(cmd.Files, f)
	}
	return done, nil
}

type known struct{ name, value string }

// grant returns the secrets that are both declared and allowed, each once.
func grant(from Source, names, allowed []string) ([]known, error) {
	if from == nil {
		from = (*Vault)(nil)
	}
	var granted []known
	for i, name := range names {
		if allowed != nil && !slices.Contains(allowed, name) || slices.Contains(names[:i], name) {
			continue
		}
		value, err := from.Secret(name)
		if err != nil {
			return nil, err
		}
		granted = append(granted, known{name, value})
	}
	return granted, nil
}

// sealed makes a file in memory that can be read and not be changed.
func sealed(name, value string) (*os.File, error) {
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
