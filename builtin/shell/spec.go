package shell

import (
	"context"
	"slices"
	"strings"
	"time"

	"toolpost/builtin/define"
	"toolpost/host/workspace"
	"toolpost/tool"
	"toolpost/wire/typeschema"
)

const (
	execName = "execShell"
	lineName = "runLine"
)

type execArgs struct {
	Command   string            `json:"command" schema:"required minLength=1 maxLength=4096" doc:"The program, by its name."`
	Args      []string          `json:"args" schema:"maxItems=1000" doc:"Its arguments, each as it is: there is no shell that would expand or split them."`
	Cwd       string            `json:"cwd" schema:"minLength=1" doc:"Where it starts: a folder, relative to an offered one, or absolute below one. Left out: the first offered folder."`
	Stdin     string            `json:"stdin" schema:"maxLength=1048576" doc:"What it reads on its standard input."`
	TimeoutMS int64             `json:"timeout_ms" schema:"minimum=1"`
	Env       map[string]string `json:"env" doc:"Variables of its environment."`
}

type lineArgs struct {
	Line      string `json:"line" schema:"required minLength=1 maxLength=16384" doc:"Commands with |, &&, ||, ; and redirections. There are no variables, wildcards, substitutions, loops or functions. Example: git log --oneline | head -5"`
	Cwd       string `json:"cwd" schema:"minLength=1" doc:"Where it starts: a folder, relative to an offered one, or absolute below one. Left out: the first offered folder."`
	TimeoutMS int64  `json:"timeout_ms" schema:"minimum=1"`
}

// result is the output of a call, in the words of the Singularity contract.
type result struct {
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	ExitCode  int    `json:"exit_code" doc:"128 plus the number of the signal if a signal ended it."`
	Truncated bool   `json:"truncated,omitzero" doc:"There was more output than is given here."`
}

// tools defines the tools that the config asks for.
func (t *Tools) tools() ([]define.Tool, error) {
	walls, err := t.around(t.ws.Roots(), nil, nil)
	if err != nil {
		return nil, err
	}
	held := walls.Holds()
	held.NoNetwork = false // a rule may let a command use it
	exec := tool.Spec{
		Name: execName, Title: "Run a program", Aliases: []string{"shell", "shell.exec"},
		Description: "Runs one program with its arguments in an offered folder and gives what it wrote and its exit code; " +
			"a program that fails is a result like any other. " +
			"Options that run other programs, write or read elsewhere, or reach the network are refused, " +
			"and so are paths outside the offered folders.",
		Input: define.Input[execArgs](t.adjustExec),
		Effects: tool.Effects{
			Reads: true, Exec: true, Destructive: t.writes(), Writes: t.writes(),
			Network: slices.ContainsFunc(t.o.Rules, func(r Rule) bool { return r.Network }),
		},
		Tier: 2, Timeout: time.Duration(t.o.Timeout), Walls: walls.String(), Held: held, Room: t.roomOf(walls),
	}
	tools := []define.Tool{planned(t, exec, t.planCommand)}
	if !t.o.Line {
		return tools, nil
	}
	line := exec
	line.Name, line.Title, line.Aliases = lineName, "Run a line of commands", []string{"shell.line"}
	line.Description = "Runs commands that are connected as in a shell and gives what they wrote and the exit code " +
		"of the last. Every command is judged before the first one runs, as " + execName + " would judge it; " +
		"what cannot be judged is refused. Programs: " + strings.Join(t.programs(), ", ")
	line.Input = define.Input[lineArgs](t.adjust)
	return append(tools, planned(t, line, t.planLine)), nil
}

// adjust puts the config's settings into a schema.
func (t *Tools) adjust(input *typeschema.Object) {
	input.At("timeout_ms").Set("description",
		"How long it may take; at most "+time.Duration(t.o.Timeout).String()+", which is also the default.")
}

func (t *Tools) adjustExec(input *typeschema.Object) {
	t.adjust(input)
	input.At("command").Set("description", "The program, by its name. One of: "+strings.Join(t.programs(), ", "))
	if len(t.o.CallerEnv) == 0 {
		input.Delete("env")
		return
	}
	variables := &typeschema.Object{}
	for _, name := range t.o.CallerEnv {
		variables.Set(name, new(typeschema.Object).Set("type", "string"))
	}
	input.At("env").Set("properties", variables).Set("additionalProperties", false)
}

// planned defines a tool whose arguments are turned into a plan: exactly what was judged runs.
func planned[A any](t *Tools, spec tool.Spec, judge func(context.Context, *tool.Call, A) (*plan, error)) define.Tool {
	return define.Touching(spec,
		func(ctx context.Context, c *define.Call, args A) (result, error) {
			p, err := judge(ctx, c.Call, args)
			if err != nil {
				return result{}, err
			}
			defer p.close()
			return t.carryOut(ctx, c, p)
		},
		func(c *tool.Call, args A) (tool.Touches, error) {
			p, err := judge(context.Background(), c, args)
			if err != nil {
				return tool.Touches{}, err
			}
			defer p.close()
			return p.touches(), nil
		})
}

func (t *Tools) writes() bool {
	return slices.ContainsFunc(t.ws.Roots(), func(r workspace.Root) bool { return r.Write })
}

// programs lists the allowed programs, for people and models to choose from.
func (t *Tools) programs() []string {
	var names []string
	for _, entry := range t.o.Allow {
		names = append(names, strings.Join(strings.Fields(entry), " "))
	}
	for _, r := range t.o.Rules {
		names = append(names, r.Program)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
