// Package openai is the door for programs that speak to models: OpenAI's function calling, chat completions and
// responses, and Anthropic's messages.
//
//	GET  /v1/openai/tools       the caller's tools, as function definitions
//	POST /v1/openai/tool_calls  {"tool_calls": [...]} in, {"messages": [...]} of the role tool out
//	GET  /v1/models             the models of the config, and /v1/models/NAME one of them
//	POST /v1/chat/completions   a conversation, in the form of OpenAI's chat completions
//	POST /v1/responses          the same, in the form of OpenAI's responses
//	POST /v1/messages           the same, in the form of Anthropic's messages
//	POST /v1/messages/count_tokens, /v1/responses/compact, /v1/embeddings  are passed on to servers that have them
//
// The last of them lead to a model of the config. A request without our tools to a model of the same API is
// passed on as it came. For any other request the door runs our tools that the model calls, and returns their results
// to it, until it answers. Such a request is converted to the common form of a conversation in package model, so that
// each of the three APIs works with every model.
package openai

import (
	"net/http"
	"strings"

	"toolpost/model"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/strictjson"
)

// errorTypes are the names of error classes. Anthropic's clients know these; OpenAI's go by the status, and for them
// the code says more.
var errorTypes = map[tool.Code]string{
	tool.CodeInvalidInput: "invalid_request_error", tool.CodeUnsupported: "invalid_request_error",
	tool.CodeConflict: "invalid_request_error", tool.CodeToolError: "invalid_request_error",
	tool.CodeAccessDenied: "permission_error", tool.CodeLeaseRequired: "permission_error",
	tool.CodeLeaseRejected: "permission_error",
	tool.CodeNotFound:      "not_found_error",
	tool.CodeQuotaExceeded: "rate_limit_error",
	tool.CodeUnavailable:   "overloaded_error", tool.CodeBreakerOpen: "overloaded_error",
	tool.CodeTimeout: "timeout_error", tool.CodeCancelled: "timeout_error",
	tool.CodeCrash: "api_error", tool.CodeProtocol: "api_error", tool.CodeInternal: "api_error",
}

// problem writes an error for the clients of both APIs: Anthropic's look for the type of the document, and both for the
// member error.
func problem(e *tool.Error) []byte {
	inner := errorBody(e)
	w := strictjson.NewWriter(len(inner) + 32)
	w.Text("type", "error")
	w.Raw("error", inner)
	return w.Done()
}

// errorBody writes the member error.
func errorBody(e *tool.Error) []byte {
	kind := errorTypes[e.Code]
	code := string(e.Code)
	switch e.Reason {
	case "unauthenticated":
		kind = "authentication_error"
	case model.KeyRefused:
		kind = "api_error"
	}
	if e.Reason != "" {
		code = strings.ToValidUTF8(e.Reason, "\uFFFD")
	}
	w := strictjson.NewWriter(200 + len(e.Message))
	w.Text("type", kind)
	w.Text("message", strings.ToValidUTF8(e.Message, "\uFFFD"))
	w.Text("code", code)
	var d struct {
		Param string `json:"param"`
		Code  string `json:"error_code"` // of Anthropic's: its clients go by the details
	}
	if len(e.Details) > 0 && strictjson.Unmarshal(e.Details, &d) == nil && d.Param != "" {
		w.Text("param", d.Param)
	} else {
		w.Raw("param", []byte("null"))
	}
	if d.Code != "" {
		w.Raw("details", e.Details)
	}
	return w.Done()
}

// statusOf returns the status of a failed request.
func statusOf(e *tool.Error) int {
	if e.Code == tool.CodeUnsupported { // these clients take 501 for a server error, and retry
		return http.StatusBadRequest
	}
	return web.StatusOf(e.Code)
}
