package rest

import (
	"cmp"
	"context"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"toolpost/tool"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// readAsset is the tool that returns a file that a call of the same caller produced.
const readAsset = "readAsset"

// asset is GET /v1/assets/{sha256}. It is a call like any other, so that every rule for calls applies; the file comes
// with its asset event and is sent while that event is handled.
func (s *server) asset(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
	sum := r.PathValue("sha256")
	if !isDigest(sum) {
		return tool.Errorf(tool.CodeNotFound, "there is no asset %.64q", sum)
	}
	args := map[string]any{"sha256": sum, "content": false}
	return s.ask(w, r, p, readAsset, args, func(ctx context.Context, c *tool.Call) {
		out := &assetSink{sum: sum, r: r, w: &deadlineWriter{w, ctx, s.Patience()}}
		res, err := s.handler.Invoke(ctx, c, out)
		if out.close() {
			return
		}
		if err == nil && !c.DryRun {
			err = tool.Errorf(tool.CodeProtocol, "the tool %s has not handed out the asset %s", readAsset, sum)
		}
		s.answer(w, r, c, http.StatusOK, res, err)
	})
}

// An assetSink sends the file of the requested asset, once, and ignores other events.
type assetSink struct {
	sum string
	r   *http.Request
	w   http.ResponseWriter

	mu   sync.Mutex
	sent bool
	done bool
}

// Emit implements tool.Sink.
func (s *assetSink) Emit(ev tool.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var a tool.Asset
	if s.done || s.sent || ev.Kind != tool.KindAsset || ev.File == nil || strictjson.Unmarshal(ev.Data, &a) != nil ||
		a.SHA256 != s.sum {
		return nil
	}
	s.sent = true
	describe(s.w.Header(), a)
	http.ServeContent(s.w, s.r, "", time.Time{}, ev.File)
	return nil
}

// close ends the use of the response, and reports whether the file has been sent.
func (s *assetSink) close() (sent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	return s.sent
}

// describe sets the headers of an asset. Its content and its type come from a tool: whatever a browser makes of them,
// it must not run a script in our origin.
func describe(h http.Header, a tool.Asset) {
	kind, ext, shown := shownAs(a.MediaType)
	disposition := "attachment"
	if shown {
		disposition = "inline"
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", mime.FormatMediaType(disposition, map[string]string{"filename": fileName(a, ext)}))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "private, max-age=86400, immutable") // the content never changes
	h.Add("Vary", "Authorization, Cookie")                      // the next user of the same browser may be another caller
	h.Set("ETag", `"`+a.SHA256+`"`)
}

var subtype = regex.Lazy(`^[a-z]+/([a-z0-9]{1,7})(\+|$)`)

// shownAs returns how a browser gets a media type. Types that cannot run scripts may be shown; all others are
// downloads.
func shownAs(mediaType string) (kind, ext string, shown bool) {
	given, _, _ := mime.ParseMediaType(mediaType)
	switch given {
	case "image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "video/mp4", "video/webm", "video/ogg",
		"audio/ogg", "audio/webm", "audio/mp4":
		return given, "." + path.Base(given), true
	case "audio/mpeg", "audio/mp3":
		return "audio/mpeg", ".mp3", true
	case "audio/wav", "audio/wave", "audio/x-wav", "audio/vnd.wave":
		return "audio/wav", ".wav", true
	case "text/plain":
		return "text/plain; charset=utf-8", ".txt", true
	}
	if m := subtype().FindStringSubmatch(given); m != nil {
		ext = "." + m[1] // such as .svg
	}
	return "application/octet-stream", ext, false
}

// fileName derives a file name for an asset from its id, which can be anything.
func fileName(a tool.Asset, ext string) string {
	const most = 80
	name := tool.Safe(a.AssetID, func(r rune) bool {
		return r == '-' || r == '_' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	})
	name = cmp.Or(strings.Trim(name[max(0, len(name)-most):], "._-"), a.SHA256[:16])
	if path.Ext(name) == "" {
		name += ext
	}
	return name
}

func isDigest(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

// A deadlineWriter limits the time for each write instead of the whole, for peers that read slowly; it stops when the
// call is cancelled.
type deadlineWriter struct {
	http.ResponseWriter
	ctx      context.Context
	patience time.Duration
}

func (w *deadlineWriter) Write(b []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	if err := http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.patience)); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(b)
}
