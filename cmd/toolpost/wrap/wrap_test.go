package wrap

import (
	"bytes"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/protocol/command"
)

var update = flag.Bool("update", false, "write the drafts into testdata")

// TestDraftsOfTheUsualForms compares the draft of each form of help text with a golden file; -update writes them.
func TestDraftsOfTheUsualForms(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 7 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a := kit.Must(txtar.ParseFile(file))(t)
			words := strings.Fields(string(a.Comment))
			draft := Read(string(a.Files[0].Data), words).Draft(words)
			accepted(t, draft)
			if *update {
				a.Files = append(a.Files[:1], txtar.File{Name: "draft", Data: []byte(draft)})
				kit.OK(t, os.WriteFile(file, txtar.Format(a), 0o644))
			}
			if len(a.Files) < 2 || !bytes.Equal(a.Files[1].Data, []byte(draft)) {
				t.Errorf("the draft is\n%s", draft)
			}
		})
	}
}

// accepted requires that a config can contain the draft as it is.
func accepted(t *testing.T, draft string) {
	t.Helper()
	cfg, err := config.Parse(filepath.Join(t.TempDir(), config.FileName), []byte(draft))
	if err != nil {
		t.Fatalf("%v\n%s", err, draft)
	}
	if _, err := command.Open(t.Context(), cfg.Sources[0], slog.New(slog.DiscardHandler)); err != nil {
		t.Fatalf("%v\n%s", err, draft)
	}
}

// FuzzDraft checks that for any output of a program, its draft is a valid source, or one that is refused for what it runs.
func FuzzDraft(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(a.Files[0].Data))
	}
	f.Fuzz(func(t *testing.T, help string) {
		words := []string{"tally", "up"}
		accepted(t, Read(help, words).Draft(words))
	})
}
