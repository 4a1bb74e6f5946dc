package builtin

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// open makes a source from a config.
func open(t *testing.T, dir, text string) (*Source, error) {
	t.Helper()
	cfg, err := config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte("sources:\n  - {name: files, protocol: builtin, "+text+"}\n"))
	kit.OK(t, err)
	r, err := Open(t.Context(), cfg.Sources[0], silent())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		kit.Check(t, r.Close(t.Context()))
	})
	return r.(*Source), nil
}

func names(t *testing.T, s *Source) (names []string) {
	t.Helper()
	specs := kit.Must(s.Tools(t.Context()))(t)
	for _, spec := range specs {
		names = append(names, spec.Name)
	}
	return names
}

func TestTheConfigSaysWhichToolsThereAre(t *testing.T) {
	tooltest.NoLeaks(t)
	for text, want := range map[string]map[string]bool{
		"roots: [{path: .}]":                           {"readFile": true, "listFiles": true, "globFiles": true, "grepCode": true, "writeFile": false, "deleteFile": false, "execShell": false},
		"max_file: 5":                                  {"readFile": true, "writeFile": false, "execShell": false},
		"roots: [{path: ., write: true}]":              {"readFile": true, "writeFile": true, "editFile": true, "deleteFile": true, "moveFile": true, "makeFolder": true, "execShell": false},
		"roots: [{path: .}], shell: {allow: [ls]}":     {"execShell": true, "writeFile": false},
		"sensitive: {add: ['*.x']}, cache: {size: 10}": {"readFile": true},
	} {
		s, err := open(t, t.TempDir(), text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := names(t, s)
		for name, there := range want {
			kit.Equal(t, slices.Contains(got, name), there, text, name, !there)
		}
	}
}

func TestOpenRefusesInvalidOptions(t *testing.T) {
	for _, text := range []string{
		"root: .", "roots: [{path: ., mode: rw}]", "roots: root", "max_file: big", "max_file: -1", "cache: {size: -1}", "cache: 5", "sensitive: [x]",
		"roots: [{path: ., hard_links: perhaps}]", "roots: [{path: nowhere}]", "shell: {alow: [ls]}", "code: {rate: -5}",
	} {
		kit.Fails(t, kit.Err(open(t, t.TempDir(), text)), "", "%s: no error", text)
	}
}

func TestCallsAndTouchesGoToTheToolThatIsNamed(t *testing.T) {
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	kit.OK(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("find me\n"), 0o644))
	s := kit.Must(open(t, dir, "roots: [{path: ., write: true}], code: {index: {off: true}}"))(t)
	call := func(name, args string) *tool.Call {
		return &tool.Call{Tool: name, Spec: &tool.Spec{Name: name}, Args: json.RawMessage(args)}
	}
	for _, c := range []struct{ name, args, want string }{
		{"readFile", `{"path":"notes.txt"}`, `"find me\n"`},
		{"grepCode", `{"pattern":"find"}`, `notes.txt`},
	} {
		res, err := s.Invoke(t.Context(), call(c.name, c.args), tool.Discard)
		if err != nil || !strings.Contains(string(res.Output), c.want) {
			t.Errorf("%s: %+v, %v", c.name, res, err)
		}
	}
	touches, err := s.Touches(call("writeFile", `{"path":"x","content":""}`))
	if err != nil || !slices.Equal(touches.Writes, []string{filepath.Join(dir, "x")}) {
		t.Errorf("touches %+v, %v", touches, err)
	}
	kit.Refused(t, kit.Err(s.Invoke(t.Context(), call("formatDisk", `{}`), tool.Discard)),
		tool.CodeNotFound, "", "unknown")
	kit.Refused(t, kit.Err(s.Touches(call("formatDisk", `{}`))), tool.CodeNotFound, "", "unknown")
}

// A guarantee that contradicts the purpose of a tool refuses the call; all others hold anyway.
func TestGuaranteesThatContradictAToolRefuseItsCalls(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o600))
	s := kit.Must(open(t, dir, "roots: [{path: ., write: true}]"))(t)
	specs, _ := s.Tools(t.Context())
	call := func(name, args string, g tool.Guarantees) error {
		spec := *specs[slices.IndexFunc(specs, func(s *tool.Spec) bool { return s.Name == name })]
		spec.Guarantees = g
		_, err := s.Invoke(t.Context(), &tool.Call{Tool: name, Args: json.RawMessage(args), Spec: &spec}, tool.Discard)
		return err
	}
	kit.Check(t, call("readFile", `{"path":"a"}`, tool.Guarantees{NoFilesystemWrite: true, NoNetwork: true, NoSubprocess: true, NoEnvRead: true}))
	for name, g := range map[string]tool.Guarantees{"readFile": {NoFilesystemRead: true}, "writeFile": {NoFilesystemWrite: true}} {
		if err := call(name, `{"path":"a","content":"b"}`, g); tool.AsError(err) == nil || tool.AsError(err).Reason != "guarantee_blocked" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "a")); string(b) != "a" {
		t.Errorf("it wrote %q", b)
	}
}
