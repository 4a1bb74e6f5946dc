package main

import (
	"errors"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"toolpost/cmd/toolpost/format"
	"toolpost/engine/approval"
	"toolpost/engine/calls"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestEveryCodeHasItsExitCode(t *testing.T) {
	want := map[tool.Code]exit{
		tool.CodeToolError: 1, tool.CodeCrash: 1, tool.CodeProtocol: 1, tool.CodeInternal: 1, tool.CodeUnavailable: 1, tool.CodeBreakerOpen: 1,
		tool.CodeInvalidInput: 2,
		tool.CodeAccessDenied: 3, tool.CodeLeaseRequired: 3, tool.CodeLeaseRejected: 3, tool.CodeQuotaExceeded: 3, tool.CodeUnsupported: 3, tool.CodeConflict: 3,
		tool.CodeNotFound: 4, tool.CodeTimeout: 5, tool.CodeCancelled: 130,
	}
	for _, c := range tool.Codes() {
		if code, ok := want[c]; !ok || exitOf(c) != code {
			t.Errorf("%s: exit code %d, want %d", c, exitOf(c), code)
		}
	}
}

func TestPlainGoBuildReportsRevisionAndDate(t *testing.T) {
	var b build
	b.stamp([]debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
	})
	if got, want := b.origin(), " (0123456789ab, 2026-01-02)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (build{Version: "dev"}).origin(); got != "" {
		t.Errorf("a build that knows nothing says %q", got)
	}
}

func TestCleanShowsWhatCouldHarmATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain":               "plain",
		"naïve 日本 👩‍🔧":        "naïve 日本 👩‍🔧",
		"\x1b[31m":            `\u001b[31m`,
		"bell\a":              `bell\u0007`,
		"\u009b31m":           `\u009b31m`,
		"\u202eevil":          `\u202eevil`,
		"cr\rover":            `cr over`,
		"a\nb\tc":             "a b c",
		"del\x7f":             `del\u007f`,
		"bad utf8 \xff done":  "bad utf8 \ufffd done",
		"a\u200bb\u2060":      `a\u200bb\u2060`,
		"tag\U000e0041":       `tag\U000e0041`,
		"\u2800\u00ada\ufe0f": `\u2800\u00ada\ufe0f`,
	} {
		if got := clean(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := cleanLines("a\nb\rc"); got != "a\nb\\u000dc" {
		t.Errorf("%q", got)
	}
}

func liveOnFile(t *testing.T, terminal bool) (*live, func() string) {
	t.Helper()
	s, text := screenOnFile(t, terminal)
	return newLive(s, "torch", false), text
}

// screenOnFile returns a screen that is a file.
func screenOnFile(t *testing.T, terminal bool) (s *screen, text func() string) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "screen")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &screen{File: f, terminal: terminal}, func() string {
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

func TestEventsAreLinesAboveTheProgress(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l, text := liveOnFile(t, terminal)
			time.Sleep(310 * time.Millisecond)
			for _, ev := range []tool.Event{
				tool.NewEvent(tool.KindProgress, tool.Progress{Progress: 2, Total: 5, Message: "halfway\x1b"}),
				tool.LogEvent("info", "first\nsecond"),
				tool.LogEvent("debug", "hidden"),
				tool.NewEvent(tool.KindOutput, tool.Output{Text: "piece\n"}),
				tool.NewEvent(tool.KindUIEvent, tool.UIEvent{Event: "choice"}),
				{Kind: "novel", Data: []byte(`{}`)},
				{Kind: tool.KindLog, Data: []byte(`not json`)},
			} {
				if err := l.Emit(ev); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(100 * time.Millisecond)
			if !terminal {
				time.Sleep(2 * time.Second)
			}
			l.End()
			lines := "info: first\n  second\noutput: piece\nui: choice \n: \n"
			want := "⠙ torch 0.3s\r\x1b[2K" + lines + "⠹ torch 0.4s ████████░░░░░░░░░░░░ 40% 2/5 halfway\\u001b\r\x1b[2K"
			if !terminal {
				want = lines + "torch: 40% 2/5 halfway\\u001b\n"
			}
			if got := text(); got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

// contract(narratoria): the `narrative_choice` event MUST be supported: display as clickable buttons or list
// contract(narratoria): Gracefully degrade unsupported events via placeholder messages with event name and payload details.
func TestChoicesAreListedAndOtherRequestsAreShownAsTheyAre(t *testing.T) {
	for payload, want := range map[string]string{
		`{"choices":["north",{"id":"s","label":"south","hint":"cold"},{"label":"up\u001b[2J"}]}`: "choose:\n  1. north\n  2. south (cold)\n  3. up\\u001b[2J",
		`{"choices":[7]}`: `ui: narrative_choice {"choices":[7]}`,
		`{"choices":[]}`:  `ui: narrative_choice {"choices":[]}`,
		``:                "ui: narrative_choice ",
	} {
		if got := uiLine(tool.UIEvent{Event: "narrative_choice", Payload: []byte(payload)}); got != want {
			t.Errorf("%s: got %q", payload, got)
		}
	}
	if got := uiLine(tool.UIEvent{Event: "play_sound", Payload: []byte(`{"choices":["x"]}`)}); got != `ui: play_sound {"choices":["x"]}` {
		t.Error(got)
	}
}

// contract(narratoria): Narratoria MUST: Display degraded or placeholder UI for unsupported `mediaType` values.
func TestAnAssetOfAnyTypeIsShownByNameAndPlace(t *testing.T) {
	l, _ := liveOnFile(t, false)
	defer l.End()
	got := l.line(tool.NewEvent(tool.KindAsset, tool.Asset{AssetID: "a", MediaType: "model/never-heard-of", Path: "/x"}))
	if !strings.Contains(got, "asset: a (model/never-heard-of) /x") {
		t.Error(got)
	}
}

func TestLastSignOfACallFitsIntoALine(t *testing.T) {
	for want, s := range map[string]*calls.Sign{
		"-": nil, "50% half": {Message: "half", Progress: 2, Total: 4}, "25%": {Progress: 1, Total: 4}, `a b\u001b`: {Message: "a\nb\x1b"},
		strings.Repeat("x", 59) + "…": {Message: strings.Repeat("x", 200)},
	} {
		if got := heard(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The name of a tool comes from its server, and people paste commands.
func TestToolNameIsQuotedForTheShell(t *testing.T) {
	for name, want := range map[string]string{
		"weather.forecast@ab12": "weather.forecast@ab12",
		"x.$(id)":               "'x.$(id)'",
		"x.a; rm -rf ~":         "'x.a; rm -rf ~'",
		"x.it's":                `'x.it'\''s'`,
		"-v":                    "'-v'",
		"x.a\nb":                "'x.a b'",
	} {
		if got := format.ShellWord(name); got != want {
			t.Errorf("%q becomes %s", name, got)
		}
	}
}

// An approver reads what runs: each argument by itself, each blank, and nothing invisible.
func TestApproverSeesEachArgumentUnambiguously(t *testing.T) {
	var shown []string
	for _, f := range callFacts(approval.Approval{
		Args: []byte(`{"path":"a  b\u0007","x":"` + "\u202e\u200b" + `"}`), Origin: approval.Origin{Session: "s\tt"}, More: 7,
		Touches: tool.Touches{
			Writes: []string{"/w/a  b", "/w/a\n  writes     /w/c", "/w/\x1b[2J"}, Reads: []string{"/w/\U000e0041"},
			Commands: [][]string{{"rm", "-rf", "a b"}, {"rm", "-rf", "a", "b"}, {"echo", "", "it's"}},
		},
	}) {
		if f[1] != "" {
			shown = append(shown, f[0]+" "+f[1])
		}
	}
	want := []string{
		`arguments {"path":"a  b\u0007","x":"\u202e\u200b"}`, `session s\u0009t`, "tier 0", `reads /w/\U000e0041`,
		`writes /w/a  b`, `writes /w/a\u000a  writes     /w/c`, `writes /w/\u001b[2J`,
		`runs rm -rf 'a b'`, `runs rm -rf a b`, `runs echo '' 'it'\''s'`, "and 7 more files or commands, too many to be shown",
	}
	if !slices.Equal(shown, want) {
		t.Errorf("it is shown as\n%s\nnot as\n%s", strings.Join(shown, "\n"), strings.Join(want, "\n"))
	}
}

func TestLogsShowInvisibleCharacters(t *testing.T) {
	shown := func(key string, v any) string { return visibleText(nil, slog.Any(key, v)).Value.String() }
	kit.Equal(t, shown("reads", "/w/a\u3164b\u034f"), `/w/a\u3164b\u034f`, "a path")
	kit.Equal(t, shown("error", errors.New("no \u115f")), `no \u115f`, "an error")
}

func TestAnExportSaysHowFarItIs(t *testing.T) {
	for want, c := range map[string]struct {
		limit, calls      int
		first, last, head int64
	}{
		"torch: 50% 500/1000":         {0, 500, 101, 600, 1100},
		"torch: 50% 500/1000 7 calls": {0, 7, 101, 600, 1100}, // a filter omits most of them
		"torch: 25% 5/20":             {20, 5, 101, 600, 1100},
		"torch: 100% 1100/1100":       {0, 1100, 1, 1100, 1100},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, text := liveOnFile(t, false)
			q := &audit{shown: l.Line}
			q.exported(c.first, c.last, c.head, c.calls, int64(c.limit))
			time.Sleep(3 * time.Second)
			l.End()
			if got := strings.TrimSpace(text()); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

func TestAHintIsForTheServerThatWasUsed(t *testing.T) {
	for name, c := range map[string]struct {
		server server
		text   string
		want   string
	}{
		"this process":   {server{}, "`toolpost tools` lists them", "`toolpost tools` lists them"},
		"a server":       {server{url: "http://h:1"}, "`toolpost tools` lists them", "`toolpost tools --server http://h:1` lists them"},
		"a token":        {server{url: "http://h:1", token: "tok_secret"}, "see `toolpost jobs watch j1`", "see `toolpost jobs watch j1 --server http://h:1 --token TOKEN`"},
		"a password":     {server{url: "http://u:secret@h"}, "`toolpost audit verify`", "`toolpost audit verify --server http://u:xxxxx@h`"},
		"here and there": {server{url: "http://h"}, "`toolpost init`, `toolpost lease list`", "`toolpost init`, `toolpost lease list --server http://h`"},
		"said already":   {server{url: "http://h"}, "`toolpost tools --server http://x`", "`toolpost tools --server http://x`"},
		"its own words": {
			server{url: "http://h", token: "tok_secret"}, "`toolpost connections add api --server http://x --token TOKEN`",
			"`toolpost connections add api --server http://h --token TOKEN`",
		},
		"a header": {server{url: "http://h"}, "send the header Authorization: Bearer TOKEN; or", "sign in with `toolpost login --server http://h`, or give a token in $TOOLPOST_TOKEN or with --token; or"},
		"not one":  {server{url: "http://h"}, "`toolpost nothing`, `toolpost`", "`toolpost nothing`, `toolpost`"},
	} {
		a := newApp()
		a.server = c.server
		if got := a.here(c.text); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	a := newApp()
	a.config = "my own.yaml"
	kit.Equal(t, a.here("`toolpost init`, `toolpost approve x`"), "`toolpost init`, `toolpost approve x --config 'my own.yaml'`")
}

// A tool that runs a plan itself, or pretends to, changes nothing in the tree of the plan that contains it.
func TestNestedPlanEventsDoNotChangeTheOuterPlan(t *testing.T) {
	s, text := screenOnFile(t, false)
	v := newPlanView(s)
	for _, fields := range []string{
		`{"plan":{"planId":"p","requestId":"out","tools":[{"toolId":"a","tool":"nest"},{"toolId":"b","tool":"nest"}]}}`,
		`{"toolId":"a","plan":{"planId":"q","requestId":"in","tools":[]}}`,
		`{"toolId":"a","step":{"planId":"p","toolId":"b","state":"success"}}`,
		`{"step":{"planId":"p","toolId":"b","tool":"nest","state":"failed"}}`,
	} {
		ev := tool.NewEvent(tool.KindLog, tool.Log{Level: "info", Message: "said", Fields: []byte(fields)})
		if err := v.Emit(ev); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := text(), "plan out: 2 tools\n  a: said\n  a: said\n✗ b  nest  failed\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWideTablesAreShortened(t *testing.T) {
	const id, at = "ap_0123456789abcdef0123456789", "2026-11-18T06:00:00Z (5m ago)"
	row := []string{id, "writeFile", "agent/claude-code", at, at, "waiting", strings.Repeat("x", 300)}
	rows := [][]string{{"ID", "TOOL", "CALLER", "ASKED", "UNTIL", "STATE", "WHAT"}, slices.Clone(row)}
	format.Fit(rows, 0)
	kit.Equal(t, cmp.Diff(row, rows[1]), "", "without a terminal")
	s, _ := screenOnFile(t, false)
	for _, width := range []int{100, 90} {
		rows[1] = slices.Clone(row)
		line := s.row(format.Fit(rows, width), rows[1])
		if n := utf8.RuneCountInString(line); n > width || n < width-1 || !strings.Contains(line, id) || !strings.Contains(line, "  5m ago  5m ago ") {
			t.Errorf("%d of %d columns: %s", n, width, line)
		}
	}
}
