package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"

	"toolpost/tool"
	"toolpost/web"
)

//go:embed all:dist
var dist embed.FS

// index is the page.
const index = "index.html"

// A file is a file of the bundle.
type file struct {
	kind   string
	etag   string
	plain  []byte
	zipped func() []byte // compressed on first use; nil if that is no shorter
	lasts  bool          // its name changes with its content
}

// bundle reads the files. Each is compressed on its first request: so the repository holds nothing but the files
// themselves, and a server whose console is never opened starts without this work. All browsers that run the page read
// gzip; brotli is not in the standard library.
func bundle() map[string]file {
	files := map[string]file{}
	root, _ := fs.Sub(dist, "dist") // it exists, or this would not have been compiled
	_ = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(root, name)
		sum := sha256.Sum256(b)
		files[name] = file{
			kind: kindOf(name), plain: b, etag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`,
			lasts: strings.HasPrefix(name, "assets/"), zipped: sync.OnceValue(func() []byte { return zip(b) }),
		}
		return err
	})
	return files
}

// zip compresses b; it returns nil if that makes it no shorter.
func zip(b []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is valid
	_, _ = w.Write(b)                                       // to memory
	_ = w.Close()
	if out.Len() >= len(b) {
		return nil
	}
	return out.Bytes()
}

// kindOf does not use the machine's tables, which may map .js to anything.
func kindOf(name string) string {
	kinds := map[string]string{
		".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
		".svg": "image/svg+xml",
	}
	if kind := kinds[path.Ext(name)]; kind != "" {
		return kind
	}
	return mime.TypeByExtension(path.Ext(name))
}

// policy lets the page load its own files and nothing else; it may also create images. Text can become HTML through
// Svelte's own templates alone: the browser blocks any other assignment to innerHTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; " +
	"media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types svelte-trusted-html"

// serve serves the file to any client: it reveals nothing of this server.
func (f file) serve() func(http.ResponseWriter, *http.Request, tool.Principal) {
	return func(w http.ResponseWriter, r *http.Request, _ tool.Principal) {
		h := w.Header()
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			"Permissions-Policy": "camera=(), geolocation=(), microphone=()", "ETag": f.etag, "Cache-Control": "no-cache",
		} {
			h.Set(name, value)
		}
		if f.lasts {
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		h.Add("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("If-None-Match"), f.etag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		body := f.plain
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			if zipped := f.zipped(); zipped != nil {
				h.Set("Content-Encoding", "gzip")
				body = zipped
			}
		}
		web.Send(w, http.StatusOK, f.kind, body)
	}
}
