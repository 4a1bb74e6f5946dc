package file

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// A world is an offered folder, with a folder beside it that is not offered.
type world struct {
	t       testing.TB
	top     string // holds both
	root    string
	outside string
	runner  *Tools
}

func newWorld(t *testing.T) *world { t.Helper(); return newWorldIn(t, t.TempDir()) }

func newWorldIn(t testing.TB, dir string) *world {
	t.Helper()
	top := kit.Must(filepath.EvalSymlinks(dir))(t)
	w := &world{t: t, top: top, root: filepath.Join(top, "root"), outside: filepath.Join(top, "outside")}
	w.write("root/notes.txt", "hello\n")
	w.write("root/sub/deep/a.go", "package a\n")
	w.write("outside/secret.txt", secret)
	w.open(Options{}, workspace.RootOptions{Path: "root", Write: true})
	return w
}

const secret = "the secret of the folder beside"

func (w *world) open(o Options, roots ...workspace.RootOptions) {
	w.t.Helper()
	w.runner = openTools(w.t, w.top, o, workspace.Options{Roots: roots})
}

func openTools(t testing.TB, dir string, o Options, wo workspace.Options) *Tools {
	t.Helper()
	ws := kit.Must(workspace.Open(dir, wo))(t)
	t.Cleanup(func() { ws.Close() })
	return kit.Must(New(ws, o))(t)
}

func (w *world) write(name, content string) {
	w.t.Helper()
	path := filepath.Join(w.top, name)
	kit.Write(w.t, path, content)
}

func (w *world) link(target, name string) {
	w.t.Helper()
	kit.OK(w.t, os.Symlink(target, filepath.Join(w.root, name)))
}

func named(name string) *tool.Spec { return &tool.Spec{Name: name} }

// invoke runs a tool within a time that only guards against a hang.
func invoke(r *Tools, spec *tool.Spec, args any) (json.RawMessage, error) {
	return invokeTo(r, spec, args, tool.Discard)
}

func invokeTo(r *Tools, spec *tool.Spec, args any, out tool.Sink) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	res, err := r.Invoke(ctx, &tool.Call{Tool: spec.Name, Spec: spec, Args: b}, out)
	if err != nil {
		return nil, err
	}
	return res.Output, nil
}

func (w *world) read(path string) (string, error) {
	out, err := invoke(w.runner, named(readName), readArgs{fileArgs: fileArgs{path}})
	if err != nil {
		return "", err
	}
	var s string
	if err := json.Unmarshal(out, &s); err != nil {
		return string(out), nil
	}
	return s, nil
}

func (w *world) list(args map[string]any) ([]entry, error) {
	out, err := invoke(w.runner, named(listName), args)
	if err != nil {
		return nil, err
	}
	var entries []entry
	return entries, json.Unmarshal(out, &entries)
}

func (w *world) names(args map[string]any) []string {
	w.t.Helper()
	entries, err := w.list(args)
	kit.OK(w.t, err, "list %v", args)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Path)
	}
	return names
}

func TestReadGivesTextAsAString(t *testing.T) {
	w := newWorld(t)
	w.write("root/utf8.txt", "grüße, 世界\n")
	w.write("root/empty", "")
	w.link("sub/deep/a.go", "inner")
	for path, want := range map[string]string{
		"notes.txt":                        "hello\n",
		"./notes.txt":                      "hello\n",
		"sub//deep/../deep/a.go":           "package a\n",
		"sub/../notes.txt":                 "hello\n",
		filepath.Join(w.root, "notes.txt"): "hello\n",
		w.root + "/sub/../notes.txt":       "hello\n",
		"inner":                            "package a\n",
		"utf8.txt":                         "grüße, 世界\n",
		"empty":                            "",
	} {
		kit.Equal(t, kit.Must(w.read(path))(t), want, path)
	}
}

func TestReadGivesEverythingElseAsBase64(t *testing.T) {
	w := newWorld(t)
	for name, content := range map[string]string{"latin1": "gr\xfc\xdfe", "nul": "a\x00b", "surrogate": "\xed\xa0\x80"} {
		w.write("root/"+name, content)
		got, err := w.read(name)
		want := fmt.Sprintf(`{"encoding":"base64","content":%q}`, base64.StdEncoding.EncodeToString([]byte(content)))
		if err != nil || got != want {
			t.Errorf("read %s: %s, %v; want %s", name, got, err, want)
		}
	}
}

func TestHostilePathsAreRefused(t *testing.T) {
	w := newWorld(t)
	w.write("rootbeside/x", secret)
	abs := func(s string) string { return filepath.Join(w.top, s) }
	denied, invalid, missing := tool.CodeAccessDenied, tool.CodeInvalidInput, tool.CodeNotFound
	for _, c := range []struct {
		path string
		code tool.Code
	}{
		{"", invalid},
		{"..", denied},
		{"../outside/secret.txt", denied},
		{"./../outside/secret.txt", denied},
		{"sub/../../outside/secret.txt", denied},
		{"sub/deep/../../../outside/secret.txt", denied},
		{"../root/notes.txt", denied},
		{strings.Repeat("../", 50) + "etc/passwd", denied},
		{"/etc/passwd", denied},
		{"//etc//passwd", denied},
		{"/../etc/passwd", denied},
		{"/", denied},
		{"/proc/self/environ", denied},
		{"/proc/self/root/etc/passwd", denied},
		{"/dev/zero", denied},
		{abs("outside/secret.txt"), denied},
		{abs("root") + "/../outside/secret.txt", denied},
		{abs("rootbeside/x"), denied},
		{abs("root") + "beside/x", denied},
		{"..\\outside\\secret.txt", missing},
		{"%2e%2e/outside/secret.txt", missing},
		{"..;/outside/secret.txt", missing},
		{"~/notes.txt", missing},
		{"file:///etc/passwd", missing},
		{"notes.txt/", ""}, // an extra slash is accepted
		{"notes.txt/x", missing},
		{"notes.txt/../../outside/secret.txt", denied},
		{"notes.txt\x00.png", invalid},
		{"notes.txt\n", invalid},
		{"\x1b[31mnotes.txt", invalid},
		{"notes\u0085.txt", invalid},
		{strings.Repeat("a", 300), invalid},
		{strings.Repeat("a/", 2040) + "a", missing},
		{strings.Repeat("x", 5000), invalid},
		{"sub", invalid},
		{".", invalid},
	} {
		got, err := w.read(c.path)
		kit.Refused(t, err, c.code, "", c.path)
		if err != nil && len(err.Error()) > workspace.MaxPath+200 {
			t.Errorf("read %.20q...: the error has %d bytes", c.path, len(err.Error()))
		}
		if strings.Contains(got, secret) {
			t.Errorf("read %q gave the secret", c.path)
		}
		if _, err := w.list(map[string]any{"path": c.path}); err == nil && c.code != invalid {
			t.Errorf("list %q: no error", c.path)
		}
	}
}

func TestErrorsNameThePathAsTheCallerWroteIt(t *testing.T) {
	w := newWorld(t)
	for path, want := range map[string]string{
		"/etc/passwd":   "/etc/passwd is not allowed: it is outside the offered folders (root)",
		"../root":       "../root is not allowed: it is outside the offered folders (root)",
		"nothere.txt":   "nothere.txt: no such file in the offered folders (root)",
		"./sub":         "./sub is a folder, not a file; use listFiles",
		"sub/../.env":   "sub/../.env is not allowed: files with such names hold secrets",
		"sub/deep/none": "sub/deep/none: no such file in the offered folders (root)",
	} {
		_, err := w.read(path)
		if err == nil || tool.AsError(err).Message != want {
			t.Errorf("read %s: %v; want %q", path, err, want)
		}
	}
}

func TestLinksThatLeaveTheRootAreRefused(t *testing.T) {
	w := newWorld(t)
	w.link("../outside/secret.txt", "file")
	w.link("../outside", "dir")
	w.link(filepath.Join(w.outside, "secret.txt"), "absolute")
	w.link("/etc/passwd", "passwd")
	w.link(w.root+"/notes.txt", "absolute-inside") // os.Root accepts no absolute link, wherever it leads
	w.link("file", "chain1")
	w.link("chain1", "chain2")
	w.link("sub/../../outside/secret.txt", "dots")
	w.link("/proc/self/root", "proc")
	for _, path := range []string{
		"file", "dir/secret.txt", "absolute", "passwd", "absolute-inside", "chain1", "chain2", "dots", "proc/etc/passwd",
		filepath.Join(w.root, "file"), filepath.Join(w.root, "dir/secret.txt"),
	} {
		kit.Refused(t, kit.Err(w.read(path)), tool.CodeAccessDenied, "", "read %s", path)
	}
	kit.Refused(t, kit.Err(w.list(map[string]any{"path": "dir"})),
		tool.CodeAccessDenied, "", "list dir: ; want access_denied")
}

func TestLinksThatLeadNowhereAreErrors(t *testing.T) {
	w := newWorld(t)
	w.link("gone", "dangling")
	w.link("loop2", "loop1")
	w.link("loop1", "loop2")
	for path, code := range map[string]tool.Code{"dangling": tool.CodeNotFound, "loop1": tool.CodeInvalidInput} {
		kit.Refused(t, kit.Err(w.read(path)), code, "", path, code)
	}
}

func TestSensitiveNamesAreNeitherReadNorListed(t *testing.T) {
	w := newWorld(t)
	names := []string{
		".env", ".ENV", ".env.local", "credentials.json", "Credentials.JSON", "server.key", "a.pem", "b.P12", "c.pfx",
		"id_rsa", "id_rsa.old", "id_ed25519", "id_ecdsa_sk", ".netrc", "sub/.env", ".ssh/config", ".toolpost/http-token",
	}
	for _, name := range names {
		w.write("root/"+name, secret)
	}
	for _, name := range names {
		_, err := w.read(name)
		if tool.CodeOf(err) != tool.CodeAccessDenied || tool.AsError(err).Reason != "sensitive" {
			t.Errorf("read %s: %v; want access_denied, sensitive", name, err)
		}
	}
	want := []string{"notes.txt", "sub", "sub/deep", "sub/deep/a.go"}
	kit.Equal(t, cmp.Diff(want, w.names(map[string]any{"recursive": true})), "", "listing (-want +got)")
}

func TestSensitiveFilesAreRefusedThroughLinksToo(t *testing.T) {
	w := newWorld(t)
	w.write("root/.env", secret)
	w.write("root/.ssh/config", secret)
	w.link(".env", "harmless.txt")
	w.link("harmless.txt", "more-harmless.txt")
	w.link(".ssh", "folder")
	for _, path := range []string{"harmless.txt", "more-harmless.txt", "folder/config"} {
		kit.Refused(t, kit.Err(w.read(path)), tool.CodeAccessDenied, "", "read %s", path)
	}
	kit.Refused(t, kit.Err(w.list(map[string]any{"path": "folder"})), tool.CodeAccessDenied, "", "list folder")
}

func TestASensitiveNameAboveTheRootDoesNotMatter(t *testing.T) {
	w := newWorld(t)
	w.write("x.key/inner/notes.txt", "fine")
	w.open(Options{}, workspace.RootOptions{Path: "x.key/inner"})
	kit.Equal(t, kit.Must(w.read("notes.txt"))(t), "fine")
}

func TestPipesDevicesAndSocketsAreRefusedAtOnce(t *testing.T) {
	w := newWorld(t)
	kit.OK(t, syscall.Mkfifo(filepath.Join(w.root, "fifo"), 0o644))
	fd := kit.Must(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0))(t)
	defer syscall.Close(fd)
	kit.OK(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: filepath.Join(w.root, "socket")}))
	for _, name := range []string{"fifo", "socket"} {
		kit.Refused(t, kit.Err(w.read(name)), tool.CodeInvalidInput, "", "read %s", name)
		kit.Refused(t, kit.Err(w.list(map[string]any{"path": name})), tool.CodeInvalidInput, "", "list %s", name)
	}
	w.open(Options{}, workspace.RootOptions{Path: "/dev"})
	for _, name := range []string{"zero", "null", "/dev/tty"} {
		kit.Refused(t, kit.Err(w.read(name)), tool.CodeInvalidInput, "", "read %s", name)
	}
}

func TestRelativePathsAreFoundInTheFirstRootThatHasThem(t *testing.T) {
	w := newWorld(t)
	w.write("second/notes.txt", "second")
	w.write("second/only.txt", "only here")
	w.open(Options{}, workspace.RootOptions{Path: "root"}, workspace.RootOptions{Path: "second"})
	for path, want := range map[string]string{
		"notes.txt":                              "hello\n",
		"only.txt":                               "only here",
		filepath.Join(w.top, "second/notes.txt"): "second",
	} {
		kit.Equal(t, kit.Must(w.read(path))(t), want, path)
	}
}

func TestARootBehindALinkIsFoundByBothNames(t *testing.T) {
	w := newWorld(t)
	kit.OK(t, os.Symlink(w.root, filepath.Join(w.top, "alias")))
	w.open(Options{}, workspace.RootOptions{Path: "alias"})
	for _, dir := range []string{"alias", "root"} {
		kit.Equal(t, kit.Must(w.read(filepath.Join(w.top, dir, "notes.txt")))(t), "hello\n", "read below %s", dir)
	}
}

func TestFilesOverTheLimitAreRefused(t *testing.T) {
	w := newWorld(t)
	w.open(Options{MaxFile: 8}, workspace.RootOptions{Path: "root"})
	w.write("root/just", "12345678")
	w.write("root/over", "123456789")
	kit.Equal(t, kit.Must(w.read("just"))(t), "12345678", "read just")
	if _, err := w.read("over"); tool.CodeOf(err) != tool.CodeInvalidInput || tool.AsError(err).Reason != "too_large" {
		t.Errorf("read over: %v; want invalid_input, too_large", err)
	}
}

func TestTheDefaultLimitIsTenMiB(t *testing.T) {
	w := newWorld(t)
	w.write("root/big", strings.Repeat("x", 10<<20))
	if got, err := w.read("big"); err != nil || len(got) != 10<<20 {
		t.Errorf("10 MiB: %d bytes, %v", len(got), err)
	}
	sparse := filepath.Join(w.root, "sparse")
	kit.OK(t, os.WriteFile(sparse, nil, 0o644))
	if err := os.Truncate(sparse, 1<<40); err != nil {
		t.Skip("no sparse files here:", err)
	}
	kit.Refused(t, kit.Err(w.read("sparse")), tool.CodeInvalidInput, "", "1 TiB")
}

// Files of /proc report a size of zero and then have many bytes: to a reader they grow while they are read.
func TestAFileThatGrowsWhileItIsReadIsCutAtTheLimit(t *testing.T) {
	w := newWorld(t)
	w.open(Options{MaxFile: 511}, workspace.RootOptions{Path: "/proc/self"})
	for _, name := range []string{"status", "pagemap"} { // the second is far too long to read to the end
		if _, err := w.read(name); tool.CodeOf(err) != tool.CodeInvalidInput || tool.AsError(err).Reason != "too_large" {
			t.Errorf("read %s: %v; want invalid_input, too_large", name, err)
		}
	}
}

func TestBadArgumentsAreInvalidInput(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		spec *tool.Spec
		args string
	}{
		{named(readName), ``}, {named(readName), `{}`}, {named(readName), `{"path":1}`}, {named(readName), `{"path":"notes.txt","path":"x"}`},
		{named(readName), `{"Path":"notes.txt"}`}, {named(readName), `{"path":"a","x":1}`}, {named(readName), `[]`}, {named(readName), `{`},
		{named(readName), "{\"path\":\"\xff\"}"}, {named(readName), `{"path":"\ud800"}`},
		{named(listName), `{"recursive":"yes"}`}, {named(listName), `{"pattern":"[a"}`}, {named(listName), `{"pattern":"{a,b"}`},
		{named(listName), `{"pattern":"` + strings.Repeat("{a,a}", 20) + `"}`}, {named(listName), `{"pattern":"` + strings.Repeat("*", 300) + `"}`},
	} {
		call := &tool.Call{Tool: c.spec.Name, Spec: c.spec, Args: json.RawMessage(c.args)}
		if _, err := w.runner.Invoke(context.Background(), call, tool.Discard); tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("%s %s: %v; want invalid_input", c.spec.Name, c.args, err)
		}
	}
}

func TestAnUnknownToolIsNotFound(t *testing.T) {
	w := newWorld(t)
	kit.Refused(t, kit.Err(invoke(w.runner, &tool.Spec{Name: "formatDisk"}, struct{}{})),
		tool.CodeNotFound, "", "err = ; want not_found")
}

func TestACancelledCallDoesNothing(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, spec := range []*tool.Spec{named(readName), named(listName)} {
		_, err := w.runner.Invoke(ctx, &tool.Call{Spec: spec, Args: json.RawMessage(`{"path":"."}`)}, tool.Discard)
		if tool.CodeOf(err) != tool.CodeCancelled {
			t.Errorf("%s: %v; want cancelled", spec.Name, err)
		}
	}
}
