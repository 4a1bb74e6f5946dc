package planner

import (
	"bytes"
	"context"
	"encoding/json"

	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/host/spawn"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// maxAnswer limits the output of a program or a server, in bytes.
const maxAnswer = 1 << 20

// A program is a planner that is started for each request, behind the same walls as programs for tools. It reads the
// request from standard input and prints Plan JSON.
type program struct {
	o    Options
	base string // the folder of the config
}

// A question is the request as a program reads it, and, without the prompt, as a model gets it.
type question struct {
	RequestID string          `json:"requestId"`
	Attempt   int             `json:"generationAttempt"`
	Prompt    string          `json:"prompt"`
	State     json.RawMessage `json:"state"`
	Tools     []offer         `json:"tools"`
	Disabled  []string        `json:"disabledSkills"`
	Failed    *plan.Result    `json:"failed,omitzero"` // of the plan to be replaced
}

// An offer is a tool that a plan may use.
type offer struct {
	Name        string          `json:"tool"`
	Description string          `json:"description,omitzero"`
	Input       json.RawMessage `json:"input,omitzero"`
	Output      json.RawMessage `json:"output,omitzero"`
}

func ask(r plan.Request) question {
	q := question{
		RequestID: r.ID, Attempt: max(r.Attempt, 1), Prompt: r.Prompt, State: r.State, Failed: r.Failed,
		Tools: []offer{}, Disabled: append([]string{}, r.Disabled...),
	}
	if len(q.State) == 0 {
		q.State = json.RawMessage(`{}`)
	}
	for _, s := range r.Tools {
		q.Tools = append(q.Tools, offer{s.Name, s.Description, s.Input, s.Output})
	}
	return q
}

// Plan implements plan.Planner. The start of the program is prepared each time: that costs little beside an interpreter,
// and the files that are off limits may have changed.
func (p *program) Plan(ctx context.Context, r plan.Request) (*plan.Plan, error) {
	request, err := strictjson.Marshal(ask(r))
	if err != nil {
		return nil, err
	}
	if err := p.o.Walls.OffLimits.Now().Guard(p.claim()); err != nil {
		return nil, err
	}
	start, err := p.o.Program(p.base, spawn.Command{Argv: p.o.Command})
	if err != nil {
		return nil, err
	}
	said, err := process.Printed(ctx, append(request, '\n'), maxAnswer, func() (*process.Child, error) {
		return start.Start(ctx, spawn.Run{Name: "planner " + p.o.Name, Guarantees: p.o.Guarantees})
	})
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return nil, tool.Ended(ctx)
	case said.Err != nil:
		return nil, tool.Errorf(tool.CodeProtocol, "its answer: %w", said.Err)
	case said.Exit.Code != 0:
		return nil, tool.Errorf(tool.CodeCrash, "its program failed: %s", said.Last)
	case len(bytes.TrimSpace(said.Doc)) == 0:
		return nil, tool.Errorf(tool.CodeProtocol, "its program printed nothing; expected Plan JSON")
	}
	return decode(said.Doc)
}

// missing returns an error if the program or its folder does not exist.
func (p *program) missing() error {
	start, err := p.o.Program(p.base, spawn.Command{Argv: p.o.Command})
	if err != nil {
		return err
	}
	return start.Unavailable()
}

func (p *program) claim() offlimits.Claim {
	c := p.o.Claim(p.base, p.o.Command)
	c.Source = "planner " + p.o.Name
	return c
}
