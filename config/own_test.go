package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func openOwn(t *testing.T, path string) *Own {
	t.Helper()
	o, err := OpenOwn(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

func content(t *testing.T, path string) (string, os.FileMode) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), info.Mode()
}

func TestAFileIsReplacedAsAWholeAndKeepsItsMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings.json")
	write(t, path, "old", 0o640)
	o := openOwn(t, path)
	if string(o.Text) != "old" || o.Mode != 0o640 {
		t.Fatalf("%q, %v", o.Text, o.Mode)
	}
	for _, text := range []string{"new", "newer"} {
		if err := o.Replace([]byte(text), o.Mode); err != nil {
			t.Fatal(err)
		}
		if got, mode := content(t, path); got != text || mode != 0o640 {
			t.Fatalf("%q, %v", got, mode)
		}
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Fatalf("%v, %v", left, err)
	}
}

func TestMissingFoldersAreMadeForTheirOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a/b/settings.json")
	o := openOwn(t, path)
	if o.There() || o.Path != path {
		t.Fatalf("%+v", o)
	}
	if err := o.Replace([]byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, mode := content(t, path); mode != 0o600 {
		t.Error(mode)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info, err)
	}
	if err := o.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// People keep their settings in one folder and link to it: the link stays a link, and its target is written.
func TestOwnersLinkIsFollowedAndKept(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "dotfiles/real.json"), "old", 0o600)
	link := filepath.Join(dir, "settings.json")
	if err := os.Symlink("dotfiles/real.json", link); err != nil {
		t.Fatal(err)
	}
	o := openOwn(t, link)
	if err := o.Replace([]byte("new"), o.Mode); err != nil {
		t.Fatal(err)
	}
	if got, _ := content(t, filepath.Join(dir, "dotfiles/real.json")); got != "new" {
		t.Error(got)
	}
	if to, err := os.Readlink(link); err != nil || to != "dotfiles/real.json" {
		t.Error(to, err)
	}
}

func TestReplaceKeepsConcurrentChanges(t *testing.T) {
	for name, meanwhile := range map[string]func(path string) error{
		"written":  func(path string) error { return os.WriteFile(path, []byte("theirs, longer"), 0o600) },
		"replaced": func(path string) error { return os.Rename(path+".theirs", path) },
		"removed":  os.Remove,
		"a link":   func(path string) error { _ = os.Remove(path); return os.Symlink(path+".theirs", path) },
	} {
		path := filepath.Join(t.TempDir(), "settings.json")
		write(t, path, "old", 0o600)
		write(t, path+".theirs", "new", 0o600)
		o := openOwn(t, path)
		if err := meanwhile(path); err != nil {
			t.Fatal(err)
		}
		if err := o.Replace([]byte("ours"), o.Mode); err == nil || !strings.Contains(err.Error(), "meanwhile") {
			t.Errorf("%s: %v", name, err)
		}
		if err := o.Remove(); err == nil {
			t.Errorf("%s: it was removed", name)
		}
	}
	fresh := filepath.Join(t.TempDir(), "settings.json")
	o := openOwn(t, fresh)
	write(t, fresh, "theirs", 0o600)
	if err := o.Replace([]byte("ours"), 0o600); err == nil {
		t.Error("a file that came meanwhile was overwritten")
	}
}

func TestReplaceIgnoresASwappedFolder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "here/settings.json")
	write(t, path, "old", 0o600)
	write(t, filepath.Join(dir, "trap/settings.json"), "old", 0o600)
	o := openOwn(t, path)
	if err := os.Rename(filepath.Join(dir, "here"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("trap", filepath.Join(dir, "here")); err != nil {
		t.Fatal(err)
	}
	if err := o.Replace([]byte("new"), o.Mode); err != nil {
		t.Fatal(err)
	}
	if got, _ := content(t, filepath.Join(dir, "trap/settings.json")); got != "old" {
		t.Error("a link that came meanwhile was followed")
	}
	if got, _ := content(t, filepath.Join(dir, "moved/settings.json")); got != "new" {
		t.Error(got)
	}
}

func TestFilesOfOtherUsersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const other = 12345
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file.json"), "{}", 0o644)
	write(t, filepath.Join(dir, "folder/file.json"), "{}", 0o644)
	write(t, filepath.Join(dir, "target.json"), "{}", 0o644)
	if err := os.Symlink("target.json", filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"file.json", "folder", "link.json"} {
		if err := unix.Lchown(filepath.Join(dir, path), other, other); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"file.json", "folder/file.json", "folder/new.json", "link.json"} {
		if o, err := OpenOwn(filepath.Join(dir, path)); err == nil || !strings.Contains(err.Error(), "12345") {
			t.Errorf("%s: %+v, %v", path, o, err)
		}
	}
	write(t, filepath.Join(dir, "world.json"), "{}", 0o666)
	if _, err := OpenOwn(filepath.Join(dir, "world.json")); err == nil || !strings.Contains(err.Error(), "everybody") {
		t.Errorf("a file that everybody may write: %v", err)
	}
	write(t, filepath.Join(dir, "team.json"), "{}", 0o664)
	openOwn(t, filepath.Join(dir, "team.json"))
}

func TestABackupDoesNotGoThroughALink(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "settings.json"), "old", 0o600)
	write(t, filepath.Join(dir, "precious"), "precious", 0o600)
	o := openOwn(t, filepath.Join(dir, "settings.json"))
	b, err := o.Sibling("settings.json.backup")
	if err != nil || b.There() {
		t.Fatalf("%+v, %v", b, err)
	}
	if err := b.Replace(o.Text, 0o600); err != nil {
		t.Fatal(err)
	}
	b.Close()
	for _, target := range []string{"precious", "nowhere"} {
		if err := os.Symlink(target, filepath.Join(dir, "to-"+target)); err != nil {
			t.Fatal(err)
		}
		if b, err := o.Sibling("to-" + target); err == nil {
			t.Errorf("a link to %s was opened: %+v", target, b)
		}
	}
	if _, err := OpenOwn(dir); err == nil {
		t.Error("a folder was opened")
	}
	if _, err := OpenOwn(filepath.Join(dir, "settings.json/x")); err == nil {
		t.Error("a file was taken for a folder")
	}
}

func TestReadOnlyFileIsNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings.json")
	write(t, path, "old", 0o440)
	o := openOwn(t, path)
	if err := o.Replace([]byte("new"), o.Mode); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("got %v", err)
	}
	if text, _ := content(t, path); text != "old" {
		t.Errorf("it has %q", text)
	}
}
