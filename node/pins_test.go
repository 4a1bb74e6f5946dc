package node_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
)

const goodList = `{"tools":[{"name":"good","source":"x","protocol":"x","tier":0,"available":true}]}`

// upstreams are foreign servers, each with something wrong; those that hang do so until the test ends.
func upstreams(t *testing.T) map[string]string {
	t.Helper()
	over := make(chan struct{})
	serve := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	says := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(body))
		}
	}
	hangs := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}
	var asked atomic.Int32
	urls := map[string]string{
		"dead": "http://127.0.0.1:1", "slow": serve(hangs), "broken": serve(says(`{"tools":[{"name":"good","name":"x"}]}`)),
		"html": serve(says(`<html>`)), "good": serve(says(goodList)),
		"later": serve(func(w http.ResponseWriter, r *http.Request) { // it answers when it is opened, and never again
			if asked.Add(1) > 2 {
				hangs(w, r)
				return
			}
			says(strings.ReplaceAll(goodList, "good", "later"))(w, r)
		}),
	}
	t.Cleanup(func() { close(over) })
	return urls
}

func TestAnUpstreamThatIsDeadSlowOrBrokenHidesNothingElse(t *testing.T) {
	t.Parallel()
	urls := upstreams(t)
	text := "store: {url: none}\nsources:\n"
	for _, name := range []string{"dead", "slow", "broken", "html", "later", "good"} {
		text += "  - {name: " + name + ", protocol: rest, url: \"" + urls[name] + "\"}\n"
	}
	text += "  - {name: files, protocol: builtin, roots: [{path: .}]}\n"
	cfg := kit.Must(config.Parse(filepath.Join(t.TempDir(), config.FileName), []byte(text)))(t)
	n := open(t, cfg, node.Options{})
	defer shut(t, n)
	p := tool.Principal{ID: "local"}
	found, why := map[string]string{}, map[string]error{}
	for spec, err := range n.Catalog().Specs(t.Context(), p) {
		if spec.Name == "" || err != nil {
			why[spec.Source] = err
			continue
		}
		found[spec.Name] = spec.Source
	}
	if found["good"] != "good" || found["readFile"] != "files" {
		t.Errorf("there are %v", found)
	}
	for _, name := range []string{"dead", "slow", "broken", "html", "later"} {
		if why[name] == nil {
			t.Errorf("nobody is told why %s is not there: %v", name, why)
		}
	}
	r, err := n.Handler().Invoke(t.Context(), &tool.Call{Tool: "listFiles", Args: json.RawMessage(`{"path":"."}`), Caller: p}, tool.Discard)
	if err != nil || !r.OK {
		t.Errorf("%+v, %v", r, err)
	}
}

// Pins are for tools that others control; the config can override that for each source.
func TestUpstreamSourcesArePinned(t *testing.T) {
	upstream := map[string]bool{}
	for _, p := range node.Protocols() {
		upstream[p.Name] = p.Upstream
	}
	want := map[string]bool{
		"builtin": false, "namel3ss": false, "narratoria": false, "alphahuman": false, "machina": false,
		"singularity": true, "mcp": true, "rest": true,
	}
	for name, is := range want {
		kit.Equal(t, upstream[name], is, name)
	}
	for pin, want := range map[string]bool{"": false, ", pin: on": true, ", pin: off": false} {
		cfg := kit.Must(config.Parse(filepath.Join(t.TempDir(), config.FileName),
			[]byte("store: {url: none}\nsources: [{name: files, protocol: builtin, roots: [{path: .}]"+pin+"}]")))(t)
		n := open(t, cfg, node.Options{})
		defer shut(t, n)
		if some, lasting := n.Pins(); some != want || lasting {
			t.Errorf("%q: %v, %v", pin, some, lasting)
		}
	}
}
