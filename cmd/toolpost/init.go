package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/config"
	"toolpost/examples"
	"toolpost/tool"
)

// An initialising is one run of `toolpost init`.
type initialising struct {
	*app
	dir          string
	force, empty bool
	sample, from string
}

// adventure is the name of the sample that is a story, and of its folder.
const adventure = "adventure"

func (a *app) initCommand() *cobra.Command {
	q := &initialising{app: a}
	c := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a config and a sample tool",
		Long: "Writes toolpost.yaml, with the built-in tools for files and code, and greeter/, a Python function as a tool.\n" +
			"With --sample adventure it adds a program that reports events, and a story that is played with tools. With\n" +
			"--from it looks into a folder for settings of an MCP client, a package.json, an OpenAPI document and skills,\n" +
			"and writes a config with a source for each; it starts nothing, and changes nothing in that folder.",
		Example: "  toolpost init\n  toolpost init --sample adventure game\n  toolpost init --from ../my-project",
		Args:    words(0, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			q.dir = append(args, ".")[0]
			return q.run()
		},
	}
	c.Flags().BoolVar(&q.force, "force", false, "overwrite existing files")
	c.Flags().BoolVar(&q.empty, "empty", false, "write only a config, without sources")
	c.Flags().StringVar(&q.sample, "sample", "", "add a sample: "+adventure)
	c.Flags().StringVar(&q.from, "from", "", "propose sources for what is in this folder")
	c.MarkFlagsMutuallyExclusive("empty", "sample", "from")
	return c
}

// A sampleFile is a file that init writes.
type sampleFile struct {
	name string
	data []byte
}

func (q *initialising) run() error {
	files, next, err := q.files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(q.dir, 0o755); err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "%s cannot be made: %w", q.dir, err)
	}
	root, err := os.OpenRoot(q.dir) // a link in the folder cannot redirect the files
	if err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "%s cannot be used: %w", q.dir, err)
	}
	defer root.Close()
	if there := q.there(root, files); len(there) > 0 && !q.force {
		return tool.Errorf(tool.CodeInvalidInput,
			"%s is there already: nothing was written; --force overwrites", strings.Join(there, ", "))
	}
	for _, f := range files {
		err := root.MkdirAll(path.Dir(f.name), 0o755)
		if err == nil {
			err = root.WriteFile(f.name, f.data, 0o644)
		}
		if err != nil {
			return tool.Errorf(tool.CodeInvalidInput, "%s cannot be written: %w", f.name, err)
		}
		fmt.Fprintf(q.out, "%s %s\n", q.out.green("wrote"), path.Join(q.dir, f.name))
	}
	if path.Clean(q.dir) != "." {
		next = append([]string{"cd " + q.dir}, next...)
	}
	fmt.Fprintf(q.out, "\n%s\n  %s\n", q.out.bold("Now try:"), strings.Join(next, "\n  "))
	return nil
}

// there lists the files that exist. A sample may be added to a folder that has the files of a plain init, unchanged.
func (q *initialising) there(root *os.Root, files []sampleFile) (names []string) {
	plain, _ := samples("")
	for _, f := range files {
		if _, err := root.Lstat(f.name); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		now, err := root.ReadFile(f.name)
		same := func(p sampleFile) bool { return p.name == f.name && bytes.Equal(p.data, now) }
		if q.sample == "" || err != nil || !slices.ContainsFunc(plain, same) {
			names = append(names, f.name)
		}
	}
	return names
}

// files returns what is written, and the commands to try next.
func (q *initialising) files() (files []sampleFile, next []string, err error) {
	const greets, serves = "toolpost tools\ntoolpost call greet name=Ada", "toolpost serve\ntoolpost connect"
	switch {
	case q.empty:
		files = []sampleFile{{config.FileName, []byte(emptyConfig)}}
		next = []string{"toolpost mcp add --help", "toolpost wrap --help"}
	case q.from != "":
		return q.proposed()
	case q.sample == "":
		next = strings.Split(greets+"\ntoolpost call readFile path=toolpost.yaml\n"+serves, "\n")
		files, err = samples("")
	case q.sample == adventure:
		next = strings.Split(greets+"\ntoolpost call light_torch steps=5\ntoolpost story\n"+serves, "\n")
		files, err = samples(adventure)
	default:
		err = tool.Errorf(tool.CodeInvalidInput, "there is no sample %q; there is %s", q.sample, adventure)
	}
	return files, next, err
}

const emptyConfig = "# `toolpost config schema` prints the JSON Schema of this file.\nsources:\n"

// samples returns the files of a sample; those of the plain one have a name of "".
func samples(name string) (files []sampleFile, err error) {
	err = fs.WalkDir(examples.Files, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == "" && file != config.FileName && !strings.HasPrefix(file, "greeter/") {
			return err
		}
		data, err := examples.Files.ReadFile(file)
		if name == "" && file == config.FileName {
			data = examples.Config
		}
		files = append(files, sampleFile{file, data})
		return err
	})
	return files, err
}
