package shell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const (
	execName = "execShell"
	lineName = "runLine"
)

type execArgs struct {
	Command   string            `json:"command"`
	Args      []string          `json:"args"`
	Cwd       string            `json:"cwd"`
	Stdin     string            `json:"stdin"`
	TimeoutMS int64             `json:"timeout_ms"`
	Env       map[string]string `json:"env"`
}

type lineArgs struct {
	Line      string `json:"line"`
	Cwd       string `json:"cwd"`
	TimeoutMS int64  `json:"timeout_ms"`
}

// result is what a call gives, in the words of the Singularity contract.
type result struct {
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	ExitCode  int    `json:"exit_code"`
	Truncated bool   `json:"truncated,omitzero"`
}

type schema = map[string]any

// Tools implements tool.Source.
func (t *Tools) Tools(context.Context) ([]*tool.Spec, error) {
	walls, err := t.around(t.ws.Roots(), nil, nil)
	if err != nil {
		return nil, err
	}
	specs := []*tool.Spec{t.execSpec()}
	if t.o.Line {
		specs = append(specs, t.lineSpec())
	}
	held := walls.Holds()
	held.NoNetwork = false // a rule may let a command reach it
	for _, s := range specs {
		s.Walls, s.Held = walls.String(), held
	}
	return specs, nil
}

func (t *Tools) execSpec() *tool.Spec {
	input := schema{
		"command":    schema{"type": "string", "minLength": 1, "maxLength": 4096, "description": "The program, by its name. One of: " + strings.Join(t.programs(), ", ")},
		"args":       schema{"type": "array", "items": schema{"type": "string"}, "maxItems": defaultMaxArgs, "description": "Its arguments, each as it is: there is no shell that would expand or split them."},
		"cwd":        cwdSchema(),
		"stdin":      schema{"type": "string", "maxLength": maxStdin, "description": "What it reads on its standard input."},
		"timeout_ms": timeoutSchema(t.o),
	}
	if len(t.o.CallerEnv) > 0 {
		variables := schema{}
		for _, name := range t.o.CallerEnv {
			variables[name] = schema{"type": "string"}
		}
		input["env"] = schema{"type": "object", "properties": variables, "additionalProperties": false, "description": "Variables of its environment."}
	}
	return t.spec(execName, "Run a program",
		"Runs one program with its arguments in an offered folder and gives what it wrote and its exit code; a program that fails is a result like any other. "+
			"Options that run other programs, write or read elsewhere, or reach the network are refused, and so are paths outside the offered folders.",
		[]string{"shell", "shell.exec"}, input, "command")
}

func (t *Tools) lineSpec() *tool.Spec {
	input := schema{
		"line":       schema{"type": "string", "minLength": 1, "maxLength": maxLine, "description": "Commands with |, &&, ||, ; and redirections. There are no variables, wildcards, substitutions, loops or functions. Example: git log --oneline | head -5"},
		"cwd":        cwdSchema(),
		"timeout_ms": timeoutSchema(t.o),
	}
	return t.spec(lineName, "Run a line of commands",
		"Runs commands that are connected as in a shell and gives what they wrote and the exit code of the last. "+
			"Every command is judged before the first one runs, as "+execName+" would judge it; what cannot be judged is refused. Programs: "+strings.Join(t.programs(), ", "),
		[]string{"shell.line"}, input, "line")
}

func (t *Tools) spec(name, title, description string, aliases []string, input schema, required string) *tool.Spec {
	return &tool.Spec{
		Name: name, Title: title, Description: description, Aliases: aliases,
		Input:  mustJSON(schema{"type": "object", "properties": input, "required": []string{required}, "additionalProperties": false}),
		Output: mustJSON(outputSchema()),
		Effects: tool.Effects{Reads: true, Exec: true, Destructive: t.writes(), Writes: t.writes(),
			Network: slices.ContainsFunc(t.o.Rules, func(r Rule) bool { return r.Network })},
		Tier: 2, Timeout: time.Duration(t.o.Timeout),
	}
}

func (t *Tools) writes() bool {
	for _, r := range t.ws.Roots() {
		if r.Write {
			return true
		}
	}
	return false
}

// programs lists what the config allows, for people and models to choose from.
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

func cwdSchema() schema {
	return schema{"type": "string", "minLength": 1, "description": "Where it starts: a folder, relative to an offered one, or absolute below one. Left out: the first offered folder."}
}

func timeoutSchema(o Options) schema {
	return schema{"type": "integer", "minimum": 1, "description": "How long it may take; at most " + time.Duration(o.Timeout).String() + ", which is also the default."}
}

func outputSchema() schema {
	return schema{
		"type": "object",
		"properties": schema{
			"stdout": schema{"type": "string"}, "stderr": schema{"type": "string"},
			"exit_code": schema{"type": "integer", "description": "128 and the number of the signal, where one ended it."},
			"truncated": schema{"type": "boolean", "description": "There was more output than is given here."},
		},
		"required": []string{"stdout", "stderr", "exit_code"},
	}
}

// mustJSON writes a schema of ours, which cannot fail.
func mustJSON(v any) json.RawMessage {
	b, err := strictjson.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// digest names a caller's cache.
func digest(caller string) string {
	sum := sha256.Sum256([]byte(caller))
	return hex.EncodeToString(sum[:8])
}
