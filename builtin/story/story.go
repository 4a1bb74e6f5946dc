// Package story has the tools that tell stories: story.turn, story.show and story.offer. In a turn, a planner makes a plan
// from a prompt, the plan is run, and the choices that its tools offer are the next prompts. A story consists of its
// session: the state, and the plans that were run in it.
package story

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"toolpost/builtin/define"
	"toolpost/plan"
	"toolpost/plan/planner"
	"toolpost/tool"
	"toolpost/wire/modeltext"
	"toolpost/wire/strictjson"
)

// Options are what stories are built on.
type Options struct {
	Planners *planner.Registry
	Plans    *plan.Executor
	// Past returns the last plans of a session, the newest first; nil if they are not kept.
	Past func(ctx context.Context, caller, session string, most int) ([]plan.Record, error)
	// State returns the state of a session.
	State func(ctx context.Context, caller, session string) (json.RawMessage, error)
}

// offerName is the tool by which a plan without one of its own offers choices.
const offerName = "story.offer"

// New makes the tools.
func New(o Options) *define.Set {
	t := tools{Options: o}
	offer := define.New(tool.Spec{
		Name: offerName, Effects: tool.Effects{Reads: true, Idempotent: true},
		Description: "Offers choices to the player. What is chosen becomes the next prompt.",
	}, offer)
	t.offer = offer.Spec
	return define.NewSet(
		define.New(tool.Spec{
			Name: "story.turn", Timeout: o.Plans.Limits.Longest(),
			Description: "Plays one turn of a story in the session of the call: a planner makes a plan from the prompt, the plan is run, " +
				"and the outcome has the narrative and the choices for the next prompt.",
		}, t.turn),
		define.New(tool.Spec{
			Name: "story.show", Effects: tool.Effects{Reads: true, Idempotent: true},
			Description: "Lists the stories that can be played, and the turns of a session and its state.",
		}, t.show),
		offer,
	)
}

type tools struct {
	Options
	offer *tool.Spec
}

// A Turn is the outcome of a prompt.
type Turn struct {
	PlanID      string             `json:"planId"`
	Narrative   string             `json:"narrative"`
	Choices     []modeltext.Choice `json:"choices"`
	Assets      []tool.Asset       `json:"assets"`
	Unsupported []tool.UIEvent     `json:"unsupported" doc:"ui events of tools that no story view knows"`
	State       json.RawMessage    `json:"state"`
	Success     bool               `json:"success"`
	Error       *plan.Error        `json:"error,omitzero"`
	Tools       []Tool             `json:"tools"`
}

// A Tool is the outcome of one tool of a turn.
type Tool struct {
	ToolID string `json:"toolId"`
	Tool   string `json:"tool"`
	State  string `json:"state"`
	Call   string `json:"call,omitzero"`
}

// turnOf makes a turn from its plan and the result. Events of a tool that failed in the end do not count, nor do its
// patches.
func turnOf(p *plan.Plan, r *plan.Result) Turn {
	t := Turn{
		PlanID: r.PlanID, Narrative: p.Narrative, Choices: []modeltext.Choice{}, Assets: r.Assets, Unsupported: []tool.UIEvent{},
		State: r.AggregatedState, Success: r.Success, Error: r.Error, Tools: []Tool{},
	}
	if t.Assets == nil {
		t.Assets = []tool.Asset{}
	}
	names := map[string]string{}
	for _, one := range p.Tools {
		names[one.ID] = cmp.Or(one.Name, one.Path)
	}
	for _, one := range r.ToolResults {
		t.Tools = append(t.Tools, Tool{one.ToolID, names[one.ToolID], one.State, one.Call})
		for _, ev := range one.Events {
			if ev.Kind == tool.KindUIEvent && one.State == plan.Success {
				t.shown(ev.Data)
			}
		}
	}
	return t
}

// shown handles a ui_event. An event without valid choices is listed as unsupported.
func (t *Turn) shown(data json.RawMessage) {
	var ev tool.UIEvent
	if err := strictjson.Unmarshal(data, &ev); err != nil {
		return // the runner has validated it
	}
	if choices := modeltext.Choices(ev); len(choices) > 0 {
		t.Choices = append(t.Choices, choices...)
		return
	}
	t.Unsupported = append(t.Unsupported, ev)
}

type turnArgs struct {
	Story  string `json:"story" doc:"the planner that tells it; default: the first one"`
	Prompt string `json:"prompt" doc:"what the player says, or the label or id of a choice; default: what begins the story"`
}

func (t tools) turn(ctx context.Context, c *define.Call, a turnArgs) (Turn, error) {
	if c.Session == "" {
		return Turn{}, tool.Errorf(tool.CodeInvalidInput, "a story is played in a session, and this call has none; name one")
	}
	teller, err := t.Planners.Named(c.Caller, a.Story)
	if err != nil {
		return Turn{}, err
	}
	prompt, err := t.prompt(ctx, c, a.Prompt)
	if err != nil {
		return Turn{}, err
	}
	prompt = cmp.Or(prompt, teller.About().Opening)
	planning := &remembering{Planner: teller}
	first, err := planning.Plan(ctx, plan.Request{
		ID: tool.NewID(), Prompt: prompt, State: c.State, Tools: t.specs(ctx, c.Caller), Attempt: 1,
	})
	if err != nil {
		return Turn{}, err
	}
	r, err := t.Plans.Run(ctx, plan.Run{
		Call: c.Call, Plan: first, Planner: planning, PlannerName: teller.Name, Prompt: prompt,
	}, c.Out)
	if err != nil {
		return Turn{}, err
	}
	turn := turnOf(planning.last, r)
	c.Summary = define.Count(len(turn.Choices), "choice")
	if !turn.Success {
		c.Summary = "the plan failed"
	}
	return turn, nil
}

// remembering is a planner that keeps its last plan: of several attempts, that is the one that was told.
type remembering struct {
	plan.Planner
	last *plan.Plan
}

func (r *remembering) Plan(ctx context.Context, q plan.Request) (*plan.Plan, error) {
	p, err := r.Planner.Plan(ctx, q)
	if err == nil {
		r.last = p
	}
	return p, err
}

// prompt returns what the player means: for the id of a choice that was offered last, its label.
func (t tools) prompt(ctx context.Context, c *define.Call, said string) (string, error) {
	past, err := t.past(ctx, c.Caller.ID, c.Session, 1)
	if err != nil || len(past) == 0 {
		return said, err
	}
	for _, choice := range past[0].Choices {
		if choice.ID == said {
			return choice.Label, nil
		}
	}
	return said, nil
}

// specs lists the tools that a plan of the caller may use, and the one that offers choices.
func (t tools) specs(ctx context.Context, p tool.Principal) (list []*tool.Spec) {
	for s, why := range t.Plans.Catalog.Specs(ctx, p) {
		if why == nil && s.Name != "" && !s.Unlisted {
			list = append(list, s)
		}
	}
	return append(list, t.offer)
}

type showArgs struct {
	Story   string `json:"story" doc:"only this story; default: all"`
	Session string `json:"session" schema:"maxLength=1024" doc:"whose turns are shown; default: that of the call"`
}

// A Past is a remembered turn.
type Past struct {
	Story     string             `json:"story,omitzero"`
	Prompt    string             `json:"prompt"`
	Narrative string             `json:"narrative"`
	Choices   []modeltext.Choice `json:"choices"`
	Assets    []tool.Asset       `json:"assets"`
	PlanID    string             `json:"planId"`
	At        time.Time          `json:"at"`
	Other     []tool.UIEvent     `json:"unsupported,omitzero"`
	Tools     []Tool             `json:"tools"`
}

// Shown is the outcome of story.show.
type Shown struct {
	Stories []planner.About `json:"stories"`
	Turns   []Past          `json:"turns" doc:"the last 100, oldest first"`
	State   json.RawMessage `json:"state"`
}

// mostTurns is how many turns are shown.
const mostTurns = 100

func (t tools) show(ctx context.Context, c *define.Call, a showArgs) (Shown, error) {
	s := Shown{Stories: t.Planners.List(c.Caller), Turns: []Past{}, State: json.RawMessage(`{}`)}
	if a.Story != "" {
		one, err := t.Planners.Named(c.Caller, a.Story)
		if err != nil {
			return s, err
		}
		s.Stories = []planner.About{one.About()}
	}
	session := cmp.Or(a.Session, c.Session)
	if c.Summary = "1 story"; len(s.Stories) != 1 {
		c.Summary = fmt.Sprintf("%d stories", len(s.Stories))
	}
	if session == "" {
		return s, nil
	}
	var err error
	if s.Turns, err = t.past(ctx, c.Caller.ID, session, mostTurns); err != nil {
		return s, err
	}
	s.State, err = t.State(ctx, c.Caller.ID, session)
	return s, err
}

// past returns the last turns of a session, the oldest first. A plan that can no longer be read is left out.
func (t tools) past(ctx context.Context, caller, session string, most int) ([]Past, error) {
	turns := []Past{}
	if t.Past == nil {
		return turns, nil
	}
	plans, err := t.Past(ctx, caller, session, most)
	if err != nil {
		return nil, err
	}
	for _, one := range slices.Backward(plans) {
		var p plan.Plan
		var r plan.Result
		if strictjson.Unmarshal(one.Plan, &p) != nil || len(one.Result) == 0 || strictjson.Unmarshal(one.Result, &r) != nil {
			continue
		}
		turn := turnOf(&p, &r)
		turns = append(turns, Past{
			Story: one.Planner, Prompt: one.Prompt, Narrative: p.Narrative, Choices: turn.Choices, Assets: turn.Assets,
			PlanID: one.ID, At: one.Made, Other: turn.Unsupported, Tools: turn.Tools,
		})
	}
	return turns, nil
}

type offerArgs struct {
	Choices []offered `json:"choices" schema:"required minItems=1 maxItems=20" doc:"what the player can choose from"`
}

// An offered choice only needs its label.
type offered struct {
	Label string `json:"label" schema:"required minLength=1" doc:"what the player would say"`
	ID    string `json:"id,omitzero" doc:"default: the label"`
	Hint  string `json:"hint,omitzero" doc:"a few words beside it"`
}

type offerOut struct {
	Offered int `json:"offered"`
}

func offer(_ context.Context, c *define.Call, a offerArgs) (offerOut, error) {
	payload, err := strictjson.Marshal(a)
	if err != nil {
		return offerOut{}, err
	}
	c.Summary = define.Count(len(a.Choices), "choice") + " offered"
	ev := tool.NewEvent(tool.KindUIEvent, tool.UIEvent{Event: modeltext.Choosing, Payload: payload})
	return offerOut{len(a.Choices)}, c.Out.Emit(ev)
}
