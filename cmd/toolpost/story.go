package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/builtin/story"
	"toolpost/cmd/toolpost/format"
	"toolpost/cmd/toolpost/progress"
	"toolpost/cmd/toolpost/terminal"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/modeltext"
	"toolpost/wire/strictjson"
)

func (a *app) storyCommand() *cobra.Command {
	p := player{app: a}
	c := a.withServer(a.withJSON("print each turn as a line of JSON", &cobra.Command{
		Use:   "story [NAME]",
		Short: "Play a story",
		Long: "Plays a story: a planner of the config turns your input into a plan, the tools of the plan run, and they\n" +
			"offer choices for your next input. Type the number of a choice, or your own text. Ctrl-D ends the\n" +
			"game.\n\n" +
			"NAME is the planner; default: the first in the config. With --session, the story of that session\n" +
			"continues.",
		Example: "  toolpost story\n  toolpost story adventure --session mine",
		Args:    words(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			p.story = append(args, "")[0]
			return p.play(c.Context())
		},
	}))
	c.Flags().StringVar(&p.session, "session", "", "session to start or to continue (default: a new one)")
	return c
}

// A player plays a story in the terminal, or with lines from a file.
type player struct {
	*app
	story, session string

	b       *backend
	lines   *prompter
	choices []modeltext.Choice
	state   map[string]any // as last shown
}

// plays is one of the tools for stories.
func plays(name string) own { return own{name, "play stories", sources} }

func (p *player) play(ctx context.Context) error {
	in, ok := p.in.(*os.File)
	if !ok {
		return tool.Errorf(tool.CodeInvalidInput, "a story is played with lines from a terminal, a pipe or a file")
	}
	fresh := p.session == ""
	p.session = cmp.Or(p.session, "story-"+tool.NewID())
	var err error
	if p.b, err = plays("story.show").open(ctx, p.app); err != nil {
		return err
	}
	defer p.b.close()
	p.lines = newPrompter(in, p.err)
	prompt, err := p.begin(ctx)
	if err != nil {
		return err
	}
	for prompt != nil {
		if err := p.turn(ctx, *prompt); err != nil {
			return err
		}
		if prompt, err = p.next(ctx); err != nil {
			return err
		}
	}
	if fresh && !p.json && p.needStore() == nil { // otherwise the session ends with this program
		fmt.Fprintf(p.err, "\n%s\n", p.err.dim("To go on with it: toolpost story --session "+p.session))
	}
	return nil
}

// begin shows the title, and returns the first prompt: that of the story, or the player's next one in a session that has
// begun.
func (p *player) begin(ctx context.Context) (*string, error) {
	args := raw(map[string]string{"story": p.story, "session": p.session})
	s, err := use[story.Shown](ctx, p.app, p.b, plays("story.show"), tool.Call{Args: args}, tool.Discard)
	if err != nil {
		return nil, err
	}
	if len(s.Stories) == 0 {
		return nil, tool.Errorf(tool.CodeNotFound, "there is no story to play; `toolpost init --sample adventure` writes one, or add a planner "+
			"to the config, such as `planners: [{name: adventure, file: ./story.yaml}]`")
	}
	about := s.Stories[0]
	if about.Error != "" {
		return nil, tool.Errorf(tool.CodeUnavailable, "%s", about.Error)
	}
	p.story = about.Name
	p.changes(s.State)
	if !p.json {
		fmt.Fprintf(p.out, "%s\n\n", p.out.bold(clean(about.Title)))
	}
	if len(s.Turns) == 0 {
		return &about.Opening, nil
	}
	last := s.Turns[len(s.Turns)-1]
	p.tell(last.Narrative)
	p.offer(last.Choices)
	return p.next(ctx)
}

// turn plays one turn and shows its outcome.
func (p *player) turn(ctx context.Context, prompt string) error {
	work := p.watch()
	t, err := use[story.Turn](ctx, p.app, p.b, plays("story.turn"), tool.Call{
		Session: p.session, Args: raw(map[string]string{"story": p.story, "prompt": prompt}),
	}, work)
	work.End()
	switch {
	case err != nil:
		return err
	case p.json:
		doc, err := strictjson.Marshal(struct {
			Prompt string `json:"prompt"`
			story.Turn
		}{prompt, t})
		if err == nil {
			_, err = fmt.Fprintf(p.out, "%s\n", doc)
		}
		p.choices = t.Choices
		return err
	}
	if len(t.Tools) > 0 {
		fmt.Fprintf(p.out, "%s\n\n", p.out.cut(p.out.dim(strip(t.Tools))))
	}
	p.tell(t.Narrative)
	for _, asset := range t.Assets {
		if err := p.asset(ctx, asset); err != nil {
			return err
		}
	}
	for _, ev := range t.Unsupported {
		fmt.Fprintf(p.out, "%s\n", p.out.amber(fmt.Sprintf("[%s cannot be shown here: %s]", clean(ev.Event),
			short(clean(string(ev.Payload)), 400))))
	}
	if !t.Success && t.Error != nil {
		fmt.Fprintf(p.out, "%s %s\n", p.out.red("the plan failed:"), clean(t.Error.Message))
	}
	for _, change := range p.changes(t.State) {
		fmt.Fprintf(p.out, "%s\n", p.out.cut(p.out.dim(change)))
	}
	p.offer(t.Choices)
	return nil
}

// strip describes the tools of a turn in one line.
func strip(tools []story.Tool) string {
	var words []string
	for _, t := range tools {
		words = append(words, planSign(t.State)+" "+clean(t.Tool))
	}
	return strings.Join(words, "  ")
}

// tell prints the narrative, wrapped to the width of the terminal.
func (p *player) tell(text string) {
	if !p.json {
		fmt.Fprintf(p.out, "%s\n\n", format.Wrapped(cleanLines(strings.TrimSpace(text)), min(p.out.width(), 90)))
	}
}

// maxShown is the size up to which a text is shown within a story, in bytes.
const maxShown = 16 << 10

// asset names a file that a tool made, and shows it if it is text.
func (p *player) asset(ctx context.Context, a tool.Asset) error {
	var about struct {
		Title string `json:"title"`
	}
	_ = strictjson.Unmarshal(a.Metadata, &about) // it may be anything
	where := a.Path
	if p.away() {
		where = p.server.url + "/v1/assets/" + a.SHA256
	}
	fmt.Fprintf(p.out, "%s\n", p.out.dim(fmt.Sprintf("[%s: %s, %s, %s]", clean(cmp.Or(a.Kind, "file")),
		clean(cmp.Or(about.Title, a.AssetID)), format.Bytes(a.Size), clean(where))))
	if !strings.HasPrefix(a.MediaType, "text/") || a.Size > maxShown || a.SHA256 == "" {
		return nil
	}
	args := raw(map[string]string{"sha256": a.SHA256})
	got, err := use[struct {
		Content []byte `json:"content"`
	}](ctx, p.app, p.b, own{"readAsset", "read assets", sources}, tool.Call{Args: args}, tool.Discard)
	if err != nil {
		return err
	}
	text := strings.TrimRight(cleanLines(string(got.Content)), "\n")
	_, err = fmt.Fprintf(p.out, "\n    %s\n\n", strings.ReplaceAll(text, "\n", "\n    "))
	return err
}

// offer prints the choices.
func (p *player) offer(choices []modeltext.Choice) {
	if p.choices = choices; p.json {
		return
	}
	fmt.Fprintln(p.out)
	for i, c := range p.choices {
		line := fmt.Sprintf("  %s %s", p.out.bold(strconv.Itoa(i+1)+"."), short(clean(c.Label), 200))
		if c.Hint != "" {
			line += p.out.dim("  " + short(clean(c.Hint), 200))
		}
		fmt.Fprintln(p.out, p.out.cut(line))
	}
}

// next reads what the player says, or returns nil at the end.
func (p *player) next(ctx context.Context) (*string, error) {
	for {
		said, err := p.lines.Line(ctx)
		switch {
		case errors.Is(err, terminal.ErrNotAnswered):
			return nil, nil
		case err != nil:
			return nil, err
		}
		if said = strings.TrimSpace(said); said == "" {
			continue
		}
		if n, err := strconv.Atoi(said); err == nil && n >= 1 && n <= len(p.choices) {
			said = p.choices[n-1].Label
		}
		if !p.json {
			fmt.Fprintf(p.out, "\n%s\n", p.out.bold("> "+short(clean(said), 200)))
		}
		return &said, nil
	}
}

// A working shows the tools of a turn while they work.
type working struct {
	*progress.Line
	s      *screen
	quiet  bool
	states map[string]string // of the tools, by their ids
}

func (p *player) watch() *working {
	return &working{Line: p.err.progress("turn"), s: p.err, quiet: p.json, states: map[string]string{}}
}

// Emit implements tool.Sink.
func (w *working) Emit(ev tool.Event) error {
	switch ev.Kind {
	case tool.KindLog:
		return w.log(read[tool.Log](ev))
	case tool.KindError:
		e := read[tool.ErrorEvent](ev)
		return w.say(w.s.red("error: ") + clean(e.Code+": "+e.Message))
	}
	return nil
}

func (w *working) log(log tool.Log) error {
	var fields planFields
	_ = strictjson.Unmarshal(log.Fields, &fields) // a tool's log may have any fields
	ofPlan := fields.ToolID == ""                 // otherwise it is from a tool, which may run a plan itself
	switch {
	case ofPlan && fields.Plan != nil:
		clear(w.states)
		for _, t := range fields.Plan.Tools {
			w.states[t.ToolID] = plan.Waiting
		}
	case ofPlan && fields.Step != nil:
		w.states[fields.Step.ToolID] = fields.Step.State
		done, running := 0, []string{}
		for id, state := range w.states {
			switch state {
			case plan.Running, plan.Retrying:
				running = append(running, clean(id))
			case plan.Waiting:
			default:
				done++
			}
		}
		slices.Sort(running)
		w.Set(float64(done), float64(len(w.states)), strings.Join(running, ", "))
	case log.Level != "debug":
		return w.say(w.s.dim("  " + clean(log.Message)))
	}
	return nil
}

func (w *working) say(line string) error {
	if w.quiet {
		return nil
	}
	return w.Above(func() error {
		_, err := fmt.Fprintln(w.s, w.s.cut(line))
		return err
	})
}

// mostChanges is how many changes of the state are shown.
const mostChanges = 8

// changes lists what has changed in the state.
func (p *player) changes(state json.RawMessage) (lines []string) {
	v, _ := strictjson.Decode(state)
	now, _ := v.(map[string]any)
	changed := format.Leaves(strictjson.Diff(p.state, now))
	delete(changed, "choices") // a story may keep them; they are listed anyway
	p.state = now
	for path, value := range changed {
		lines = append(lines, "  "+short(clean(path+" = "+value), 200))
	}
	slices.Sort(lines)
	if n := len(lines) - mostChanges; n > 0 {
		lines = append(lines[:mostChanges], fmt.Sprintf("  and %d more", n))
	}
	return lines
}
