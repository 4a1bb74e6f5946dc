package node_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/config"
	"toolpost/host/process"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// lending is a protocol whose sources name the secrets that they use; each has one tool, which reveals all of them.
type lending struct{ *fake }

func (l *lending) protocol() []node.Protocol { return []node.Protocol{{Name: "fake", Open: l.Open}} }

func (l *lending) Open(ctx context.Context, src config.Source, log *slog.Logger) (tool.Runner, error) {
	var o struct {
		Secrets []string `yaml:"secrets"`
		Fails   bool     `yaml:"fails"`
	}
	if err := src.Decode(&o); err != nil {
		return nil, err
	}
	var cmd process.Command
	if _, err := (secret.Grant{Secrets: o.Secrets, Vault: src.Secrets}).Give(&cmd, nil); err != nil {
		return nil, err
	}
	env := cmd.Env
	if o.Fails {
		return nil, errors.New("cannot start with " + strings.Join(env, " "))
	}
	log.Info("opened with " + strings.Join(env, " "))
	r, err := l.fake.Open(ctx, src, log)
	return &teller{r.(*runner), strings.Join(env, " ")}, err
}

type teller struct {
	*runner
	env string
}

func (r *teller) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{{Name: r.src.Name, Description: "uses " + r.env, Effects: tool.Effects{Writes: true}}}, nil
}

func (r *teller) Invoke(_ context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	coded := base64.StdEncoding.EncodeToString([]byte(r.env))
	patch, _ := json.Marshal(map[string]string{"env": r.env})
	for _, ev := range []tool.Event{tool.LogEvent("info", r.env), {Kind: tool.KindStatePatch, Data: patch}, tool.NewEvent(tool.KindOutput, tool.Output{Text: coded})} {
		if err := out.Emit(ev); err != nil {
			return nil, err
		}
	}
	if bytes.Contains(c.Args, []byte("fail")) {
		return nil, errors.New("it failed with " + r.env)
	}
	output, _ := json.Marshal([]string{r.env, coded, string(c.State)})
	return &tool.Result{OK: true, Output: output, Summary: r.env}, nil
}

const canary = "canary-4c1f/9a+7e"

func leaked(text string) bool {
	return strings.Contains(text, canary) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("KEY=" + canary))[8:24])
}

func TestSecretReachesOnlyItsTool(t *testing.T) {
	t.Setenv("NODE_TEST_KEY", canary)
	dir := t.TempDir()
	logged := &kit.Buffer{}
	l := &lending{newFake()}
	n := open(t, parse(t, dir, `
secrets: {KEY: {env: NODE_TEST_KEY}}
store: {audit: {values: ["*"]}, idempotency: {durable: true}}
sources:
  - {name: has, protocol: fake, secrets: [KEY]}
  - {name: none, protocol: fake}
  - {name: dead, protocol: fake, secrets: [KEY], fails: true}
`), node.Options{Protocols: l.protocol(), Log: slog.New(slog.NewTextHandler(logged, nil))})
	var all strings.Builder
	for _, c := range []tool.Call{
		{Tool: "has", Session: "s", Key: "k", Args: json.RawMessage(`{"token":"` + canary + `"}`)},
		{Tool: "has", Session: "s", Key: "k", Args: json.RawMessage(`{"token":"` + canary + `"}`)}, // a replay
		{Tool: "has", Session: "s", Args: json.RawMessage(`{"` + canary + `":1}`)},
		{Tool: "has", Args: json.RawMessage(`{"fail":true}`)},
		{Tool: "dead"},
		{Tool: canary},
	} {
		c.Caller = tool.Principal{ID: "ada", Door: "cli"}
		sink := &tooltest.Collect{}
		r, err := n.Handler().Invoke(t.Context(), &c, sink)
		for _, ev := range sink.Events() {
			all.Write(ev.Data)
		}
		shown, _ := json.Marshal(r)
		all.Write(shown)
		if err != nil {
			all.WriteString(err.Error())
		}
	}
	for spec, err := range n.Catalog().Specs(t.Context(), tool.Principal{ID: "ada", Door: "cli"}) {
		shown, _ := json.Marshal(spec)
		all.Write(shown)
		if err != nil {
			all.WriteString(err.Error())
		}
	}
	for _, s := range n.Sources() {
		if s.Err != nil {
			all.WriteString(s.Err.Error())
		}
	}
	if text := all.String(); leaked(text) || strings.Count(text, "[secret KEY]") < 10 {
		t.Errorf("what callers see: %s", text)
	}
	if out, _ := invoke(t, n, tool.Call{Tool: "none"}); strings.Contains(out, "secret") {
		t.Errorf("a source that names no secret has one: %s", out)
	}
	shut(t, n)
	if text := logged.String(); leaked(text) || !strings.Contains(text, "opened with KEY=[secret KEY]") {
		t.Errorf("the log: %s", text)
	}
	if kept := contents(t, dir); leaked(kept) || !strings.Contains(kept, "[secret KEY]") {
		t.Error("the store has the value, or nothing at all")
	}
}

// contents returns the contents of all files in a folder.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	kit.OK(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		all.Write(b)
		return err
	}))
	return all.String()
}

func TestMissingSecretFailsOnlyItsSources(t *testing.T) {
	t.Setenv("NODE_TEST_KEY", canary)
	l := &lending{newFake()}
	n := open(t, parse(t, t.TempDir(), `
secrets: {KEY: {env: NODE_TEST_KEY}, BAD: {file: missing}}
sources:
  - {name: good, protocol: fake, secrets: [KEY]}
  - {name: bad, protocol: fake, secrets: [KEY, BAD]}
  - {name: unknown, protocol: fake, secrets: [OTHER]}
`), node.Options{Protocols: l.protocol()})
	defer shut(t, n)
	kit.Check(t, call(n, "good"))
	for i, want := range []string{"", "the secret BAD, from the file missing: no such file", "there is no secret OTHER"} {
		if err := n.Sources()[i].Err; want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", n.Sources()[i].Name, err)
		}
	}
	list := n.Secrets()
	if len(list) != 2 || list[0].Name != "BAD" || list[0].Err == nil || list[1].Err != nil || list[1].From != "the environment variable NODE_TEST_KEY" {
		t.Errorf("%+v", list)
	}
}

func TestReloadReopensSourcesWithChangedSecrets(t *testing.T) {
	dir := t.TempDir()
	l := &lending{newFake()}
	put := func(name, value string) {
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600))
	}
	put("a", "value-a-1")
	put("b", "value-b-1")
	const sources = "sources: [{name: a, protocol: fake, secrets: [A]}, {name: b, protocol: fake, secrets: [B]}, {name: none, protocol: fake}]\n"
	cfg := parse(t, dir, sources+"secrets: {A: {file: a}, B: {file: b}}")
	n := open(t, cfg, node.Options{Protocols: l.protocol()})
	defer shut(t, n)
	put("a", "value-a-2")
	n.Reload(t.Context(), cfg)
	for name, want := range map[string]int{"a": 2, "b": 1, "none": 1} {
		kit.Equal(t, l.count(l.opened, name), want, "%s was opened", name)
	}
	_, err := n.Handler().Invoke(t.Context(), &tool.Call{Tool: "value-a-1 value-a-2 value-b-1"}, tool.Discard)
	kit.Fails(t, err, `"[secret A] [secret A] [secret B]"`) // a running call may still reveal the old value
	n.Reload(t.Context(), parse(t, dir, sources+"secrets: {A: {file: a, env: B}}"))
	n.Reload(t.Context(), parse(t, dir, sources+"secrets: {A: {file: a}, B: {file: b}, C: {file: a}}"))
	kit.Equal(t, l.count(l.opened, "a")+l.count(l.opened, "b"), 3, "times opened")
}
