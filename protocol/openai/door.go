package openai

import (
	"cmp"
	"context"
	"log/slog"
	"mime"
	"net/http"
	"time"

	"toolpost/codesearch/toolfind"
	"toolpost/model"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/envelope"
	"toolpost/wire/strictjson"
)

// Path is the base path for clients of the door.
const Path = "/v1"

// Options of the door. All of them have useful zero values.
type Options struct {
	Limits
	toolfind.Search
	Models *model.Registry // nil if there are none
	Beat   time.Duration   // between two keep-alives on a stream; default 15 s
	Log    *slog.Logger    // nil means no log
}

// NewDoor returns the door, to be mounted. A call that must be approved waits for that, by way of waiting: a model
// cannot be asked to call again later.
func NewDoor(waiting tool.Middleware, o Options) web.Door {
	o.Limits = o.withDefaults()
	o.Beat = cmp.Or(o.Beat, 15*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return web.Door{
		Name: "openai",
		Hint: "OpenAI's and Anthropic's APIs are at /v1/chat/completions, /v1/responses and /v1/messages",
		Offers: []web.Offer{
			{Path: "/v1/openai/tools", What: "tools as function definitions, for models"},
			{Path: "/v1/models", What: "models that use these tools, as OpenAI's and Anthropic's clients speak to them"},
		},
		Refusals: problem,
		Keys:     "X-Api-Key",
		Accepts: append([]string{"X-Api-Key", "Anthropic-Version", "Anthropic-Beta",
			"Anthropic-Dangerous-Direct-Browser-Access", headerTools,
			"OpenAI-Organization", "OpenAI-Project", "X-Stainless-Arch", "X-Stainless-Lang", "X-Stainless-OS",
			"X-Stainless-Package-Version", "X-Stainless-Retry-Count", "X-Stainless-Runtime", "X-Stainless-Runtime-Version",
			"X-Stainless-Timeout", "X-Stainless-Helper-Method"}, envelope.Headers()...),
		Exposes: []string{"Retry-After", headerRetry, headerLeftOut},
		Routes: func(on *web.Server, h tool.Handler, c tool.Catalog) []web.Route {
			safe := tool.Recovered(o.Log, "the server's log")
			return (&server{Server: on, Options: o, handler: safe(h), waiting: safe(waiting(announcing(h))), catalog: c}).routes()
		},
	}
}

// A server is an open door.
type server struct {
	*web.Server
	Options
	handler tool.Handler
	waiting tool.Handler // holds calls until they are approved
	catalog tool.Catalog
	finder  toolfind.Finder
}

// announcing emits an event for an approval before the wait for it begins.
func announcing(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		r, err := next.Invoke(ctx, c, out)
		if err == nil && r.Ask != nil && r.Ask.Kind == tool.AskApproval {
			about, _ := strictjson.Marshal(object{"id": r.Ask.ID, "message": r.Ask.Message}) // texts
			_ = out.Emit(tool.Event{Kind: tool.AskApproval, Data: about})                    // a disconnected client ends the call
		}
		return r, err
	})
}

func (s *server) routes() []web.Route {
	return []web.Route{
		{Method: http.MethodGet, Path: "/v1/openai/tools", Serve: s.refusing(s.listTools)},
		{Method: http.MethodPost, Path: "/v1/openai/tool_calls", Serve: s.refusing(s.toolCalls)},
		{Method: http.MethodGet, Path: "/v1/models", Serve: s.refusing(s.listModels)},
		{Method: http.MethodGet, Path: "/v1/models/{name...}", Serve: s.refusing(s.showModel)},
		{Method: http.MethodPost, Path: "/v1/chat/completions", Serve: s.refusing(s.converse(chat{}))},
		{Method: http.MethodPost, Path: "/v1/responses", Serve: s.refusing(s.converse(responses{}))},
		{Method: http.MethodPost, Path: "/v1/messages", Serve: s.refusing(s.converse(messages{}))},
		{Method: http.MethodPost, Path: "/v1/messages/count_tokens",
			Serve: s.refusing(s.pass("/messages/count_tokens", model.Anthropic))},
		{Method: http.MethodPost, Path: "/v1/responses/compact", Serve: s.refusing(s.pass("/responses/compact", model.Responses))},
		{Method: http.MethodPost, Path: "/v1/embeddings",
			Serve: s.refusing(s.pass("/embeddings", model.OpenAI, model.Responses))},
	}
}

// A handler answers a request, or returns why it cannot.
type handler func(w http.ResponseWriter, r *http.Request, p tool.Principal) error

// A statusError is a refusal with a status of its own.
type statusError struct {
	error
	status int
}

// Unwrap returns the error without the status.
func (e *statusError) Unwrap() error { return e.error }

func (s *server) refusing(serve handler) func(http.ResponseWriter, *http.Request, tool.Principal) {
	return func(w http.ResponseWriter, r *http.Request, p tool.Principal) {
		err := serve(w, r, p)
		if err == nil {
			return
		}
		e := tool.AsError(err)
		status := statusOf(e)
		if e.Reason == model.KeyRefused { // the caller's own token is valid, and a retry would not help
			status = http.StatusBadGateway
			w.Header().Set(headerRetry, "false")
		}
		if own, ok := err.(*statusError); ok {
			status = own.status
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.Patience()))
		web.Refuse(w, r, problem, status, e)
	}
}

// maxConversation bounds a request, in bytes: the largest servers take 32 million, and a caller's share has room for
// one such.
const maxConversation = 31 << 20

// read reads the body of a request, which is JSON.
func (s *server) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	written := r.Header.Get("Content-Type")
	if kind, _, err := mime.ParseMediaType(written); err != nil || kind != "application/json" {
		return nil, &statusError{tool.Errorf(tool.CodeUnsupported,
			"the content type %q is not supported: send application/json", written), http.StatusUnsupportedMediaType}
	}
	body, status, bad := s.ReadBodyWithin(w, r, maxConversation)
	if bad != nil {
		return nil, &statusError{bad, status}
	}
	if err := strictjson.CheckObject(body); err != nil && !strictjson.Loose(body) {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the body is not a JSON object: %w", err)
	}
	return body, nil
}

func (s *server) reply(w http.ResponseWriter, body []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.Patience()))
	web.Reply(w, http.StatusOK, body)
}

// readEnvelope reads the properties of a request's calls from the headers. They all belong to one run.
func readEnvelope(h http.Header, p tool.Principal) (*tool.Call, time.Duration, error) {
	c := &tool.Call{Caller: p}
	timeout, err := envelope.Read(h, c)
	if err != nil {
		return nil, 0, err
	}
	c.Name()
	c.Run = cmp.Or(c.Run, c.ID)
	return c, timeout, nil
}

// invoke makes a call. If it waits, it returns when the call has been approved or refused.
func (s *server) invoke(ctx context.Context, c *tool.Call, out tool.Sink, waits bool) (*tool.Result, error) {
	if waits {
		return s.waiting.Invoke(ctx, c, out)
	}
	return s.handler.Invoke(ctx, c, out)
}

// listModels is GET /v1/models, in one form for the clients of both APIs.
func (s *server) listModels(w http.ResponseWriter, _ *http.Request, p tool.Principal) error {
	list := []object{}
	for _, m := range s.Models.Models().For(p) {
		list = append(list, entry(m))
	}
	doc := object{"object": "list", "data": list, "has_more": false, "first_id": nil, "last_id": nil}
	if len(list) > 0 {
		doc["first_id"], doc["last_id"] = list[0]["id"], list[len(list)-1]["id"]
	}
	return s.replyWith(w, doc)
}

// showModel is GET /v1/models/NAME.
func (s *server) showModel(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
	m, err := s.Models.Models().For(p).Named(r.PathValue("name"))
	if err != nil {
		return err
	}
	return s.replyWith(w, entry(m))
}

// entry describes a model in a list, in one form for the clients of both APIs. Its creation time is unknown.
func entry(m *model.Model) object {
	return object{
		"id": m.Name, "object": "model", "created": 0, "owned_by": "toolpost",
		"type": "model", "display_name": m.Name, "created_at": "1970-01-01T00:00:00Z",
	}
}

func (s *server) replyWith(w http.ResponseWriter, doc object) error {
	body, err := strictjson.Marshal(doc)
	if err == nil {
		s.reply(w, body)
	}
	return err
}

// object is JSON that we write.
type object = map[string]any
