package identity_test

import (
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestATokenIsMadeOnceAndOnlyItsDigestIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "state")
	auth, fresh, err := identity.FileToken(dir)
	kit.OK(t, err)
	secret, ok := strings.CutPrefix(fresh, "tp_")
	if raw, err := base64.RawURLEncoding.DecodeString(secret); !ok || err != nil || len(raw) != 32 {
		t.Errorf("the token is %q", fresh)
	}
	kit.Check(t, kit.Err(auth(t.Context(), identity.Credentials{Token: fresh})))
	for _, wrong := range []string{"", "tp_", fresh[:len(fresh)-1], fresh + "x", strings.ToUpper(fresh)} {
		kit.Refused(t, kit.Err(auth(t.Context(), identity.Credentials{Token: wrong})), tool.CodeAccessDenied, "", wrong)
	}
	for path, mode := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, identity.TokenFile): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
	content, _ := os.ReadFile(filepath.Join(dir, identity.TokenFile))
	if strings.Contains(string(content), secret) || len(content) != 65 {
		t.Errorf("the file holds %q", content)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left in the folder: %v", left)
	}

	auth, again, err := identity.FileToken(dir)
	if err != nil || again != "" {
		t.Errorf("the second start made %q, %v", again, err)
	}
	kit.Check(t, kit.Err(auth(t.Context(), identity.Credentials{Token: fresh})), "the second start forgot the token")
}

func TestConcurrentStartsMakeOneToken(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	var fresh []string
	var auths []identity.Gate
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			auth, token, err := identity.FileToken(dir)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			if auths = append(auths, auth); token != "" {
				fresh = append(fresh, token)
			}
		})
	}
	wg.Wait()
	kit.MustEqual(t, len(fresh), 1, "tokens made")
	for _, auth := range auths {
		kit.Check(t, kit.Err(auth(t.Context(), identity.Credentials{Token: fresh[0]})))
	}
}

func TestATokenFileThatOthersCouldHaveMadeIsRefused(t *testing.T) {
	digest := strings.Repeat("0", 64) + "\n"
	for name, plant := range map[string]func(dir, path string) error{
		"readable by all":      func(_, path string) error { return writeMode(path, digest, 0o644) },
		"readable by a group":  func(_, path string) error { return writeMode(path, digest, 0o640) },
		"writable by all":      func(_, path string) error { return writeMode(path, digest, 0o602) },
		"a folder":             func(_, path string) error { return os.Mkdir(path, 0o700) },
		"a link":               func(dir, path string) error { return link(dir, path, digest) },
		"empty":                func(_, path string) error { return writeMode(path, "", 0o600) },
		"the token itself":     func(_, path string) error { return writeMode(path, "tp_x", 0o600) },
		"half a digest":        func(_, path string) error { return writeMode(path, digest[:32], 0o600) },
		"endless":              func(_, path string) error { return writeMode(path, strings.Repeat("0", 1<<20), 0o600) },
		"in a folder for all":  func(dir, _ string) error { return os.Chmod(dir, 0o777) },
		"in a folder of a few": func(dir, _ string) error { return os.Chmod(dir, 0o770) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			kit.OK(t, os.Mkdir(dir, 0o700))
			kit.OK(t, plant(dir, filepath.Join(dir, identity.TokenFile)))
			_, fresh, err := identity.FileToken(dir)
			if err == nil || fresh != "" || !strings.Contains(err.Error(), dir) {
				t.Errorf("made %q, %v", fresh, err)
			}
		})
	}
}

func writeMode(path, content string, mode fs.FileMode) error {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Chmod(path, mode) // whatever the umask is
}

func link(dir, path, digest string) error {
	other := filepath.Join(dir, "other")
	if err := writeMode(other, digest, 0o600); err != nil {
		return err
	}
	return os.Symlink(other, path)
}

func TestAFixedTokenIsNotTooShort(t *testing.T) {
	kit.Refused(t, kit.Err(identity.StaticToken("fifteen letters")), tool.CodeInvalidInput, "")
	auth := kit.Must(identity.StaticToken("sixteen letters!"))(t)
	if p, err := auth(t.Context(), identity.Credentials{Token: "sixteen letters!"}); err != nil || p.ID == "" {
		t.Error(p, err)
	}
	kit.Fails(t, kit.Err(auth(t.Context(), identity.Credentials{Token: "sixteen letters?"})),
		"", "another token was let in")
}

func TestOpenGateTakesANewToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		gate, lost, err := identity.FileToken(dir)
		kit.OK(t, err)
		admits := func(token string) bool {
			_, err := gate(t.Context(), identity.Credentials{Token: token})
			return err == nil
		}
		if !admits(lost) {
			t.Fatal("the first token is not taken")
		}
		token := kit.Must(identity.NewFileToken(dir))(t)
		kit.Eventually(t, "the new token is taken", func() bool { return admits(token) })
		if admits(lost) {
			t.Error("the lost token is still taken")
		}
		path := filepath.Join(dir, identity.TokenFile)
		kit.OK(t, os.Remove(path))
		time.Sleep(time.Minute) // longer than an answer is cached
		if !admits(token) {
			t.Error("without the file the last token is refused")
		}
		// A file that other users can have written is not trusted, as at the start.
		kit.OK(t, os.WriteFile(path, []byte("00\n"), 0o644))
		kit.Eventually(t, "a file that others can read is not believed", func() bool { return !admits(token) })
	})
}
