package oauth

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/internal/kit"
)

func TestServerIsAskedAgainAfterAWhile(t *testing.T) {
	var asked atomic.Int32
	var up atomic.Bool
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(Server{Issuer: server.URL, Token: server.URL + "/token"})
	})
	var s Servers
	find := func() (Server, error) { return s.Find(t.Context(), HTTPClient(server.URL), server.URL) }
	kit.Fails(t, kit.Err(find()), "503")
	failed := asked.Load()
	kit.Fails(t, kit.Err(find()), "503")
	kit.Equal(t, asked.Load(), failed, "requests while it is remembered that there was no answer")
	up.Store(true)
	for n := range 2 {
		known, _ := s.known.Load(server.URL)
		known.(*foundServer).until = time.Now() // a while later
		kit.Equal(t, kit.Must(find())(t).Token, server.URL+"/token")
		kit.Equal(t, kit.Must(find())(t).Token, server.URL+"/token")
		kit.Equal(t, asked.Load(), failed+int32(n)+1)
	}
}
