// Package pack reads, signs, verifies and installs packs: folders of third-party namel3ss tools that declare the
// capabilities they need.
package pack

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/config"
	"toolpost/host/walls"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// The origins of an app's tools, as the trace's resolved_source names them.
const (
	SourceBuiltin   = "builtin_pack"   // the app's own packs/
	SourceInstalled = "installed_pack" // .namel3ss/packs/
)

// LocalFolder is the folder of the app's own packs.
const LocalFolder = "packs"

const (
	capabilityPacks = "packs/capability" // also the app's own
	installedPacks  = ".namel3ss/packs"
	manifestFile    = "pack.yaml"
	maxPacks        = 1000
)

// A Manifest is a pack.yaml. The settings of a runner may be beside `runners` or inside it.
type Manifest struct {
	ID          string                                      `yaml:"id"`
	Name        string                                      `yaml:"name"`
	Version     string                                      `yaml:"version"`
	Description string                                      `yaml:"description"`
	Author      string                                      `yaml:"author"`
	License     string                                      `yaml:"license"`
	Tools       []string                                    `yaml:"tools"`
	Runners     runners                                     `yaml:"runners"`
	ServiceURL  string                                      `yaml:"service_url"`
	Container   image                                       `yaml:"container"`
	Entrypoints map[string]config.Fallible[appfile.Binding] `yaml:"entrypoints"`
	SignerID    string                                      `yaml:"signer_id"`
	SignedAt    string                                      `yaml:"signed_at"`
	Digest      string                                      `yaml:"digest"`
}

type runners struct {
	Default    string `yaml:"default"`
	ServiceURL string `yaml:"service_url"`
	Container  image  `yaml:"container"`
}

type image struct {
	Image string `yaml:"image"`
}

// A Pack is a folder of third-party tools that declare the capabilities they need.
type Pack struct {
	Manifest
	Dir    string // absolute
	Where  string // its path below the app, for messages
	Source string // SourceBuiltin or SourceInstalled
	Has    map[string]*Tool

	Refused error // why none of its tools can be run, or nil
}

// A Tool is one tool of a pack.
type Tool struct {
	Bound   *appfile.Binding
	Needs   Capabilities
	Problem error // why it cannot be run, or nil
}

// Capabilities are what a tool needs according to the author of its pack. A capability that is not declared is not needed.
type Capabilities struct {
	Filesystem string   `yaml:"filesystem"`
	Network    string   `yaml:"network"`
	Env        string   `yaml:"env"`
	Subprocess string   `yaml:"subprocess"`
	Secrets    []string `yaml:"secrets"`
}

func (c Capabilities) check() error {
	return appfile.CheckChoices(
		appfile.Choice{Name: "filesystem", Value: c.Filesystem, Known: []string{"none", "read", "write"}},
		appfile.Choice{Name: "network", Value: c.Network, Known: []string{"none", "outbound"}},
		appfile.Choice{Name: "env", Value: c.Env, Known: []string{"none", "read"}},
		appfile.Choice{Name: "subprocess", Value: c.Subprocess, Known: []string{"none", "allow"}})
}

// Guarantees are the walls around everything that the tool does not need.
func (c Capabilities) Guarantees() tool.Guarantees {
	return tool.Guarantees{
		NoFilesystemRead:  c.Filesystem != "read" && c.Filesystem != "write",
		NoFilesystemWrite: c.Filesystem != "write",
		NoNetwork:         c.Network != "outbound",
		NoSubprocess:      c.Subprocess != "allow",
		NoEnvRead:         c.Env != "read",
		NoEnvWrite:        true, // a pack has no way to ask for it
		SecretsAllowed:    append([]string{}, c.Secrets...),
	}
}

// Checks reports for each capability whether the pack declared it, and whether it is denied nevertheless.
func (c Capabilities) Checks(denied tool.Guarantees, sources map[string]string) []walls.Check {
	var all []walls.Check
	note := func(capability string, allowed bool, source, reason string) {
		all = append(all, walls.Check{Capability: capability, Allowed: allowed, Source: source, Reason: reason})
	}
	isDenied := maps.Collect(denied.All())
	for wall, undeclared := range c.Guarantees().All() {
		capability := strings.TrimPrefix(wall, "no_")
		switch {
		case undeclared:
			note(capability, false, "pack", "pack_not_declared")
		case isDenied[wall]:
			note(capability, false, sources[wall], "policy_denied")
		default:
			note(capability, true, "pack", "pack_declared")
		}
	}
	for _, name := range c.Secrets {
		if slices.Contains(denied.SecretsAllowed, name) {
			note("secret:"+name, true, "pack", "pack_declared")
		} else {
			note("secret:"+name, false, sources["secrets_allowed"], "policy_denied")
		}
	}
	return all
}

// Read reads the packs of the app in a folder.
func Read(root string) ([]*Pack, error) {
	var all []*Pack
	ids := map[string]string{}
	for _, place := range []struct{ folder, source string }{
		{LocalFolder, SourceBuiltin}, {capabilityPacks, SourceBuiltin}, {installedPacks, SourceInstalled},
	} {
		packs, err := readFolder(root, place.folder, place.source)
		if err != nil {
			return nil, err
		}
		for _, p := range packs {
			if other := ids[p.ID]; p.ID != "" && other != "" {
				p.Refused = tool.Errorf(tool.CodeConflict, "%s and %s are both the pack %q; remove one of them", other,
					p.Where, p.ID)
			}
			ids[p.ID] = p.Where
		}
		all = append(all, packs...)
	}
	return all, nil
}

func readFolder(root, folder, source string) ([]*Pack, error) {
	entries, err := os.ReadDir(filepath.Join(root, folder))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, tool.Errorf(tool.CodeUnavailable, "%s cannot be read: %w", folder, err)
	case len(entries) > maxPacks:
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s has more than %d entries", folder, maxPacks)
	}
	var packs []*Pack
	for _, e := range entries {
		dir, where := filepath.Join(root, folder, e.Name()), folder+"/"+e.Name()
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || where == capabilityPacks {
			continue
		}
		p, err := readPack(dir, where)
		if err != nil {
			p = brokenPack(dir, where, err)
		}
		p.Source = source
		packs = append(packs, p)
	}
	return packs, nil
}

// brokenPack represents a pack that cannot be read. Its tools are listed with the reason; if even their names cannot be
// read, the pack is listed instead.
func brokenPack(dir, where string, why error) *Pack {
	p := &Pack{Dir: dir, Where: where, Has: map[string]*Tool{}, Refused: why}
	var listed struct {
		Tools []string `yaml:"tools"`
	}
	data, _ := appfile.Read(dir, manifestFile)
	if err := config.PeekYAML(manifestFile, data, &listed); err != nil || len(listed.Tools) == 0 {
		listed.Tools = []string{filepath.Base(dir)}
	}
	for _, name := range listed.Tools {
		p.Has[name] = &Tool{Bound: &appfile.Binding{}}
	}
	return p
}

var packID = regex.Lazy(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// readPack reads the three files of a pack; where is its name in messages.
func readPack(dir, where string) (*Pack, error) {
	p := &Pack{Dir: dir, Where: where, Has: map[string]*Tool{}}
	file := where + "/" + manifestFile
	data, err := appfile.Read(dir, manifestFile)
	switch {
	case err != nil:
		return nil, err
	case data == nil:
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s is missing; a pack starts with it", file)
	}
	if err := config.DecodeYAML(file, data, &p.Manifest); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w", file, err)
	}
	entrypoints := appfile.CheckBindings(file, data, "entrypoints: ", p.Entrypoints)
	if err := p.readTools(entrypoints); err != nil {
		return nil, err
	}
	return p, p.readCapabilities()
}

// readWhole reads a pack for signing or installation: all of its tools must be valid.
func readWhole(dir, where string) (*Pack, error) {
	p, err := readPack(dir, where)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(p.Has)) {
		if err := p.Has[name].Problem; err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Pack) check() error {
	for _, f := range []struct{ name, value string }{
		{"id", p.ID}, {"name", p.Name}, {"version", p.Version}, {"description", p.Description}, {"author", p.Author},
		{"license", p.License},
	} {
		if strings.TrimSpace(f.value) == "" {
			return fmt.Errorf("%s is missing", f.name)
		}
	}
	if !packID().MatchString(p.ID) {
		return fmt.Errorf("id %.80q is not made of letters, digits, dots, dashes and underscores", p.ID)
	}
	if len(p.Tools) == 0 {
		return errors.New("tools is missing; list the names of the pack's tools")
	}
	return appfile.CheckChoices(appfile.Choice{
		Name: "runners.default", Value: p.Runners.Default, Known: appfile.RunnerNames(),
	})
}

// readTools joins the bindings of the manifest and of the pack's tools.yaml with the manifest's list of tools.
func (p *Pack) readTools(entrypoints map[string]appfile.Bound) error {
	file := p.Where + "/tools.yaml"
	data, err := appfile.Read(p.Dir, "tools.yaml")
	if err != nil {
		return err
	}
	bound, err := appfile.ParseBindings(file, data)
	if err != nil {
		return err
	}
	for _, name := range p.Tools {
		if p.Has[name] != nil {
			return tool.Errorf(tool.CodeInvalidInput, "%s lists the tool %q twice", p.Where, name)
		}
		b, here := bound[name]
		fromManifest, there := entrypoints[name]
		t := &Tool{Bound: &appfile.Binding{}, Problem: cmp.Or(b.Problem, fromManifest.Problem)}
		switch {
		case here && there:
			t.Problem = tool.Errorf(tool.CodeConflict,
				"%s binds the tool %q in tools.yaml and in entrypoints; remove one of them", p.Where, name)
		case !here && !there:
			t.Problem = tool.Errorf(tool.CodeInvalidInput,
				"%s lists the tool %q and does not bind it; add it to tools.yaml or to entrypoints", p.Where, name)
		default:
			t.Bound = p.complete(cmp.Or(b.Binding, fromManifest.Binding))
		}
		p.Has[name] = t
	}
	for _, names := range []map[string]appfile.Bound{bound, entrypoints} {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if p.Has[name] == nil {
				return tool.Errorf(tool.CodeInvalidInput,
					"%s binds the tool %q, which its manifest does not list under tools", p.Where, name)
			}
		}
	}
	return nil
}

// complete fills in the settings that the pack has for all of its tools.
func (p *Pack) complete(b *appfile.Binding) *appfile.Binding {
	c := *b
	c.Runner = cmp.Or(b.Runner, p.Runners.Default)
	c.URL = cmp.Or(b.URL, p.ServiceURL, p.Runners.ServiceURL)
	c.Image = cmp.Or(b.Image, p.Container.Image, p.Runners.Container.Image)
	return &c
}

func (p *Pack) readCapabilities() error {
	file := p.Where + "/capabilities.yaml"
	data, err := appfile.Read(p.Dir, "capabilities.yaml")
	if err != nil {
		return err
	}
	needs, err := parseCapabilities(file, data)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		t := p.Has[name]
		if t == nil {
			return tool.Errorf(tool.CodeInvalidInput, "%s is about the tool %q, which the pack does not have", file,
				name)
		}
		t.Needs = needs[name]
	}
	return nil
}

func parseCapabilities(file string, data []byte) (map[string]Capabilities, error) {
	var doc struct {
		Capabilities map[string]Capabilities `yaml:"capabilities"`
	}
	if err := config.DecodeYAML(file, data, &doc); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Capabilities)) {
		if err := doc.Capabilities[name].check(); err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s: tool %q: %w", file, name, err)
		}
	}
	return doc.Capabilities, nil
}

// Trust checks packs against the keys that the user trusts. An installed pack is third-party code: one of the keys must have
// signed it, or the user must name it. The app's own packs are code of the app, as its tools/ are; their signatures are
// checked if they have any. A pack that fails keeps its tools in the list, but none of them runs.
func Trust(packs []*Pack, keys, named []string) error {
	trusted, err := publicKeys(keys)
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "a key of pack_keys: %w", err)
	}
	for _, p := range packs {
		_, unsigned := os.Lstat(filepath.Join(p.Dir, signatureFile))
		own := p.Source == SourceBuiltin && (len(trusted) == 0 || unsigned != nil)
		if p.Refused != nil || own || slices.Contains(named, p.ID) {
			continue
		}
		if _, err := verify(p.Dir, trusted); err != nil {
			e := *tool.AsError(err)
			e.Message += "; its source trusts keys with pack_keys, and single packs with trusted_packs"
			p.Refused = &e
		}
	}
	return nil
}
