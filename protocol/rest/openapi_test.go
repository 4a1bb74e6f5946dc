package rest_test

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/protocol/rest"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// awkward has tools whose names and schemas are hard to express in a document.
type awkward struct{ tooltest.Reference }

// Specs implements tool.Catalog.
func (awkward) Specs(context.Context, tool.Principal) iter.Seq2[*tool.Spec, error] {
	tree := json.RawMessage(`{"type":"object","properties":{"tree":{"$ref":"#/$defs/tree"}},"$defs":{"tree":{"type":"object","additionalProperties":{"$ref":"#/$defs/tree"}}}}`)
	return func(yield func(*tool.Spec, error) bool) {
		for _, s := range []*tool.Spec{
			{Name: "a/b {c}", Source: "odd", Title: "Braces", Input: tree, Output: tree},
			{Name: "a_b__c_", Source: "odd", Input: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)},
			{Name: "any", Source: "odd", Input: json.RawMessage(`true`)},
			{Name: "plain", Source: "odd", Input: json.RawMessage(`{"$id":"https://example.org/x","$schema":"http://json-schema.org/draft-07/schema#"}`)},
			{Name: "quiet", Source: "odd", Unlisted: true},
		} {
			if !yield(s, nil) {
				return
			}
		}
		_ = yield(&tool.Spec{Name: "away", Source: "odd"}, tool.Errorf(tool.CodeUnavailable, "it is away")) &&
			yield(&tool.Spec{Source: "dead"}, tool.Errorf(tool.CodeUnavailable, "it is dead"))
	}
}

func described(t *testing.T, body []byte) (paths map[string]map[string]json.RawMessage) {
	t.Helper()
	var doc struct {
		OpenAPI string                                `json:"openapi"`
		Paths   map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(body, &doc); err != nil || doc.OpenAPI != "3.1.0" {
		t.Fatalf("%v %.300s", err, body)
	}
	return doc.Paths
}

func TestTheDoorDescribesItselfAndTheCallersTools(t *testing.T) {
	tooltest.NoLeaks(t)
	h := open(t, setup{catalog: awkward{}})
	paths := described(t, h.do(h.request("GET", "/openapi.json", "")).body)
	for _, route := range rest.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if op := string(paths[path][strings.ToLower(method)]); !strings.Contains(op, `"summary":"`) || strings.Contains(op, `"summary":""`) {
			t.Errorf("%s is not described: %s", route, op)
		}
	}
	for _, name := range []string{"a%2Fb%20%7Bc%7D", "a_b__c_", "any", "plain"} {
		if len(paths["/v1/tools/"+name+"/call"]["post"]) == 0 {
			t.Errorf("%s is not there", name)
		}
	}
	for name, placed := range map[string]bool{"a%2Fb%20%7Bc%7D": true, "a_b__c_": false} { // only schemas with references
		if op := string(paths["/v1/tools/"+name+"/call"]["post"]); strings.Contains(op, `"$id"`) != placed {
			t.Errorf("%s: %s", name, op)
		}
	}
	kit.Equal(t, len(paths),
		len(described(t, anonymously(h).body))+4, "there are paths: tools that nobody can call are among them")
}

func anonymously(h *house) answer {
	req := h.request("GET", "/openapi.json", "")
	req.Header.Del("Authorization")
	return h.do(req)
}

func TestAnonymousDescriptionNamesNoTool(t *testing.T) {
	h := open(t, setup{})
	a := anonymously(h)
	if a.status != http.StatusOK || strings.Contains(string(a.body), "echo") {
		t.Errorf("%d %.300s", a.status, a.body)
	}
	req := h.request("GET", "/openapi.json", "")
	req.Header.Set("Authorization", "Bearer wrong")
	kit.Equal(t, h.do(req).status, http.StatusUnauthorized, "a wrong token")
}

// The validator is a program from npm; without it the test ends.
func TestAPublicValidatorAcceptsTheDocument(t *testing.T) {
	const js = "testdata/js"
	if _, err := os.Stat(js + "/node_modules"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("the validator from npm is not installed; run `npm ci` in protocol/rest/testdata/js")
		}
		t.Skip("the validator from npm is not installed; `npm ci` in protocol/rest/testdata/js installs it")
	}
	validate := func(body []byte) (string, error) {
		cmd := exec.CommandContext(kit.Context(t), "node", "validate.mjs")
		cmd.Dir, cmd.Stdin = js, strings.NewReader(string(body))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for name, s := range map[string]setup{"awkward tools": {catalog: awkward{}}, "standard tools": {}} {
		h := open(t, s)
		body := h.do(h.request("GET", "/openapi.json", "")).body
		kit.Equal(t, kit.Must(validate(body))(t), "valid 3.1\n", name)
		kit.Fails(t, kit.Err(validate([]byte(strings.Replace(string(body), `"responses":`, `"answers":`, 1)))),
			"", "the validator accepts anything")
	}
}

func TestRefusalsAreProblemDocumentsOnRequest(t *testing.T) {
	h := open(t, setup{})
	for path, want := range map[string]string{
		"/v1/tools/nosuch/call": `"type":"urn:toolpost:not_found","title":"not found","status":404,"detail":"`,
		"/v1/tools/crash/call":  `"type":"urn:toolpost:crash","title":"crash","status":502,"detail":"`,
		"/v1/nothing":           `"type":"urn:toolpost:not_found"`,
	} {
		for _, accept := range []string{"application/problem+json", "application/json, application/problem+json;q=0.9"} {
			req := h.request("POST", path, "{}")
			req.Header.Set("Accept", accept)
			a := h.do(req)
			if a.header.Get("Content-Type") != "application/problem+json" || !strings.Contains(string(a.body), want) {
				t.Errorf("%s: %v %s", path, a.header, a.body)
			}
		}
		if a := h.do(h.request("POST", path, "{}")); a.header.Get("Content-Type") != "application/json" || !strings.HasPrefix(string(a.body), `{"ok":false,`) {
			t.Errorf("%s without asking: %s", path, a.body)
		}
	}
	req := h.request("POST", "/v1/tools/echo/call", "{}")
	req.Header.Set("Accept", "application/problem+json")
	if a := h.do(req); a.status != http.StatusOK || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("a call that went well: %d %v", a.status, a.header)
	}
}
