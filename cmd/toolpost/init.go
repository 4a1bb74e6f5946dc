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

	"toolpost/examples"
	"toolpost/tool"
)

func (a *app) initCommand() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a config and sample tools",
		Args:  words(0, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.init(append(args, ".")[0], force)
		},
	}
	c.Flags().BoolVar(&force, "force", false, "overwrite existing files")
	return c
}

func (a *app) init(dir string, force bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "%s cannot be made: %w", dir, err)
	}
	root, err := os.OpenRoot(dir) // a link in the folder cannot redirect the files
	if err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "%s cannot be used: %w", dir, err)
	}
	defer root.Close()
	names, err := sampleNames()
	if err != nil {
		return err
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
		if err := writeSample(root, name); err != nil {
			return tool.Errorf(tool.CodeInvalidInput, "%s cannot be written: %w", name, err)
		}
		fmt.Fprintf(a.out, "%s %s\n", a.out.green("wrote"), path.Join(dir, name))
	}
	cd := ""
	if path.Clean(dir) != "." {
		cd = "  cd " + dir + "\n"
	}
	fmt.Fprintf(a.out, "\n%s\n%s  toolpost tools\n  toolpost call greet name=Ada\n  toolpost call light_torch steps=5\n"+
		"  toolpost call readFile path=toolpost.yaml\n  toolpost story\n  toolpost serve\n  toolpost connect\n", a.out.bold("Now try:"), cd)
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

func writeSample(root *os.Root, name string) error {
	data, err := examples.Files.ReadFile(name)
	if err != nil {
		return err
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	return root.WriteFile(name, data, 0o644)
}
