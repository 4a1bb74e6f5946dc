package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"toolpost/model"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// headerTools is the header by which a request without tools asks for ours.
const headerTools = "Toolpost-Tools"

// offers reports whether a request is offered all tools of its caller.
func offers(m *model.Model, asked bool, tools json.RawMessage) bool {
	switch strictjson.KindOf(tools) {
	case "null", "nothing":
		return asked || m.Tools == "offer"
	case "object":
		return len(members(tools)) == 0
	}
	return false
}

// members returns those of an object.
func members(doc []byte) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	_ = strictjson.Walk(doc, func(name, value []byte) error { // an object that was read
		all[string(name)] = value
		return nil
	})
	return all
}

// passes reports whether a request concerns only the client and its model's server: they speak the same API, and the
// request has neither our tools nor anything that we added before.
func (s *server) passes(ctx context.Context, on wire, m *model.Model, offer bool, p tool.Principal, body []byte) bool {
	tools := members(body)["tools"]
	if on.api() != m.API || offers(m, offer, tools) || strictjson.KindOf(tools) == "object" {
		return false
	}
	requested, err := readTools(on.api(), tools)
	if err != nil {
		return true // the server reports better what is wrong with them
	}
	all := s.toolset(ctx, p)
	if slices.ContainsFunc(requested, func(w requestedTool) bool { return s.ours(ctx, p, all, w) != nil }) {
		return false
	}
	if !bytes.Contains(body, []byte(`"`+label+`"`)) {
		return true
	}
	req, err := on.read(body)
	return err != nil || !req.ours
}

// relay passes a request on as it came, and its answer likewise.
func (s *server) relay(ctx context.Context, on wire, m *model.Model, route string, w http.ResponseWriter, r *http.Request,
	body []byte, limit time.Duration,
) error {
	late := tool.Errorf(tool.CodeTimeout, "model %s did not answer within %v", m.Name, limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	talk := m.Talk()
	defer talk.Close()
	got, err := talk.Pass(ctx, route+query(r), r.Header, body)
	if err != nil {
		return timeoutOr(ctx, late, err)
	}
	defer got.Close()
	s.ForgetBody(r)
	if !got.Stream {
		doc, err := got.Document(ctx)
		if err != nil {
			return timeoutOr(ctx, late, err)
		}
		maps.Copy(w.Header(), got.Header)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.Patience()))
		w.WriteHeader(got.Status)
		_, _ = w.Write(doc) // a client that has disconnected needs no answer
		return nil
	}
	maps.Copy(w.Header(), got.Header)
	out := s.PassStream(w, got.Status)
	_ = out.Pass(nil) // the header; a client that has disconnected ends the request
	if err := got.Events(ctx, out.Pass); err != nil && on != nil {
		err = timeoutOr(ctx, late, err)
		s.Log.Warn("a request to a model failed", "model", m.Name, "error", err)
		on.newWriter(out, &transcript{id: newID(), created: time.Now(), model: m.Name}, &request{}).fail(tool.AsError(err))
	}
	return nil
}

// query returns the query of a request's URL, with its question mark.
func query(r *http.Request) string {
	if r.URL.RawQuery == "" {
		return ""
	}
	return "?" + r.URL.RawQuery
}

func timeoutOr(ctx context.Context, late *tool.Error, err error) error {
	if errors.Is(context.Cause(ctx), late) {
		return late
	}
	return err
}

// pass serves a route that only servers of some APIs have.
func (s *server) pass(route string, apis ...model.API) handler {
	return func(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
		base, timeout, err := readEnvelope(r.Header, p)
		if err != nil {
			return err
		}
		body, m, err := s.readForModel(w, r, p)
		if err != nil {
			return err
		}
		if !slices.Contains(apis, m.API) {
			return tool.Errorf(tool.CodeUnsupported, "model %s speaks the API %s, which has no %s; use a model with api: %s",
				m.Name, m.API, strings.TrimPrefix(route, "/"), apis[0]).Because("model")
		}
		ctx, end, refused := s.Begin(w, r, base)
		if refused != nil {
			return refused
		}
		defer end()
		return s.relay(ctx, nil, m, route, w, r, body, s.limit(timeout))
	}
}

// limit returns how long a request may take.
func (s *server) limit(asked time.Duration) time.Duration {
	if most := time.Duration(s.Time); asked <= 0 || asked > most {
		return most
	}
	return asked
}

// readForModel reads the body of a request, and returns the model that it names.
func (s *server) readForModel(w http.ResponseWriter, r *http.Request, p tool.Principal) ([]byte, *model.Model, error) {
	body, err := s.read(w, r)
	if err != nil {
		return nil, nil, err
	}
	named := members(body)["model"]
	if strictjson.KindOf(named) != "string" || len(named) == len(`""`) {
		return nil, nil, tool.Errorf(tool.CodeInvalidInput, "the request names no model; GET /v1/models lists them")
	}
	m, err := s.Models.Models().For(p).Named(strictjson.Text(named))
	return body, m, err
}
