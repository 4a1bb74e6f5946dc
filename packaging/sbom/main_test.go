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

	"toolpost/internal/kit"

	"github.com/google/go-cmp/cmp"
)

func TestSBOMListsTheContentsOfABinary(t *testing.T) {
	self := kit.Must(os.Executable())(t) // a Go binary too
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		kit.OK(t, run(out, self, "1.2.3", "2026-01-02T03:04:05Z"))
	}
	kit.Equal(t, first.String(), second.String(), "two documents of one binary differ")
	var doc document
	kit.OK(t, json.Unmarshal(first.Bytes(), &doc))
	if c := doc.Metadata.Component; c.Name != "toolpost" || c.Version != "1.2.3" || doc.Format != "CycloneDX" {
		t.Errorf("%+v", doc.Metadata)
	}
	if len(doc.Components) == 0 || doc.Components[0].Name != "std" || doc.Components[0].Version != runtime.Version() {
		t.Errorf("the standard library is missing: %+v", doc.Components)
	}
	kit.Fails(t, run(io.Discard, "main_test.go", "", ""), "", "a file that is no binary was described")
}

// The build information that the go command writes into a binary. That of a test binary has no modules.
func TestEveryModuleIsListed(t *testing.T) {
	info := kit.Must(debug.ParseBuildInfo("path\ttoolpost/cmd/toolpost\nmod\ttoolpost\t(devel)\t\n" +
		"dep\texample.com/a\tv1.2.3\th1:" + strings.Repeat("A", 43) + "=\n" +
		"dep\texample.com/b/v2\tv2.0.0\th1:" + strings.Repeat("B", 42) + "A=\n" +
		"build\tGOOS=linux\nbuild\t-trimpath=true\n"))(t)
	doc := kit.Must(describe(info, "1.2.3", ""))(t)
	want := []string{"pkg:golang/std@", "pkg:golang/example.com/a@v1.2.3", "pkg:golang/example.com/b/v2@v2.0.0"}
	kit.Equal(t, cmp.Diff(want, doc.Dependencies[0].DependsOn), "")
	kit.Equal(t, cmp.Diff([]property{{"toolpost:build:GOOS", "linux"}}, doc.Metadata.Component.Properties), "")
}

func TestReplacedModuleIsListedAsItsReplacement(t *testing.T) {
	sum := "h1:" + strings.Repeat("A", 43) + "="
	got, err := moduleOf(&debug.Module{Path: "a", Version: "v1.0.0", Replace: &debug.Module{Path: "b", Version: "v2.0.0", Sum: sum}})
	kit.OK(t, err)
	want := component{
		Type: "library", Ref: "pkg:golang/b@v2.0.0", Name: "b", Version: "v2.0.0", PURL: "pkg:golang/b@v2.0.0",
		Hashes: []hash{{"SHA-256", strings.Repeat("0", 64)}},
	}
	kit.Equal(t, cmp.Diff(want, got), "")
}

func TestAModuleWithoutAHashIsAnError(t *testing.T) {
	if _, err := moduleOf(&debug.Module{Path: "a", Version: "v1.0.0"}); err == nil {
		t.Error("a module without a hash was listed") // a module replaced by a folder, which cannot be verified
	}
}
