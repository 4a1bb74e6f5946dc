package alphahuman

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/process"
	"toolpost/tool"
)

// A Skill is a skill folder as it was read. One with a manifest is a program; one without, an Agent Skill,
// is instructions with files.
type Skill struct {
	Dir      string    // absolute
	Manifest *Manifest // nil: none
	Doc      *Doc      // nil: no SKILL.md
	Err      error     // why it cannot be used
}

// Name is what the skill is called: by its SKILL.md, by its manifest, or by its folder.
func (s *Skill) Name() string {
	var name string
	if s.Doc != nil {
		name = s.Doc.Name
	}
	if s.Manifest != nil {
		name = cmp.Or(name, s.Manifest.ID, s.Manifest.Name)
	}
	return cmp.Or(name, filepath.Base(s.Dir))
}

// Description says what the skill is for.
func (s *Skill) Description() string {
	var text string
	if s.Doc != nil {
		text = s.Doc.Description
	}
	if s.Manifest != nil {
		text = cmp.Or(text, s.Manifest.Description)
	}
	return text
}

// Version is what the manifest says, or the SKILL.md's metadata.
func (s *Skill) Version() string {
	switch {
	case s.Manifest != nil && s.Manifest.Version != "":
		return s.Manifest.Version
	case s.Doc != nil:
		return s.Doc.Metadata["version"]
	}
	return ""
}

// maxSkills bounds how many skills one folder may have.
const maxSkills = 1000

// List reads every sub-folder of dir that is a skill: that has a manifest.json or a SKILL.md. A skill that
// cannot be used is listed with the reason.
func List(dir string) ([]*Skill, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the folder of skills: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the skills in %s cannot be read: %w", dir, reason(err))
	}
	var skills []*Skill
	for _, e := range entries {
		sub := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") || !isSkill(sub) {
			continue
		}
		if len(skills) == maxSkills {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s has more than %d skills", dir, maxSkills)
		}
		skills = append(skills, readSkill(sub))
	}
	return skills, nil
}

func isSkill(dir string) bool {
	return slices.ContainsFunc([]string{manifestFile, skillFile}, func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && !info.IsDir()
	})
}

// readSkill reads one folder.
func readSkill(dir string) *Skill {
	s := &Skill{Dir: dir}
	if !isSkill(dir) {
		s.Err = tool.Errorf(tool.CodeUnavailable, "%s is not a skill: it has neither %s nor %s", dir, manifestFile, skillFile)
		return s
	}
	var docErr, manifestErr error
	s.Doc, docErr = readPart(dir, skillFile, maxSkillFile, parseDoc)
	s.Manifest, manifestErr = readPart(dir, manifestFile, maxManifest, parseManifest)
	s.Err = errors.Join(manifestErr, docErr)
	return s
}

// readPart reads one file of a skill; nil where it is not there.
func readPart[T any](dir, name string, limit int, parse func(string, []byte) (*T, error)) (*T, error) {
	path := filepath.Join(dir, name)
	data, err := readFile(path, limit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, tool.Errorf(tool.CodeUnavailable, "%s cannot be read: %w", path, reason(err))
	}
	return parse(path, data)
}

func readFile(path string, limit int) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // a pipe would keep us for ever
		return nil, errors.New("it is not a file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return process.ReadDocument(f, limit)
}

// reason is an error without the path, which the message has already.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
