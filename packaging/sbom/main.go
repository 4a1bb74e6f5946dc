// Command sbom prints the components of a Go binary, as the binary itself records them: a CycloneDX document in JSON with
// its modules, their versions and their hashes. The same binary results in the same bytes.
//
// Existing tools do this and more, such as finding licenses. But each of them puts the time and a random number into the
// document, and needs some dozens of modules of its own.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
)

func main() {
	version := flag.String("version", "dev", "`version` of the binary")
	date := flag.String("date", "", "`time` of the document, RFC 3339")
	flag.Parse()
	if err := run(os.Stdout, flag.Arg(0), *version, *date); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, binary, version, date string) error {
	if binary == "" {
		return errors.New("usage: sbom [--version VERSION] [--date TIME] BINARY")
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	doc, err := describe(info, version, date)
	if err != nil {
		return fmt.Errorf("%s: %w", binary, err)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(doc)
}

// The document, with the names of CycloneDX.
type (
	document struct {
		Format       string       `json:"bomFormat"`
		Spec         string       `json:"specVersion"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp,omitempty"`
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		PURL       string     `json:"purl"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Licenses   []license  `json:"licenses,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Alg     string `json:"alg"`
		Content string `json:"content"`
	}
	license struct {
		License struct {
			ID string `json:"id"`
		} `json:"license"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn,omitempty"`
	}
)

// describe makes a document of the build information of a binary. The binary lists its modules but not which of them
// requires which, so the program depends on all of them.
func describe(info *debug.BuildInfo, version, date string) (*document, error) {
	self := component{
		Type: "application", Ref: "pkg:generic/toolpost@" + version, Name: "toolpost", Version: version,
		PURL: "pkg:generic/toolpost@" + version, Licenses: make([]license, 1), Properties: platform(info),
	}
	self.Licenses[0].License.ID = "Apache-2.0"
	runtime := component{
		Type: "library", Name: "std", Version: info.GoVersion, PURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
	}
	runtime.Ref = runtime.PURL
	doc := &document{
		Format: "CycloneDX", Spec: "1.6", Version: 1,
		Metadata: metadata{date, self}, Components: []component{runtime},
	}
	uses := dependency{Ref: self.Ref, DependsOn: []string{runtime.Ref}}
	for _, m := range info.Deps {
		c, err := moduleOf(m)
		if err != nil {
			return nil, err
		}
		doc.Components = append(doc.Components, c)
		uses.DependsOn = append(uses.DependsOn, c.Ref)
	}
	doc.Dependencies = []dependency{uses}
	return doc, nil
}

// moduleOf describes a module, or its replacement.
func moduleOf(m *debug.Module) (component, error) {
	for m.Replace != nil {
		m = m.Replace
	}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil || len(sum) != 32 {
		return component{}, fmt.Errorf("module %s has no hash: %q", m.Path, m.Sum)
	}
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	return component{
		Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl,
		// The hash of a module's list of files, as in go.sum and the checksum database.
		Hashes: []hash{{"SHA-256", hex.EncodeToString(sum)}},
	}, nil
}

// platform lists the other settings that determine the bytes of a binary.
func platform(info *debug.BuildInfo) []property {
	var found []property
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "CGO_ENABLED":
			found = append(found, property{"toolpost:build:" + s.Key, s.Value})
		}
	}
	return found
}
