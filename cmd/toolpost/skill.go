package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"toolpost/node"
)

func (a *app) skillCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "skill",
		Short: "List, check, install and create AlphaHuman skills",
		Long: "A skill is a folder: with manifest.json or skill.json it is a program that speaks JSON-RPC on stdin and\n" +
			"stdout; with SKILL.md alone it is instructions, as defined by the Agent Skills standard. A source with\n" +
			"`protocol: alphahuman` offers skills of both kinds.",
		Example: "  toolpost skill new weather --dir ./skills\n  toolpost skill check ./skills/weather",
	}, a.skillList(), a.skillCheck(), a.skillInstall(), a.skillNew())
}

// skillsDir is the folder in which skills are written and looked for.
const skillsDir = "skills"

func (a *app) skillList() *cobra.Command {
	return a.withJSON("print the list as JSON", &cobra.Command{
		Use: "list [DIR]", Short: "List the skills in a folder (default: ./" + skillsDir + ")", Args: words(0, 1), DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			skills, err := node.Skills{}.List(append(args, skillsDir)[0])
			if err != nil {
				return err
			}
			return list(a, "skills", skillRows(skills), columns("name version kind description", cells[skillRow]{"description": skillRow.about}))
		},
	})
}

// A skillRow is a skill as the list shows it.
type skillRow struct {
	Name        string `json:"name"`
	Version     string `json:"version,omitempty"`
	Kind        string `json:"kind"` // program, instructions or unknown
	Description string `json:"description,omitempty"`
	Problem     string `json:"problem,omitempty"`
	Dir         string `json:"dir"`
}

func skillRows(skills []*node.Skill) []skillRow {
	rows := []skillRow{}
	for _, s := range skills {
		row := skillRow{Name: s.Name(), Version: s.Version(), Kind: "instructions", Description: s.Description(), Dir: s.Dir}
		switch {
		case s.Manifest != nil:
			row.Kind = "program"
		case s.Doc == nil:
			row.Kind = "unknown"
		}
		if s.Err != nil {
			row.Problem = because(s.Err)
		}
		rows = append(rows, row)
	}
	return rows
}

func (r skillRow) about() string {
	if r.Problem != "" {
		return "cannot be used: " + r.Problem
	}
	return r.Description
}

func (a *app) skillCheck() *cobra.Command {
	return a.withJSON("print the findings as JSON", &cobra.Command{
		Use: "check DIR", Short: "Report what is wrong with a skill folder, without running it", Args: words(1, 1),
		DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			findings := append([]node.SkillFinding{}, node.Skills{}.Check(args[0])...)
			return a.conclude(map[string]any{"findings": findings}, func() {
				for _, f := range findings {
					fmt.Fprintln(a.out, clean(f.String()))
				}
				if len(findings) == 0 {
					fmt.Fprintln(a.out, "nothing is wrong")
				}
			}, slices.ContainsFunc(findings, func(f node.SkillFinding) bool { return f.Error }))
		},
	})
}

func (a *app) skillInstall() *cobra.Command {
	return &cobra.Command{
		Use: "install DIR", Args: words(1, 1),
		Short: "Install a Python skill's requirements.txt into its own .venv",
		Long:  "Installs a Python skill's requirements.txt into its own .venv, with pip, which needs a network.",
		RunE: func(c *cobra.Command, args []string) error {
			return node.Skills{}.Install(c.Context(), args[0], a.err)
		},
	}
}

func (a *app) skillNew() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "new NAME", Short: "Create a working Python skill", Args: words(1, 1), DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := node.Skills{}.New(dir, args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out,
				"wrote %s\noffer it with a source: {name: skills, protocol: alphahuman, skills: %s}\n", path, dir)
			return err
		},
	}
	c.Flags().StringVar(&dir, "dir", skillsDir, "folder of skills to create it in")
	return c
}
