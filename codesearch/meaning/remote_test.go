package meaning_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"toolpost/codesearch/meaning"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func serve(t *testing.T, handler http.HandlerFunc) *meaning.Service {
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return &meaning.Service{URL: s.URL, Model: "m", Key: "k", Dimensions: 2}
}

func TestAServiceIsAskedAsTheContractSays(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var req map[string]any
		kit.Check(t, json.NewDecoder(r.Body).Decode(&req))
		if r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer k" || r.Header.Get("Content-Type") != "application/json" || req["model"] != "m" {
			t.Errorf("got %s %v %v", r.Method, r.Header, req)
		}
		if req["query"] != nil {
			fmt.Fprint(w, `{"results":[{"index":1,"relevance_score":0.9},{"index":0,"relevance_score":-3}]}`)
			return
		}
		fmt.Fprint(w, `{"object":"list","data":[{"index":1,"embedding":[0,1]},{"index":0,"embedding":[1,0]}],"usage":{"total_tokens":2}}`)
	})
	v, err := s.Embed(t.Context(), []string{"a", "b"})
	if err != nil || len(v) != 2 || v[0][0] != 1 || v[1][1] != 1 {
		t.Errorf("got %v, %v", v, err)
	}
	scores, err := s.Rerank(t.Context(), "q", []string{"a", "b"})
	if err != nil || len(scores) != 2 || scores[0] != 0 || scores[1] != 0.9 {
		t.Errorf("got %v, %v", scores, err)
	}
}

func TestBadServiceRepliesAreErrors(t *testing.T) {
	for name, c := range map[string]struct{ reply, says string }{
		"an error status":     {"", "500"},
		"no JSON":             {"<html>", "reply"},
		"a key twice":         {`{"data":[],"data":[]}`, "reply"},
		"too few":             {`{"data":[{"index":0,"embedding":[1,0]}]}`, "no vector for text 1"},
		"too many":            {`{"data":[{"index":0,"embedding":[1,0]},{"index":1,"embedding":[1,0]},{"index":2,"embedding":[1,0]}]}`, "text 2"},
		"one twice":           {`{"data":[{"index":0,"embedding":[1,0]},{"index":0,"embedding":[1,0]}]}`, "text 0"},
		"a negative index":    {`{"data":[{"index":-1,"embedding":[1,0]}]}`, "text -1"},
		"the wrong size":      {`{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1]}]}`, "1 dimensions"},
		"numbers out of this": {`{"data":[{"index":0,"embedding":[1e999,0]},{"index":1,"embedding":[1,0]}]}`, ""},
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if c.reply == "" {
				http.Error(w, "no", http.StatusInternalServerError)
				return
			}
			fmt.Fprint(w, c.reply)
		})
		_, err := s.Embed(t.Context(), []string{"a", "b"})
		if tool.CodeOf(err) != tool.CodeUnavailable || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), s.URL) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestASlowServiceIsGivenUp(t *testing.T) {
	stop := make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) { <-stop })
	t.Cleanup(func() { close(stop) })
	s.Timeout = 20 * time.Millisecond
	if _, err := s.Embed(t.Context(), []string{"a"}); tool.CodeOf(err) != tool.CodeUnavailable || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	kit.Refused(t, kit.Err(s.Rerank(t.Context(), "q", []string{"a"})), tool.CodeUnavailable, "")
}

// An index that was made with other vectors cannot be used.
func TestAnotherEmbedderMakesTheIndexAnew(t *testing.T) {
	dir := t.TempDir()
	update(t, open(t, dir, meaning.Options{}), shop().files())
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var req struct{ Input []string }
		_ = json.NewDecoder(r.Body).Decode(&req)
		var data []string
		for i := range req.Input {
			data = append(data, fmt.Sprintf(`{"index":%d,"embedding":[1,0]}`, i))
		}
		fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(data, ","))
	})
	x := open(t, dir, meaning.Options{Embedder: s})
	if st := update(t, x, shop().files()); !st.Rebuilt || st.Indexed != 3 {
		t.Errorf("got %+v", st)
	}
	if h := search(t, x, "anything at all", 1); len(h) != 1 || h[0].Semantic < 0.99 {
		t.Errorf("got %+v", h)
	}
}
