package symbol

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// A Dependency is something that a project needs.
type Dependency struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // as the manifest writes it
	Scope   string `json:"scope,omitempty"`   // dev, indirect, optional, build ...; empty for an ordinary dependency
}

// A Manifest is a file in which a project names itself and its dependencies.
type Manifest struct {
	Ecosystem    string       `json:"ecosystem,omitempty"` // go, npm, python, cargo, ruby, hex, maven
	Module       string       `json:"module,omitempty" doc:"What the project calls itself."`
	Dependencies []Dependency `json:"dependencies,omitempty"`
}

// MaxManifest is the maximum size of a manifest.
const MaxManifest = 4 << 20

// IsManifest reports whether ReadManifest understands a file of this name.
func IsManifest(name string) bool { return readerOf(name) != nil }

// ReadManifest reads a manifest, whose name determines its format.
func ReadManifest(name string, src []byte) (*Manifest, error) {
	read := readerOf(name)
	if read == nil {
		return nil, fmt.Errorf("%s is not a manifest of a known kind", name)
	}
	if len(src) > MaxManifest {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, MaxManifest)
	}
	m, err := read(src)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func readerOf(name string) func([]byte) (*Manifest, error) {
	base := path.Base(name)
	switch base {
	case "go.mod":
		return readGoMod
	case "package.json":
		return readPackageJSON
	case "pyproject.toml":
		return readPyproject
	case "Cargo.toml":
		return readCargo
	case "Gemfile":
		return readGemfile
	case "mix.exs":
		return readMix
	case "pom.xml":
		return readPom
	}
	switch {
	case strings.HasPrefix(base, "requirements") && strings.HasSuffix(base, ".txt"):
		return readRequirements
	case strings.HasSuffix(base, ".gemspec"):
		return readGemspec
	}
	return nil
}

func readGoMod(src []byte) (*Manifest, error) {
	m := &Manifest{Ecosystem: "go"}
	block := ""
	for line := range strings.SplitSeq(string(src), "\n") {
		text, comment, _ := strings.Cut(line, "//")
		f := strings.Fields(text)
		switch {
		case len(f) == 0:
			continue
		case f[0] == ")":
			block = ""
			continue
		case len(f) == 2 && f[1] == "(":
			block = f[0]
			continue
		case block != "":
			f = append([]string{block}, f...)
		}
		switch {
		case f[0] == "module" && len(f) == 2:
			m.Module = strings.Trim(f[1], `"`)
		case f[0] == "require" && len(f) == 3:
			d := Dependency{Name: strings.Trim(f[1], `"`), Version: f[2]}
			if strings.TrimSpace(comment) == "indirect" {
				d.Scope = "indirect"
			}
			m.Dependencies = append(m.Dependencies, d)
		}
	}
	return m, nil
}

func readPackageJSON(src []byte) (*Manifest, error) {
	var p struct {
		Name     string            `json:"name"`
		Needs    map[string]string `json:"dependencies"`
		Dev      map[string]string `json:"devDependencies"`
		Peer     map[string]string `json:"peerDependencies"`
		Optional map[string]string `json:"optionalDependencies"`
	}
	if err := strictjson.Unmarshal(src, &p); err != nil {
		return nil, err
	}
	m := &Manifest{Ecosystem: "npm", Module: p.Name}
	m.addAll("", p.Needs)
	m.addAll("dev", p.Dev)
	m.addAll("peer", p.Peer)
	m.addAll("optional", p.Optional)
	return m, nil
}

func (m *Manifest) addAll(scope string, versions map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		m.Dependencies = append(m.Dependencies, Dependency{name, versions[name], scope})
	}
}

var requirement = regex.Lazy(`^\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*([^;#]*)`)

func readRequirements(src []byte) (*Manifest, error) {
	m := &Manifest{Ecosystem: "python"}
	for line := range strings.SplitSeq(string(src), "\n") {
		m.require(line, "")
	}
	return m, nil
}

func (m *Manifest) require(line, scope string) {
	if f := requirement().FindStringSubmatch(line); f != nil {
		m.Dependencies = append(m.Dependencies, Dependency{f[1], strings.TrimSpace(f[2]), scope})
	}
}

func readPyproject(src []byte) (*Manifest, error) {
	var p struct {
		Project struct {
			Name     string              `toml:"name"`
			Needs    []string            `toml:"dependencies"`
			Optional map[string][]string `toml:"optional-dependencies"`
		} `toml:"project"`
		Tool struct {
			Poetry struct {
				Name  string         `toml:"name"`
				Needs map[string]any `toml:"dependencies"`
				Dev   map[string]any `toml:"dev-dependencies"`
			} `toml:"poetry"`
		} `toml:"tool"`
	}
	if err := toml.Unmarshal(src, &p); err != nil {
		return nil, err
	}
	m := &Manifest{Ecosystem: "python", Module: cmp.Or(p.Project.Name, p.Tool.Poetry.Name)}
	for _, line := range p.Project.Needs {
		m.require(line, "")
	}
	for _, extra := range slices.Sorted(maps.Keys(p.Project.Optional)) {
		for _, line := range p.Project.Optional[extra] {
			m.require(line, extra)
		}
	}
	m.addTables("", p.Tool.Poetry.Needs)
	m.addTables("dev", p.Tool.Poetry.Dev)
	return m, nil
}

func readCargo(src []byte) (*Manifest, error) {
	var p struct {
		Package struct {
			Name string `toml:"name"`
		} `toml:"package"`
		Needs map[string]any `toml:"dependencies"`
		Dev   map[string]any `toml:"dev-dependencies"`
		Build map[string]any `toml:"build-dependencies"`
	}
	if err := toml.Unmarshal(src, &p); err != nil {
		return nil, err
	}
	m := &Manifest{Ecosystem: "cargo", Module: p.Package.Name}
	m.addTables("", p.Needs)
	m.addTables("dev", p.Dev)
	m.addTables("build", p.Build)
	return m, nil
}

// addTables adds dependencies whose value is a version or a table with one.
func (m *Manifest) addTables(scope string, needs map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		d := Dependency{Name: name, Scope: scope}
		switch v := needs[name].(type) {
		case string:
			d.Version = v
		case map[string]any:
			d.Version, _ = v["version"].(string)
		}
		m.Dependencies = append(m.Dependencies, d)
	}
}

var (
	gemLine  = regex.Lazy(`(?m)^\s*gem\s*\(?\s*["'](?<name>[^"']+)["'](?:\s*,\s*["'](?<version>[^"']+)["'])?`)
	specLine = regex.Lazy(`(?m)^\s*\w+\.add_(?<kind>runtime_|development_)?dependency\s*\(?\s*["'](?<name>[^"']+)["']` +
		`(?:\s*,\s*["'](?<version>[^"']+)["'])?`)
	specName = regex.Lazy(`(?m)^\s*\w+\.name\s*=\s*["']([^"']+)["']`)
	mixLine  = regex.Lazy(`(?m)^\s*\{\s*:(?<name>\w+)\s*(?:,\s*"(?<version>[^"]+)")?(?<kind>[^}\n]*)\}`)
	mixName  = regex.Lazy(`(?m)\bapp:\s*:(\w+)`)
)

func readGemfile(src []byte) (*Manifest, error) {
	m := &Manifest{Ecosystem: "ruby"}
	m.find(gemLine(), src, "")
	return m, nil
}

func readGemspec(src []byte) (*Manifest, error) {
	m := &Manifest{Ecosystem: "ruby", Module: first(specName(), src)}
	m.find(specLine(), src, "development_")
	return m, nil
}

func readMix(src []byte) (*Manifest, error) {
	m := &Manifest{Ecosystem: "hex", Module: first(mixName(), src)}
	m.find(mixLine(), src, "only:")
	return m, nil
}

// find adds the dependencies that a pattern finds. Those whose kind contains dev are for developers only.
func (m *Manifest) find(pattern *regexp.Regexp, src []byte, dev string) {
	name, version, kind := pattern.SubexpIndex("name"), pattern.SubexpIndex("version"), pattern.SubexpIndex("kind")
	for _, f := range pattern.FindAllSubmatch(src, -1) {
		d := Dependency{Name: string(f[name]), Version: string(f[version])}
		if kind >= 0 && bytes.Contains(f[kind], []byte(dev)) {
			d.Scope = "dev"
		}
		m.Dependencies = append(m.Dependencies, d)
	}
}

func readPom(src []byte) (*Manifest, error) {
	var p struct {
		Group    string `xml:"groupId"`
		Artifact string `xml:"artifactId"`
		Needs    []struct {
			Group    string `xml:"groupId"`
			Artifact string `xml:"artifactId"`
			Version  string `xml:"version"`
			Scope    string `xml:"scope"`
		} `xml:"dependencies>dependency"`
	}
	if err := xml.Unmarshal(src, &p); err != nil {
		return nil, err
	}
	m := &Manifest{Ecosystem: "maven", Module: strings.Trim(p.Group+":"+p.Artifact, ":")}
	for _, d := range p.Needs {
		m.Dependencies = append(m.Dependencies, Dependency{d.Group + ":" + d.Artifact, d.Version, d.Scope})
	}
	return m, nil
}
