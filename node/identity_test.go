package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/node/storage"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const twoTools = "sources: [{name: reads, protocol: fake}, {name: writes, protocol: fake}]\n"

// A street is a node that serves HTTP, and one client with one connection to it.
type street struct {
	n   *node.Node
	url string
}

func newStreet(t *testing.T, cfg *config.Config) *street {
	t.Helper()
	ready := make(chan node.Listening, 8)
	n := open(t, cfg, node.Options{Protocols: newFake().protocol(), Token: "sixteen-letters-or-more", Listen: "127.0.0.1:0", Ready: func(l node.Listening) { ready <- l }})
	stop := serve(t, n)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		stop()
		shut(t, n)
	})
	return &street{n, (<-ready).URL}
}

// sees returns the tools that the holder of a token sees, or the HTTP status.
func (s *street) sees(t *testing.T, token string) string {
	t.Helper()
	status, body := s.ask(t, http.MethodGet, "/v1/tools", token, "")
	if status != http.StatusOK {
		return fmt.Sprint(status)
	}
	var list struct {
		Tools []struct {
			Name   string `json:"name"`
			Source string `json:"source"`
		} `json:"tools"`
	}
	if err := strictjson.Unmarshal([]byte(body), &list); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	var names []string
	for _, one := range list.Tools {
		if one.Source != "toolpost" {
			names = append(names, one.Name)
		}
	}
	return strings.Join(names, " ")
}

func (s *street) ask(t *testing.T, method, path, token, body string) (status int, answer string) {
	t.Helper()
	r := kit.Must(http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body)))(t)
	r.Header.Set("Authorization", "Bearer "+token)
	resp := kit.Must(http.DefaultClient.Do(r))(t)
	defer resp.Body.Close()
	b := kit.Must(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(b)
}

// issue calls the tool that issues a token, as the command line does.
func (s *street) issue(t *testing.T, args string) string {
	t.Helper()
	r, err := s.n.Handler().Invoke(t.Context(), &tool.Call{Tool: "token.issue", Args: []byte(args), Caller: tool.Principal{ID: "local", Door: "cli", Operates: true}}, tool.Discard)
	kit.OK(t, err)
	var out struct {
		Token string `json:"token"`
	}
	if err := strictjson.Unmarshal(r.Output, &out); err != nil || out.Token == "" {
		t.Fatalf("%s: %v", r.Output, err)
	}
	return out.Token
}

func TestCallerSeesAndCallsOnlyPermittedTools(t *testing.T) {
	s := newStreet(t, parse(t, t.TempDir(), twoTools+`
callers:
  roles: {reader: {tools: "read*"}}
  list: {ci: {roles: reader}, alice: {tools: "*"}}
policy: {rules: [{name: readers, effect: deny, roles: reader, tools: writes}]}
`))
	ci, alice := s.issue(t, `{"caller":"ci"}`), s.issue(t, `{"caller":"alice"}`)
	some, guest := s.issue(t, `{"caller":"alice","tools":["writes"]}`), s.issue(t, `{"caller":"guest","roles":["reader"]}`)
	for token, want := range map[string]string{
		ci: "reads", alice: "reads writes", some: "writes", guest: "reads", "sixteen-letters-or-more": "reads writes", "wrong": "401", "": "401",
	} {
		kit.Equal(t, s.sees(t, token), want, "%.10s sees", token)
		for _, name := range []string{"reads", "writes"} {
			status, body := s.ask(t, http.MethodPost, "/v1/tools/"+name+"/call", token, "{}")
			kit.Equal(t, status == http.StatusOK,
				strings.Contains(want, name), "%.10s calls %s: %d %s", token, name, status, body)
		}
	}
}

func TestRevokedTokenIsRefusedWithinASecond(t *testing.T) {
	dir := t.TempDir()
	cfg := parse(t, dir, twoTools)
	s := newStreet(t, cfg)
	other, _, err := storage.Open(cfg) // as another program would open it
	kit.OK(t, err)
	defer other.Close()
	token, err := other.Tokens().Issue(t.Context(), identity.Token{Grant: identity.Grant{Caller: "ci", Tools: tool.Patterns{"reads"}}}, time.Hour)
	kit.OK(t, err)
	stays := s.issue(t, `{"caller":"ci","tools":["reads"]}`)
	kit.MustEqual(t, s.sees(t, token), "reads", "a token that was issued elsewhere")
	kit.OK(t, other.Tokens().Revoke(t.Context(), token))
	revoked := time.Now()
	for {
		asked := time.Now()
		got := s.sees(t, token)
		if got == "401" {
			break
		}
		if asked.Sub(revoked) > time.Second { // asked later than that, whenever it was answered
			t.Fatalf("%v after it was revoked a token lets in: %q", asked.Sub(revoked), got)
		}
	}
	kit.Equal(t, s.sees(t, stays), "reads", "another token of the same caller")
}

func TestReloadChangesCallersAtTheNextRequest(t *testing.T) {
	dir := t.TempDir()
	before := parse(t, dir, twoTools+"callers: {roles: {reader: {tools: reads}}, list: {ci: {roles: reader}}}\n")
	s := newStreet(t, before)
	token := s.issue(t, `{"caller":"ci"}`)
	for text, want := range map[string][2]string{
		"callers: {list: {ci: {tools: '*'}}}":                                                   {"reads writes", "reads writes"},
		"callers: {roles: {reader: {tools: writes}}, list: {ci: {roles: reader}}}":              {"writes", "reads writes"},
		"callers: {owner: false, roles: {reader: {tools: reads}}, list: {ci: {roles: reader}}}": {"reads", "401"},
		"callers: {list: {dan: {tools: '*'}}}":                                                  {"401", "reads writes"},
		"":                                                                                      {"401", "reads writes"},
	} {
		s.n.Reload(t.Context(), parse(t, dir, twoTools+text+"\n"))
		kit.Equal(t, [2]string{s.sees(t, token), s.sees(t, "sixteen-letters-or-more")},
			want, "%s: ci and the owner see", text)
	}
	s.n.Reload(t.Context(), before)
	s.n.Reload(t.Context(), parse(t, dir, twoTools+"callers: {list: {ci: {roles: nosuch}}}\n")) // cannot be read
	kit.Equal(t, s.sees(t, token), "reads", "after a config that cannot be read")
}

func TestTokensAreIssuedByOperatorsAlone(t *testing.T) {
	s := newStreet(t, parse(t, t.TempDir(), twoTools))
	for _, p := range []tool.Principal{{ID: "local", Door: "http"}, {ID: "owner", Door: "http"}, {ID: "local", Door: "cli"}, {ID: "local", Door: "unheard-of"}} {
		_, err := s.n.Handler().Invoke(t.Context(), &tool.Call{Tool: "token.issue", Args: []byte(`{"caller":"x","tools":["*"]}`), Caller: p}, tool.Discard)
		kit.Refused(t, err, tool.CodeAccessDenied, "", p)
	}
	for args, want := range map[string]tool.Code{
		`{"caller":"owner","tools":["*"]}`: tool.CodeInvalidInput, `{"caller":"x"}`: tool.CodeInvalidInput, `{"caller":"x","roles":["nosuch"]}`: tool.CodeInvalidInput,
		`{"caller":"x","tools":[""]}`: tool.CodeInvalidInput, `{"caller":"x","tools":["*"],"ttl_ms":5}`: tool.CodeInvalidInput, `{}`: tool.CodeInvalidInput,
	} {
		_, err := s.n.Handler().Invoke(t.Context(), &tool.Call{Tool: "token.issue", Args: []byte(args), Caller: tool.Principal{ID: "local", Door: "cli", Operates: true}}, tool.Discard)
		kit.Refused(t, err, want, "", args)
	}
	n := open(t, parse(t, t.TempDir(), twoTools+"store: {url: none}\n"), node.Options{Protocols: newFake().protocol()})
	defer shut(t, n)
	kit.Refused(t, kit.Err(n.Catalog().Lookup(t.Context(), tool.Principal{ID: "local", Door: "cli"}, "token.issue")),
		tool.CodeNotFound, "", "where no token lasts the tool is there")
}

func TestTheOwnersTokenIsKeptUntilAnotherIsAskedFor(t *testing.T) {
	dir := t.TempDir()
	kept := func(o node.Options, text string) (fresh, digest string) {
		t.Helper()
		ready := make(chan node.Listening, 8)
		o.Protocols, o.Listen, o.Ready = newFake().protocol(), "127.0.0.1:0", func(l node.Listening) { ready <- l }
		n := open(t, parse(t, dir, twoTools+text), o)
		defer shut(t, n)
		defer serve(t, n)()
		fresh = (<-ready).Token
		b, _ := os.ReadFile(filepath.Join(dir, ".toolpost", identity.TokenFile))
		return fresh, string(b)
	}
	if fresh, digest := kept(node.Options{}, "callers: {owner: false, list: {ci: {tools: x}}}"); fresh != "" || digest != "" {
		t.Errorf("where the owner does not come in there is a token: %q", digest)
	}
	fresh, first := kept(node.Options{}, "")
	if fresh == "" || first == "" {
		t.Errorf("no token was made")
	}
	if fresh, digest := kept(node.Options{}, ""); fresh != "" || digest != first {
		t.Error("the token was not kept")
	}
	if fresh, digest := kept(node.Options{Token: "sixteen-letters-or-more"}, ""); fresh != "" || digest != first {
		t.Error("another token in the environment changed the one that is kept")
	}
	if fresh, digest := kept(node.Options{NewToken: true}, ""); fresh == "" || digest == first {
		t.Error("the token was not renewed")
	}
	n := open(t, parse(t, dir, twoTools), node.Options{Protocols: newFake().protocol(), Token: "short"})
	defer shut(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // only for a door that opens
	defer cancel()
	kit.Refused(t, n.Serve(ctx), tool.CodeInvalidInput, "", "a short token")
}

func TestOwnerTokenIsNotKeptIfServingFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	kit.OK(t, err)
	defer taken.Close()
	dir := t.TempDir()
	cfg := parse(t, dir, `doors: {http: {}}`)
	n := open(t, cfg, node.Options{Protocols: newFake().protocol(), Listen: taken.Addr().String()})
	err = n.Serve(t.Context())
	shut(t, n)
	if _, gone := os.Stat(filepath.Join(cfg.StateDir(), identity.TokenFile)); err == nil || !errors.Is(gone, fs.ErrNotExist) {
		t.Fatalf("served %v on an address in use, and the token is there: %v", err, gone)
	}
	shown := make(chan node.Listening, 8)
	n = open(t, cfg, node.Options{Protocols: newFake().protocol(), Listen: "127.0.0.1:0", Ready: func(l node.Listening) { shown <- l }})
	defer shut(t, n)
	stop := serve(t, n)
	defer stop()
	if l := <-shown; l.Token == "" {
		t.Error("the next start shows no token")
	}
}
