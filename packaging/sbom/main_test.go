package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSBOMListsTheContentsOfABinary(t *testing.T) {
	self, err := os.Executable() // a Go binary too
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
	if len(doc.Components) == 0 || doc.Components[0].Name != "std" || doc.Components[0].Version != runtime.Version() {
		t.Errorf("the standard library is missing: %+v", doc.Components)
	}
	if err := run(io.Discard, "main_test.go", "", ""); err == nil {
		t.Error("a file that is no binary was described")
	}
}

// The build information that the go command writes into a binary. That of a test binary has no modules.
func TestEveryModuleIsListed(t *testing.T) {
	info, err := debug.ParseBuildInfo("path\ttoolpost/cmd/toolpost\nmod\ttoolpost\t(devel)\t\n" +
		"dep\texample.com/a\tv1.2.3\th1:" + strings.Repeat("A", 43) + "=\n" +
		"dep\texample.com/b/v2\tv2.0.0\th1:" + strings.Repeat("B", 42) + "A=\n" +
		"build\tGOOS=linux\nbuild\t-trimpath=true\n")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := describe(info, "1.2.3", "")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pkg:golang/std@", "pkg:golang/example.com/a@v1.2.3", "pkg:golang/example.com/b/v2@v2.0.0"}
	if diff := cmp.Diff(want, doc.Dependencies[0].DependsOn); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]property{{"toolpost:build:GOOS", "linux"}}, doc.Metadata.Component.Properties); diff != "" {
		t.Error(diff)
	}
}

func TestReplacedModuleIsListedAsItsReplacement(t *testing.T) {
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
		t.Error("a module without a hash was listed") // a module replaced by a folder, which cannot be verified
	}
}
