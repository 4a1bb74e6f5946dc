package oauth

import (
	"net/http"
	"testing"

	"toolpost/internal/kit"
)

// A server may refer us to public addresses, and to those that are no nearer than the server itself.
func TestServerCannotReferToInnerAddresses(t *testing.T) {
	for server, reach := range map[string]map[string]bool{
		"https://93.184.216.34/mcp": {
			"93.184.216.34:443": true, "8.8.8.8:80": true, "[2606:4700::1]:443": true, "127.0.0.1:80": false, "127.8.9.1:80": false,
			"[::1]:80": false, "[::ffff:127.0.0.1]:80": false, "0.0.0.0:80": false, "[::]:80": false, "10.0.0.1:443": false,
			"192.168.1.1:443": false, "172.20.0.1:443": false, "100.64.1.1:443": false, "[fd00::1]:443": false,
			"169.254.169.254:80": false, "[fe80::1]:80": false, "224.0.0.1:80": false, "255.255.255.255:80": false,
		},
		"https://10.1.2.3/mcp":    {"10.0.0.1:443": true, "8.8.8.8:80": true, "127.0.0.1:80": false, "169.254.169.254:80": false},
		"http://127.0.0.1:1/mcp":  {"127.0.0.1:80": true, "10.0.0.1:443": true, "8.8.8.8:80": true, "169.254.169.254:80": false},
		"http://localhost/mcp":    {"[::1]:80": true},
		"http://169.254.1.1/mcp":  {"127.0.0.1:80": false, "10.0.0.1:443": false},
		"https://nobody.invalid/": {"127.0.0.1:80": false, "10.0.0.1:443": false, "8.8.8.8:80": true},
	} {
		for address, want := range reach {
			if err := newDialPolicy(server).check(t.Context(), address); (err == nil) != want {
				t.Errorf("%s leads to %s: %v", server, address, err)
			}
		}
	}
	client := HTTPClient("https://93.184.216.34/mcp")
	resp, err := client.Get("http://127.0.0.1:9/")
	if err == nil {
		_ = resp.Body.Close()
	}
	kit.Fails(t, err, "may not send us", "the client goes there")
}

func TestOnlyDocumentRequestsFollowRedirects(t *testing.T) {
	request := func(method, url string) *http.Request {
		return kit.Must(http.NewRequestWithContext(t.Context(), method, url, nil))(t)
	}
	doc, form := request(http.MethodGet, "https://a.example/doc"), request(http.MethodPost, "https://a.example/token")
	kit.Check(t, CheckRedirect(request(http.MethodGet, "https://b.example/doc"), []*http.Request{doc}), "a document")
	kit.Fails(t, CheckRedirect(request(http.MethodGet, "http://b.example/doc"), []*http.Request{doc}),
		"", "a document that is not protected any more")
	kit.Equal(t, CheckRedirect(request(http.MethodPost, "https://b.example/token"), []*http.Request{form}),
		http.ErrUseLastResponse, "a token")
}
