package web

import (
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"fmt"
	"html"
	"net/http"
	"strings"
)

// An Offer is a protocol of a door, described for people who open its address in a browser.
type Offer struct {
	Path string
	What string // without a full stop
	Try  string // a command for a first try, with URL in place of the address; empty if none
}

//go:embed page.html
var pageText string

//go:embed notice.html
var noticeText string

//go:embed page.css
var pageStyle string

// pagePolicy lets the page load nothing at all: its style is inline, and allowed by its digest.
func pagePolicy() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; img-src data:; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// Notice answers with a page that says one thing to a person, and leads elsewhere.
func Notice(w http.ResponseWriter, status int, title, text, to, where string) {
	said := strings.NewReplacer("{style}", pageStyle, "{title}", html.EscapeString(title), "{text}", html.EscapeString(text),
		"{to}", html.EscapeString(to), "{where}", html.EscapeString(where)).Replace(noticeText)
	w.Header().Set("Content-Security-Policy", pagePolicy())
	Send(w, status, "text/html; charset=utf-8", []byte(said))
}

// IsVisit reports whether a request comes from a person who opens the address in a browser. Programs that request the
// same path get an answer that they can read.
func IsVisit(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.URL.Path == "/" &&
		strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/html")
}

// front answers requests that no door serves: a browser at / gets a page about this address, everything else is
// refused. The page needs no token, since it reveals no more than the refusal does.
func (s *Server) front(w http.ResponseWriter, r *http.Request) {
	if !IsVisit(r) {
		s.NotFound(w, r)
		return
	}
	base := "http://" + r.Host
	if r.TLS != nil {
		base = "https://" + r.Host
	}
	var offers, try strings.Builder
	for _, o := range s.offers {
		fmt.Fprintf(&offers, "<dt><code>%s</code></dt><dd>%s</dd>\n", html.EscapeString(base+o.Path), html.EscapeString(o.What))
		if o.Try != "" {
			fmt.Fprintln(&try, html.EscapeString(strings.ReplaceAll(o.Try, "URL", base)))
		}
	}
	body := strings.NewReplacer("{style}", pageStyle, "{offers}", offers.String(), "{try}", try.String()).Replace(pageText)
	w.Header().Set("Content-Security-Policy", pagePolicy())
	w.Header().Set("Referrer-Policy", "no-referrer")
	Send(w, http.StatusOK, "text/html; charset=utf-8", []byte(body))
}
