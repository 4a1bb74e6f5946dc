package mcpsuite

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

var update = flag.Bool("update", false, "write docs/conformance-mcp.md")

// peers is where the programs from npm are.
const peers = "../../protocol/mcp/testdata/js"

// requirePeers gives the interpreter for programs from npm: Node 22, which the suite needs, comes with them.
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

// A check is one thing that the suite looked at.
type check struct {
	ID          string          `json:"id"`
	Status      string          `json:"status"` // SUCCESS, FAILURE, WARNING, SKIPPED, INFO
	Description string          `json:"description"`
	Message     string          `json:"errorMessage"`
	Details     json.RawMessage `json:"details"`
}

// A set is what a revision asks for.
type set struct {
	Server    []string `yaml:"server"`
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

// How long the suite waits, as a module that its interpreter loads first. It gives some calls half a second, which is not enough
// for a tool that starts a program on a busy machine.
const (
	hurried = "data:text/javascript,"
	patient = hurried + "const timer=setTimeout;globalThis.setTimeout=(f,ms,...more)=>timer(f,10*ms,...more)"
)

// run lets the suite have a look, and gives the checks of each scenario.
func (h *house) run(t *testing.T, interpreter, waits string, what ...string) map[string][]check {
	t.Helper()
	out := t.TempDir()
	program, err := filepath.Abs(filepath.Join(peers, suite, "dist", "index.js"))
	if err != nil {
		t.Fatal(err)
	}
	words := append([]string{"--import=" + waits, program, "server", "--url", h.url, "-o", out}, what...)
	cmd := exec.CommandContext(t.Context(), interpreter, words...)
	cmd.Dir = out
	said, err := cmd.CombinedOutput() // its status is not enough: it counts no warnings
	results, _ := filepath.Glob(filepath.Join(out, "server-*", "checks.json"))
	if len(results) == 0 {
		t.Fatalf("the suite did not run: %v\n%s", err, said)
	}
	name := regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT`)
	found := map[string][]check{}
	for _, path := range results {
		var checks []check
		b, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(b, &checks)
		}
		m := name.FindStringSubmatch(filepath.Base(filepath.Dir(path)))
		if err != nil || m == nil {
			t.Fatalf("%s: %v", path, err)
		}
		found[m[1]] = checks
	}
	return found
}

const required = "required"

// known lists the scenarios that do not pass, each with its reason: where the suite is wrong, or what is not there yet.
// One that passes after all must not be listed.
func known() map[string]string {
	return map[string]string{
		"input-required-result-ignore-extra-params": "it warns, because it answers in its first call, without the requestState of a " +
			"question; that is no answer to anything that was asked, and so the server asks",
	}
}

func TestTheOfficialSuitePasses(t *testing.T) {
	interpreter := requirePeers(t)
	h := openHouse(t)
	var rows []*row
	for _, revision := range revisions() {
		t.Run(revision, func(t *testing.T) {
			want := readSet(t, revision)
			found := h.run(t, interpreter, hurried, "--requirements", revision)
			add := func(name, asked string) {
				checks := found[name]
				if _, bad := judged(checks); len(bad) > 0 && known()[name] == "" {
					checks = h.run(t, interpreter, patient, "--scenario", name, "--spec-version", revision, "--force")[name]
				}
				rows = appended(rows, name, revision, asked, decide(t, name, checks))
			}
			for _, name := range want.Server {
				add(name, required)
			}
			for _, n := range want.NotScored {
				if n.Leg == "server" {
					add(n.Scenario, n.Reason)
				}
			}
		})
	}
	if len(rows) > 0 {
		hold(t, rows)
	}
}

func appended(rows []*row, name, revision, asked string, v verdict) []*row {
	i := slices.IndexFunc(rows, func(r *row) bool { return r.scenario == name })
	if i < 0 {
		i, rows = len(rows), append(rows, &row{name, map[string]string{}, map[string]verdict{}})
	}
	rows[i].asked[revision], rows[i].verdicts[revision] = asked, v
	return rows
}

// judged gives what the suite did not look at, and what it found wrong.
func judged(checks []check) (notes, bad []string) {
	good := false
	var infos []string
	for _, c := range checks {
		switch c.Status {
		case "SUCCESS":
			good = true
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
	return notes, bad
}

// why is what the suite says about a check that it did not make.
func (c check) why() string {
	var d struct {
		Message, Note, Reason string
	}
	_ = json.Unmarshal(c.Details, &d)
	return cmp.Or(c.Message, d.Message, d.Note, d.Reason, c.Description)
}

// decide holds a scenario against what is known of it.
func decide(t *testing.T, name string, checks []check) verdict {
	t.Helper()
	notes, bad := judged(checks)
	switch reason := known()[name]; {
	case len(bad) == 0 && reason != "":
		t.Errorf("%s passes: take it off the list of those that do not", name)
	case len(bad) > 0 && reason == "":
		t.Errorf("%s:\n%s", name, strings.Join(bad, "\n"))
	case len(bad) > 0:
		return verdict{words: "does not pass: " + reason}
	}
	return verdict{"passes", notes}
}
