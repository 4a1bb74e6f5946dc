package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"

	"golang.org/x/sys/unix"
)

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	kit.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
	kit.OK(t, os.WriteFile(path, []byte(text), mode))
	kit.OK(t, os.Chmod(path, mode))
}

func openOwn(t *testing.T, path string) *Own {
	t.Helper()
	o := kit.Must(OpenOwn(path))(t)
	t.Cleanup(o.Close)
	return o
}

func content(t *testing.T, path string) (string, os.FileMode) {
	t.Helper()
	b := kit.Must(os.ReadFile(path))(t)
	info := kit.Must(os.Lstat(path))(t)
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
		kit.OK(t, o.Replace([]byte(text), o.Mode))
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
	kit.OK(t, o.Replace([]byte("x"), 0o600))
	if _, mode := content(t, path); mode != 0o600 {
		t.Error(mode)
	}
	kit.Equal(t, kit.Must(os.Stat(filepath.Dir(path)))(t).Mode().Perm(), 0o700)
	kit.OK(t, o.Remove())
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// People keep their settings in one folder and link to it: the link stays a link, and its target is written.
func TestOwnersLinkIsFollowedAndKept(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "dotfiles/real.json"), "old", 0o600)
	link := filepath.Join(dir, "settings.json")
	kit.OK(t, os.Symlink("dotfiles/real.json", link))
	o := openOwn(t, link)
	kit.OK(t, o.Replace([]byte("new"), o.Mode))
	if got, _ := content(t, filepath.Join(dir, "dotfiles/real.json")); got != "new" {
		t.Error(got)
	}
	kit.Equal(t, kit.Must(os.Readlink(link))(t), "dotfiles/real.json")
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
		kit.OK(t, meanwhile(path))
		kit.Fails(t, o.Replace([]byte("ours"), o.Mode), "meanwhile", name)
		kit.Fails(t, o.Remove(), "", "%s: it was removed", name)
	}
	fresh := filepath.Join(t.TempDir(), "settings.json")
	o := openOwn(t, fresh)
	write(t, fresh, "theirs", 0o600)
	kit.Fails(t, o.Replace([]byte("ours"), 0o600), "", "a file that came meanwhile was overwritten")
}

func TestReplaceIgnoresASwappedFolder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "here/settings.json")
	write(t, path, "old", 0o600)
	write(t, filepath.Join(dir, "trap/settings.json"), "old", 0o600)
	o := openOwn(t, path)
	kit.OK(t, os.Rename(filepath.Join(dir, "here"), filepath.Join(dir, "moved")))
	kit.OK(t, os.Symlink("trap", filepath.Join(dir, "here")))
	kit.OK(t, o.Replace([]byte("new"), o.Mode))
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
	kit.OK(t, os.Symlink("target.json", filepath.Join(dir, "link.json")))
	for _, path := range []string{"file.json", "folder", "link.json"} {
		kit.OK(t, unix.Lchown(filepath.Join(dir, path), other, other))
	}
	for _, path := range []string{"file.json", "folder/file.json", "folder/new.json", "link.json"} {
		if o, err := OpenOwn(filepath.Join(dir, path)); err == nil || !strings.Contains(err.Error(), "12345") {
			t.Errorf("%s: %+v, %v", path, o, err)
		}
	}
	write(t, filepath.Join(dir, "world.json"), "{}", 0o666)
	kit.Fails(t, kit.Err(OpenOwn(filepath.Join(dir, "world.json"))), "everybody", "a file that everybody may write")
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
	kit.OK(t, b.Replace(o.Text, 0o600))
	b.Close()
	for _, target := range []string{"precious", "nowhere"} {
		kit.OK(t, os.Symlink(target, filepath.Join(dir, "to-"+target)))
		kit.Fails(t, kit.Err(o.Sibling("to-"+target)), "", "a link to %s was opened", target)
	}
	kit.Fails(t, kit.Err(OpenOwn(dir)), "", "a folder was opened")
	kit.Fails(t, kit.Err(OpenOwn(filepath.Join(dir, "settings.json/x"))), "", "a file was taken for a folder")
}

func TestReadOnlyFileIsNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "settings.json")
	write(t, path, "old", 0o440)
	o := openOwn(t, path)
	kit.Fails(t, o.Replace([]byte("new"), o.Mode), "read-only")
	if text, _ := content(t, path); text != "old" {
		t.Errorf("it has %q", text)
	}
}
