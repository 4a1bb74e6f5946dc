package main

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestABinaryTellsWhatItIsMadeOf(t *testing.T) {
	self, err := os.Executable() // a Go binary too, with one module in it that this test needs
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := run(out, self, "1.2.3", "2026-01-02T03:04:05Z"); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("two documents of one binary differ")
	}
	var doc document
	if err := json.Unmarshal(first.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if c := doc.Metadata.Component; c.Name != "toolpost" || c.Version != "1.2.3" || doc.Format != "CycloneDX" {
		t.Errorf("%+v", doc.Metadata)
	}
	found := map[string]component{}
	for _, c := range doc.Components {
		found[c.Name] = c
	}
	if found["std"].Version != runtime.Version() {
		t.Errorf("std: %+v", found["std"])
	}
	if c := found["github.com/google/go-cmp"]; !strings.HasPrefix(c.PURL, "pkg:golang/github.com/google/go-cmp@v0.") ||
		len(c.Hashes) != 1 || len(c.Hashes[0].Content) != 64 {
		t.Errorf("go-cmp: %+v", c)
	}
	if len(doc.Dependencies) != 1 || len(doc.Dependencies[0].DependsOn) != len(doc.Components) {
		t.Errorf("%+v", doc.Dependencies)
	}
}

func TestAModuleIsWhatReplacedIt(t *testing.T) {
	sum := "h1:" + strings.Repeat("A", 43) + "="
	got, err := moduleOf(&debug.Module{Path: "a", Version: "v1.0.0", Replace: &debug.Module{Path: "b", Version: "v2.0.0", Sum: sum}})
	if err != nil {
		t.Fatal(err)
	}
	want := component{
		Type: "library", Ref: "pkg:golang/b@v2.0.0", Name: "b", Version: "v2.0.0", PURL: "pkg:golang/b@v2.0.0",
		Hashes: []hash{{"SHA-256", strings.Repeat("0", 64)}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAModuleWithoutAHashIsAnError(t *testing.T) {
	if _, err := moduleOf(&debug.Module{Path: "a", Version: "v1.0.0"}); err == nil {
		t.Error("a module without a hash was listed") // one that was replaced by a folder: nobody could check it
	}
}
