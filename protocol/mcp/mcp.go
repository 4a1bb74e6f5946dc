// Package mcp speaks the Model Context Protocol, in both of its eras. In the modern era (2026-07-28) every request
// describes itself completely. In the legacy era (2025-11-25 and before) a client introduces itself once, with
// initialize, and the server may ask the client questions in the middle of a call. Clients of both are served at one
// URL, and on stdio.
//
// The official SDK for Go is not the server here: it decodes a body several times, reads a tool's schema at each call,
// builds a session for each request, and does not support a catalogue that differs from caller to caller.
//
// Files whose names begin with door are the server for clients. Files whose names begin with runner are our client of
// other MCP servers; its two transports are runner_http.go and runner_program.go. The other files are shared by both.
package mcp

import (
	"fmt"
	"net/url"
	"slices"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
)

// The supported revisions, newest first.
const modernVersion = "2026-07-28"

func legacyVersions() []string {
	return []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
}

func versions() []string { return append([]string{modernVersion}, legacyVersions()...) }

// The error codes that the modern era adds to those of JSON-RPC, and one of the legacy era: a resource was not found.
const (
	codeHeaderMismatch    = -32020
	codeMissingCapability = -32021
	codeBadVersion        = -32022
	codeNoResource        = -32002
)

// The members of _meta that the protocol defines.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaProgress     = "progressToken"
)

// The methods and notifications that both sides use, or that are named in several places.
const (
	methodDiscover     = "server/discover"
	methodInitialize   = "initialize"
	methodPing         = "ping"
	methodListTools    = "tools/list"
	methodCallTool     = "tools/call"
	methodReadResource = "resources/read"
	methodGetPrompt    = "prompts/get"
	methodComplete     = "completion/complete"
	methodSubscribe    = "resources/subscribe"
	methodUnsubscribe  = "resources/unsubscribe"
	methodListen       = "subscriptions/listen"
	methodSetLevel     = "logging/setLevel"
	methodTaskGet      = "tasks/get"
	methodTaskUpdate   = "tasks/update"
	methodTaskCancel   = "tasks/cancel"
	methodTaskResult   = "tasks/result"
	methodElicit       = "elicitation/create"
	methodSample       = "sampling/createMessage"
	methodRoots        = "roots/list"
	noteInitialized    = "notifications/initialized" //nolint:misspell // the word of the protocol
	noteCancelled      = "notifications/cancelled"
	noteProgress       = "notifications/progress"
	noteMessage        = "notifications/message"
	noteToolsChanged   = "notifications/tools/list_changed"
	notePromptsChanged = "notifications/prompts/list_changed"
	noteListChanged    = "notifications/resources/list_changed"
	noteUpdated        = "notifications/resources/updated"
	noteAcknowledged   = "notifications/subscriptions/acknowledged"
)

// extensionTasks lets a call be answered with a task, which the client polls until it has an outcome. Here a task is a
// job: its owner finds it with listJobs too.
const extensionTasks = "io.modelcontextprotocol/tasks"

// The result types of the modern era.
const (
	resultComplete = "complete"
	resultAsks     = "input_required"
	resultTask     = "task"
)

// The states of a task.
const (
	taskWorking   = "working"
	taskAsks      = "input_required"
	taskCompleted = "completed"
	taskFailed    = "failed"
	taskCancelled = "cancelled"
)

// taskOver reports whether a state is the end of a task.
func taskOver(state string) bool {
	return slices.Contains([]string{taskCompleted, taskFailed, taskCancelled}, state)
}

// invalid returns the error for params that are wrong.
func invalid(format string, args ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: "+format, args...)
}

// levels returns those of the protocol, from the least to the most serious.
func levels() []string {
	return []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
}

func errDuplicateID() *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "Invalid Request: a request with this id is still being answered")
}

// A filter selects the changes that a client wants to be notified of.
type filter struct {
	Tools     bool     `json:"toolsListChanged,omitzero"`
	Prompts   bool     `json:"promptsListChanged,omitzero"`
	Resources bool     `json:"resourcesListChanged,omitzero"`
	URIs      []string `json:"resourceSubscriptions,omitzero"`
	Tasks     []string `json:"taskIds,omitzero"`
}

// maxURI bounds a URI of a resource, in bytes.
const maxURI = 4 << 10

// checkURI refuses anything but an absolute URI.
func checkURI(uri string) error {
	if u, err := url.Parse(uri); err != nil || u.Scheme == "" || len(uri) > maxURI || tool.VisibleName(uri) != uri {
		return fmt.Errorf("a URI has a scheme, no characters that cannot be seen, and at most %d bytes", maxURI)
	}
	return nil
}

// promptPrefix begins the names of tools that stand for prompts. Tools for other requests are named after their method.
const promptPrefix = "prompts/"
