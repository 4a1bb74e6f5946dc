package storms

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/internal/served"
	"toolpost/tool/tooltest"
)

const callers = 64

const skill = `import json, sys
for line in sys.stdin:
    r = json.loads(line)
    if r["method"] == "initialize":
        result = {"name": "skill", "tools": [{"name": "NAME", "description": "TEXT", "parameters": {"type": "object"}}]}
    else:
        result = {"content": "done"}
    if "id" in r:
        print(json.dumps({"jsonrpc": "2.0", "id": r["id"], "result": result}), flush=True)
`

// A weather is the folder of a server, and the current contents of its files.
type weather struct {
	t      *testing.T
	dir    string
	random *rand.Rand
	tools  map[string]bool // of the app
	skills map[string]bool
	others map[string]bool // sources of the config
	edits  int
}

// The tools that are called all the time. They are in files that change, but never disappear from them.
func steady() []string { return []string{"steady", "stays", "ev"} }

// write changes a file as editors do: in place or by a new file, sometimes in steps. Between two steps the file has all
// of head, which has the steady tools: on a busy machine the server may load it in that state, and would rightly drop a
// tool that is missing.
func (w *weather) write(name, head, rest string) {
	w.t.Helper()
	path, text := filepath.Join(w.dir, name), head+rest
	kit.OK(w.t, os.MkdirAll(filepath.Dir(path), 0o755))
	switch w.random.IntN(3) {
	case 0:
		kit.OK(w.t, os.WriteFile(path+"~", []byte(text), 0o600))
		kit.OK(w.t, os.Rename(path+"~", path))
		return
	case 1:
		kit.OK(w.t, os.WriteFile(path, []byte(head+rest[:w.random.IntN(len(rest)+1)]), 0o600))
		time.Sleep(time.Duration(w.random.IntN(50)) * time.Millisecond)
	}
	kit.OK(w.t, os.WriteFile(path, []byte(text), 0o600))
}

func (w *weather) app() {
	text := []string{"spec is \"1.0\"\n", ""}
	for i, name := range slices.Insert(slices.Collect(keys(w.tools)), 0, "steady") {
		text[min(i, 1)] += fmt.Sprintf("\ntool %q:\n  implemented using python\n\n  input:\n    name is optional text\n\n  output:\n    is is text\n", name)
	}
	w.write("app/app.ai", text[0], text[1])
}

func (w *weather) skill(name string) {
	w.write("skills/"+name+"/skill.py", "", strings.NewReplacer("NAME", name, "TEXT", fmt.Sprint(w.edits)).Replace(skill))
	w.write("skills/"+name+"/manifest.json", "",
		fmt.Sprintf(`{"runtime": {"type": "subprocess", "command": "python3", "args": ["skill.py", %q]}}`, w.dir))
}

func (w *weather) config() {
	// A machine that is busy with something else may take long for a call, which is not the fault of a reload.
	text := []string{fmt.Sprintf("limits: {lease_tier: %d}\nstore: {url: none}\nsources:\n"+
		"  - {name: app, protocol: namel3ss, app: app, timeout: 1m}\n  - {name: skills, protocol: alphahuman, skills: skills, timeout: 1m}\n", 3-w.edits%2), ""}
	for i, name := range slices.Insert(slices.Collect(keys(w.others)), 0, "ev") {
		text[min(i, 1)] += fmt.Sprintf("  - {name: %s, protocol: narratoria, command: [sh, ev.sh], timeout: 1m}\n", name)
	}
	w.write("toolpost.yaml", text[0], text[1])
}

// kinds is the number of kinds of edits.
const kinds = 3

// edit changes one thing.
func (w *weather) edit(kind int) {
	w.edits++
	number := w.random.IntN(4)
	switch kind {
	case 0:
		toggle(w.tools, fmt.Sprintf("tool%d", number))
		w.app()
	case 1:
		name := fmt.Sprintf("skill%d", number)
		if toggle(w.skills, name); w.skills[name] {
			w.skill(name)
		} else {
			kit.OK(w.t, os.RemoveAll(filepath.Join(w.dir, "skills", name)))
		}
	case 2:
		toggle(w.others, fmt.Sprintf("other%d", number))
		w.config()
	}
}

func toggle(set map[string]bool, name string) { set[name] = !set[name] }

// keys returns the members of a set.
func keys(set map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name, is := range set {
			if is && !yield(name) {
				return
			}
		}
	}
}

// want lists the tools that the files define.
func (w *weather) want() []string {
	all := steady()
	for _, set := range []map[string]bool{w.tools, w.skills, w.others} {
		all = slices.AppendSeq(all, keys(set))
	}
	slices.Sort(all)
	return all
}

func TestAStormOfReloadsHarmsNoCall(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	w := &weather{
		t: t, dir: dir, random: rand.New(rand.NewPCG(seed, seed)),
		tools: map[string]bool{}, skills: map[string]bool{}, others: map[string]bool{},
	}
	for _, name := range []string{"steady", "tool0", "tool1", "tool2", "tool3"} {
		w.write("app/tools/"+name+".py", "", "def run(p): return {'is': 'done'}\n")
	}
	w.write("ev.sh", "", `echo '{"version":"0","type":"done","ok":true}'`+"\n")
	w.app()
	w.skill("stays")
	w.config()
	s := served.Start(t, served.Build(t), dir)
	calm := func() {
		eventually(t, s, func() error { return differs(w.want(), offered(s)) })
		eventually(t, s, func() error {
			if n := w.workers(); n != 1+len(slices.Collect(keys(w.skills))) {
				return fmt.Errorf("%d programs of skills run", n)
			}
			return nil
		})
	}
	warm := w.load(s, 2*callers, nil)
	calm()
	before := descriptors(t, s)

	var over atomic.Bool
	var calls sync.WaitGroup
	count := 0
	calls.Go(func() { count = w.load(s, 0, &over) })
	for kind := range kinds { // each kind at least once, whatever the seed chooses
		w.edit(kind)
		calm()
	}
	for range rounds.Of(15, 1000) - kinds {
		w.edit(w.random.IntN(kinds))
		time.Sleep(time.Duration(w.random.IntN(300)) * time.Millisecond)
	}
	calm()
	over.Store(true)
	calls.Wait()
	t.Logf("%d calls before and %d during %d edits; %d times something was taken", warm, count, w.edits,
		strings.Count(s.Log(), "of a source changed"))
	if count < callers || !strings.Contains(s.Log(), "the files of a source changed") || !strings.Contains(s.Log(), "config reloaded") {
		t.Errorf("there was no storm:\n%s", s.Log())
	}
	for set := range map[*map[string]bool]bool{&w.tools: true, &w.skills: true, &w.others: true} {
		clear(*set) // as it was before
	}
	kit.OK(t, os.RemoveAll(filepath.Join(dir, "skills")))
	w.skill("stays")
	w.app()
	w.config()
	calm()
	eventually(t, s, func() error {
		if now := descriptors(t, s); now > before+16 {
			return fmt.Errorf("%d descriptors are open, and were %d", now, before)
		}
		return nil
	})
	s.Stop(t)
	kit.Equal(t, w.workers(), 0, "programs of skills are left")
}

// load calls the steady tools from many callers, up to a number of calls or until it is over, and counts the calls. None
// of them may fail.
func (w *weather) load(s *served.Server, most int64, over *atomic.Bool) int {
	var begun atomic.Int64
	var work sync.WaitGroup
	for i := range callers {
		name := steady()[i%len(steady())]
		work.Go(func() {
			for over == nil && begun.Add(1) <= most || over != nil && !over.Load() && !w.t.Failed() {
				if over != nil {
					begun.Add(1)
				}
				ctx, cancel := context.WithTimeout(context.Background(), served.Hang)
				var o struct{ OK bool }
				body, err := s.Raw(ctx, name, `{}`)
				if err == nil {
					err = json.Unmarshal([]byte(body), &o)
				}
				if err != nil || !o.OK {
					w.t.Errorf("%s: %s, %v", name, body, err)
				}
				cancel()
				time.Sleep(300 * time.Millisecond) // there are many callers, and the machine may be small
			}
		})
	}
	work.Wait()
	return int(begun.Load())
}

// workers counts the running programs of skills, by a word of their command line.
func (w *weather) workers() (n int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if text, _ := os.ReadFile(file); strings.HasSuffix(string(text), "skill.py\x00"+w.dir+"\x00") {
			n++
		}
	}
	return n
}

func descriptors(t *testing.T, s *served.Server) int {
	t.Helper()
	return len(kit.Must(os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.Pid())))(t))
}

// offered lists the tools of the server that can be called.
func offered(s *served.Server) (names []string) {
	req, err := http.NewRequest(http.MethodGet, s.URL()+"/v1/tools", nil)
	if err != nil {
		return []string{err.Error()}
	}
	req.Header.Set("Authorization", "Bearer "+served.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return []string{err.Error()}
	}
	defer resp.Body.Close()
	var listed struct {
		Tools []struct {
			Name  string          `json:"name"`
			Error json.RawMessage `json:"error"`
		} `json:"tools"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&listed); err != nil {
		return []string{err.Error()}
	}
	for _, one := range listed.Tools {
		names = append(names, one.Name+string(one.Error))
	}
	slices.Sort(names)
	return names
}

func differs(want, got []string) error {
	if !slices.Equal(want, got) {
		return fmt.Errorf("the server offers %q, and the files say %q", got, want)
	}
	return nil
}

// eventually waits until cond returns no error.
func eventually(t *testing.T, s *served.Server, cond func() error) {
	t.Helper()
	kit.Until(t, func() error {
		if err := cond(); err != nil {
			return fmt.Errorf("%w\n%s", err, s.Log())
		}
		return nil
	})
}
