// Package mcp has what both sides of the Model Context Protocol share: its words, its headers, and the requests that a
// peer can cancel. Package door serves clients, and package runner is our client of other MCP servers.
//
// The protocol has two eras. In the modern one (2026-07-28) every request describes itself completely. In the legacy one
// (2025-11-25 and before) a client introduces itself once, with initialize, and the server may ask the client questions
// in the middle of a call.
package mcp

import (
	"fmt"
	"net/url"
	"slices"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
)

// ModernVersion is the revision of the modern era.
const ModernVersion = "2026-07-28"

// LegacyVersions returns the revisions of the legacy era, newest first.
func LegacyVersions() []string {
	return []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
}

// Versions returns all revisions, newest first.
func Versions() []string { return append([]string{ModernVersion}, LegacyVersions()...) }

// The error codes that the modern era adds to those of JSON-RPC, and one of the legacy era: a resource was not found.
const (
	CodeHeaderMismatch    = -32020
	CodeMissingCapability = -32021
	CodeBadVersion        = -32022
	CodeNoResource        = -32002
)

// The members of _meta that clients write and servers read.
const (
	MetaVersion      = "io.modelcontextprotocol/protocolVersion"
	MetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaClient       = "io.modelcontextprotocol/clientInfo"
	MetaLogLevel     = "io.modelcontextprotocol/logLevel"
	MetaProgress     = "progressToken"
)

// The methods and notifications that both sides use.
const (
	MethodDiscover     = "server/discover"
	MethodInitialize   = "initialize"
	MethodPing         = "ping"
	MethodListTools    = "tools/list"
	MethodCallTool     = "tools/call"
	MethodReadResource = "resources/read"
	MethodGetPrompt    = "prompts/get"
	MethodComplete     = "completion/complete"
	MethodSubscribe    = "resources/subscribe"
	MethodUnsubscribe  = "resources/unsubscribe"
	MethodListen       = "subscriptions/listen"
	MethodSetLevel     = "logging/setLevel"
	MethodTaskGet      = "tasks/get"
	MethodTaskUpdate   = "tasks/update"
	MethodTaskResult   = "tasks/result"
	MethodTaskCancel   = "tasks/cancel"
	MethodElicit       = "elicitation/create"
	MethodSample       = "sampling/createMessage"
	MethodRoots        = "roots/list"
	NoteCancelled      = "notifications/cancelled"
	NoteProgress       = "notifications/progress"
	NoteMessage        = "notifications/message"
	NoteToolsChanged   = "notifications/tools/list_changed"
	NotePromptsChanged = "notifications/prompts/list_changed"
	NoteListChanged    = "notifications/resources/list_changed"
	NoteUpdated        = "notifications/resources/updated"
	NoteAcknowledged   = "notifications/subscriptions/acknowledged"
)

// ExtensionTasks lets a call be answered with a task, which the client polls until it has an outcome. Here a task is a
// job: its owner finds it with listJobs too.
const ExtensionTasks = "io.modelcontextprotocol/tasks"

// The result types of the modern era.
const (
	ResultComplete = "complete"
	ResultAsks     = "input_required"
	ResultTask     = "task"
)

// The states of a task.
const (
	TaskWorking   = "working"
	TaskAsks      = "input_required"
	TaskCompleted = "completed"
	TaskFailed    = "failed"
	TaskCancelled = "cancelled"
)

// TaskOver reports whether a state is the end of a task.
func TaskOver(state string) bool {
	return slices.Contains([]string{TaskCompleted, TaskFailed, TaskCancelled}, state)
}

// Invalid returns the error for params that are wrong.
func Invalid(format string, args ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: "+format, args...)
}

// Levels returns those of the protocol, from the least to the most serious.
func Levels() []string {
	return []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
}

// DuplicateID returns the error for a request whose id another request still has.
func DuplicateID() *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "Invalid Request: a request with this id is still being answered")
}

// A Filter selects the changes that a client wants to be notified of.
type Filter struct {
	Tools     bool     `json:"toolsListChanged,omitzero"`
	Prompts   bool     `json:"promptsListChanged,omitzero"`
	Resources bool     `json:"resourcesListChanged,omitzero"`
	URIs      []string `json:"resourceSubscriptions,omitzero"`
	Tasks     []string `json:"taskIds,omitzero"`
}

// MaxURI bounds a URI of a resource, in bytes.
const MaxURI = 4 << 10

// CheckURI refuses anything but an absolute URI.
func CheckURI(uri string) error {
	if u, err := url.Parse(uri); err != nil || u.Scheme == "" || len(uri) > MaxURI || tool.VisibleName(uri) != uri {
		return fmt.Errorf("a URI has a scheme, no characters that cannot be seen, and at most %d bytes", MaxURI)
	}
	return nil
}

// PromptPrefix begins the names of tools that stand for prompts. Tools for other requests are named after their method.
const PromptPrefix = "prompts/"
