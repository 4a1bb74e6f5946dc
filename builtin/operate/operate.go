// Package operate has the tools by which operators see how a server is configured and how full it is, and add a source to
// it: showConfig, explainPolicy, listCallers, showUsage and addSource. Only operators may use them.
package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"toolpost/builtin/define"
	"toolpost/engine/policy"
	"toolpost/engine/queue"
	"toolpost/engine/quota"
	"toolpost/identity"
	"toolpost/tool"
)

// A Config is the config of a server: the text on disk, and how it was applied.
type Config struct {
	Path string `json:"path,omitzero" doc:"the file; absent: the server was started without one"`
	URL  string `json:"url,omitzero" doc:"the address of the HTTP door, if this program serves"`
	Text string `json:"text" doc:"what the file has now, without secrets"`
	// Differs is set if the running config was not read from this text: it has errors, or parts of it need a restart.
	Differs  bool      `json:"differs" doc:"whether the server runs something else than the file says"`
	Errors   []Fault   `json:"errors" doc:"why the file would be refused"`
	Problems []Fault   `json:"problems" doc:"what does not work as intended in the config that is running"`
	Restart  []string  `json:"restart,omitempty" doc:"parts that changed and take effect at the next start"`
	Taken    time.Time `json:"taken,omitzero" doc:"when the running config was read"`
}

// A Fault is an error in a config.
type Fault struct {
	About   string `json:"about,omitzero" doc:"such as source files, secret KEY, rule no-deletes"`
	Message string `json:"message"`
	Line    int    `json:"line,omitzero" doc:"of the text; 0: of none in particular"`
	Column  int    `json:"column,omitzero"`
}

// ExplainArgs are the arguments of explainPolicy.
type ExplainArgs struct {
	Tool    string          `json:"tool" schema:"required minLength=1" doc:"the tool that would be called"`
	Args    json.RawMessage `json:"arguments,omitzero" schema:"type=object" doc:"its arguments; default: only what does not depend on them is explained"`
	Caller  string          `json:"caller,omitzero" doc:"who would call; default: you"`
	Door    string          `json:"door,omitzero" doc:"where the call would come in, such as cli, http, nats; default: where this one did"`
	Session string          `json:"session,omitzero" doc:"its session"`
}

// An Explanation is the policy's decision about a call, and who the caller is.
type Explanation struct {
	policy.Explanation
	Anonymous bool `json:"anonymous,omitempty"` // all clients without credentials at the door are this caller
	Unlisted  bool `json:"unlisted,omitempty"`  // the config does not list the caller: it is judged as one without roles
	Approved  bool `json:"approved,omitempty"`  // the config approves it: no rule asks
}

// Callers are the possible callers, with their credentials. Tokens are described, not shown.
type Callers struct {
	Callers []Caller `json:"callers"`
	Roles   []Role   `json:"roles"`
	Issuers []string `json:"issuers,omitempty" doc:"whose JSON Web Tokens are accepted"`
}

// A Caller is a possible caller.
type Caller struct {
	Name   string           `json:"name"`
	Kind   string           `json:"kind"` // one of the kinds below
	Roles  []string         `json:"roles"`
	All    bool             `json:"all"`             // it may use all tools
	Tools  tool.Patterns    `json:"tools"`           // otherwise these; tokens without a listed caller each have their own
	By     []string         `json:"by"`              // how it is recognised, in words
	Doors  []string         `json:"doors,omitempty"` // at which clients without credentials count as this caller
	Tokens []identity.Token `json:"tokens"`          // live ones
}

// The kinds of callers.
const (
	KindOperator  = "operator"  // may do everything that operators may
	KindListed    = "listed"    // by the config
	KindToken     = "token"     // known by a token alone
	KindAnonymous = "anonymous" // has no credentials
)

// A Role is a role that callers can have.
type Role struct {
	Name  string        `json:"name"`
	All   bool          `json:"all"` // its callers may use all tools
	Tools tool.Patterns `json:"tools"`
}

// A Usage is how full a server is.
type Usage struct {
	Quotas []quota.Usage `json:"quotas"`
	Queues []queue.Crowd `json:"queues" doc:"where calls wait for the workers of a source"`
	Store  *Store        `json:"store,omitzero" doc:"absent: there is none"`
	Disk   *Disk         `json:"disk,omitzero"`
}

// A Store is how large the store is.
type Store struct {
	Kind    string `json:"kind"`
	Bytes   int64  `json:"bytes"`
	Calls   int64  `json:"calls" doc:"the number of the last row of the audit log"`
	Waiting int    `json:"waiting" doc:"records of calls that wait in memory for the store"`
	Error   string `json:"error,omitzero" doc:"why it cannot be asked"`
}

// A Disk is the file system that the state folder is on.
type Disk struct {
	Path  string `json:"path"`
	Free  int64  `json:"free_bytes"`
	Total int64  `json:"total_bytes"`
}

// AddArgs are the arguments of addSource: an MCP server at a URL or started by a command; with a tool, a program that is one
// tool; or an OpenAPI document.
type AddArgs struct {
	Name    string   `json:"name,omitzero" doc:"of the source; default: from what is added"`
	URL     string   `json:"url,omitzero" doc:"of an MCP server"`
	Token   string   `json:"token,omitzero" doc:"bearer token for the URL; it is kept as a secret"`
	Command []string `json:"command,omitzero" doc:"program that is an MCP server, or with tool one tool, and its arguments"`
	Read    []string `json:"read,omitzero" doc:"files and folders that the MCP server may read"`
	Write   []string `json:"write,omitzero" doc:"files and folders that it may change"`
	Network []string `json:"network,omitzero" doc:"hosts that it may reach, or all"`
	Tool    string   `json:"tool,omitzero" doc:"the name of the command as a tool; {NAME} in the command becomes an argument"`
	About   string   `json:"description,omitzero" doc:"what that tool does"`
	API     string   `json:"document,omitzero" doc:"OpenAPI document: a file or a URL"`
	DryRun  bool     `json:"dry_run,omitzero" doc:"only show what would be written"`
}

// An Added is a source that was added, or would be.
type Added struct {
	Name   string   `json:"name"`
	Config string   `json:"config" doc:"the file"`
	Text   string   `json:"text" doc:"the lines of the source"`
	Tools  int      `json:"tools" doc:"how many it brings; of an MCP server 0 until it was tried"`
	Notes  []string `json:"notes,omitempty"`
}

// AddSource tries a source and writes it into the config.
type AddSource func(ctx context.Context, a AddArgs) (Added, error)

// Adding makes the tool addSource, if there is a config that it can change.
func Adding(add AddSource) *define.Set {
	if add == nil {
		return define.NewSet()
	}
	return define.NewSet(define.New(tool.Spec{
		Name: "addSource", Effects: tool.Effects{Writes: true, Network: true, Exec: true}, Timeout: 10 * time.Minute,
		Description: "Tries a source and writes it into the config, or only shows what would be written. For operators.",
	}, define.ForOperators("use addSource", func(ctx context.Context, _ *define.Call, a AddArgs) (Added, error) {
		return add(ctx, a)
	})))
}

// A Server answers the queries.
type Server interface {
	ShowConfig(ctx context.Context) (Config, error)
	ExplainPolicy(ctx context.Context, p tool.Principal, a ExplainArgs) (Explanation, error)
	ListCallers(ctx context.Context) (Callers, error)
	ShowUsage(ctx context.Context) (Usage, error)
}

// New makes the tools.
func New(s Server) *define.Set {
	return define.NewSet(
		question("showConfig", "Shows the config as it is on disk, without secrets, whether the server runs another "+
			"one, and what is wrong with it, with line numbers.",
			func(ctx context.Context, c *define.Call, _ struct{}) (Config, error) {
				cfg, err := s.ShowConfig(ctx)
				c.Summary = fmt.Sprintf("%d errors, %d problems", len(cfg.Errors), len(cfg.Problems))
				return cfg, err
			}),
		question("explainPolicy", "Explains what the policy decides about a call, which rule decided, and what each rule "+
			"has to do with it. Nothing is run.",
			func(ctx context.Context, c *define.Call, a ExplainArgs) (Explanation, error) {
				return s.ExplainPolicy(ctx, c.Caller, a)
			}),
		question("listCallers", "Lists the callers: their roles, the tools they may use, how they are recognised, and "+
			"what is known of their tokens.",
			func(ctx context.Context, c *define.Call, _ struct{}) (Callers, error) {
				all, err := s.ListCallers(ctx)
				c.Summary = define.Count(len(all.Callers), "caller")
				return all, err
			}),
		question("showUsage", "Shows how full the quotas, the queues for workers, the store and the disk are.",
			func(ctx context.Context, _ *define.Call, _ struct{}) (Usage, error) { return s.ShowUsage(ctx) }),
	)
}

// question defines a tool that changes nothing.
func question[A, O any](name, description string, run func(context.Context, *define.Call, A) (O, error)) define.Tool {
	return define.New(tool.Spec{
		Name: name, Description: description + " For operators.", Effects: tool.Effects{Reads: true},
	}, define.ForOperators("use "+name, run))
}
