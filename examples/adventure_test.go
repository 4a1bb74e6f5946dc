package examples_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toolpost/builtin/story"
	"toolpost/config"
	"toolpost/examples"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/modeltext"
)

// unpacked returns a folder with the samples, as `toolpost init` writes them.
func unpacked(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	kit.OK(t, os.CopyFS(dir, examples.Files))
	return dir
}

// A world is the sample adventure, served in this process.
type world struct {
	*testing.T
	n *node.Node
}

func (w *world) call(name, session, args string, into any) {
	w.Helper()
	r, err := w.n.Handler().Invoke(w.Context(), &tool.Call{
		Tool: name, Session: session, Args: json.RawMessage(args), Caller: tool.Principal{ID: "local", Door: "cli"},
	}, tool.Discard)
	if err != nil || !r.OK {
		w.Fatalf("%s %s: %+v, %v", name, args, r, err)
	}
	if into != nil {
		if err := json.Unmarshal(r.Output, into); err != nil {
			w.Fatal(err)
		}
	}
}

// The test takes every choice in every place, with winning and with losing dice, until each path has reached an ending.
// Two places are the same if the same facts hold in them.
func TestEveryWayThroughTheAdventureComesToAnEnding(t *testing.T) {
	cfg := kit.Must(config.Load(filepath.Join(unpacked(t), "toolpost.yaml")))(t)
	n := kit.Must(node.Open(t.Context(), cfg, node.Options{Log: slog.New(slog.DiscardHandler)}))(t)
	defer n.Close(t.Context())
	w := &world{t, n}
	endings, places, media, seen := map[string]int{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	began := time.Now()
	queue := []way{{state: `{}`, prompts: []string{"Begin"}}}
	for turns := 0; len(queue) > 0; turns++ {
		next := queue[0]
		queue = queue[1:]
		turn, at := w.take(next, fmt.Sprintf("way-%d", turns))
		if t.Failed() {
			return
		}
		places[at.Place] = true
		for _, a := range turn.Assets {
			media[strings.Split(a.MediaType, ";")[0]] = true
		}
		if at.Ended != "" {
			endings[at.Ended]++
			continue
		}
		for _, c := range turn.Choices {
			for _, seed := range at.seeds(c) {
				if key := fmt.Sprint(at, c.Label, seed); !seen[key] {
					seen[key] = true
					queue = append(queue, way{string(turn.State), seed, append(slices.Clone(next.prompts), c.Label)})
				}
			}
		}
	}
	t.Logf("%d turns in %v: endings %v, places %v", len(seen), time.Since(began), endings, slices.Sorted(maps.Keys(places)))
	for _, ending := range []string{"soup", "sea", "tea", "dawn", "friends"} {
		if endings[ending] == 0 {
			t.Errorf("no way leads to the ending %q", ending)
		}
	}
	kit.EqualSlices(t, slices.Sorted(maps.Keys(media)),
		[]string{"audio/wav", "image/svg+xml", "text/plain"}, "assets of %v", media)
}

// A way is the path of a player to a prompt.
type way struct {
	state   string // before the last prompt
	seed    int    // of the dice; 0 if none are thrown
	prompts []string
}

// A spot determines, with a choice, what happens next: the walk treats two states with the same spot as equal.
type spot struct {
	Place, Roll, Ended string
	Inventory          struct{ Torch struct{ Lit bool } }
	Flags              struct{ Friends bool }
}

// Seeds with which two dice show twelve and two.
const winning, losing = 20, 2

// seeds returns the seeds with which to try a choice.
func (spot) seeds(c modeltext.Choice) []int {
	if strings.Contains(c.Hint, "on two dice") {
		return []int{winning, losing}
	}
	return []int{0}
}

// take plays the last prompt of a way in its own session.
func (w *world) take(next way, session string) (turn story.Turn, at spot) {
	w.Helper()
	w.call("toolpost.state.patch", session, `{"patch":`+next.state+`}`, nil)
	if next.seed != 0 {
		w.call("toolpost.state.patch", session, fmt.Sprintf(`{"patch":{"seed":%d}}`, next.seed), nil)
	}
	prompt, _ := json.Marshal(next.prompts[len(next.prompts)-1])
	w.call("toolpost.story.turn", session, `{"prompt":`+string(prompt)+`}`, &turn)
	if err := json.Unmarshal(turn.State, &at); err != nil {
		w.Fatal(err)
	}
	failed := slices.ContainsFunc(turn.Tools, func(one story.Tool) bool { return one.State != plan.Success })
	if !turn.Success || failed || strings.Contains(turn.Narrative, "not impressed") || len(turn.Choices) == 0 {
		w.Errorf("%s: %q, %+v, tools %v, choices %v, state %s", strings.Join(next.prompts, " > "), turn.Narrative, turn.Error,
			turn.Tools, turn.Choices, turn.State)
	}
	return turn, at
}

// Browsers show a picture as it is: it must have no script, and fetch nothing.
func TestPicturesOfTheAdventureHaveNoScript(t *testing.T) {
	b := kit.Must(fs.ReadFile(examples.Files, "adventure/paint.py"))(t)
	for _, bad := range []string{"<script", "href", "onload", "<foreignObject", "@import"} {
		if strings.Contains(string(b), bad) {
			t.Errorf("a picture has %s", bad)
		}
	}
}
