package openai_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/scripted"
)

// as sends a request with a token, or without one, and returns the status and the body.
func as(t *testing.T, token, method, url, body string, header ...string) (int, string) {
	t.Helper()
	req := kit.Must(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp := kit.Must(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	b := kit.Must(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(b)
}

// Otherwise any caller of the door, even a guest, could spend the keys of all models.
func TestModelIsAvailableOnlyToItsCallers(t *testing.T) {
	m := scripted.New(t).Always(says("Yes."))
	const opsToken = "the-token-of-somebody-in-ops"
	at := start(t, t.TempDir(), fmt.Sprintf(`
sources: [{name: files, protocol: builtin, roots: [{path: .}]}]
doors: {http: {listen: "127.0.0.1:0", anonymous: guest}}
callers:
  roles: {ops: {}}
  list: {guest: {tools: "*"}, olga: {roles: ops, tokens: [%[1]x]}}
models:
  - {name: all, url: "%[2]s/v1"}
  - {name: by-role, url: "%[2]s/v1", callers: ops}
  - {name: by-name, url: "%[2]s/v1", callers: ["ol*"]}
  - {name: mine, url: "%[2]s/v1", callers: [owner]}
planners: [{name: tale, model: by-role}]
`, sha256.Sum256([]byte(opsToken)), m.URL), 2)["http"]
	sees := map[string]string{"": "all", opsToken: "all by-role by-name", token: "all mine"}
	for who, want := range sees {
		_, list := as(t, who, "GET", at+"/v1/models", "")
		for _, name := range []string{"all", "by-role", "by-name", "mine"} {
			may := strings.Contains(" "+want+" ", " "+name+" ")
			kit.Equal(t, strings.Contains(list, `"id":"`+name+`"`), may, "%q sees %s", who, list)
			if status, one := as(t, who, "GET", at+"/v1/models/"+name, ""); (status == 200) != may {
				t.Errorf("%q is shown %s: %d %s", who, name, status, one)
			}
			for path, body := range map[string]string{
				"/v1/chat/completions": `{"model": %q, "messages": [{"role": "user", "content": "?"}]}`,
				"/v1/responses":        `{"model": %q, "input": "?"}`,
				"/v1/messages":         `{"model": %q, "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}`,
			} {
				asked := len(m.Asked())
				status, text := as(t, who, "POST", at+path, fmt.Sprintf(body, name))
				switch {
				case may && (status != 200 || !strings.Contains(text, "Yes.")):
					t.Errorf("%q is not let to %s at %s: %d %s", who, name, path, status, text)
				case !may && (status != 404 || !strings.Contains(text, "model_not_found") || len(m.Asked()) != asked):
					t.Errorf("%q gets to %s at %s: %d %s", who, name, path, status, text)
				}
			}
		}
		asked := len(m.Asked()) // a planner asks its model on behalf of the caller
		_, shown := as(t, who, "POST", at+"/v1/tools/story.show/call", `{}`)
		_, turn := as(t, who, "POST", at+"/v1/tools/story.turn/call", `{"story": "tale"}`, "Toolpost-Session", "s")
		if may := who == opsToken; strings.Contains(shown, `"tale"`) != may || (len(m.Asked()) > asked) != may {
			t.Errorf("%q and the planner: %s; %s", who, shown, turn)
		}
	}
}
