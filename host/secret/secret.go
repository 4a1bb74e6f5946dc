// Package secret holds the secrets that a config names, passes them to the tools that declare them, and removes their
// values from everything that leaves the program: outputs, errors, logs and records.
package secret

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/kernel"
	"toolpost/tool"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// Limits of a value. A shorter one could not be distinguished from ordinary text, and so could not be redacted.
const (
	MinSize = 6
	MaxSize = 64 << 10
)

// A From is the origin of a secret's value, in exactly one way.
type From struct {
	Env     string   `yaml:"env" doc:"environment variable of Toolpost that holds the value"`
	File    string   `yaml:"file" kind:"path" doc:"file that holds the value; only its owner may have access; one trailing newline is removed"`
	Command []string `yaml:"command" kind:"path" doc:"program and arguments that print the value to stdout within 10s; one trailing newline is removed"`
}

// Validate checks that there is exactly one origin.
func (f *From) Validate() error {
	given := []bool{f.Env != "", f.File != "", len(f.Command) > 0}
	if len(slices.DeleteFunc(given, func(is bool) bool { return !is })) != 1 {
		return fmt.Errorf("a secret comes from one place: say `env: VARIABLE`, `file: PATH` or " +
			"`command: [PROGRAM, ...]`")
	}
	return nil
}

// String describes the origin. The arguments of a command are left out.
func (f From) String() string {
	switch {
	case f.Env != "":
		return "the environment variable " + f.Env
	case f.File != "":
		return "the file " + f.File
	case len(f.Command) > 0:
		return "the command " + f.Command[0]
	}
	return "nowhere"
}

// A Vault holds the secrets of one config, as they were when it was opened. A nil Vault has none.
type Vault struct {
	secrets map[string]held
}

// A held secret has a value, or the reason for having none.
type held struct {
	value string
	err   error
}

// atOnce is how many secrets are read concurrently.
const atOnce = 8

// Open reads all secrets; the paths of files, and the commands, start in dir. A secret that cannot be read only affects
// the tools that need it: Secret returns the reason. A command runs without walls, so it is refused if tools may write to
// a folder around its files; off is nil if there are no tools.
func Open(ctx context.Context, dir string, from map[string]From, off *offlimits.List) *Vault {
	v := &Vault{secrets: make(map[string]held, len(from))}
	var mu sync.Mutex
	var readers errgroup.Group
	readers.SetLimit(atOnce)
	for name, f := range from {
		readers.Go(func() error {
			value, err := f.read(ctx, dir, name, off)
			mu.Lock()
			defer mu.Unlock()
			v.secrets[name] = held{value, err}
			return nil
		})
	}
	_ = readers.Wait() // each secret keeps its own error
	return v
}

// Claim returns the files that values come from: a tool may get a value, but never the file. Tools must not be able to
// change the files that a command is started from: it is not confined.
func Claim(dir string, from map[string]From) offlimits.Claim {
	var c offlimits.Claim
	for _, f := range from {
		c.Keeps = append(c.Keeps, offlimits.Given(dir, f.File)...)
		c.Starts = append(c.Starts, offlimits.Argv(dir, f.Command, nil)...)
	}
	return c
}

// Names lists the secrets in order, including those that could not be read.
func (v *Vault) Names() []string {
	if v == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(v.secrets))
}

// Secret returns the value of a secret, or the reason why there is none.
func (v *Vault) Secret(name string) (string, error) {
	if v != nil {
		if s, ok := v.secrets[name]; ok {
			return s.value, s.err
		}
	}
	known := "the config has none"
	if names := v.Names(); len(names) > 0 {
		known = "known are " + strings.Join(names, ", ")
	}
	if !looksLikeName().MatchString(name) || len(name) > maxShown {
		return "", tool.Errorf(tool.CodeUnavailable, "there is no secret of the name that is written there, which is not "+
			"shown because it may be the secret itself; a config has the names of secrets only: say in its section "+
			"`secrets` where the value comes from, and write the name from there (%s)", known)
	}
	return "", tool.Errorf(tool.CodeUnavailable,
		"there is no secret %s; name it in the section `secrets` of the config (%s)", name, known)
}

// looksLikeName matches names that people choose. If a user writes a key in place of its name, as happens, it must not
// appear in a log: keys have digits among their letters, or other characters.
var looksLikeName = regex.Lazy(`^[A-Za-z_]+[0-9]{0,3}$`)

// maxShown is the maximum length of a name that is shown.
const maxShown = 40

// Same reports whether a secret is the same in two vaults: its value, or the reason for having none.
func (v *Vault) Same(o *Vault, name string) bool {
	a, errA := v.Secret(name)
	b, errB := o.Secret(name)
	return a == b && fmt.Sprint(errA) == fmt.Sprint(errB)
}

// Redactor returns a redactor for the values of this vault.
func (v *Vault) Redactor() *Redactor {
	r := new(Redactor)
	r.Learn(v)
	return r
}

// Format prevents the values from being printed.
func (v *Vault) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "secrets %v", v.Names())
}

// validName reports whether a name is valid for a secret: it must be valid for an environment variable.
func validName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
	return name != "" && strings.Trim(name, letters+"0123456789") == "" && strings.Contains(letters, name[:1])
}

// A Source returns values by name: a Vault, or the part of one that a source of tools has (config.Source.Secrets).
type Source interface {
	Secret(name string) (string, error)
}

// A Grant is the part about secrets in the config of a source of tools. It is embedded in the options of a protocol.
type Grant struct {
	Secrets     []string `yaml:"secrets" doc:"secrets that the tools get as environment variables of the same name; VARIABLE=NAME uses another variable"`
	SecretFiles []string `yaml:"secret_files" doc:"secrets that the tools get as open files; the variable NAME_FD holds the descriptor number"`
	Vault       Source   `yaml:"-"` // nil if there are none

	Connections Exposing `yaml:"-"` // nil if there are none
}

// Exposing returns the keys of the connections that programs are given, and lists the variables for them, as VARIABLE=CONNECTION.
type Exposing interface {
	Source
	Exposes() []string
}

// Give passes a child its secrets. Allowed comes from its guarantees (tool.Guarantees.SecretsAllowed): a secret that is
// not on that list is left out; nil leaves out none. A secret without a value is an error: the tool must not run without
// it. The caller calls done when the child has been started, or failed to start.
func (g Grant) Give(cmd *process.Command, allowed []string) (done func(), err error) {
	vars, err := grant(g.Vault, g.Secrets, allowed)
	if err != nil {
		return nil, err
	}
	inFiles, err := grant(g.Vault, g.SecretFiles, allowed)
	if err != nil {
		return nil, err
	}
	if g.Connections != nil {
		keys, err := grant(g.Connections, g.Connections.Exposes(), allowed)
		if err != nil {
			return nil, err
		}
		vars = append(vars, keys...)
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
	for _, s := range inFiles { // for tools whose environment other processes may read
		f, err := Sealed(s.name, s.value)
		if err != nil {
			done()
			return nil, tool.Errorf(tool.CodeUnavailable, "the secret %s cannot be handed over as a file: %w", s.name,
				err)
		}
		const first = 3 // of process.Command.Files
		cmd.Env = append(cmd.Env, s.name+"_FD="+strconv.Itoa(first+len(cmd.Files)))
		files, cmd.Files = append(files, f), append(cmd.Files, f)
	}
	return done, nil
}

type known struct {
	name, value string
	label       string // replaces the value; empty means the name in brackets
}

// grant returns the secrets that are both declared and allowed, each once, by the names of their variables.
func grant(from Source, names, allowed []string) ([]known, error) {
	if from == nil {
		from = (*Vault)(nil)
	}
	var granted []known
	for i, declared := range names {
		variable, name, ok := strings.Cut(declared, "=")
		if !ok {
			name = variable
		}
		if allowed != nil && !slices.Contains(allowed, name) || slices.Contains(names[:i], declared) {
			continue
		}
		if !validName(variable) {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%q cannot be the name of a variable, for the secret %s", variable, name)
		}
		value, err := from.Secret(name)
		if err != nil {
			return nil, err
		}
		granted = append(granted, known{name: variable, value: value})
	}
	return granted, nil
}

// Sealed makes a file in memory that can be read but not changed.
func Sealed(name, value string) (*os.File, error) {
	return kernel.Sealed(name, func(w io.Writer) error {
		_, err := io.WriteString(w, value)
		return err
	})
}

// Keyed makes digests with a key. Arguments are often short, or one of a few values, so they could be guessed from a
// plain digest. A digest with a key cannot be guessed without the key, but equal arguments still have equal digests.
type Keyed struct {
	request func() ([]byte, error)
	have    atomic.Pointer[[]byte]
	macs    sync.Pool // of *mac, including the key: making one costs more than a short digest

	mu     sync.Mutex // while the key is requested
	failed time.Time
	err    error
}

// NewKeyed returns a Keyed. The key is requested for the first digest. If key is nil a random one is used, so that no other
// program has the same digests.
func NewKeyed(key func() ([]byte, error)) *Keyed {
	if key == nil {
		key = func() ([]byte, error) { return []byte(rand.Text()), nil }
	}
	return &Keyed{request: key}
}

// key returns the key. It may be in a database that cannot be reached for a while: then it is requested again, but not by
// every call, each of which would wait.
func (k *Keyed) key() ([]byte, error) {
	if have := k.have.Load(); have != nil {
		return *have, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if have := k.have.Load(); have != nil {
		return *have, nil
	}
	if k.err != nil && time.Since(k.failed) < time.Second {
		return nil, k.err
	}
	key, err := k.request()
	if k.failed, k.err = time.Now(), err; err == nil {
		k.have.Store(&key)
	}
	return key, err
}

// Sum returns the digest of several texts for a purpose. Digests for different purposes are unrelated.
func (k *Keyed) Sum(purpose string, texts ...[]byte) (sum [sha256.Size]byte, err error) {
	key, err := k.key()
	if err != nil {
		return sum, err
	}
	m, ok := k.macs.Get().(*mac)
	if !ok {
		m = &mac{Hash: hmac.New(sha256.New, key)}
	}
	defer k.macs.Put(m)
	m.Reset()
	m.sized(len(purpose)) // "ab"+"c" is not "a"+"bc"
	m.small = append(m.small, purpose...)
	m.Write(m.small)
	for _, text := range texts {
		m.sized(len(text))
		m.Write(m.small)
		m.Write(text)
	}
	m.small = m.Sum(m.small[:0])
	return [sha256.Size]byte(m.small), nil
}

// A mac makes one sum after the other, and reuses its buffer.
type mac struct {
	hash.Hash
	small []byte
}

func (m *mac) sized(n int) { m.small = binary.AppendUvarint(m.small[:0], uint64(n)) }

// Seal returns a cipher that encrypts and authenticates texts for a purpose. It makes its own nonces.
func (k *Keyed) Seal(purpose string) (cipher.AEAD, error) {
	key, err := k.Sum(purpose)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// SealText returns a value as a text that only OpenText reads, for the same purpose and with the same key.
func (k *Keyed) SealText(purpose string, v any) (string, error) {
	aead, err := k.Seal(purpose)
	if err != nil {
		return "", err
	}
	plain, err := strictjson.Marshal(v)
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, plain, nil)), err //nolint:gosec // it makes a nonce
}

// OpenText reads a text of SealText; ok is false if it is none.
func (k *Keyed) OpenText(purpose, text string, into any) (ok bool, err error) {
	aead, err := k.Seal(purpose)
	if err != nil {
		return false, err
	}
	sealed, bad := base64.RawURLEncoding.Strict().DecodeString(text)
	if bad == nil {
		sealed, bad = aead.Open(nil, nil, sealed, nil)
	}
	return bad == nil && strictjson.Unmarshal(sealed, into) == nil, nil
}

// Marks remember what was used, for all programs that share them.
type Marks interface {
	Mark(ctx context.Context, what, who [32]byte, ttl time.Duration) (theirs bool, err error)
}

// Once marks what a text of a purpose names, and reports whether this is the first time.
func (k *Keyed) Once(ctx context.Context, m Marks, purpose, text string, ttl time.Duration) (first bool, err error) {
	sum, err := k.Sum(purpose, []byte(text))
	if err != nil {
		return false, err
	}
	return m.Mark(ctx, sum, [32]byte([]byte(rand.Text() + rand.Text())[:32]), ttl)
}
