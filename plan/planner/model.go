package planner

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"toolpost/model"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// rules is the system prompt about plans.
//
//go:embed rules.txt
var rules string

// maxQuestion limits what is sent to a model, in bytes.
const maxQuestion = 1 << 20

// A thinker is a planner that asks a model for a plan, and, if the answer is not one, once more with its faults.
type thinker struct {
	*model.Model
	system string
}

func newThinker(m *model.Model, style string) *thinker {
	return &thinker{m, strings.TrimSpace(rules + "\n" + style)}
}

// Plan implements plan.Planner.
func (t *thinker) Plan(ctx context.Context, r plan.Request) (*plan.Plan, error) {
	about, err := strictjson.Marshal(ask(r))
	if err != nil {
		return nil, err
	}
	talk := t.Talk()
	defer talk.Close()
	talk.Most = maxAnswer
	said := []model.Message{says(model.System, t.system), says(model.User, string(about))}
	answer, err := t.complete(ctx, talk, said)
	if err != nil {
		return nil, err
	}
	made, wrong := check(answer, r)
	if wrong == nil {
		return made, nil
	}
	said = append(said, says(model.Assistant, answer), says(model.User, "That cannot be used: "+
		tool.AsError(wrong).Message+"\nAnswer again, with the corrected Plan JSON and nothing else."))
	if answer, err = t.complete(ctx, talk, said); err != nil {
		return nil, err
	}
	if made, wrong = check(answer, r); wrong != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "model %s gave no plan that can be used, twice; the second time: %s",
			t.Name, tool.AsError(wrong).Message)
	}
	return made, nil
}

func says(who model.Role, text string) model.Message {
	return model.Message{Role: who, Parts: []model.Part{{Kind: model.Text, Text: text}}}
}

// check parses the answer of a model. Many models put JSON into a code block, whatever they are told: only that is
// tolerated.
func check(answer string, r plan.Request) (*plan.Plan, error) {
	doc := strings.TrimSpace(answer)
	if inner, ok := strings.CutPrefix(doc, "```"); ok {
		inner, ok = strings.CutSuffix(strings.TrimPrefix(inner, "json"), "```")
		if ok {
			doc = inner
		}
	}
	made, err := decode([]byte(doc))
	if err != nil {
		return nil, err
	}
	for _, t := range made.Tools {
		name := cmp.Or(t.Name, t.Path)
		offered := func(s *tool.Spec) bool { return s.Name == name || slices.Contains(s.Aliases, name) }
		if !slices.ContainsFunc(r.Tools, offered) {
			return nil, tool.Errorf(tool.CodeProtocol, "the tool %.80q of %.80q is not one of those that were offered",
				name, t.ID)
		}
	}
	return made, nil
}

// complete asks for the next message of a conversation, which must be a text.
func (t *thinker) complete(ctx context.Context, talk *model.Talk, said []model.Message) (string, error) {
	size := 0
	for _, m := range said {
		size += len(m.Parts[0].Text)
	}
	if size > maxQuestion {
		return "", tool.Errorf(tool.CodeInvalidInput, "what model %s would be told is longer than %d bytes; narrow the "+
			"tools of the planner with `tools: [...]`, or shorten the state of the session", t.Name, maxQuestion)
	}
	a, err := talk.Ask(ctx, &model.Request{Messages: said}, nil)
	if err != nil {
		return "", err
	}
	switch {
	case a.Refusal() != "":
		return "", tool.Errorf(tool.CodeUnavailable, "model %s refused: %s", t.Name, tool.Visible(fmt.Sprintf("%.300s", a.Refusal())))
	case a.Finish == model.Length:
		return "", tool.Errorf(tool.CodeProtocol, "the answer of model %s was cut off; it needs more room for its answers", t.Name)
	case a.Text() == "":
		return "", tool.Errorf(tool.CodeProtocol, "the answer of model %s has no content", t.Name)
	}
	return a.Text(), nil
}
