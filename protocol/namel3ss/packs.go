package namel3ss

import (
	"cmp"
	"crypto/ed25519"
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
	"toolpost/tool"
)

// Where the tools of an app come from, in the words of the trace's resolved_source.
const (
	sourceBinding   = "binding"
	sourceBuiltin   = "builtin_pack"   // the app's own packs/
	sourceInstalled = "installed_pack" // .namel3ss/packs/
)

const (
	localPacks      = "packs"
	capabilityPacks = "packs/capability" // the app's own too
	installedPacks  = ".namel3ss/packs"
	manifestFile    = "pack.yaml"
	maxPacks        = 1000
)

// A manifest is a pack.yaml. What a runner needs may be said beside `runners` or inside it.
type manifest struct {
	ID          string                              `yaml:"id"`
	Name        string                              `yaml:"name"`
	Version     string                              `yaml:"version"`
	Description string                              `yaml:"description"`
	Author      string                              `yaml:"author"`
	License     string                              `yaml:"license"`
	Tools       []string                            `yaml:"tools"`
	Runners     packRunners                         `yaml:"runners"`
	ServiceURL  string                              `yaml:"service_url"`
	Container   packContainer                       `yaml:"container"`
	Entrypoints map[string]config.Fallible[binding] `yaml:"entrypoints"`
	SignerID    string                              `yaml:"signer_id"`
	SignedAt    string                              `yaml:"signed_at"`
	Digest      string                              `yaml:"digest"`
}

type packRunners struct {
	Default    string        `yaml:"default"`
	ServiceURL string        `yaml:"service_url"`
	Container  packContainer `yaml:"container"`
}

type packContainer struct {
	Image string `yaml:"image"`
}

// A pack is a folder of tools that somebody else wrote, with what they say they need.
type pack struct {
	manifest
	dir    string // absolute
	where  string // below the app, for messages
	source string // sourceBuiltin or sourceInstalled
	tools  map[string]*packTool

	refused error // why none of its tools can be run; nil: they may
}

// A packTool is one tool of a pack.
type packTool struct {
	bound   *binding
	needs   capabilities
	problem error // why it cannot be run; nil: it may
}

// capabilities are what the author of a pack says that a tool needs. What is not said is not needed.
type capabilities struct {
	Filesystem string   `yaml:"filesystem"`
	Network    string   `yaml:"network"`
	Env        string   `yaml:"env"`
	Subprocess string   `yaml:"subprocess"`
	Secrets    []string `yaml:"secrets"`
}

func (c capabilities) check() error {
	for _, f := range []struct {
		name, value string
		known       []string
	}{
		{"filesystem", c.Filesystem, []string{"none", "read", "write"}},
		{"network", c.Network, []string{"none", "outbound"}},
		{"env", c.Env, []string{"none", "read"}},
		{"subprocess", c.Subprocess, []string{"none", "allow"}},
	} {
		if f.value != "" && !slices.Contains(f.known, f.value) {
			return fmt.Errorf("%s is one of %q, not %.40q", f.name, f.known, f.value)
		}
	}
	return nil
}

// guarantees are the walls around everything that the tool does not need.
func (c capabilities) guarantees() tool.Guarantees {
	return tool.Guarantees{
		NoFilesystemRead:  c.Filesystem != "read" && c.Filesystem != "write",
		NoFilesystemWrite: c.Filesystem != "write",
		NoNetwork:         c.Network != "outbound",
		NoSubprocess:      c.Subprocess != "allow",
		NoEnvRead:         c.Env != "read",
		NoEnvWrite:        true, // there is no word with which a pack could ask for it
		SecretsAllowed:    append([]string{}, c.Secrets...),
	}
}

// checks says of each capability whether the pack declared it, and whether somebody denies it all the same.
func (c capabilities) checks(denied tool.Guarantees, sources map[string]string) []walls.Check {
	var all []walls.Check
	note := func(capability string, allowed bool, source, reason string) {
		all = append(all, walls.Check{Capability: capability, Allowed: allowed, Source: source, Reason: reason})
	}
	for _, f := range []struct {
		capability string
		declared   bool
		wall       string
		isDenied   bool
	}{
		{"filesystem_read", !c.guarantees().NoFilesystemRead, "no_filesystem_read", denied.NoFilesystemRead},
		{"filesystem_write", !c.guarantees().NoFilesystemWrite, "no_filesystem_write", denied.NoFilesystemWrite},
		{"network", !c.guarantees().NoNetwork, "no_network", denied.NoNetwork},
		{"subprocess", !c.guarantees().NoSubprocess, "no_subprocess", denied.NoSubprocess},
		{"env_read", !c.guarantees().NoEnvRead, "no_env_read", denied.NoEnvRead},
		{"env_write", false, "no_env_write", denied.NoEnvWrite},
	} {
		switch {
		case !f.declared:
			note(f.capability, false, "pack", "pack_not_declared")
		case f.isDenied:
			note(f.capability, false, sources[f.wall], "policy_denied")
		default:
			note(f.capability, true, "pack", "pack_declared")
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

// readPacks reads the packs of the app.
func (a *app) readPacks() error {
	ids := map[string]string{}
	for _, place := range []struct{ folder, source string }{
		{localPacks, sourceBuiltin}, {capabilityPacks, sourceBuiltin}, {installedPacks, sourceInstalled},
	} {
		packs, err := readPackFolder(a.root, place.folder, place.source)
		if err != nil {
			return err
		}
		for _, p := range packs {
			if other := ids[p.ID]; p.ID != "" && other != "" {
				p.refused = tool.Errorf(tool.CodeConflict, "%s and %s are both the pack %q; remove one of them", other, p.where, p.ID)
			}
			ids[p.ID] = p.where
		}
		a.packs = append(a.packs, packs...)
	}
	return nil
}

// settle holds every name to one origin. A pack that cannot be run disputes no name: somebody could take a tool from an
// app with a pack that nobody trusts.
func (a *app) settle() {
	origin := map[string]string{}
	for name := range a.bindings {
		origin[name] = bindingsFile
	}
	slices.SortStableFunc(a.packs, func(x, y *pack) int { return strings.Compare(x.state(), y.state()) })
	for _, p := range a.packs {
		for name := range p.tools {
			switch other := origin[name]; {
			case p.refused != nil && (other != "" || a.discovered(name) != nil):
				delete(p.tools, name)
			case other != "":
				a.disputed[name] = tool.Errorf(tool.CodeConflict,
					"the tool %q is in %s and in %s; remove it from one of them", name, other, p.where)
			default:
				origin[name] = p.where
			}
		}
	}
}

// state sorts the packs that can be run before the others.
func (p *pack) state() string {
	if p.refused != nil {
		return "refused"
	}
	return "good"
}

func readPackFolder(root, folder, source string) ([]*pack, error) {
	entries, err := os.ReadDir(filepath.Join(root, folder))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, tool.Errorf(tool.CodeUnavailable, "%s cannot be read: %w", folder, err)
	case len(entries) > maxPacks:
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s has more than %d entries", folder, maxPacks)
	}
	var packs []*pack
	for _, e := range entries {
		dir, where := filepath.Join(root, folder, e.Name()), folder+"/"+e.Name()
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || where == capabilityPacks {
			continue
		}
		p, err := readPack(dir, where)
		if err != nil {
			p = brokenPack(dir, where, err)
		}
		p.source = source
		packs = append(packs, p)
	}
	return packs, nil
}

// brokenPack is a pack that cannot be read: its tools are listed with the reason, or, where not even their names can be
// read, the pack is in their place.
func brokenPack(dir, where string, why error) *pack {
	p := &pack{dir: dir, where: where, tools: map[string]*packTool{}, refused: why}
	var listed struct {
		Tools []string `yaml:"tools"`
	}
	data, _ := readFile(dir, manifestFile)
	if err := config.PeekYAML(manifestFile, data, &listed); err != nil || len(listed.Tools) == 0 {
		listed.Tools = []string{filepath.Base(dir)}
	}
	for _, name := range listed.Tools {
		p.tools[name] = &packTool{bound: &binding{}}
	}
	return p
}

var packID = lazily(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// readPack reads the three files of a pack; where says how messages call it.
func readPack(dir, where string) (*pack, error) {
	p := &pack{dir: dir, where: where, tools: map[string]*packTool{}}
	file := where + "/" + manifestFile
	data, err := readFile(dir, manifestFile)
	switch {
	case err != nil:
		return nil, err
	case data == nil:
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s is missing; a pack starts with it", file)
	}
	if err := config.DecodeYAML(file, data, &p.manifest); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w", file, err)
	}
	entrypoints := checkBindings(file, data, "entrypoints: ", p.Entrypoints)
	if err := p.readTools(entrypoints); err != nil {
		return nil, err
	}
	return p, p.readCapabilities()
}

// readWhole reads a pack that is to be signed or installed: nothing may be wrong with any of its tools.
func readWhole(dir, where string) (*pack, error) {
	p, err := readPack(dir, where)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(p.tools)) {
		if err := p.tools[name].problem; err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *pack) check() error {
	for _, f := range []struct{ name, value string }{
		{"id", p.ID}, {"name", p.Name}, {"version", p.Version}, {"description", p.Description}, {"author", p.Author}, {"license", p.License},
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
	if r := p.Runners.Default; r != "" && !slices.Contains(runnerNames(), r) {
		return fmt.Errorf("runners.default is one of %q, not %.40q", runnerNames(), r)
	}
	return nil
}

// readTools joins what the manifest and the pack's tools.yaml bind with what the pack says it has.
func (p *pack) readTools(entrypoints map[string]boundTo) error {
	file := p.where + "/tools.yaml"
	data, err := readFile(p.dir, "tools.yaml")
	if err != nil {
		return err
	}
	bound, err := parseBindings(file, data)
	if err != nil {
		return err
	}
	for _, name := range p.Tools {
		if p.tools[name] != nil {
			return tool.Errorf(tool.CodeInvalidInput, "%s lists the tool %q twice", p.where, name)
		}
		b, here := bound[name]
		fromManifest, there := entrypoints[name]
		t := &packTool{bound: &binding{}, problem: cmp.Or(b.problem, fromManifest.problem)}
		switch {
		case here && there:
			t.problem = tool.Errorf(tool.CodeConflict,
				"%s binds the tool %q in tools.yaml and in entrypoints; remove one of them", p.where, name)
		case !here && !there:
			t.problem = tool.Errorf(tool.CodeInvalidInput,
				"%s lists the tool %q and does not bind it; add it to tools.yaml or to entrypoints", p.where, name)
		default:
			t.bound = p.complete(cmp.Or(b.binding, fromManifest.binding))
		}
		p.tools[name] = t
	}
	for _, names := range []map[string]boundTo{bound, entrypoints} {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if p.tools[name] == nil {
				return tool.Errorf(tool.CodeInvalidInput, "%s binds the tool %q, which its manifest does not list under tools", p.where, name)
			}
		}
	}
	return nil
}

// complete fills in what the pack says for all of its tools.
func (p *pack) complete(b *binding) *binding {
	c := *b
	c.Runner = cmp.Or(b.Runner, p.Runners.Default)
	c.URL = cmp.Or(b.URL, p.ServiceURL, p.Runners.ServiceURL)
	c.Image = cmp.Or(b.Image, p.Container.Image, p.Runners.Container.Image)
	return &c
}

func (p *pack) readCapabilities() error {
	file := p.where + "/capabilities.yaml"
	data, err := readFile(p.dir, "capabilities.yaml")
	if err != nil {
		return err
	}
	needs, err := parseCapabilities(file, data)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		t := p.tools[name]
		if t == nil {
			return tool.Errorf(tool.CodeInvalidInput, "%s is about the tool %q, which the pack does not have", file, name)
		}
		t.needs = needs[name]
	}
	return nil
}

func parseCapabilities(file string, data []byte) (map[string]capabilities, error) {
	var doc struct {
		Capabilities map[string]capabilities `yaml:"capabilities"`
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

// pack finds the pack that brings a tool, or nil.
func (a *app) pack(name string) *pack {
	for _, p := range a.packs {
		if p.tools[name] != nil {
			return p
		}
	}
	return nil
}

// verify holds packs to the keys that the user trusts. An installed one is somebody else's: it must be signed by one of
// them, or named by the user. One of the app's own is code of the app, as its tools/ are, and held to a signature if it
// has one. A pack that fails keeps its tools in the list, and none of them runs.
func (a *app) verify(keys, named []string) error {
	var trusted []ed25519.PublicKey
	for _, path := range keys {
		text, err := os.ReadFile(path)
		if err != nil {
			return tool.Errorf(tool.CodeUnavailable, "the key of pack_keys cannot be read: %w", err)
		}
		key, err := ParsePublicKey(text)
		if err != nil {
			return about(path, err)
		}
		trusted = append(trusted, key)
	}
	for _, p := range a.packs {
		own := p.source == sourceBuiltin && (len(trusted) == 0 || !signedPack(p.dir))
		if p.refused != nil || own || slices.Contains(named, p.ID) {
			continue
		}
		if _, err := VerifyPack(p.dir, trusted); err != nil {
			e := *tool.AsError(err)
			e.Message += "; its source trusts keys with pack_keys, and single packs with trusted_packs"
			p.refused = &e
		}
	}
	return nil
}

func signedPack(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, signatureFile))
	return err == nil
}
