package main

import (
	"strings"
	"testing"
)

func TestAStoryIsPlayedInATerminal(t *testing.T) {
	cmd := program(t, map[string]string{
		"toolpost.yaml": "sources: [{name: knocker, protocol: narratoria, command: [sh, knock.sh]}]\nplanners: [{name: tale, file: tale.yaml}]\n",
		"tale.yaml": `
title: A tale
opening: Knock
answers:
  - prompts: [Knock]
    plan: {narrative: "` + strings.Repeat("knock ", 40) + `", tools: [{toolId: a, tool: knocker}]}
  - prompts: [Go in]
    plan: {narrative: You are in., tools: []}
`,
		"knock.sh": `
echo '{"version":"0","type":"log","level":"info","message":"knocking \u001b[2J"}'
echo '{"version":"0","type":"state_patch","patch":{"door":"open"}}'
echo '{"version":"0","type":"ui_event","event":"narrative_choice","payload":{"choices":[{"label":"Go in","hint":"it is \u202elate"}]}}'
sleep 1
echo '{"version":"0","type":"done","ok":true}'
`,
	}, "story")
	screen := typedAt(t, cmd, "1\n", "\x04", "\x04")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, screen)
	}
	for _, want := range []string{
		"\x1b[1mA tale\x1b[0m",
		strings.TrimSpace(strings.Repeat("knock ", 13)) + "\r\n", // wrapped to 80 characters
		"\x1b[2m  knocking \\u001b[2J\x1b[0m",                    // harmless
		"turn ", "a\x1b[0m", "\r\x1b[2K",                         // the moving line, which is removed again
		"✓ knocker", "door = open", "1.\x1b[0m Go in\x1b[2m  it is \\u202elate", "You are in.",
	} {
		if !strings.Contains(screen, want) {
			t.Errorf("%q is not on the screen: %q", want, screen)
		}
	}
}
