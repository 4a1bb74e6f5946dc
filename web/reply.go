package web

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolpost/identity"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// statusCancelled is the status that proxies use when the client has gone; net/http has no name for it.
const statusCancelled = 499

// StatusOf returns the HTTP status for a code.
func StatusOf(code tool.Code) int {
	switch code {
	case tool.CodeAccessDenied, tool.CodeLeaseRequired, tool.CodeLeaseRejected:
		return http.StatusForbidden
	case tool.CodeNotFound:
		return http.StatusNotFound
	case tool.CodeInvalidInput:
		return http.StatusBadRequest
	case tool.CodeConflict:
		return http.StatusConflict
	case tool.CodeTimeout:
		return http.StatusGatewayTimeout
	case tool.CodeCancelled:
		return statusCancelled
	case tool.CodeQuotaExceeded:
		return http.StatusTooManyRequests
	case tool.CodeBreakerOpen, tool.CodeUnavailable:
		return http.StatusServiceUnavailable
	case tool.CodeCrash, tool.CodeProtocol:
		return http.StatusBadGateway
	case tool.CodeUnsupported:
		return http.StatusNotImplemented
	}
	return http.StatusInternalServerError
}

// A problem is the body of every response without an outcome.
type problem struct {
	OK    bool        `json:"ok"` // always false
	Error *tool.Error `json:"error"`
	Call  string      `json:"call,omitempty"`
}

// Problem returns the document that explains why there is no outcome, with the call's id if there was one. It never
// fails: it mends texts that are not UTF-8, and leaves out details that are not JSON.
func Problem(e *tool.Error, call string) []byte {
	said := *e
	said.Message = strings.ToValidUTF8(said.Message, "\uFFFD")
	said.Reason = strings.ToValidUTF8(said.Reason, "\uFFFD")
	if body, err := strictjson.Marshal(problem{Error: &said, Call: call}); err == nil {
		return body
	}
	said.Details = nil
	body, _ := strictjson.Marshal(problem{Error: &said, Call: call})
	return body
}

// Refuse answers a request whose body may not have been read, in the form of a protocol, or with a problem document if
// form is nil. It then closes the connection, so that the answer does not wait for a body that may never come.
func Refuse(w http.ResponseWriter, r *http.Request, form Refuser, status int, e *tool.Error) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
	if b, ok := r.Body.(*ration); ok && b.held == 0 { // net/http recognises its own body, and knows when not to read the rest of it
		r.Body = b.ReadCloser
	}
	SetRetryAfter(w.Header(), e)
	if form == nil && WantsProblem(r) {
		Send(w, status, TypeProblem, ProblemDetails(status, e, ""))
		return
	}
	Reply(w, status, refusal(form, e))
}

// SetRetryAfter sets when a caller may retry that was refused for now: by a quota, a full queue, an open breaker, or
// because something is away. The header is in whole seconds; the body has the milliseconds.
func SetRetryAfter(h http.Header, e *tool.Error) {
	wait := e.Retry()
	if wait > 0 && slices.Contains([]tool.Code{tool.CodeQuotaExceeded, tool.CodeUnavailable, tool.CodeBreakerOpen}, e.Code) {
		h.Set("Retry-After", strconv.FormatInt(int64((wait-1)/time.Second+1), 10))
	}
}

// TypeProblem is the media type of RFC 9457.
const TypeProblem = "application/problem+json"

// WantsProblem reports whether a request accepts refusals in the form of RFC 9457.
func WantsProblem(r *http.Request) bool {
	for one := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if kind, _, err := mime.ParseMediaType(one); err == nil && kind == TypeProblem {
			return true
		}
	}
	return false
}

// ProblemDetails is Problem in the form of RFC 9457: its type is our code, and our other fields are beside its own
// members.
func ProblemDetails(status int, e *tool.Error, call string) []byte {
	said := struct {
		Type    string          `json:"type"`
		Title   string          `json:"title"`
		Status  int             `json:"status"`
		Detail  string          `json:"detail,omitempty"`
		Code    tool.Code       `json:"code"`
		Reason  string          `json:"reason,omitempty"`
		Details json.RawMessage `json:"details,omitzero"`
		Call    string          `json:"call,omitempty"`
	}{
		"urn:toolpost:" + string(e.Code), strings.ReplaceAll(string(e.Code), "_", " "), status,
		strings.ToValidUTF8(e.Message, "\uFFFD"), e.Code, strings.ToValidUTF8(e.Reason, "\uFFFD"), e.Details, call,
	}
	body, err := strictjson.Marshal(said)
	if err != nil {
		said.Details = nil
		body, _ = strictjson.Marshal(said)
	}
	return body
}

func refusal(form Refuser, e *tool.Error) []byte {
	if form == nil {
		return Problem(e, "")
	}
	return form(e)
}

// Reply writes a whole answer in JSON. It ignores whether the peer received it.
func Reply(w http.ResponseWriter, status int, body []byte) { Send(w, status, asJSON[0], body) }

// Send writes a whole answer.
func Send(w http.ResponseWriter, status int, kind string, body []byte) {
	h := w.Header()
	if h["Content-Type"] = asJSON; kind != asJSON[0] {
		h.Set("Content-Type", kind)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// ReadBody reads the body of a request within its bounds of size and time. The status belongs to the error.
func (s *Server) ReadBody(w http.ResponseWriter, r *http.Request) (body []byte, status int, err *tool.Error) {
	return s.ReadBodyWithin(w, r, s.o.MaxBody)
}

// ReadBodyWithin is ReadBody with another size limit.
func (s *Server) ReadBodyWithin(w http.ResponseWriter, r *http.Request, most int64) (_ []byte, status int, _ *tool.Error) {
	if r.ContentLength/2 > most { // a body that is not far over is read: a peer that still sends may miss the answer
		return nil, http.StatusRequestEntityTooLarge, tooLarge(most)
	}
	ration := s.ration(r, tool.Principal{})
	// A body for which there is no room is not even begun.
	if full := ration.weigh(min(max(r.ContentLength, 0), most), false); full != nil {
		return nil, StatusOf(full.Code), full
	}
	body, failed := readAll(http.MaxBytesReader(w, ration, most), r.ContentLength)
	switch {
	case failed == nil && s.outlives(r, ration):
		return nil, http.StatusUnauthorized, tool.AsError(identity.WrongToken())
	case failed == nil:
		if refused := ration.weighValues(body, s.o.MaxBody); refused != nil {
			return nil, StatusOf(refused.Code), refused
		}
		return body, 0, nil
	case ration.full != nil:
		return nil, StatusOf(ration.full.Code), ration.full
	case errors.As(failed, new(*http.MaxBytesError)):
		return nil, http.StatusRequestEntityTooLarge, tooLarge(most)
	case errors.Is(failed, os.ErrDeadlineExceeded):
		return nil, http.StatusRequestTimeout, tool.Errorf(tool.CodeTimeout, "the body was not there after %v", s.o.Times.Body)
	}
	return nil, http.StatusBadRequest, tool.Errorf(tool.CodeInvalidInput, "the body cannot be read: %w", failed)
}

// readAll is io.ReadAll for a body with a declared length. It allocates only a small part ahead, since the length is a
// mere promise.
func readAll(body io.Reader, length int64) ([]byte, error) {
	room := int64(512) // if the length is unknown
	if length >= 0 {
		room = min(length, 64<<10) + 1
	}
	all := make([]byte, 0, room)
	for {
		n, err := body.Read(all[len(all):cap(all)])
		all = all[:len(all)+n]
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return all, err
		case len(all) == cap(all) && length > int64(len(all)): // the bytes received justify a bit more
			all = slices.Grow(all, int(min(length+1, 8*int64(len(all))))-len(all))
		case len(all) == cap(all):
			all = slices.Grow(all, 1)
		}
	}
}

func tooLarge(most int64) *tool.Error {
	return tool.Errorf(tool.CodeInvalidInput, "the body is larger than %d bytes", most).Because("too_large")
}
