package namel3ss

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

// A toldReply is a reply as a host reads it.
type toldReply struct {
	OK     bool            `json:"ok"`
	Result json.RawMessage `json:"result"`
	Error  replyError      `json:"error"`
	Checks []struct {
		Capability string `json:"capability"`
		Allowed    bool   `json:"allowed"`
		Source     string `json:"guarantee_source"`
		Reason     string `json:"reason"`
	} `json:"capability_checks"`
}

// asking sends a request with these further fields to the tool `t` behind a door, and reads the reply.
type asking func(t *testing.T, do, fields string) toldReply

// atDoor asks like a host that starts us in place of a tool.
func atDoor(h tool.Handler) asking {
	return func(t *testing.T, do, fields string) (r toldReply) {
		t.Helper()
		var out bytes.Buffer
		doc := fmt.Sprintf(`{"protocol_version":1,"tool":"t","entry":"code:run","payload":{"do":%q}%s}`, do, fields)
		d := &Door{In: strings.NewReader(doc), Out: &out}
		kit.OK(t, d.Serve(t.Context(), h, nil))
		if err := strictjson.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatalf("%v: %s", err, out.Bytes())
		}
		return r
	}
}

// atService asks like a client of the service.
func atService(url string) asking {
	return func(t *testing.T, do, fields string) (r toldReply) {
		t.Helper()
		doc := fmt.Sprintf(`{"protocol_version":1,"tool_name":"t","payload":{"do":%q}%s}`, do, fields)
		resp := kit.Must(http.Post(url+"/tools", "application/json", strings.NewReader(doc)))(t)
		defer http.DefaultClient.CloseIdleConnections()
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil {
			err = strictjson.Unmarshal(body, &r)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		return r
	}
}

// wishing returns a capability_context in which the user asks for one guarantee.
func wishing(guarantee string) string {
	return fmt.Sprintf(`,"capability_context":{"guarantees":{"no_env_write":false,%q:true},"sources":{%q:"user"}}`, guarantee, guarantee)
}

// A guarantee in a request holds at both doors, and stopped attempts are reported in the contract's words.
//
// contract(namel3ss): `capability_context` (object, optional): guarantees + sources for enforcement.
// contract(namel3ss): "error": { "type": "ValueError", "message": "Missing input", "reason_code": "guarantee_blocked" }
func TestARequestTightensItsOwnWalls(t *testing.T) {
	for _, way := range ways() {
		t.Run(way, func(t *testing.T) {
			tooltest.NoLeaks(t)
			outside := elsewhere(t)
			r := obedient(t, way, obedience(t), much(outside))
			for door, ask := range map[string]asking{"stdin": atDoor(r), "service": atService(serveHTTP(t, ServiceOptions{}, r))} {
				for guarantee, a := range attempts(outside, loopback(t)) {
					if got := ask(t, a.in(way), `,"sandbox":false,"capability_context":null`); !got.OK || got.Checks != nil {
						t.Errorf("%s: %s is not asked for, and %s failed: %+v", door, guarantee, a.in(way), got)
					}
					_ = os.Remove(filepath.Join(outside, "new"))
					got := ask(t, a.in(way), wishing(guarantee))
					if got.OK {
						t.Errorf("%s: %s gave %s in spite of %s", door, a.in(way), got.Result, guarantee)
					}
					if guarantee == "no_env_read" && way == appfile.KindNode {
						continue // a missing variable is no error in JavaScript
					}
					if len(got.Checks) == 0 || got.Error.ReasonCode != "guarantee_blocked" {
						t.Errorf("%s: %s: %+v", door, guarantee, got)
						continue
					}
					if c := got.Checks[0]; c.Capability != strings.TrimPrefix(guarantee, "no_") || c.Allowed || c.Source != "user" || c.Reason != "guarantee_blocked" {
						t.Errorf("%s: %s: %+v", door, guarantee, got.Checks)
					}
				}
			}
		})
	}
}

// A request that asks for a sandbox has one, although the config turned the walls off. The config's own guarantees remain,
// whatever a request asks for.
//
// contract(namel3ss): `sandbox` (boolean, optional): enable sandboxed execution.
func TestARequestForASandboxGetsOne(t *testing.T) {
	for _, way := range ways() {
		t.Run(way, func(t *testing.T) {
			tooltest.NoLeaks(t)
			outside, root := elsewhere(t), obedience(t)
			tries := attempts(outside, loopback(t))
			ask := atDoor(obedient(t, way, root, Options{Options: spawn.Options{Walls: walls.Options{Off: true}}}))
			for _, name := range []string{"no_network", "no_filesystem_read", "no_filesystem_write"} {
				if got := ask(t, tries[name].in(way), ""); !got.OK {
					t.Errorf("without walls %s failed: %+v", tries[name].in(way), got)
				}
				_ = os.Remove(filepath.Join(outside, "new"))
				if got := ask(t, tries[name].in(way), `,"sandbox":true`); got.OK {
					t.Errorf("in a sandbox %s gave %s", tries[name].in(way), got.Result)
				}
			}
			if got := ask(t, tries["no_subprocess"].in(way), `,"sandbox":true`); !got.OK {
				t.Errorf("a sandbox lets programs run: %+v", got)
			}
			strict := atDoor(obedient(t, way, root, Options{Options: spawn.Options{Walls: walls.Options{Off: true}, Guarantees: tool.Guarantees{NoNetwork: true}}}))
			for _, loose := range []string{`,"sandbox":false`, `,"capability_context":{"guarantees":{"no_network":false}}`} {
				if got := strict(t, tries["no_network"].in(way), loose); got.OK || got.Error.ReasonCode != "guarantee_blocked" {
					t.Errorf("%s made the walls wider: %+v", loose, got)
				}
			}
		})
	}
}

func TestInvalidOrUnenforceableWishesAreRefused(t *testing.T) {
	ran := false
	ask := atDoor(handlerFunc(func(ctx context.Context) { ran = true }))
	for _, c := range []struct{ fields, typ, reason string }{
		{`,"sandbox":"yes"`, "ValueError", "invalid_input"},
		{`,"capability_context":[]`, "ValueError", "invalid_input"},
		{`,"capability_context":{"guarantees":true}`, "ValueError", "invalid_input"},
		{`,"capability_context":{"guarantees":{"no_network":"yes"}}`, "ValueError", "invalid_input"},
		{`,"capability_context":{"guarantees":{"secrets_allowed":"all"}}`, "ValueError", "invalid_input"},
		{`,"capability_context":{"guarantees":{"secrets_allowed":[1]}}`, "ValueError", "invalid_input"},
		{`,"capability_context":{"guarantees":{"no_gpu":true}}`, "NotImplementedError", "coverage_missing"},
		{`,"capability_context":{"guarantees":{"no_network\":true,\"no_env_read":true}}`, "NotImplementedError", "coverage_missing"},
	} {
		if got := ask(t, "x", c.fields); ran || got.OK || got.Error.Type != c.typ || got.Error.ReasonCode != c.reason {
			t.Errorf("%s: ran %v, %+v", c.fields, ran, got)
		}
	}
	harmless := `,"sandbox":null,"capability_context":{"tool_name":"t","guarantees":{"no_gpu":false,"secrets_allowed":null},"sources":7}`
	if got := ask(t, "x", harmless); !got.OK || !ran {
		t.Errorf("%s: %+v", harmless, got)
	}
}

// A handler that cannot enforce what a request asks for reports it, and names the capability.
func TestRefusalNamesTheUnenforceableCapability(t *testing.T) {
	refusing := tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		return nil, tool.Errorf(tool.CodeUnsupported, "not here: %v", c.Guarantees.Asked()).Because("coverage_missing")
	})
	got := atDoor(refusing)(t, "x", `,"sandbox":true,"capability_context":{"guarantees":{"no_network":true,"secrets_allowed":["A"]},"sources":{"no_network":"pack"}}`)
	var named []string
	for _, c := range got.Checks {
		named = append(named, fmt.Sprintf("%s %v %s %s", c.Capability, c.Allowed, c.Source, c.Reason))
	}
	want := []string{"network false pack coverage_missing", "secrets false policy coverage_missing", "sandbox false policy coverage_missing"}
	if got.OK || got.Error.ReasonCode != "coverage_missing" || !slices.Equal(named, want) {
		t.Errorf("%+v", got)
	}
}

// A shelf shows every caller the same tools.
type shelf []*tool.Spec

func (s shelf) Lookup(_ context.Context, _ tool.Principal, name string) (*tool.Spec, error) {
	if i := slices.IndexFunc(s, func(spec *tool.Spec) bool { return spec.Name == name }); i >= 0 {
		return s[i], nil
	}
	return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", name)
}

func (s shelf) Specs(context.Context, tool.Principal) iter.Seq2[*tool.Spec, error] {
	return func(yield func(*tool.Spec, error) bool) {
		for _, spec := range s {
			if !yield(spec, nil) {
				return
			}
		}
	}
}

// The handshake vouches for the guarantees that the default walls hold around every call, without any in the config.
//
// contract(namel3ss): "enforcement": "enforced",
// contract(namel3ss): "supported_guarantees": { "no_network": true },
func TestHandshakeReportsTheDefaultWalls(t *testing.T) {
	tooltest.NoLeaks(t)
	root := obedience(t)
	for name, c := range map[string]struct {
		o         Options
		supported string
	}{
		"default walls": {Options{}, `{"no_env_write":true,"no_network":true}`},
		"no tmp":        {Options{Options: spawn.Options{Walls: walls.Options{Tmp: -1}}}, `{"no_env_write":true,"no_filesystem_write":true,"no_network":true}`},
		"a network":     {Options{Options: spawn.Options{Walls: walls.Options{Network: walls.Network{"all"}}}}, `{"no_env_write":true}`},
		"and asked for": {Options{Options: spawn.Options{Guarantees: tool.Guarantees{NoSubprocess: true}}}, `{"no_env_write":true,"no_network":true,"no_subprocess":true}`},
		"no walls":      {Options{Options: spawn.Options{Walls: walls.Options{Off: true}}}, `{}`},
	} {
		r := obedient(t, modeFresh, root, c.o)
		specs, _ := r.Tools(t.Context())
		url := serveCatalog(t, ServiceOptions{}, r, shelf(specs))
		for wanted, enforced := range map[string]bool{
			`{"no_network":true}`: strings.Contains(c.supported, "no_network"), `{"no_subprocess":true}`: strings.Contains(c.supported, "no_subprocess"),
			`{}`: c.supported != "{}",
		} {
			doc := `{"protocol_version":1,"tool_name":"t","runner":"service","required_guarantees":` + wanted + `}`
			resp := kit.Must(http.Post(url+handshakePath, "application/json", strings.NewReader(doc)))(t)
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			says := strings.Contains(string(body), `"enforcement":"enforced"`)
			if says != enforced || !strings.Contains(string(body), `"supported_guarantees":`+c.supported) {
				t.Errorf("%s, %s: %s", name, wanted, body)
			}
		}
		http.DefaultClient.CloseIdleConnections()
	}
}
