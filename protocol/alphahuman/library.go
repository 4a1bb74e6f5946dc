package alphahuman

import (
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// A library holds the Agent Skills of a source: instructions that are read when they are needed, and the files that they
// refer to.
type library struct{ skills []*Skill }

// The tools of a library.
const (
	activateTool = "activate_skill"
	readTool     = "read_skill_file"
)

const (
	maxListed    = 500
	maxSkillRead = 1 << 20
)

func (l *library) activateSpec() *tool.Spec {
	about := "Gives the instructions of a skill and the list of its files. Use it when a task matches a skill:\n"
	var skills []tool.Skill
	for _, s := range l.skills {
		about += "- " + s.Name() + ": " + s.Description() + "\n"
		skills = append(skills, tool.Skill{Name: s.Name(), Description: s.Description()})
	}
	spec := l.spec(activateTool, "Activate a skill", about, "name")
	spec.Skills = skills
	return spec
}

func (l *library) readSpec() *tool.Spec {
	return l.spec(readTool, "Read a file of a skill",
		"Gives the content of a file that the instructions of a skill speak of, such as references/guide.md.",
		"name", "path")
}

// spec describes a tool with string arguments, one of which is the name of a skill.
func (l *library) spec(name, title, about string, takes ...string) *tool.Spec {
	var names []string
	for _, s := range l.skills {
		names = append(names, s.Name())
	}
	properties := map[string]any{}
	for _, text := range takes {
		properties[text] = map[string]any{"type": "string"}
	}
	properties["name"] = map[string]any{"type": "string", "enum": names}
	schema, _ := strictjson.Marshal(map[string]any{ // strings alone
		"type": "object", "properties": properties, "required": takes, "additionalProperties": false,
	})
	return &tool.Spec{
		Name: name, Title: title, Description: about, Input: schema,
		Effects: tool.Effects{Reads: true, Idempotent: true},
	}
}

// use makes a tool of an operation on the folder of a skill. os.Root keeps every path inside the folder.
func (l *library) use(
	do func(s *Skill, root *os.Root, path string) (any, error),
) func(args json.RawMessage) (*tool.Result, error) {
	return func(args json.RawMessage) (*tool.Result, error) {
		var a struct {
			Name string `json:"name"`
			Path string `json:"path"`
		}
		if err := strictjson.UnmarshalClosed(strictjson.OrEmpty(args), &a); err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments: %w", err)
		}
		i := slices.IndexFunc(l.skills, func(s *Skill) bool { return s.Name() == a.Name })
		if i < 0 {
			return nil, tool.Errorf(tool.CodeNotFound, "no skill is called %q", a.Name)
		}
		root, err := os.OpenRoot(l.skills[i].Dir)
		if err != nil {
			return nil, tool.Errorf(tool.CodeUnavailable, "the folder of %s: %w", a.Name, tool.WithoutPath(err))
		}
		defer root.Close()
		output, err := do(l.skills[i], root, a.Path)
		if err != nil {
			return nil, err
		}
		b, err := strictjson.Marshal(output)
		return &tool.Result{OK: true, Output: b}, err
	}
}

// An activation is the output of activate_skill.
type activation struct {
	Name          string            `json:"name"`
	Description   string            `json:"description"`
	License       string            `json:"license,omitempty"`
	Compatibility string            `json:"compatibility,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	AllowedTools  []string          `json:"allowed_tools,omitempty"`
	Instructions  string            `json:"instructions"`
	Files         []string          `json:"files"`
	More          bool              `json:"more_files,omitzero"` // there are more files than the list has
}

// activate returns a skill's current instructions: its file may have changed since the start.
func activate(s *Skill, root *os.Root, _ string) (any, error) {
	doc, err := readPart(s.Dir, skillFile, maxSkillFile, parseDoc)
	if err != nil {
		return nil, err
	}
	if doc == nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "%s has no %s any more", s.Name(), skillFile)
	}
	files, more := filesOf(root)
	return activation{
		Name: s.Name(), Description: doc.Description, License: doc.License, Compatibility: doc.Compatibility,
		Metadata: doc.Metadata, AllowedTools: doc.AllowedTools, Instructions: doc.Body, Files: files, More: more,
	}, nil
}

// filesOf lists the files of a skill, anywhere in its folder: the standard names scripts, references and assets, and skills
// have more. Files made by programs are left out.
func filesOf(root *os.Root) (files []string, more bool) {
	files = []string{}
	_ = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // an unreadable entry is left out
		case e.IsDir() && madeByMachines(e.Name()):
			return fs.SkipDir
		case !e.Type().IsRegular():
			return nil
		case len(files) == maxListed:
			more = true
			return fs.SkipAll
		}
		files = append(files, strings.ToValidUTF8(path, "\uFFFD"))
		return nil
	})
	return files, more
}

// readSkillFile returns a file of a skill.
func readSkillFile(s *Skill, root *os.Root, name string) (any, error) {
	f, err := root.OpenFile(path.Clean(name), readNow, 0)
	data, err := readRegular(f, err, maxSkillRead)
	if err != nil {
		return nil, tool.Errorf(tool.CodeNotFound, "%s of %s cannot be read: %w", jsonrpc.Clip(name), s.Name(),
			tool.WithoutPath(err))
	}
	return map[string]string{"content": strings.ToValidUTF8(string(data), "\uFFFD")}, nil
}
