package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"toolpost/config/offlimits"
	"toolpost/kernel"
	"toolpost/tool"
)

// TokenFile is the name of the file, in the folder given to FileToken, that keeps the token's digest. If it is removed,
// the next start makes another token.
const TokenFile = "http-token"

// minToken keeps people from guarding a machine with "test".
const minToken = 16

// TokenHint explains where to get a token.
const TokenHint = "the first `toolpost serve` printed the owner's, unless TOOLPOST_TOKEN was set there; " +
	"if it is lost, run `toolpost token new-owner` in the folder of the server's config"

// StaticToken admits callers that know the token.
func StaticToken(token string) (Gate, error) {
	if len(token) < minToken {
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"the token has %d characters: take at least %d, better 32 random ones", len(token), minToken)
	}
	return digestGate(sha256.Sum256([]byte(token))), nil
}

// FileToken admits callers that know the token whose SHA-256 is kept in dir. If there is none yet, it makes one and
// returns it as fresh, this once: the file keeps only the digest.
func FileToken(dir string) (gate Gate, fresh string, err error) {
	if err := privateDir(dir); err != nil {
		return nil, "", err
	}
	path := filepath.Join(dir, TokenFile)
	digest, err := readDigest(path)
	if errors.Is(err, fs.ErrNotExist) {
		if fresh, err = makeToken(path); err == nil {
			digest, err = readDigest(path)
		}
	}
	if err != nil {
		return nil, "", err
	}
	return (&kept{path: path, digest: digest}).admit, fresh, nil
}

// NewFileToken makes another token in dir. The one before it is no longer valid, even in a process that is already
// serving.
func NewFileToken(dir string) (token string, err error) {
	if err := privateDir(dir); err != nil {
		return "", err
	}
	token, digest := randomToken()
	if err := offlimits.WriteOver(filepath.Join(dir, TokenFile), digest); err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "cannot keep the HTTP token: %w", err)
	}
	return token, nil
}

// kept is the token whose digest is in a file, as the file is now.
type kept struct {
	path string

	mu     sync.Mutex
	digest [sha256.Size]byte
	broken bool // the file can no longer be trusted
	seen   kernel.Stamp
	looked time.Time
}

func stampOf(path string) (s kernel.Stamp) {
	if info, err := os.Lstat(path); err == nil {
		s = kernel.StampOf(info)
	}
	return s
}

// admit implements Gate.
func (k *kept) admit(ctx context.Context, shown Credentials) (tool.Principal, error) {
	digest, ok := k.current()
	if !ok {
		return tool.Principal{}, WrongToken()
	}
	return digestGate(digest)(ctx, shown)
}

// current returns the digest, at most a moment old. While the file is missing, the last digest holds; the next start
// makes another token.
func (k *kept) current() (digest [sha256.Size]byte, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.looked) >= fresh {
		k.looked = time.Now()
		if now := stampOf(k.path); now != k.seen && now != (kernel.Stamp{}) {
			digest, err := readDigest(k.path)
			k.digest, k.broken, k.seen = digest, err != nil, now
		}
	}
	return k.digest, !k.broken
}

// digestGate compares digests: they have the same length, and the comparison takes constant time.
func digestGate(want [sha256.Size]byte) Gate {
	return func(_ context.Context, shown Credentials) (tool.Principal, error) {
		got := shown.digest()
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			return tool.Principal{}, WrongToken()
		}
		return tool.Principal{ID: Owner, Door: shown.Door, Operates: true}, nil
	}
}

// privateDir makes the folder, or makes sure that no other user can put a token into it.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return tool.Errorf(tool.CodeUnavailable, "cannot make the folder of the HTTP token: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "cannot look at the folder of the HTTP token: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return tool.Errorf(tool.CodeAccessDenied, "%s can be written by others (mode %04o): chmod 700 it", dir, mode)
	}
	return nil
}

// makeToken stores the digest of a new token at path. If two processes start at once, one wins. The other's token is not
// valid and not shown.
func makeToken(path string) (string, error) {
	token, digest := randomToken()
	switch err := offlimits.WriteNew(path, digest); {
	case errors.Is(err, fs.ErrExist):
		return "", nil
	case err != nil:
		return "", tool.Errorf(tool.CodeUnavailable, "cannot keep the HTTP token: %w", err)
	}
	return token, nil
}

// randomToken makes a token, and the line for the file.
func randomToken() (token, digest string) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	token = TokenPrefix + base64.RawURLEncoding.EncodeToString(secret)
	return token, digestOf(token) + "\n"
}

// readDigest trusts a file only if no other user can have written it. It keeps fs.ErrNotExist.
func readDigest(path string) (digest [sha256.Size]byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return digest, tool.Errorf(tool.CodeUnavailable, "cannot read the HTTP token: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return digest, tool.Errorf(tool.CodeUnavailable, "cannot read the HTTP token: %w", err)
	case !info.Mode().IsRegular():
		return digest, tool.Errorf(tool.CodeAccessDenied,
			"%s is not a regular file: remove it, and the next start makes a new token", path)
	case info.Mode().Perm()&0o077 != 0:
		return digest, tool.Errorf(tool.CodeAccessDenied,
			"%s is open to others (mode %04o): chmod 600 it, or remove it and the next start makes a new token", path,
			info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return digest, tool.Errorf(tool.CodeUnavailable, "cannot read the HTTP token: %w", err)
	}
	sum, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(sum) != len(digest) {
		return digest, tool.Errorf(tool.CodeInvalidInput,
			"%s does not hold a SHA-256 in hex: remove it, and the next start makes a new token", path)
	}
	return [sha256.Size]byte(sum), nil
}

// A Grant is the rights that a token was issued with.
type Grant struct {
	Caller  string        `json:"caller"`
	Roles   []string      `json:"roles"`
	Tools   tool.Patterns `json:"tools"`            // in addition to those of the roles
	Listed  bool          `json:"listed"`           // it counts only while the config lists the caller
	Expires time.Time     `json:"expires,omitzero"` // zero means never
}

// A Token is one token as operators see it. The token itself is not kept.
type Token struct {
	ID string `json:"id"` // the start of its digest
	Grant
	Note   string    `json:"note,omitempty"`
	Issued time.Time `json:"issued"`
	State  string    `json:"state"`
}

// The states of a token.
const (
	Live    = "live"
	Revoked = "revoked"
	Expired = "expired"
)

// MaxTokenTTL is the longest life of a token that expires.
const MaxTokenTTL = 10 * 365 * 24 * time.Hour

// tokenIDLength is how much of the digest of a token names it.
const tokenIDLength = 16

// TokenPrefix starts every issued token, and distinguishes it from its id.
const TokenPrefix = "tp_"

// TokenID returns the id of the given token, or text itself if it is an id.
func TokenID(text string) string {
	if !strings.HasPrefix(text, TokenPrefix) {
		return text
	}
	return digestOf(text)[:tokenIDLength]
}

func digestOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Tokens returns the grant of a token, by its SHA-256 in hexadecimal digits, or false if there is no such token or it is
// no longer valid.
type Tokens func(ctx context.Context, digest string) (Grant, bool, error)

// wellFormed reports whether a token can be an issued one: nothing else is worth a lookup in the store.
func wellFormed(token string) bool {
	return strings.HasPrefix(token, TokenPrefix) && len(token) == len(TokenPrefix)+43
}

// How long tokens are cached, and how many. A revocation takes effect at most that much later.
const (
	fresh     = 500 * time.Millisecond
	maxCached = 4096
)

// issued caches for a moment what the store returned for tokens, including unknown ones.
type issued struct {
	tokens Tokens
	now    func() time.Time

	mu      sync.Mutex
	known   map[string]answer
	unknown map[string]answer // apart, so that guessing many tokens does not evict good ones
}

type answer struct {
	grant Grant
	ok    bool
	asked time.Time
}

// find finds a token by its SHA-256 in hexadecimal digits.
func (i *issued) find(ctx context.Context, digest string) (Grant, bool, error) {
	if i.tokens == nil {
		return Grant{}, false, nil
	}
	a, ok := i.remembered(digest)
	if !ok {
		a.asked = i.now() // before the lookup: the answer may be as old as that
		var err error
		if a.grant, a.ok, err = i.tokens(ctx, digest); err != nil {
			return Grant{}, false, err
		}
		i.remember(digest, a)
	}
	over := !a.grant.Expires.IsZero() && !i.now().Before(a.grant.Expires)
	return a.grant, a.ok && !over, nil
}

func (i *issued) remembered(digest string) (answer, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, all := range []map[string]answer{i.known, i.unknown} {
		if a, ok := all[digest]; ok && i.now().Sub(a.asked) < fresh {
			return a, true
		}
	}
	return answer{}, false
}

func (i *issued) remember(digest string, a answer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.known, digest)
	delete(i.unknown, digest)
	all := i.unknown
	if a.ok {
		all = i.known
	}
	if len(all) >= maxCached {
		clear(all) // each would expire in a moment anyway
	}
	all[digest] = a
}

// AtHub returns a caller that another hub of the fleet admitted. Hubs believe each other: every one of them has the key of the
// fleet.
func AtHub(caller string, operator bool) tool.Principal {
	return tool.Principal{ID: caller, Operates: operator}
}
