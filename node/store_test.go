package node_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/engine/audit"
	"toolpost/host/secret"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/node/storage"
	"toolpost/tool"
)

// records returns the log of a config.
func records(t *testing.T, dir, text string) (all []*tool.Record) {
	t.Helper()
	db, _, err := storage.Open(parse(t, dir, text))
	kit.OK(t, err)
	defer db.Close()
	err = db.Audit().Log(t.Context(), audit.Filter{}, false, func(r *tool.Record) error {
		all = append(all, r)
		return nil
	})
	kit.OK(t, err)
	return all
}

func TestCallsAreRecordedAndTheRecordsOutliveTheNode(t *testing.T) {
	const text = "sources: [{name: echo, protocol: fake}]\npolicy: {rules: [{name: nobody, effect: deny, callers: [eve], when: 'args.x == 1'}]}\nstore: {}"
	dir := t.TempDir()
	n := open(t, parse(t, dir, text), node.Options{Protocols: newFake().protocol()})
	for _, caller := range []string{"ada", "eve"} {
		_, _ = n.Handler().Invoke(t.Context(), &tool.Call{
			Tool: "echo", Args: json.RawMessage(`{"x":1}`), Caller: tool.Principal{ID: caller, Door: "cli"}, Run: "r", Session: "s",
			Parent: "forged", Depth: tool.MaxDepth + 1,
		}, tool.Discard)
	}
	kit.Refused(t, call(n, "nosuch"), tool.CodeNotFound, "")
	shut(t, n)
	got := records(t, dir, text)
	kit.MustEqual(t, len(got), 3, "records")
	if r := got[0]; r.Caller != "ada" || r.Outcome != tool.OutcomeOK || r.Decision != "allow" || r.Tool != "echo" || r.Source != "echo" || r.Run != "r" ||
		r.Parent != "" {
		t.Errorf("%+v", r)
	}
	if r := got[1]; r.Caller != "eve" || r.Outcome != tool.OutcomeRefused || r.Decision != "deny" || r.Rule != "nobody" {
		t.Errorf("%+v", r)
	}
	if r := got[2]; r.Tool != "" || r.Asked != "nosuch" || r.Code != tool.CodeNotFound {
		t.Errorf("%+v", r)
	}
}

func TestAStoreIsOpenedWhenItIsNeeded(t *testing.T) {
	dir := t.TempDir()
	n := open(t, parse(t, dir, "sources: [{name: echo, protocol: fake}]\nstore: {}"), node.Options{Protocols: newFake().protocol()})
	kit.Check(t, kit.Err(n.Catalog().Lookup(t.Context(), tool.Principal{}, "echo")))
	kit.Fails(t, kit.Err(os.Stat(filepath.Join(dir, ".toolpost"))),
		"", "looking at the catalogue left something behind")
	kit.Check(t, call(n, "echo"))
	kit.Equal(t, kit.Must(os.Stat(filepath.Join(dir, ".toolpost", "toolpost.db")))(t).Mode().Perm(), 0o600)
	kit.Equal(t, kit.Must(os.Stat(filepath.Join(dir, ".toolpost", "audit.key")))(t).Mode().Perm(), 0o600)
	shut(t, n)
}

func TestUnopenableStoreRefusesChanges(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	n := open(t, parse(t, dir, "sources: [{name: echo, protocol: fake}]\nstore: {url: 'sqlite:file/in/a/file.db'}"), node.Options{Protocols: newFake().protocol()})
	defer shut(t, n)
	kit.Refused(t, call(n, "echo"), tool.CodeUnavailable, "was not run")
}

func TestDanglingAuditKeyIsReported(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.Symlink("nowhere", filepath.Join(dir, "log.key")))
	n := open(t, parse(t, dir, "sources: [{name: echo, protocol: fake}]\nstore: {audit: {key: log.key}}"), node.Options{Protocols: newFake().protocol()})
	defer shut(t, n)
	kit.Refused(t, call(n, "echo"), tool.CodeUnavailable, "nowhere")
}

func TestMachinesWithTheKeyOfTheStoreSealAlike(t *testing.T) {
	dir := t.TempDir()
	kit.Files(t, dir, map[string]string{"a.key": strings.Repeat("1f", 16), "b.key": strings.Repeat("2f", 16), "short.key": "1f"})
	sum := func(key string) (string, error) {
		s := kit.Must(storage.New(parse(t, t.TempDir(), "store: {key: '"+filepath.Join(dir, key)+"'}"), true, slog.New(slog.DiscardHandler), new(secret.Redactor), nil))(t)
		defer s.Close(t.Context())
		sum, err := s.Keys.Sum("a purpose")
		kit.Equal(t, tool.CodeOf(s.Problem()), tool.CodeOf(err))
		return string(sum[:]), err
	}
	one, two, other := kit.Must(sum("a.key"))(t), kit.Must(sum("a.key"))(t), kit.Must(sum("b.key"))(t)
	if one != two || one == other {
		t.Error("the key decides")
	}
	for name, says := range map[string]string{"short.key": "has no key for the store", "none.key": "the key of the store cannot be read"} {
		kit.Refused(t, kit.Err(sum(name)), tool.CodeUnavailable, says)
	}
}

func TestTheStoreSection(t *testing.T) {
	for text, ok := range map[string]bool{
		"": true, "store: {}": true, "store: {url: none}": true, "store: {url: 'sqlite:x.db', retention: 720h, audit: {values: ['*']}}": true,
		"store: {url: 'postgres://a@b/c', idempotency: {durable: true, window: 5m}}": true,
		"store: {url: 'mysql://x'}": false, "store: {ulr: x}": false, "store: {retention: -1s}": false, "store: {url: 'postgres://a:b@c:d/e'}": false,
	} {
		db, _, err := storage.Open(parse(t, t.TempDir(), text))
		if (err == nil) != ok || (db == nil) != (!ok || strings.Contains(text, "none")) {
			t.Errorf("%s: %v, %v", text, db, err)
		}
		if db != nil {
			kit.Check(t, db.Close())
		}
	}
}

func TestADurableKeyIsRememberedByTheNextNode(t *testing.T) {
	dir := t.TempDir()
	const text = "sources: [{name: echo, protocol: fake}]\nstore: {idempotency: {durable: true}}"
	for i := range 2 {
		n := open(t, parse(t, dir, text), node.Options{Protocols: newFake().protocol()})
		r, err := n.Handler().Invoke(context.Background(), &tool.Call{Tool: "echo", Args: json.RawMessage(`{}`), Key: "k"}, tool.Discard)
		if err != nil || (r.Trace.Details["idempotent_hit"] == true) != (i == 1) {
			t.Errorf("%d: %+v, %v", i, r, err)
		}
		shut(t, n)
	}
	got := records(t, dir, text)
	if len(got) != 2 || got[0].Replay || !got[1].Replay {
		t.Errorf("%+v", got)
	}
}

// The key for digests of arguments is beside the store, not in it, and all programs that share a log have it.
func TestDigestsOfArgumentsNeedTheKeyOfTheLog(t *testing.T) {
	const text = "sources: [{name: echo, protocol: fake}]\nstore: {}"
	dir, elsewhere := t.TempDir(), t.TempDir()
	for _, where := range []string{dir, dir, elsewhere} {
		n := open(t, parse(t, where, text), node.Options{Protocols: newFake().protocol()})
		kit.OK(t, call(n, "echo"))
		shut(t, n)
	}
	ours, theirs := records(t, dir, text), records(t, elsewhere, text)
	if len(ours) != 2 || len(theirs) != 1 || ours[0].Digest == "" || ours[0].Digest != ours[1].Digest || ours[0].Digest == theirs[0].Digest {
		t.Errorf("%+v, %+v", ours, theirs)
	}
	info, err := os.Stat(filepath.Join(dir, ".toolpost", "audit.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// painter is a tool that makes an asset and changes the state of its session.
const painter = `sources: [{name: paint, protocol: narratoria, effects: {writes: true}, walls: {write: [.]}, command: [sh, -c, 'printf red >made;
  echo "{\"version\":\"0\",\"type\":\"asset\",\"assetId\":\"a\",\"kind\":\"file\",\"mediaType\":\"text/plain\",\"path\":\"$PWD/made\"}";
  echo "{\"version\":\"0\",\"type\":\"state_patch\",\"patch\":{\"colour\":\"red\"}}"; echo "{\"version\":\"0\",\"type\":\"done\",\"ok\":true}"']}]
limits: {lease_tier: 1}
store: {url: none}
`

func TestWithoutAStoreStagesKeepInMemoryAndNothingIsWritten(t *testing.T) {
	dir := t.TempDir()
	n := open(t, parse(t, dir, painter), node.Options{})
	defer shut(t, n)
	out, code := invoke(t, n, tool.Call{Tool: "lease.issue", Args: []byte(`{"tool":"paint"}`)})
	var lease struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal([]byte(out), &lease); err != nil || code != "" {
		t.Fatalf("%s, %q, %v", out, code, err)
	}
	local := tool.Principal{ID: "local", Door: "cli"}
	c := &tool.Call{Tool: "paint", Args: []byte(`{}`), Lease: lease.Token, Session: "s", Key: "k", Caller: local}
	var a tool.Asset
	_, err := n.Handler().Invoke(t.Context(), c, tool.SinkFunc(func(ev tool.Event) error {
		if ev.Kind == tool.KindAsset {
			return json.Unmarshal(ev.Data, &a)
		}
		return nil
	}))
	if text, readErr := os.ReadFile(a.Path); err != nil || readErr != nil || string(text) != "red" || a.Size != 3 {
		t.Errorf("%+v: %q, %v, %v", a, text, readErr, err)
	}
	if out, code := invoke(t, n, tool.Call{Tool: "readAsset", Args: []byte(`{"sha256":"` + a.SHA256 + `"}`)}); code != "" || !strings.Contains(out, `"content":"cmVk"`) {
		t.Errorf("%s, %q", out, code)
	}
	r, err := n.Handler().Invoke(t.Context(), c, tool.Discard)
	if err != nil || r.Trace.Details["idempotent_hit"] != true {
		t.Errorf("a second time: %+v, %v", r, err)
	}
	again := *c
	again.Key = ""
	kit.Refused(t, kit.Err(n.Handler().Invoke(t.Context(), &again, tool.Discard)),
		tool.CodeLeaseRejected, "", "with the used lease")
	if left, _ := filepath.Glob(filepath.Join(dir, ".toolpost", "*")); len(left) > 0 { // walls need the folder itself
		t.Errorf("written: %v", left)
	}
}

func TestStoreAndKeysOfIssuersCanBeInTheHomeFolder(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	cfg := parse(t, t.TempDir(), `store: {url: "sqlite:~/x.db"}
callers:
  roles: {r: {tools: "*"}}
  jwt: [{issuer: "https://id.example", audience: me, prefix: "id:", roles: {always: [r]}, jwks: ~/keys.json}]
`)
	kit.Contains(t, strings.Join(storage.Claim(cfg).Keeps, " "), home+"/x.db")
	var o identity.Options
	kit.OK(t, cfg.Callers.Decode(&o))
	kit.Equal(t, o.JWT[0].JWKS, home+"/keys.json")
	kit.Check(t, kit.Err(storage.Copy(t.Context(), parse(t, t.TempDir(), "store: {}"), "sqlite:~/copy.db")))
	kit.Check(t, kit.Err(os.Stat(home+"/copy.db")))
}

// A copy contains everything that callers said, and must stay private.
func TestStoreCopyIsRefusedIfOthersCanReadIt(t *testing.T) {
	dir := t.TempDir()
	cfg := parse(t, dir, "store: {}")
	file := filepath.Join(dir, "copy.db")
	kit.OK(t, os.WriteFile(file, nil, 0o600))
	kit.OK(t, os.Chmod(file, 0o644)) // whatever the umask
	kit.Fails(t, kit.Err(storage.Copy(t.Context(), cfg, "sqlite:"+file)), "others than you")
	kit.OK(t, os.Chmod(file, 0o600))
	kit.Check(t, kit.Err(storage.Copy(t.Context(), cfg, "sqlite:"+file)))
}
