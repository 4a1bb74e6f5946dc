package pack

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

func keys(t testing.TB) (ed25519.PrivateKey, ed25519.PublicKey) {
	t.Helper()
	private, public, err := generateKey()
	kit.OK(t, err)
	key := kit.Must(parsePrivateKey(private))(t)
	pub := kit.Must(parsePublicKey(public))(t)
	return key, pub
}

// signed makes a signed pack and returns its folder.
func signed(t testing.TB, key ed25519.PrivateKey) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files("greetings") {
		kit.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	kit.Must(sign(dir, key))(t)
	return dir
}

func TestSignedPackIsVerifiedAndInstalled(t *testing.T) {
	key, pub := keys(t)
	dir := signed(t, key)
	s, err := verify(dir, []ed25519.PublicKey{pub})
	if err != nil || s.SignerID != SignerID(pub) || len(s.Files) != 4 || !strings.HasPrefix(s.Digest, "sha256:") || s.SignedAt == "" {
		t.Fatalf("%+v, %v", s, err)
	}
	app := t.TempDir()
	in, err := install(dir, app, []ed25519.PublicKey{pub}, false, false)
	if err != nil || in.ID != "greetings" || in.SignerID != s.SignerID || in.Path != filepath.Join(app, ".namel3ss/packs/greetings") {
		t.Fatalf("%+v, %v", in, err)
	}
	kit.Refused(t, kit.Err(install(dir, app, []ed25519.PublicKey{pub}, false, false)), tool.CodeConflict, "")
	kit.Check(t, kit.Err(install(dir, app, []ed25519.PublicKey{pub}, false, true)))
	if left, _ := os.ReadDir(filepath.Join(app, ".namel3ss/packs")); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestChangedPackIsNotVerified(t *testing.T) {
	key, pub := keys(t)
	other, _ := keys(t)
	rewrite := func(dir string, change func(*Signature)) error {
		s, err := readSignature(dir)
		if err != nil {
			return err
		}
		change(s)
		b, err := strictjson.Marshal(s)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, signatureFile), b, 0o644)
	}
	for name, c := range map[string]struct {
		change func(dir string) error
		want   string
	}{
		"code":          {func(d string) error { return os.WriteFile(d+"/hello/main.py", []byte("x"), 0o644) }, `"hello/main.py" was changed`},
		"capabilities":  {func(d string) error { return os.WriteFile(d+"/capabilities.yaml", nil, 0o644) }, `"capabilities.yaml" was changed`},
		"added":         {func(d string) error { return os.WriteFile(d+"/hello/json.py", nil, 0o644) }, `"hello/json.py" was added`},
		"taken away":    {func(d string) error { return os.Remove(d + "/capabilities.yaml") }, `"capabilities.yaml" was taken away`},
		"executable":    {func(d string) error { return os.Chmod(d+"/hello/main.py", 0o755) }, `"hello/main.py" was changed`},
		"a link":        {func(d string) error { return os.Symlink("/etc/passwd", d+"/hello/x") }, "is not a regular file"},
		"a folder link": {func(d string) error { return os.Symlink("/etc", d+"/more") }, "is not a regular file"},
		"unsigned":      {func(d string) error { return os.Remove(filepath.Join(d, signatureFile)) }, "is not signed"},
		"another key":   {func(d string) error { _, err := sign(d, other); return err }, "who is not trusted"},
		"the name of a trusted key": {func(d string) error {
			if _, err := sign(d, other); err != nil {
				return err
			}
			return rewrite(d, func(s *Signature) { s.SignerID = SignerID(pub) })
		}, "is not genuine"},
		"the list": {func(d string) error { return rewrite(d, func(s *Signature) { s.Files = s.Files[:1] }) }, "other files than it lists"},
		"the date": {func(d string) error {
			return rewrite(d, func(s *Signature) { s.SignedAt = "2020-01-01T00:00:00Z" })
		}, "is not genuine"},
		"no JSON": {func(d string) error { return os.WriteFile(filepath.Join(d, signatureFile), []byte("{"), 0o644) }, "is not a signature"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := signed(t, key)
			kit.OK(t, c.change(dir))
			kit.Fails(t, kit.Err(verify(dir, []ed25519.PublicKey{pub})), c.want, c.want)
			app := t.TempDir()
			if _, err := install(dir, app, []ed25519.PublicKey{pub}, false, false); err == nil {
				t.Error("it was installed")
			} else if strings.Contains(err.Error(), ".installing-") {
				t.Errorf("it names the copy: %v", err)
			}
			if left, _ := os.ReadDir(filepath.Join(app, ".namel3ss/packs")); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestInvalidKeysAreRefused(t *testing.T) {
	private, public, err := generateKey()
	kit.OK(t, err)
	for _, text := range [][]byte{nil, []byte("x"), public, []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")} {
		kit.Refused(t, kit.Err(parsePrivateKey(text)), tool.CodeInvalidInput, "", text)
	}
	for _, text := range [][]byte{nil, private, []byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")} {
		kit.Refused(t, kit.Err(parsePublicKey(text)), tool.CodeInvalidInput, "", text)
	}
}
