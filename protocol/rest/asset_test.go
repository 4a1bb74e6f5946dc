package rest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"toolpost/builtin/asset"
	"toolpost/engine"
	"toolpost/engine/idempotency"
	"toolpost/engine/session"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/protocol/rest"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/web"
)

// An offer is a catalogue of tools with these names.
type offer []string

func (o offer) Lookup(_ context.Context, _ tool.Principal, name string) (*tool.Spec, error) {
	for _, n := range o {
		if n == name {
			return &tool.Spec{Name: n}, nil
		}
	}
	return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", name)
}

func (o offer) Specs(context.Context, tool.Principal) iter.Seq2[*tool.Spec, error] {
	return func(yield func(*tool.Spec, error) bool) {
		for _, n := range o {
			if !yield(&tool.Spec{Name: n}, nil) {
				return
			}
		}
	}
}

// byName accepts the token "token-for-NAME" as the caller NAME.
func byName(_ context.Context, shown identity.Credentials) (tool.Principal, error) {
	name, ok := strings.CutPrefix(shown.Token, "token-for-")
	if !ok {
		return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "nobody knows you")
	}
	return tool.Principal{ID: name, Door: shown.Door}, nil
}

// A gallery is a door with a tool that produces assets and the one that returns them.
type gallery struct {
	*house
	store *store.AssetTable
	dir   string
}

func openGallery(t *testing.T) *gallery {
	t.Helper()
	db := kit.Must(sqlite.Open(filepath.Join(t.TempDir(), "store.db"), store.Options{}))(t)
	t.Cleanup(func() { _ = db.Close() })
	g := &gallery{dir: filepath.Join(t.TempDir(), "assets")}
	g.store = db.Assets(g.dir, 0)
	e := engine.New(engine.Options{
		Stages: map[string]engine.Stage{
			"session": session.Stage(&store.Sessions{}, g.store), "idempotency": idempotency.New(idempotency.Options{}).For,
		},
	})
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	e.Replace(kit.Context(t), []engine.Binding{
		{Name: "own", Protocol: "builtin", Runner: asset.New(g.store)}, {Name: "made", Protocol: "builtin", Runner: bringer{}},
	})
	g.house = open(t, setup{Options: web.Options{Gate: byName}, handler: e, catalog: e})
	return g
}

// A bringer has a tool that emits a given file as an asset.
type bringer struct{}

func (bringer) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{{Name: "bring"}}, nil
}

func (bringer) Close(context.Context) error { return nil }

func (bringer) Invoke(_ context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	var a tool.Asset
	if err := json.Unmarshal(c.Args, &a); err != nil {
		return nil, err
	}
	f, err := os.Open(a.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ev := tool.NewEvent(tool.KindAsset, a)
	ev.File = f
	return &tool.Result{OK: true}, out.Emit(ev)
}

func (g *gallery) as(name, method, at, body string) *http.Request {
	req := g.request(method, at, body)
	req.Header.Set("Authorization", "Bearer token-for-"+name)
	return req
}

// bring has a caller's tool produce a file, and returns its digest.
func (g *gallery) bring(t *testing.T, name, mediaType, id string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "made")
	kit.OK(t, os.WriteFile(path, content, 0o600))
	args, _ := json.Marshal(tool.Asset{AssetID: id, MediaType: mediaType, Path: path})
	if a := g.do(g.as(name, "POST", "/v1/tools/bring/call", string(args))); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func TestAssetIsServedToItsCaller(t *testing.T) {
	tooltest.NoLeaks(t)
	g := openGallery(t)
	content := bytes.Repeat([]byte("0123456789"), 300_000)
	sum := g.bring(t, "ada", "image/png", "plan.png", content)
	at := "/v1/assets/" + sum
	a := g.do(g.as("ada", "GET", at, ""))
	if a.status != 200 || !bytes.Equal(a.body, content) || a.header.Get("ETag") != `"`+sum+`"` || a.header.Get("Toolpost-Call") == "" {
		t.Errorf("%d %v, %d bytes", a.status, a.header, len(a.body))
	}
	for name, c := range map[string]struct {
		method string
		header http.Header
		status int
		body   string
	}{
		"a part":              {"GET", http.Header{"Range": {"bytes=3-6"}}, 206, "3456"},
		"its end":             {"GET", http.Header{"Range": {"bytes=-2"}}, 206, "89"},
		"beyond its end":      {"GET", http.Header{"Range": {"bytes=3000000-"}}, 416, ""},
		"the same again":      {"GET", http.Header{"If-None-Match": {`"` + sum + `"`}}, 304, ""},
		"a part of the same":  {"GET", http.Header{"Range": {"bytes=0-0"}, "If-Range": {`"` + sum + `"`}}, 206, "0"},
		"what it is":          {"HEAD", nil, 200, ""},
		"with a key, again":   {"GET", http.Header{"Range": {"bytes=1-1"}, "Idempotency-Key": {"k"}}, 206, "1"},
		"with a key, a third": {"GET", http.Header{"Range": {"bytes=2-2"}, "Idempotency-Key": {"k"}}, 206, "2"},
	} {
		req := g.as("ada", c.method, at, "")
		for k, v := range c.header {
			req.Header[k] = v
		}
		if a := g.do(req); a.status != c.status || c.body != "" && string(a.body) != c.body || (a.status == 304 || c.method == "HEAD") && len(a.body) != 0 {
			t.Errorf("%s: %d %v %.100q", name, a.status, a.header, a.body)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(g.dir, "[.0-9a-f]*")); len(left) != 1 {
		t.Errorf("reading has left something: %v", left)
	}
}

func TestAssetOfAnotherCallerIsNotFound(t *testing.T) {
	tooltest.NoLeaks(t)
	g := openGallery(t)
	sum := g.bring(t, "ada", "text/plain", "a", []byte("ada's"))
	none := strings.Repeat("0", 64)
	texts := map[string]string{}
	for name, at := range map[string]string{"hers": sum, "none": none} {
		for _, header := range []http.Header{nil, {"If-None-Match": {`"` + at + `"`}}, {"Range": {"bytes=0-1"}}} {
			req := g.as("eve", "GET", "/v1/assets/"+at, "")
			for k, v := range header {
				req.Header[k] = v
			}
			a := g.do(req)
			a.refused(t, 404, tool.CodeNotFound)
			d := a.document(t)
			texts[name] = strings.ReplaceAll(d.Error.Message, at, "X")
			if a.header.Get("ETag") != "" || a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%v", a.header)
			}
		}
	}
	kit.Equal(t, texts["hers"], texts["none"], "they can be told apart: %v", texts)
	for _, bad := range []string{"x", "..%2f" + sum, strings.ToUpper(sum), sum + "0", sum[:63] + "%00"} {
		g.do(g.as("ada", "GET", "/v1/assets/"+bad, "")).refused(t, 404, tool.CodeNotFound)
	}
	again := g.bring(t, "eve", "text/plain", "e", []byte("ada's")) // a caller with the same content has access
	if a := g.do(g.as("eve", "GET", "/v1/assets/"+again, "")); a.status != 200 || string(a.body) != "ada's" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// An asset never becomes a page of our origin.
func TestNoAssetRunsScriptInOurName(t *testing.T) {
	tooltest.NoLeaks(t)
	g := openGallery(t)
	const bytesOnly = "application/octet-stream"
	for mediaType, want := range map[string]string{
		"image/png": "image/png", "IMAGE/JPEG": "image/jpeg", "image/gif": "image/gif", "image/webp": "image/webp", "image/avif": "image/avif",
		"video/mp4": "video/mp4", "video/webm": "video/webm", "audio/mpeg": "audio/mpeg", "audio/mp3": "audio/mpeg", "audio/ogg": "audio/ogg",
		"audio/wav": "audio/wav", "text/plain": "text/plain; charset=utf-8", "text/plain; charset=utf-7": "text/plain; charset=utf-8",
		"text/html": bytesOnly, "image/svg+xml": bytesOnly, "application/xhtml+xml": bytesOnly, "text/xml": bytesOnly, "application/pdf": bytesOnly,
		"text/javascript": bytesOnly, "text/css": bytesOnly, "multipart/x-mixed-replace": bytesOnly, "": bytesOnly, "nonsense": bytesOnly,
		"image/png\r\nSet-Cookie: a=b": bytesOnly, "image/png, text/html": bytesOnly, "text/html;image/png": bytesOnly, "application/json": bytesOnly,
	} {
		content := []byte("<html><script>alert('" + strconv.Quote(mediaType) + "')</script>")
		sum := g.bring(t, "ada", mediaType, "page", content)
		a := g.do(g.as("ada", "GET", "/v1/assets/"+sum, ""))
		disposition := "inline"
		if want == bytesOnly {
			disposition = "attachment"
		}
		if a.status != 200 || !bytes.Equal(a.body, content) || a.header.Get("Content-Type") != want ||
			!strings.HasPrefix(a.header.Get("Content-Disposition"), disposition+"; filename=page") {
			t.Errorf("%q: %d %v", mediaType, a.status, a.header)
		}
		for name, value := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox; default-src 'none'", "Set-Cookie": "",
			"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "private, max-age=86400, immutable", "Vary": "Authorization, Cookie",
		} {
			kit.Equal(t, a.header.Get(name), value, mediaType, name)
		}
	}
}

func TestNamesOfFilesAreHarmless(t *testing.T) {
	tooltest.NoLeaks(t)
	g := openGallery(t)
	for mediaType, want := range map[string]string{
		"image/svg+xml": "plan.svg", "text/csv": "plan.csv", "text/x-odd": "plan", "text/": "plan", "": "plan", "text/a.b": "plan",
	} {
		a := g.do(g.as("ada", "GET", "/v1/assets/"+g.bring(t, "ada", mediaType, "plan", []byte("as "+mediaType)), ""))
		kit.Equal(t, a.header.Get("Content-Disposition"), "attachment; filename="+want, mediaType)
	}
	for id, want := range map[string]string{
		"plan.png": "plan.png", "plan": "plan.gif", "../../etc/passwd": "etc_passwd.gif", ".bashrc": "bashrc.gif", "a\"; x=\"b": "a___x__b.gif",
		"größe": "gr__e.gif", "a\r\nb: c": "a__b__c.gif", "": "", "...": "", strings.Repeat("x", 200) + ".png": strings.Repeat("x", 76) + ".png",
	} {
		content := []byte("of " + id)
		sum := g.bring(t, "ada", "image/gif", id, content)
		if want == "" {
			want = sum[:16] + ".gif"
		}
		a := g.do(g.as("ada", "GET", "/v1/assets/"+sum, ""))
		kit.Equal(t, a.header.Get("Content-Disposition"), "inline; filename="+want, id)
	}
}

func TestWithoutTheToolThereAreNoAssets(t *testing.T) {
	tooltest.NoLeaks(t)
	sum := strings.Repeat("0", 64)
	h := open(t, setup{})
	a := h.do(h.request("GET", "/v1/assets/"+sum, ""))
	a.refused(t, 501, tool.CodeUnsupported)
	kit.Contains(t, string(a.body), "readAsset")
	// A tool of that name that returns no file, or another one than the requested.
	file := kit.Must(os.Open(os.DevNull))(t)
	defer file.Close()
	for name, ev := range map[string]tool.Event{
		"no file":       tool.NewEvent(tool.KindAsset, tool.Asset{SHA256: sum}),
		"another one":   {Kind: tool.KindAsset, Data: []byte(`{"sha256":"` + strings.Repeat("1", 64) + `"}`), File: file},
		"no asset":      {Kind: tool.KindAsset, Data: []byte(`[]`), File: file},
		"another event": {Kind: tool.KindLog, Data: []byte(`{"sha256":"` + sum + `"}`), File: file},
	} {
		h := open(t, setup{catalog: offer{"readAsset"}, handler: tool.HandlerFunc(func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
			return &tool.Result{OK: true}, out.Emit(ev)
		})})
		if a := h.do(h.request("GET", "/v1/assets/"+sum, "")); a.status != 502 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

func TestAnAssetStopsWhenItsCallIsCancelled(t *testing.T) {
	tooltest.NoLeaks(t)
	g := openGallery(t)
	sum := g.bring(t, "ada", "", "large", make([]byte, 24<<20)) // more than the kernel buffers for us
	conn, r := g.raw(t, "")
	_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
	fmt.Fprintf(conn, "GET /v1/assets/%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer token-for-ada\r\nToolpost-Call: c1\r\n\r\n", sum, g.addr)
	resp := kit.Must(http.ReadResponse(r, nil))(t)
	defer resp.Body.Close()
	g.do(g.as("eve", "DELETE", "/v1/calls/c1", "")).refused(t, 404, tool.CodeNotFound)
	if a := g.do(g.as("ada", "DELETE", "/v1/calls/c1", "")); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	kit.Fails(t, kit.Err(io.Copy(io.Discard, resp.Body)), "", "all bytes came")
}

// A clock is a response writer that records the deadline of each write.
type clock struct {
	http.ResponseWriter
	deadlines []time.Time
	pieces    int
}

func (c *clock) SetWriteDeadline(t time.Time) error { c.deadlines = append(c.deadlines, t); return nil }

func (c *clock) Write(b []byte) (int, error) { c.pieces++; return len(b), nil }

func TestWriteDeadlineIsRenewedForEachPiece(t *testing.T) {
	var c clock
	ctx, cancel := context.WithCancel(t.Context())
	w := rest.DeadlineWriter(&c, ctx, time.Minute)
	kit.Must(io.Copy(w, io.LimitReader(rand.Reader, 1<<20)))(t)
	if c.pieces < 2 || len(c.deadlines) != c.pieces || !c.deadlines[1].After(c.deadlines[0]) {
		t.Errorf("%d pieces, %d deadlines", c.pieces, len(c.deadlines))
	}
	cancel()
	kit.Fails(t, kit.Err(w.Write([]byte("x"))), "", "it writes on")
}

func TestCurlFetchesAnAsset(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl here")
	}
	tooltest.NoLeaks(t)
	g := openGallery(t)
	sum := g.bring(t, "ada", "text/html", "notes.txt", []byte("hello"))
	cmd := exec.CommandContext(kit.Context(t), "curl", "-sS", "-OJ", "-H", "Authorization: Bearer token-for-ada", g.url("/v1/assets/"+sum))
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	kit.Equal(t, string(kit.Must(os.ReadFile(filepath.Join(cmd.Dir, "notes.txt")))(t)), "hello")
}

// The server chooses the size of an asset, and a client reads the asset into memory.
func TestClientRefusesAssetsOfAnySize(t *testing.T) {
	c := kit.Must(rest.Dial("http://127.0.0.1:1", "", ""))(t)
	a := tool.Asset{AssetID: "map", SHA256: strings.Repeat("0", 64), Size: 1 << 40}
	_, _, err := c.Asset(t.Context(), a)
	kit.Fails(t, err, `the asset "map" has 1099511627776 bytes, and at most 268435456 are copied; fetch it with curl from http://127.0.0.1:1/v1/assets/000`)
	a.Size = 256 << 20
	_, _, err = c.Asset(t.Context(), a)
	kit.Fails(t, err, "127.0.0.1:1") // asked for, but no one answers
	if strings.Contains(err.Error(), "copied") {
		t.Error(err)
	}
}
