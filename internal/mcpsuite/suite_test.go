package mcpsuite

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"

	"github.com/goccy/go-yaml"
)

var update = flag.Bool("update", false, "write docs/conformance-mcp.md")

// peers is the folder of the programs from npm.
const peers = "../../protocol/mcp/testdata/js"

// requirePeers returns the interpreter for programs from npm: Node 22, which the suite needs, comes with them.
func requirePeers(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(peers, "node_modules", ".bin", "node"))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("the peers from npm are not installed; run `npm ci` in protocol/mcp/testdata/js")
		}
		t.Skip("the peers from npm are not installed; `npm ci` in protocol/mcp/testdata/js installs them")
	}
	return path
}

// A check is one check of the suite.
type check struct {
	ID          string          `json:"id"`
	Status      string          `json:"status"` // SUCCESS, FAILURE, WARNING, SKIPPED, INFO
	Description string          `json:"description"`
	Message     string          `json:"errorMessage"`
	Details     json.RawMessage `json:"details"`
}

// A set lists what a revision requires.
type set struct {
	Server    []string `yaml:"server"`
	Client    []string `yaml:"client"`
	NotScored []struct {
		Scenario string `yaml:"scenario"`
		Leg      string `yaml:"leg"`
		Reason   string `yaml:"reason"`
	} `yaml:"not_scored"`
}

const suite = "node_modules/@modelcontextprotocol/conformance"

func readSet(t *testing.T, revision string) (s set) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(peers, suite, "requirements", revision+".yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &s)
	}
	if err != nil || len(s.Server) == 0 {
		t.Fatalf("the suite does not say what %s asks for: %v", revision, err)
	}
	return s
}

// Modules that the suite's interpreter loads first, which set how long the suite waits. It gives some calls half a
// second, which is not enough for a tool that starts a program on a busy machine.
const (
	hurried = "data:text/javascript,"
	patient = hurried + "const timer=setTimeout;globalThis.setTimeout=(f,ms,...more)=>timer(f,10*ms,...more)"
)

// look runs the suite once, and returns the checks of each scenario.
func look(t *testing.T, interpreter, waits string, what ...string) map[string][]check {
	t.Helper()
	out := t.TempDir()
	program, err := filepath.Abs(filepath.Join(peers, suite, "dist", "index.js"))
	kit.OK(t, err)
	cmd := exec.CommandContext(t.Context(), interpreter, append(append([]string{"--import=" + waits, program}, what...), "-o", out)...)
	cmd.Dir, cmd.Env = out, append(os.Environ(), asClient+"=1")
	said, ended := cmd.CombinedOutput() // its exit status is not enough: it does not count warnings
	name := regexp.MustCompile(`^(?:server-)?(.+)-\d{4}-\d\d-\d\dT[^/]*/checks.json$`)
	found := map[string][]check{}
	err = fs.WalkDir(os.DirFS(out), ".", func(path string, _ fs.DirEntry, err error) error {
		m := name.FindStringSubmatch(path)
		if err != nil || m == nil {
			return err
		}
		b, err := os.ReadFile(filepath.Join(out, path))
		var checks []check
		if err == nil {
			err = json.Unmarshal(b, &checks)
		}
		found[m[1]] = checks
		return err
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("the suite has no results: %v, %v\n%s", err, ended, said)
	}
	return found
}

const required = "required"

// known lists the scenarios that do not pass, each with its reason: an error of the suite, or a missing feature. A
// scenario that passes must not be listed.
func known() map[string]string {
	return map[string]string{
		"input-required-result-ignore-extra-params": "does not pass: it warns, because it answers in its first call, without the requestState " +
			"of a question; that is no answer to anything that was asked, and so the server asks",
	}
}

func TestTheOfficialSuitePasses(t *testing.T) {
	interpreter := requirePeers(t)
	h := openHouse(t)
	self := kit.Must(os.Executable())(t)
	legs := map[string]*leg{
		"server": {words: []string{"--url", h.url}},
		"client": {words: []string{"--command", self + " -test.run=TestClientOfTheSuite", "--timeout", "60000"}},
	}
	for side, l := range legs {
		for _, revision := range revisions() {
			t.Run(side+" "+revision, func(t *testing.T) {
				want := readSet(t, revision)
				found := look(t, interpreter, hurried, append([]string{side, "--requirements", revision}, l.words...)...)
				add := func(name, asked string) {
					checks := found[name]
					if _, bad, _ := judged(checks); len(bad) > 0 && known()[name] == "" && busy() {
						t.Logf("%s is looked at again, with patience: the machine is busy: %q", name, bad)
						again := []string{side, "--scenario", name, "--spec-version", revision, "--force"}
						checks = look(t, interpreter, patient, append(again, l.words...)...)[name]
					}
					l.add(name, revision, asked, decide(t, name, checks))
				}
				for _, name := range map[string][]string{"server": want.Server, "client": want.Client}[side] {
					add(name, required)
				}
				for _, n := range want.NotScored {
					if n.Leg == side {
						add(n.Scenario, n.Reason)
					}
				}
			})
		}
	}
	if len(legs["server"].rows) > 0 && len(legs["client"].rows) > 0 {
		hold(t, legs["server"].rows, legs["client"].rows)
	}
}

// busy reports whether processes have to wait for a processor.
func busy() bool {
	var load float64
	b, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(b), &load)
	}
	return err == nil && load > float64(runtime.NumCPU())
}

// A leg is one side of the protocol, as the suite tests it.
type leg struct {
	words []string // the arguments by which the suite finds us
	rows  []*row
}

func (l *leg) add(name, revision, asked string, v verdict) {
	i := slices.IndexFunc(l.rows, func(r *row) bool { return r.scenario == name })
	if i < 0 {
		i, l.rows = len(l.rows), append(l.rows, &row{name, map[string]string{}, map[string]verdict{}})
	}
	l.rows[i].asked[revision], l.rows[i].verdicts[revision] = asked, v
}

// judged returns the checks that the suite did not make, the failures, and whether it judged anything: that messages
// match the schema does not count as judging a scenario.
func judged(checks []check) (notes, bad []string, good bool) {
	var infos []string
	for _, c := range checks {
		switch c.Status {
		case "SUCCESS":
			good = good || !strings.HasPrefix(c.ID, "wire-schema-")
		case "FAILURE", "WARNING":
			bad = append(bad, fmt.Sprintf("%s: %s: %s %.2000s", c.Status, c.ID, c.Message, c.Details))
		case "SKIPPED":
			notes = append(notes, "`"+c.ID+"`: "+c.why())
		case "INFO":
			infos = append(infos, "`"+c.ID+"`: "+c.why())
		}
	}
	if !good {
		notes = append(notes, infos...)
	}
	if len(checks) == 0 {
		bad = append(bad, "it was not run")
	}
	return notes, bad, good
}

// why returns the suite's reason for a check that it did not make.
func (c check) why() string {
	var d struct {
		Message, Note, Reason string
	}
	_ = json.Unmarshal(c.Details, &d)
	return cmp.Or(c.Message, d.Message, d.Note, d.Reason, c.Description)
}

// decide compares a scenario with what is known of it.
func decide(t *testing.T, name string, checks []check) verdict {
	t.Helper()
	notes, bad, good := judged(checks)
	switch reason := known()[name]; {
	case len(bad) == 0 && reason != "":
		t.Errorf("%s passes: take it off the list of those that do not", name)
	case len(bad) > 0 && reason == "":
		t.Errorf("%s:\n%s", name, strings.Join(bad, "\n"))
	case len(bad) > 0:
		return verdict{words: reason}
	case !good:
		return verdict{nothing, notes}
	}
	return verdict{"passes", notes}
}
