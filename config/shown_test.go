package config

import (
	"strings"
	"testing"

	"toolpost/internal/kit"
)

func TestShownConfigHidesSecrets(t *testing.T) {
	secret := func(name string) bool {
		name = strings.ToLower(name)
		return strings.Contains(name, "token") || strings.Contains(name, "password") || strings.Contains(name, "secret") ||
			strings.Contains(name, "authorization") || strings.Contains(name, "lease") || strings.Contains(strings.NewReplacer("_", "", "-", "").Replace(name), "apikey")
	}
	const text = `# password: HUNTER2
sources:
  - name: files   # a comment
    protocol: builtin
    roots: [{path: .}]
  - name: far
    protocol: mcp
    url: https://ada:HUNTER2@example.org/mcp
    headers: {Authorization: Bearer HUNTER2, Accept: text, X: "${secret:A}"}
    env: {API_KEY: HUNTER2, LEVEL: debug}
    password: "HUNTER2
      HUNTER2"
    token: |
      HUNTER2
      HUNTER2
    command: [tool, --token, HUNTER2, --api-key=HUNTER2, --verbose, yes]
    args:
      - --password
      - HUNTER2
      - last
    tokens:
      - HUNTER2
    token_env: NAMED
    secrets: [SHOWN]
secrets: {SHOWN: {env: SHOWN_TOO}}
limits: {lease_tier: 1}
policy:
  default: allow
`
	for name, data := range map[string]string{"sound": text, "broken": text + "  bad: [1\n", "tabs": "a:\n\tb: c\n" + text} {
		got := Shown([]byte(data), secret)
		if strings.Contains(got, "HUNTER") {
			t.Errorf("%s: a secret is shown:\n%s", name, got)
		}
		if strings.Count(got, "\n") != strings.Count(data, "\n") {
			t.Errorf("%s: %d lines, want %d:\n%s", name, strings.Count(got, "\n"), strings.Count(data, "\n"), got)
		}
	}
	got := strings.Split(Shown([]byte(text), secret), "\n")
	for i, line := range strings.Split(text, "\n") {
		if !strings.Contains(line, "HUNTER") && got[i] != line {
			t.Errorf("line %d is %q, and was %q", i+1, got[i], line)
		}
	}
	kit.Equal(t, Shown([]byte("sources: []\n"), secret), "sources: []\n")
}

func FuzzAShownConfigKeepsItsLines(f *testing.F) {
	f.Add("a: b\npassword: c\n")
	f.Add("password: |\n  x\n\n  y\nb: [1, 2]\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := Shown([]byte(text), func(name string) bool { return strings.Contains(name, "password") })
		if strings.Contains(text, "password: hunter2\n") && strings.Contains(got, "password: hunter2\n") {
			t.Errorf("%q is shown as %q", text, got)
		}
	})
}
