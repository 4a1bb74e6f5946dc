// Package openapi makes tools of the operations that an OpenAPI document describes, 3.0 or 3.1, and calls them over
// HTTP.
//
// A document is untrusted input. It is read within bounds, and its references stay inside it. A call goes to a server
// that the document or the config names, redirects to another origin are not followed, and a host name must not resolve
// to an address of an internal network. An invalid operation does not affect the others: it is listed with the reason.
//
// No library reads the document: docs/dependencies.md says why.
package openapi

import (
	"net/http"
	"slices"
	"strings"

	"toolpost/tool"
)

// Bounds on documents.
const (
	maxDocument    = 64 << 20  // bytes
	maxValues      = 2_000_000 // decoded values; those behind an anchor count each time
	maxKept        = 256 << 10 // bytes of text whose decoded values are kept
	maxDepth       = 200       // levels of nesting
	maxOperations  = 5_000
	maxHops        = 32       // references in a chain
	maxSchema      = 1 << 20  // bytes of one tool's schema
	maxSchemas     = 64 << 20 // bytes of all schemas together, as much as is kept of a source's tools
	maxName        = 200      // bytes of a tool's name
	maxDescription = 8 << 10  // bytes
)

// codeOf maps the status of an API's answer to a code, as the table of codes defines. A status that reports no more
// than a failure is the tool's own failure.
func codeOf(status int) tool.Code {
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType:
		return tool.CodeInvalidInput
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return tool.CodeAccessDenied
	case http.StatusNotFound, http.StatusGone:
		return tool.CodeNotFound
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusLocked, http.StatusPreconditionRequired:
		return tool.CodeConflict
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return tool.CodeTimeout
	case http.StatusTooManyRequests:
		return tool.CodeQuotaExceeded
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return tool.CodeUnavailable
	case http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusNotAcceptable:
		return tool.CodeUnsupported
	}
	return tool.CodeToolError
}

// methods are those that an operation can have. TRACE is missing: it repeats our credentials to intermediaries.
func methods() []string { return []string{"get", "put", "post", "delete", "options", "head", "patch"} }

// effectsOf returns the effects that HTTP defines for a method. We send that method, so the document need not be
// trusted.
func effectsOf(method string) tool.Effects {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return tool.Effects{Reads: true, Idempotent: true}
	case http.MethodPut:
		return tool.Effects{Reads: true, Writes: true, Network: true, Idempotent: true}
	case http.MethodDelete:
		return tool.Effects{Reads: true, Writes: true, Network: true, Idempotent: true, Destructive: true}
	}
	return tool.Effects{Reads: true, Writes: true, Network: true}
}

// The media types that are treated specially.
const (
	typeJSON      = "application/json"
	typeForm      = "application/x-www-form-urlencoded"
	typeMultipart = "multipart/form-data"
	typeBytes     = "application/octet-stream"
)

func isJSON(kind string) bool {
	return kind == typeJSON || strings.HasSuffix(kind, "+json") || kind == "text/json"
}

func isText(kind string) bool {
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+xml") || strings.HasSuffix(kind, "+yaml") ||
		slices.Contains([]string{"application/xml", "application/yaml", "application/javascript", "application/x-ndjson",
			"application/jsonl", "application/graphql"}, kind)
}
