// Package start makes the first files of a config, from samples or from what a folder has.
package start

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"toolpost/config"
	"toolpost/examples"
	"toolpost/tool"
)

// Options say what `toolpost init` writes, and where.
type Options struct {
	Dir    string
	Force  bool   // overwrite files
	Empty  bool   // only a config, without sources
	Sample string // the name of a sample to add
	From   string // the folder to propose sources for
}

// Adventure is the name of the sample that is a story, and of its folder.
const Adventure = "adventure"

// A file is one that is written.
type file struct {
	name string
	data []byte
}

// A Plan is what is written.
type Plan struct {
	Found   []Found  // what is in the folder of From
	Skipped []string // scripts of its package.json that are not proposed
	Next    []string // commands to try next

	o     Options
	files []file
}

// Write writes the files, and tells of each.
func (p Plan) Write(wrote func(name string)) error {
	dir := p.o.Dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "%s cannot be made: %w", dir, err)
	}
	root, err := os.OpenRoot(dir) // a link in the folder cannot redirect the files
	if err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "%s cannot be used: %w", dir, err)
	}
	defer root.Close()
	if there := p.there(root); len(there) > 0 && !p.o.Force {
		return tool.Errorf(tool.CodeInvalidInput,
			"already there: %s; nothing was written; --force overwrites", strings.Join(there, ", "))
	}
	for _, f := range p.files {
		err := root.MkdirAll(path.Dir(f.name), 0o755)
		if err == nil {
			err = root.WriteFile(f.name, f.data, 0o644)
		}
		if err != nil {
			return tool.Errorf(tool.CodeInvalidInput, "%s cannot be written: %w", f.name, err)
		}
		wrote(path.Join(dir, f.name))
	}
	return nil
}

// there lists the files that exist. A sample may be added to a folder that has the files of a plain init, unchanged.
func (p Plan) there(root *os.Root) (names []string) {
	plain, _ := samples("")
	for _, f := range p.files {
		if _, err := root.Lstat(f.name); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		now, err := root.ReadFile(f.name)
		same := func(s file) bool { return s.name == f.name && bytes.Equal(s.data, now) }
		if p.o.Sample == "" || err != nil || !slices.ContainsFunc(plain, same) {
			names = append(names, f.name)
		}
	}
	return names
}

// Plan works out what to write.
func (o Options) Plan() (p Plan, err error) {
	const greets, serves = "toolpost tools\ntoolpost call greet name=Ada", "toolpost serve\ntoolpost connect"
	p.o = o
	switch {
	case o.Empty:
		p.files = []file{{config.FileName, []byte(emptyConfig)}}
		p.Next = []string{"toolpost mcp add --help", "toolpost wrap --help"}
	case o.From != "":
		err = p.propose()
	case o.Sample == "":
		p.Next = strings.Split(greets+"\ntoolpost call readFile path=toolpost.yaml\n"+serves, "\n")
		p.files, err = samples("")
	case o.Sample == Adventure:
		p.Next = strings.Split(greets+"\ntoolpost call light_torch steps=5\ntoolpost story\n"+serves, "\n")
		p.files, err = samples(Adventure)
	default:
		err = tool.Errorf(tool.CodeInvalidInput, "there is no sample %q; the only one is %s", o.Sample, Adventure)
	}
	if path.Clean(o.Dir) != "." {
		p.Next = append([]string{"cd " + o.Dir}, p.Next...)
	}
	return p, err
}

const emptyConfig = "# `toolpost config schema` prints the JSON Schema of this file.\nsources:\n"

// samples returns the files of a sample; those of the plain one have a name of "".
func samples(sample string) (files []file, err error) {
	err = fs.WalkDir(examples.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || sample == "" && name != config.FileName && !strings.HasPrefix(name, "greeter/") {
			return err
		}
		data, err := examples.Files.ReadFile(name)
		if sample == "" && name == config.FileName {
			data = examples.Config
		}
		files = append(files, file{name, data})
		return err
	})
	return files, err
}
