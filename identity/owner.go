package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"toolpost/host/offlimits"
	"toolpost/tool"
)

// TokenFile is the name of the file, in the folder given to FileToken, that keeps the token's digest.
// Whoever removes it gets another token at the next start.
const TokenFile = "http-token"

// minToken keeps people from guarding a machine with "test".
const minToken = 16

// TokenHint says where to get a token.
const TokenHint = "the token was printed when `toolpost serve` first made it, or is the value of TOOLPOST_TOKEN " +
	"there; " +
	"`toolpost serve --new-token` makes another"

// StaticToken admits callers that know the token.
func StaticToken(token string) (Gate, error) {
	if len(token) < minToken {
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"the token has %d characters: take at least %d, better 32 random ones", len(token), minToken)
	}
	return digestGate(sha256.Sum256([]byte(token))), nil
}

// FileToken admits callers that know the token whose SHA-256 is kept in dir. Where there is none yet it makes
// one and returns it as fresh, this once: the file keeps the digest alone.
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
	return digestGate(digest), fresh, nil
}

// digestGate compares digests: they have one length, and the time it takes tells nothing.
func digestGate(want [sha256.Size]byte) Gate {
	return func(_ context.Context, shown Credentials) (tool.Principal, error) {
		got := sha256.Sum256([]byte(shown.Token))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			return tool.Principal{}, wrongToken()
		}
		return tool.Principal{ID: Owner, Door: shown.Door, Operates: true}, nil
	}
}

// privateDir makes the folder, or makes sure that nobody else can put a token of theirs into it.
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

// makeToken keeps the digest of a new token at path. Of two that start at once one wins. The other's token is not valid
// and not shown.
func makeToken(path string) (string, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	token := "tp_" + base64.RawURLEncoding.EncodeToString(secret)
	switch err := offlimits.WriteNew(path, fmt.Sprintf("%x\n", sha256.Sum256([]byte(token)))); {
	case errors.Is(err, fs.ErrExist):
		return "", nil
	case err != nil:
		return "", tool.Errorf(tool.CodeUnavailable, "cannot keep the HTTP token: %w", err)
	}
	return token, nil
}

// readDigest trusts a file only when nobody else can have written it. It keeps fs.ErrNotExist.
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
