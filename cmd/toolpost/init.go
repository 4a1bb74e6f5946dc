package main

import (
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

func (a *app) initCommand() *cobra.Command {
	var force, empty bool
	c := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a config and sample tools",
		Args:  words(0, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.init(append(args, ".")[0], force, empty)
		},
	}
	c.Flags().BoolVar(&force, "force", false, "overwrite existing files")
	c.Flags().BoolVar(&empty, "empty", false, "write only a config, without sources")
	return c
}

func (a *app) init(dir string, force, empty bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "%s cannot be made: %w", dir, err)
	}
	root, err := os.OpenRoot(dir) // a link in the folder cannot redirect the files
	if err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "%s cannot be used: %w", dir, err)
	}
	defer root.Close()
	names, next := []string{config.FileName}, "  toolpost mcp add --help\n  toolpost wrap --help\n"
	if !empty {
		next = "  toolpost tools\n  toolpost call greet name=Ada\n  toolpost call light_torch steps=5\n" +
			"  toolpost call readFile path=toolpost.yaml\n  toolpost story\n  toolpost serve\n  toolpost connect\n"
		if names, err = sampleNames(); err != nil {
			return err
		}
	}
	there := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, err := root.Lstat(name)
		return errors.Is(err, fs.ErrNotExist)
	})
	if len(there) > 0 && !force {
		return tool.Errorf(tool.CodeInvalidInput,
			"%s is there already: nothing was written; --force overwrites", strings.Join(there, ", "))
	}
	for _, name := range names {
		if err := writeSample(root, name, empty); err != nil {
			return tool.Errorf(tool.CodeInvalidInput, "%s cannot be written: %w", name, err)
		}
		fmt.Fprintf(a.out, "%s %s\n", a.out.green("wrote"), path.Join(dir, name))
	}
	cd := ""
	if path.Clean(dir) != "." {
		cd = "  cd " + dir + "\n"
	}
	fmt.Fprintf(a.out, "\n%s\n%s%s", a.out.bold("Now try:"), cd, next)
	return nil
}

func sampleNames() ([]string, error) {
	var names []string
	err := fs.WalkDir(examples.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

// writeSample writes a sample or, if it shall be empty, a config.
func writeSample(root *os.Root, name string, empty bool) error {
	if empty {
		return root.WriteFile(name, []byte("# `toolpost config schema` prints the JSON Schema of this file.\nsources:\n"), 0o644)
	}
	data, err := examples.Files.ReadFile(name)
	if err != nil {
		return err
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	return root.WriteFile(name, data, 0o644)
}
