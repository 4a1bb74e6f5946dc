package attacks

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/internal/served"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(m.Run())
}

// An order is the attacker's input; see testdata/attacker.
type order struct {
	Program string   `json:"program"` // for the rooms that start it
	Root    string   `json:"root"`
	Paths   []string `json:"paths"`
	What    string   `json:"what"`
	Only    string   `json:"only,omitempty"`
	Beyond  string   `json:"beyond"`
}

func (p *place) order(what string, paths ...string) order {
	return order{Program: p.prog, Root: p.dir, Paths: paths, What: what, Beyond: p.beyond}
}

// A room is a way to run the attacker.
type room struct {
	name   string // of its tool
	source string // of the config; %s is its walls
	args   func(o order) any
	each   bool // each call has its own
	groups bool // it needs cgroups, which ordinary users may not have
}

// wide lets a room write the whole folder of the config, and one more folder nested in another.
const wide = "walls: {write: [., work, work/inner], run: [../prog]}, timeout: 2m"

func rooms() []room {
	return []room{
		{name: "warm", each: true, source: "{name: warm, protocol: namel3ss, app: app, tool: warm, mode: warm, %s}"},
		{name: "fresh", each: true, source: "{name: fresh, protocol: namel3ss, app: app, tool: fresh, mode: fresh, %s}"},
		{name: "node", each: true, source: "{name: node, protocol: namel3ss, app: app, tool: node, kind: node, entry: 'tools.attack:attack', %s}"},
		{name: "event", each: true, source: "{name: event, protocol: narratoria, command: [python3, events.py], %s}"},
		{name: "skill", source: "{name: skill, protocol: alphahuman, skill: skills/one, %s}"},
		{name: "mcp", source: "{name: mcp, protocol: mcp, command: [python3, mcp.py], %s}"},
		{name: "serve", source: "{name: serve, protocol: machina, command: [python3, toolhost.py], plugin: probe.so, dir: host, mode: serve, " +
			"tools: [{aid: AID.HOST.ATTACK.v1, name: serve}], %s}"},
		{name: "run", each: true, source: "{name: run, protocol: machina, command: [python3, toolhost.py], plugin: probe.so, dir: host, mode: run, " +
			"tools: [{aid: AID.HOST.ATTACK.v1, name: run}], %s}"},
		{name: "execShell", each: true, args: shellArgs,
			source: "{name: shell, protocol: builtin, roots: [{path: ., write: true}, {path: work, write: true}, {path: work/inner, write: true}], " +
				"shell: {rules: [{program: PROG, trust: true}], walls: {run: [../prog]}}, #%s}"},
		{name: "folder", each: true, groups: true, source: "{name: folder, protocol: namel3ss, app: app, tool: folder, runner: container, image: /, " +
			"command: [PROG], container: {runtime: sandbox}, timeout: 2m, #%s}", args: func(o order) any { return o }},
	}
}

// shellArgs puts the order on standard input, so that no path in it makes the shell's checks refuse the command.
func shellArgs(o order) any {
	text, err := json.Marshal(map[string]order{"payload": o})
	if err != nil {
		panic(err)
	}
	return map[string]any{"command": o.Program, "stdin": string(text)}
}

// config writes the config with all rooms.
func (p *place) config(t *testing.T, rooms []room) {
	t.Helper()
	text := "# " + banner + "\nstore: {url: 'sqlite:data/tp.db', audit: {key: store.key}}\n" +
		"secrets: {SECRET: {file: keys/secret.txt}}\n" +
		"doors: {http: {}, nats: {listen: '127.0.0.1:0', tls: {cert: tls/cert.pem, key: tls/key.pem}}}\nsources:\n"
	for _, r := range rooms {
		source, _, found := strings.Cut(fmt.Sprintf(r.source, wide), ", #")
		if found {
			source += "}"
		}
		text += "- " + strings.ReplaceAll(source, "PROG", p.prog) + "\n"
	}
	p.write(t, p.dir+"/toolpost.yaml", text, 0o600)
	p.own(t)
}

// attack runs an order in a room, and returns everything that the caller receives.
func (r room) attack(t *testing.T, s *served.Server, o order) string {
	t.Helper()
	args := any(map[string]any{"order": o})
	if r.args != nil {
		args = r.args(o)
	}
	text := kit.Must(json.Marshal(args))(t)
	return kit.Must(s.Raw(t.Context(), r.name, string(text)))(t)
}

// tries counts the attempts that were made, whatever the form of the reports.
func tries(said string) int {
	return strings.Count(strings.ReplaceAll(said, `\`, ""), `"how":`)
}

// TestNoRoomGivesAwayProtectedFiles makes every attempt in every room, as root and as an ordinary user.
func TestNoRoomGivesAwayProtectedFiles(t *testing.T) {
	bin := served.Build(t)
	kit.OK(t, os.Chmod(filepath.Dir(filepath.Dir(bin)), 0o755))
	users := map[string]int{"as ourselves": os.Geteuid()}
	if os.Geteuid() == 0 {
		users["as an ordinary user"] = nobody
	}
	for name, uid := range users {
		t.Run(name, func(t *testing.T) { everyRoom(t, bin, uid) })
	}
}

func everyRoom(t *testing.T, bin string, uid int) {
	p := newPlace(t, uid)
	p.config(t, rooms())
	s := p.serve(t, bin)
	total := 0
	for _, r := range rooms() {
		t.Run(r.name, func(t *testing.T) {
			p.needs(t, r)
			total += p.everyAttempt(t, s, r)
		})
	}
	t.Logf("%d attempts", total)
	s.Stop(t)
}

// needs skips a room that cannot be built for the user.
func (p *place) needs(t *testing.T, r room) {
	t.Helper()
	if r.groups && p.uid != 0 {
		t.Skip("it has limits that take cgroups, and is refused without: see TestAWallThatIsMissingRefusesTheStart")
	}
}

// everyAttempt makes all attempts in one room and checks the results.
func (p *place) everyAttempt(t *testing.T, s *served.Server, r room) int {
	r.attack(t, s, p.order("read", "work")) // the first call creates the store
	before := p.state(t)
	total := 0
	attack := func(what string, paths ...string) string {
		said := r.attack(t, s, p.order(what, paths...))
		if n := tries(said); n < len(paths) {
			t.Errorf("%s: the attacker did not get to it: %.2000s", what, said)
		} else {
			total += n
		}
		return said
	}
	said := attack("read", absent()...)
	for _, mark := range append(marks(), banner) {
		if strings.Contains(said, mark) {
			t.Errorf("%q was read: %s", mark, lines(said, mark))
		}
	}
	said = attack("change", fixed()...)
	if changed := p.differences(t, before); len(changed) > 0 {
		t.Errorf("changed: %s\n%s", strings.Join(changed, "\n"), lines(said, `"done"`))
	}
	said = attack("mode", "work")
	if marked := p.marked(t); len(marked) > 0 {
		t.Errorf("run as their owner: %q\n%s", marked, lines(said, `"done"`))
	}
	if r.each {
		attack("leave", "work")
		if said := attack("find", "work"); strings.Contains(strings.ReplaceAll(said, `\`, ""), `"did":"done"`) {
			t.Errorf("what one call left another found: %s", said)
		}
	}
	return total
}

// lines returns the first reports that contain a text.
func lines(said, text string) string {
	var found []string
	for line := range strings.SplitAfterSeq(strings.ReplaceAll(said, `\`, ""), "},") {
		if strings.Contains(line, text) && len(found) < 12 {
			found = append(found, fmt.Sprintf("%.200s", line))
		}
	}
	return strings.Join(found, "\n")
}

// TestWithoutWallsEveryAttemptSucceeds shows that the attempts are effective: without walls, each one reads or changes
// its target.
func TestWithoutWallsEveryAttemptSucceeds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("some attempts need root")
	}
	out := kit.Must(exec.Command(newPlace(t, 0).prog, "names").Output())(t)
	var plans map[string][]string
	kit.OK(t, json.Unmarshal(out, &plans))
	for _, how := range plans["change"] {
		t.Run(how, func(t *testing.T) { succeeds(t, "change", how) })
	}
	for _, how := range plans["read"] {
		t.Run(how, func(t *testing.T) { succeeds(t, "read", how) })
	}
	for _, how := range plans["mode"] {
		t.Run(how, func(t *testing.T) { succeeds(t, "mode", how) })
	}
}

// succeeds makes one attempt on each target until it succeeds.
func succeeds(t *testing.T, what, how string) {
	p := newPlace(t, 0)
	p.config(t, nil)
	before := p.state(t)
	var reports []string
	for _, path := range []string{"app/tools/attack.py", "app/.venv", "keys/secret.txt", "work"} {
		o := p.order(what, path)
		o.Only = how
		text := kit.Must(json.Marshal(o))(t)
		out, err := exec.Command(o.Program, string(text)).CombinedOutput()
		reports = append(reports, string(out))
		if err == nil && (len(p.differences(t, before)) > 0 || strings.Contains(string(out), canary[1:]) || len(p.marked(t)) > 0) {
			return
		}
	}
	if !slices.Contains(unseen(), how) {
		t.Errorf("it cannot succeed: %s", strings.Join(reports, ""))
	}
}

// unseen returns the attempts that leave no trace that the test checks, and the one that a machine may forbid to all
// users.
func unseen() []string {
	return []string{"attribute", "mount over it", "read by an inherited descriptor", "read by /proc/1/root"}
}
