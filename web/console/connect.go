package console

import (
	"net/http"
	"net/url"

	"toolpost/tool"
)

// maxAnswered bounds each part of what a provider sends a browser back with.
const maxAnswered = 8 << 10

// connected serves the address to which a provider sends the browser back. It decides nothing, since it does not know whose browser this is: it
// leads to the page, which knows its caller, and which finishes with a call of that caller. What the provider answered goes into
// the fragment, so that no further request has it in a URL.
func (c *Console) connected(w http.ResponseWriter, r *http.Request, _ tool.Principal) {
	answered, back := r.URL.Query(), url.Values{"at": {r.PathValue("name")}}
	for _, name := range []string{"state", "code", "iss", "error"} {
		if v := answered.Get(name); v != "" && len(v) <= maxAnswered {
			back.Set(name, v)
		}
	}
	h := w.Header()
	h.Set("Location", "../../../#/connections?"+back.Encode()) // a proxy may serve us below a path
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}
