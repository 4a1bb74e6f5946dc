package alphahuman

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// A Skill is a skill folder as it was read. A skill with a manifest is a program. A skill without one, an Agent Skill, is
// instructions with files.
type Skill struct {
	Dir      string    // absolute
	Manifest *Manifest // nil if there is none
	Doc      *Doc      // nil if there is no SKILL.md
	Err      error     // why it cannot be used
}

// said returns the skill's SKILL.md and manifest, or zero values.
func (s *Skill) said() (d Doc, m Manifest) {
	if s.Doc != nil {
		d = *s.Doc
	}
	if s.Manifest != nil {
		m = *s.Manifest
	}
	return d, m
}

// Name returns the skill's name: from its SKILL.md, its manifest, or its folder.
func (s *Skill) Name() string {
	d, m := s.said()
	return cmp.Or(d.Name, m.ID, m.Name, filepath.Base(s.Dir))
}

// Description returns the purpose of the skill.
func (s *Skill) Description() string {
	d, m := s.said()
	return cmp.Or(d.Description, m.Description)
}

// Version returns the version in the manifest, or in the SKILL.md's metadata.
func (s *Skill) Version() string {
	d, m := s.said()
	return cmp.Or(m.Version, d.Metadata["version"])
}

// Skills are the operations on skill folders.
type Skills struct{}

// maxSkills bounds the number of skills in one folder.
const maxSkills = 1000

// List reads every sub-folder of dir that is a skill: that has a manifest or a SKILL.md. An unusable skill is listed with
// the reason, and so is a folder that could be mistaken for a skill.
func (Skills) List(dir string) ([]*Skill, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the folder of skills: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the skills in %s cannot be read: %w", dir, tool.WithoutPath(err))
	}
	var skills []*Skill
	for _, e := range entries {
		s := find(filepath.Join(dir, e.Name()), e)
		if s == nil {
			continue
		}
		if len(skills) == maxSkills {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s has more than %d skills", dir, maxSkills)
		}
		skills = append(skills, s)
	}
	return skills, nil
}

// find reads a folder that may be a skill, or returns nil if it does not look like one.
func find(path string, e fs.DirEntry) *Skill {
	if strings.HasPrefix(e.Name(), ".") || madeByMachines(e.Name()) {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil && e.Type()&fs.ModeSymlink != 0:
		why := tool.Errorf(tool.CodeUnavailable, "%s is a link that leads nowhere: %w", path, tool.WithoutPath(err))
		return &Skill{Dir: path, Err: why}
	case err != nil || !info.IsDir():
		return nil
	case isSkill(path):
		return readSkill(path)
	}
	if why := almost(path); why != nil {
		return &Skill{Dir: path, Err: why}
	}
	return nil
}

// madeByMachines reports whether programs make folders of this name beside hand-written code.
func madeByMachines(name string) bool {
	return slices.Contains([]string{"__pycache__", "node_modules", venvFolder, ".git"}, name)
}

// isSkill reports whether a folder has an entry with the name of a manifest or a SKILL.md.
func isSkill(dir string) bool {
	return slices.ContainsFunc(append(manifestFiles(), skillFile), func(name string) bool { return there(dir, name) })
}

func there(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// readSkill reads one folder.
func readSkill(dir string) *Skill {
	s := &Skill{Dir: dir}
	if !isSkill(dir) {
		s.Err = noSkill(dir)
		return s
	}
	var docErr, manifestErr error
	s.Doc, docErr = readPart(dir, skillFile, maxSkillFile, parseDoc)
	_, s.Manifest, manifestErr = readManifest(dir)
	if s.Manifest == nil && manifestErr == nil && there(dir, programFile) {
		manifestErr = tool.Errorf(tool.CodeUnavailable, "%s is not an Agent Skill: %s", dir, unstarted(dir, programFile))
	}
	s.Err = errors.Join(manifestErr, docErr)
	return s
}

// readManifest reads the manifest of a skill and returns its file name, or nil if there is none. A skill.json without a
// runtime, beside a SKILL.md, is only notes about an Agent Skill.
func readManifest(dir string) (file string, m *Manifest, err error) {
	for _, file := range manifestFiles() {
		if !there(dir, file) {
			continue
		}
		notes := file == otherManifest && there(dir, skillFile)
		m, err := readPart(dir, file, maxManifest, func(path string, data []byte) (*Manifest, error) {
			if notes && !hasMember(data, "runtime") {
				return nil, nil
			}
			return parseManifest(path, data)
		})
		return file, m, err
	}
	return "", nil, nil
}

func hasMember(data []byte, name string) bool {
	found := false
	_ = strictjson.Object(data, func(n, _ []byte) error { // invalid JSON has no members
		found = found || string(n) == name
		return nil
	})
	return found
}

// readPart reads one file of a skill, or returns nil if it does not exist.
func readPart[T any](dir, name string, limit int, parse func(string, []byte) (*T, error)) (*T, error) {
	path := filepath.Join(dir, name)
	data, err := readFile(path, limit)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !there(dir, name):
		return nil, nil
	case err != nil:
		return nil, tool.Errorf(tool.CodeUnavailable, "%s cannot be read: %w", path, tool.WithoutPath(err))
	}
	return parse(path, data)
}

func readFile(path string, limit int) ([]byte, error) {
	f, err := os.OpenFile(path, readNow, 0)
	return readRegular(f, err, limit)
}

// readNow opens a path that may not be a regular file: a pipe would block us for ever.
const readNow = os.O_RDONLY | syscall.O_NONBLOCK

// readRegular reads a file that was opened with readNow.
func readRegular(f *os.File, err error, limit int) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a file")
	}
	return bounded.ReadDocument(f, limit)
}

// noSkill returns the error for a folder that was named as a skill but is not one.
func noSkill(dir string) error {
	if why := almost(dir); why != nil {
		return why
	}
	return tool.Errorf(tool.CodeUnavailable, "%s is not a skill: it has neither %s nor %s",
		dir, strings.Join(manifestFiles(), ", "), skillFile)
}

// almost returns why a folder that looks like a skill is not one, so that its author finds it in the list. It returns nil if
// the folder does not look like a skill; a folder with nothing but documents and data does not.
func almost(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "%s cannot be read: %w", dir, tool.WithoutPath(err))
	}
	for _, looks := range []func(dir, name string) string{misnamed, otherFormat, unstarted, nested} {
		for _, e := range entries {
			if why := looks(dir, e.Name()); why != "" {
				return tool.Errorf(tool.CodeUnavailable, "%s is not a skill: %s", dir, why)
			}
		}
	}
	return nil
}

func misnamed(_, name string) string {
	for _, right := range append(manifestFiles(), skillFile) {
		if strings.EqualFold(name, right) {
			return fmt.Sprintf("it has %s, which has to be named %s", name, right)
		}
	}
	return ""
}

var otherFormats = regex.Lazy(`(?i)^(manifest|skill)\.(yaml|yml|toml|json5|jsonc)$`)

func otherFormat(_, name string) string {
	if !otherFormats().MatchString(name) {
		return ""
	}
	return fmt.Sprintf("it has %s; a manifest is JSON, in %s", name, strings.Join(manifestFiles(), " or "))
}

// starters are the usual names of files that start a program or list its dependencies.
var starters = regex.Lazy(`^(?i:(skill|main|__main__|index|server|app)\.(py|js|mjs|cjs|ts|sh))$` +
	`|^(requirements\.txt|package\.json|pyproject\.toml)$`)

func unstarted(_, name string) string {
	if !starters().MatchString(name) {
		return ""
	}
	return fmt.Sprintf("it has %s, but no %s that says how it is started", name, strings.Join(manifestFiles(), " or "))
}

func nested(dir, name string) string {
	if strings.HasPrefix(name, ".") || !isSkill(filepath.Join(dir, name)) {
		return ""
	}
	return fmt.Sprintf("%s in it is one: name that folder or, in a source, `skills: %s`", jsonrpc.Clip(name), dir)
}
