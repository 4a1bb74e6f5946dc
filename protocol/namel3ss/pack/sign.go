package pack

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// signatureFile is the one file of a pack that its signature does not cover.
const signatureFile = "pack.sig"

// Bounds of a pack that is signed, verified or installed.
const (
	maxPackFiles = 10_000
	maxPackBytes = 512 << 20
)

// A File is a file as a signature covers it.
type File struct {
	Path       string `json:"path"` // below the pack, with slashes
	Executable bool   `json:"executable,omitempty"`
	SHA256     string `json:"sha256"`
}

// A Signature is a pack.sig: the signer, the files and the time.
type Signature struct {
	Version   int    `json:"version"`
	SignerID  string `json:"signer_id"`
	SignedAt  string `json:"signed_at"` // RFC 3339
	Digest    string `json:"digest"`    // sha256: of the manifest of all files
	Files     []File `json:"files"`
	Signature []byte `json:"signature"`
}

// message returns the bytes to sign. The first line distinguishes them from anything else that the key may sign.
func (s *Signature) message() []byte {
	return fmt.Appendf(nil, "toolpost pack v%d\n%s\n%s\n%s\n", s.Version, s.SignerID, s.SignedAt, s.Digest)
}

// digestOf returns the digest of a manifest: one line per file, sorted by path.
func digestOf(files []File) string {
	h := sha256.New()
	for _, f := range files {
		mode := "-"
		if f.Executable {
			mode = "x"
		}
		fmt.Fprintf(h, "%s %s %q\n", f.SHA256, mode, f.Path)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// generateKey makes a key pair for signing packs, as PEM.
func generateKey() (private, public []byte, err error) {
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, nil, tool.Errorf(tool.CodeInternal, "no key: %w", err)
	}
	privateDER, bad := x509.MarshalPKCS8PrivateKey(key)
	publicDER, err := x509.MarshalPKIXPublicKey(pub)
	if err := errors.Join(bad, err); err != nil {
		return nil, nil, tool.Errorf(tool.CodeInternal, "no key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: privateDER}),
		pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER}), nil
}

// parsePrivateKey reads the private half that generateKey made.
func parsePrivateKey(text []byte) (ed25519.PrivateKey, error) {
	return parseKey[ed25519.PrivateKey](text, "private", "make one with `toolpost pack keygen`",
		x509.ParsePKCS8PrivateKey)
}

// parsePublicKey reads the public half that generateKey made.
func parsePublicKey(text []byte) (ed25519.PublicKey, error) {
	return parseKey[ed25519.PublicKey](text, "public", "`toolpost pack keygen` makes one beside the private key",
		x509.ParsePKIXPublicKey)
}

func parseKey[K any](text []byte, kind, advice string, parse func([]byte) (any, error)) (key K, err error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != strings.ToUpper(kind)+" KEY" {
		return key, tool.Errorf(tool.CodeInvalidInput, "this is not a %s key in PEM; %s", kind, advice)
	}
	parsed, err := parse(block.Bytes)
	key, ok := parsed.(K)
	if err != nil || !ok {
		return key, tool.Errorf(tool.CodeInvalidInput, "this is not an Ed25519 %s key; %s", kind, advice)
	}
	return key, nil
}

// SignerID returns the short name of a key.
func SignerID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

// sign signs every file of a pack and writes the signature beside its manifest.
func sign(dir string, key ed25519.PrivateKey) (*Signature, error) {
	if _, err := readWhole(dir, filepath.Base(dir)); err != nil {
		return nil, err
	}
	files, err := filesOf(dir)
	if err != nil {
		return nil, err
	}
	s := &Signature{
		Version: 1, SignerID: SignerID(key.Public().(ed25519.PublicKey)),
		SignedAt: time.Now().UTC().Format(time.RFC3339), Digest: digestOf(files), Files: files,
	}
	s.Signature = ed25519.Sign(key, s.message())
	b, err := strictjson.Marshal(s)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, signatureFile), append(b, '\n'), 0o644)
	}
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the signature cannot be written: %w", err)
	}
	return s, nil
}

// verify reports whether one of the trusted keys signed the pack in its present form, with no file changed, added or
// removed.
func verify(dir string, trusted []ed25519.PublicKey) (*Signature, error) {
	s, err := readSignature(dir)
	if err != nil {
		return nil, err
	}
	if err := s.signedBy(trusted); err != nil {
		return nil, err
	}
	files, err := filesOf(dir)
	if err != nil {
		return nil, err
	}
	if what := difference(s.Files, files); what != "" {
		return nil, refused("%s was signed, but %s since then", dir, what)
	}
	return s, nil
}

func refused(format string, args ...any) error {
	return tool.Errorf(tool.CodeAccessDenied, format, args...).Because("pack_not_verified")
}

func readSignature(dir string) (*Signature, error) {
	b, err := appfile.Read(dir, signatureFile)
	switch {
	case err != nil:
		return nil, err
	case b == nil:
		return nil, refused("%s is not signed; its author signs it with `toolpost pack sign`", dir)
	}
	s := &Signature{}
	if err := strictjson.UnmarshalClosed(b, s); err != nil {
		return nil, refused("%s/%s is not a signature: %w", dir, signatureFile, err)
	}
	if s.Version != 1 {
		return nil, refused("%s/%s is of version %d; this is version 1", dir, signatureFile, s.Version)
	}
	return s, nil
}

// signedBy checks the signature, and that it matches the files that it lists.
func (s *Signature) signedBy(trusted []ed25519.PublicKey) error {
	i := slices.IndexFunc(trusted, func(k ed25519.PublicKey) bool {
		return len(k) == ed25519.PublicKeySize && SignerID(k) == s.SignerID
	})
	switch {
	case i < 0:
		return refused("the pack was signed by %.40q, who is not trusted; give the public key of its signer",
			s.SignerID)
	case !ed25519.Verify(trusted[i], s.message(), s.Signature):
		return refused("the signature of %s is not genuine", s.SignerID)
	case digestOf(s.Files) != s.Digest:
		return refused("the signature of %s is about other files than it lists", s.SignerID)
	}
	return nil
}

// difference names the first file that differs from the signed one.
func difference(signed, found []File) string {
	was := map[string]File{}
	for _, f := range signed {
		was[f.Path] = f
	}
	for _, f := range found {
		old, ok := was[f.Path]
		switch {
		case !ok:
			return fmt.Sprintf("%q was added", f.Path)
		case old != f:
			return fmt.Sprintf("%q was changed", f.Path)
		}
		delete(was, f.Path)
	}
	for _, f := range signed {
		if _, left := was[f.Path]; left {
			return fmt.Sprintf("%q was taken away", f.Path)
		}
	}
	return ""
}

// filesOf lists every file of a pack except its signature. Links are refused: their targets are not part of the pack.
func filesOf(dir string) ([]File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the pack cannot be read: %w", err)
	}
	defer root.Close()
	var files []File
	size := int64(0)
	err = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return tool.Errorf(tool.CodeUnavailable, "%q cannot be read: %w", path, err)
		case e.IsDir() || path == signatureFile:
			return nil
		case !e.Type().IsRegular():
			return tool.Errorf(tool.CodeInvalidInput, "%q is not a regular file; a pack has no links, pipes or devices",
				path)
		case !utf8.ValidString(path) || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' }):
			return tool.Errorf(tool.CodeInvalidInput, "%q is not a name for a file of a pack", path)
		case len(files) == maxPackFiles:
			return tool.Errorf(tool.CodeInvalidInput, "the pack has more than %d files", maxPackFiles)
		}
		f, n, err := fileOf(root, path, maxPackBytes-size)
		size += n
		files = append(files, f)
		return err
	})
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, err
}

func fileOf(root *os.Root, path string, most int64) (File, int64, error) {
	f, err := root.Open(path)
	if err != nil {
		return File{}, 0, tool.Errorf(tool.CodeUnavailable, "%q cannot be read: %w", path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return File{}, 0, tool.Errorf(tool.CodeInvalidInput, "%q is not a regular file", path)
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return File{}, n, tool.Errorf(tool.CodeUnavailable, "%q cannot be read: %w", path, err)
	case n > most:
		return File{}, n, tool.Errorf(tool.CodeInvalidInput, "the pack is larger than %d MiB", maxPackBytes>>20)
	}
	return File{path, info.Mode()&0o111 != 0, hex.EncodeToString(h.Sum(nil))}, n, nil
}

// An Installed is a pack after its installation.
type Installed struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Tools    []string `json:"tools"`
	SignerID string   `json:"signer_id,omitempty"` // empty if not verified
	Path     string   `json:"path"`
}

// install copies a pack into an app. It verifies the copy, and moves only a complete and verified copy into place, so that
// the files cannot be changed in between.
func install(
	src, appRoot string, trusted []ed25519.PublicKey, unsigned, replace bool,
) (*Installed, error) {
	parent := filepath.Join(appRoot, installedPacks)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "no place for packs: %w", err)
	}
	staging, err := os.MkdirTemp(parent, ".installing-")
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "no place for packs: %w", err)
	}
	defer os.RemoveAll(staging)
	if err := copyPack(src, staging); err != nil {
		return nil, err
	}
	p, err := readWhole(staging, filepath.Base(src))
	if err != nil {
		return nil, err
	}
	in := &Installed{ID: p.ID, Name: p.Name, Version: p.Version, Tools: p.Tools, Path: filepath.Join(parent, p.ID)}
	if !unsigned {
		s, err := verify(staging, trusted)
		if err != nil {
			e := tool.AsError(err) // it names the copy, which no longer exists when the user reads it
			return nil, tool.Errorf(e.Code, "%s", strings.ReplaceAll(e.Message, staging, src)).Because(e.Reason)
		}
		in.SignerID = s.SignerID
	}
	if err := os.Chmod(staging, 0o755); err != nil { //nolint:gosec // MkdirTemp keeps others out of what all of the app may read
		return nil, tool.Errorf(tool.CodeUnavailable, "the pack cannot be installed: %w", err)
	}
	return in, place(staging, in.Path, replace)
}

// place moves a staged pack into place; an earlier pack is removed only once the new one is there.
func place(staging, path string, replace bool) error {
	old := staging + ".old"
	if _, err := os.Lstat(path); err == nil {
		if !replace {
			return tool.Errorf(tool.CodeConflict, "%s is installed already; replace it with --replace", path)
		}
		if err := os.Rename(path, old); err != nil {
			return tool.Errorf(tool.CodeUnavailable, "the pack cannot be replaced: %w", err)
		}
		defer os.RemoveAll(old)
	}
	if err := os.Rename(staging, path); err != nil {
		_ = os.Rename(old, path) // put the earlier pack back, if any
		return tool.Errorf(tool.CodeUnavailable, "the pack cannot be installed: %w", err)
	}
	return nil
}

// copyPack copies a pack, within bounds and without links. Only the owner can write the copy.
func copyPack(src, to string) error {
	list, err := filesOf(src)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(src, signatureFile)); err == nil {
		list = append(list, File{Path: signatureFile})
	}
	from, err := os.OpenRoot(src)
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "the pack cannot be read: %w", err)
	}
	defer from.Close()
	into, err := os.OpenRoot(to)
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "the pack cannot be copied: %w", err)
	}
	defer into.Close()
	for _, f := range list {
		if err := copyFile(from, into, f); err != nil {
			return tool.Errorf(tool.CodeUnavailable, "%q cannot be copied: %w", f.Path, err)
		}
	}
	return nil
}

func copyFile(from, into *os.Root, f File) error {
	if err := into.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
		return err
	}
	in, err := from.Open(f.Path)
	if err != nil {
		return err
	}
	defer in.Close()
	mode := fs.FileMode(0o644)
	if f.Executable {
		mode = 0o755
	}
	out, err := into.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, maxPackBytes)) // it may grow meanwhile
	return errors.Join(err, out.Close())
}
