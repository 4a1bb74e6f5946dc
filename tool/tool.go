// Package tool defines the types that all other packages share: what a tool is (Spec), one request (Call), what happens
// meanwhile (Event), how it ended (Result), and the one small interface that a door calls and a runner implements
// (Handler).
//
// The package uses the standard library alone. The JSON form of its types is the canonical one: the
// command line prints it with --json and the HTTP door answers with it.
package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"runtime/debug"
	"time"
)

// A Spec describes a tool. It is immutable once published: to change one, make a copy.
type Spec struct {
	Name        string          `json:"name"`
	Own         string          `json:"own,omitempty"`  // its source's name for it, if it is published under another; set by the engine
	Slug        string          `json:"slug,omitempty"` // its name for protocols that do not carry all names, if others claim its usual slug; set by the engine
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Source      string          `json:"source"`              // the configured source that brought it
	Protocol    string          `json:"protocol"`            // the protocol that runs it
	Aliases     []string        `json:"aliases,omitempty"`   // further names that resolve to it
	Input       json.RawMessage `json:"input,omitzero"`      // JSON Schema 2020-12, byte for byte as the source gave it
	Output      json.RawMessage `json:"output,omitzero"`     // likewise; anything is valid if it is absent
	Effects     Effects         `json:"effects,omitzero"`    //
	Tier        int             `json:"tier"`                // 0 safe .. 3 dangerous; see SettleTier for a tool that declares none
	TierFrom    TierFrom        `json:"tier_from,omitempty"` // the origin of Tier; empty until it is settled
	Timeout     time.Duration   `json:"-"`                   // timeout_ms in JSON; 0 means the engine's default
	Guarantees  Guarantees      `json:"guarantees,omitzero"`
	Walls       string          `json:"walls,omitempty"` // what it is confined to, in words; empty if it is not started here
	Held        Guarantees      `json:"-"`               // what these walls hold on every call, requested or not
	Room        *Room           `json:"-"`               // what these walls allow, for advice; nil if unknown
	// Unlisted is for tools about calls, such as those for jobs: a client that knows of one can use it, but it is in no
	// list of tools.
	Unlisted bool `json:"unlisted,omitempty"`
	MCPDefinition
	// Method is for what an MCP server offers beside tools: the request that a call stands for. Such a tool is unlisted,
	// and MCP doors offer it as what it is. Resources are those that can be read with it.
	Method    string     `json:"method,omitempty"`
	Resources []Resource `json:"-"`
	Elsewhere
	Connections []string `json:"-"` // of the callers, that its source uses
	// Skills are instructions for a model that the tool returns, each when it is called with {"name": ...}.
	Skills []Skill `json:"skills,omitempty"`
}

// Elsewhere is what a hub knows of a tool of other nodes.
type Elsewhere struct {
	Digest   string    `json:"-"` // of the definition
	Versions []Version `json:"-"` // further definitions, which get a share of its calls
}

// An MCPDefinition is what else an MCP server said about its tool, for MCP doors, which repeat it.
type MCPDefinition struct {
	TitleHint    bool            `json:"-"` // Title is one of its hints
	TaskSupport  string          `json:"-"` // whether calls may be tasks
	HintsIgnored bool            `json:"-"` // it gave hints about its effects, and its source does not trust them
	Extra        json.RawMessage `json:"-"` // further members, repeated as they are, such as icons and _meta; nil if there are none
}

// A Version is a further definition of a tool, by which some of its calls run.
type Version struct {
	Spec    *Spec
	From    int // of a hundred draws, the first that is its own
	Percent int
}

// OwnSource is the source of Toolpost's own tools; no source of a config may have this name.
const OwnSource = "toolpost"

// Looks reports whether the tool is one of Toolpost's own that only read. The console, the command line and followers look
// at calls with them, so their calls are of the kind OperatorCall.
func (s *Spec) Looks() bool { return s.Source == OwnSource && s.Effects.ReadOnly() }

// A Skill is a named set of instructions, so that protocols with prompts can offer it as one. The instructions are the
// member "instructions" of the tool's output.
type Skill struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// Effects lists the side effects of a tool, as far as its author declared them.
type Effects struct {
	Reads       bool `json:"reads,omitempty" doc:"reads data"`
	Writes      bool `json:"writes,omitempty" doc:"changes data"`
	Network     bool `json:"network,omitempty" doc:"uses the network"`
	Exec        bool `json:"exec,omitempty" doc:"runs programs"`
	Idempotent  bool `json:"idempotent,omitempty" doc:"a second identical call changes nothing more"`
	Destructive bool `json:"destructive,omitempty" doc:"may delete or overwrite data"`
	Pure        bool `json:"pure,omitempty" doc:"the same arguments give the same result, and nothing is changed"`
}

// ReadOnly reports whether a tool declares that it reads data of this machine and does nothing else.
func (e Effects) ReadOnly() bool { return e.ChangesNothing() && !e.Network }

// ChangesNothing reports whether a tool declares that it only reads or computes, on this machine or over the network.
func (e Effects) ChangesNothing() bool {
	return (e.Reads || e.Pure) && !e.Writes && !e.Exec && !e.Destructive
}

// Repeatable reports whether a call may run again if what became of it is not known: it changes nothing, here or over the network, or
// changes the same again.
func (e Effects) Repeatable() bool { return e.ChangesNothing() || e.Idempotent }

// Add joins effects that are known from two places. What changes something, or asks another machine, is not pure, whichever
// place says that it is.
func (e Effects) Add(o Effects) Effects {
	sum := Effects{
		Reads: e.Reads || o.Reads, Writes: e.Writes || o.Writes, Network: e.Network || o.Network, Exec: e.Exec || o.Exec,
		Idempotent: e.Idempotent || o.Idempotent, Destructive: e.Destructive || o.Destructive,
	}
	sum.Pure = (e.Pure || o.Pure) && !sum.Writes && !sum.Network && !sum.Exec && !sum.Destructive
	return sum
}

// Words lists the effects by their names.
func (e Effects) Words() (list []string) {
	for _, w := range []struct {
		on   bool
		name string
	}{
		{e.Reads, "reads"}, {e.Writes, "writes"}, {e.Network, "network"}, {e.Exec, "exec"},
		{e.Idempotent, "idempotent"}, {e.Destructive, "destructive"}, {e.Pure, "pure"},
	} {
		if w.on {
			list = append(list, w.name)
		}
	}
	return list
}

// Tier returns how dangerous the effects are: 0 safe, 1 writes, 2 system (programs, network), 3 dangerous.
func (e Effects) Tier() int {
	switch {
	case e.Destructive:
		return 3
	case e.Exec || e.Network:
		return 2
	case e.Writes:
		return 1
	}
	return 0
}

// A Call is one request. Stages that need another value copy the Call and never change it in place. Spec, Record and
// Watch are exceptions: the engine has its own copy of each call, in which the stages named beside them set these.
type Call struct {
	ID      string          // unique; the engine makes one if a door left it empty
	Tool    string          // the name as the caller wrote it
	Session string          // the session whose state the call uses; empty if none
	Args    json.RawMessage // the arguments, byte for byte as they came; validated bytes are the bytes that run
	Key     string          // idempotency key
	Lease   string          // lease token
	Trace   string          // trace id, a UUID; the engine makes one if a door left it empty
	Span    string          // the span of that trace which the call belongs to, 16 hexadecimal digits; empty if none
	Caller  Principal       // explicit, never hidden in the context
	Answers json.RawMessage // answers to an earlier Ask of the same call
	Resume  string          // which Ask they answer
	State   json.RawMessage // the session's state when the call began; set by the session stage
	Spec    *Spec           // set by the resolving stage; runners rely on it
	Scope   Scope           // which files it may use; set by the policy stage; nil means all that its source offers
	// Guarantees are walls around this call beside those of its tool. The caller asks for some, stages add others, and
	// none is ever taken away. A runner that cannot hold them refuses the call. See Tightened.
	Guarantees Guarantees
	// Consent is the approval that the call needs before it runs; set by the policy stage; nil if it needs none.
	Consent *Consent
	// Parent is the id of the call that made this one, as a plan makes those of its tools. Only code inside sets it: a
	// call from a door has none, whatever its client says. See Inner.
	Parent string
	// Depth is the number of calls above this one: 0 for a call from outside, one more for each nested call. A job has
	// the depth of the call that started it, so that a job cannot be used to get back to 0.
	Depth      int
	DryRun     bool      // only decide: the outcome reports the decision of policy, and nothing runs
	Run        string    // the run of an agent that it belongs to, according to the caller; empty if none
	Background bool      // no client is waiting, so writes may block on the store
	Handover   *Handover // for the record of a call whose caller writes it together with the outcome; nil if it does not
	FromHub    bool      // it came from a hub of the fleet, whose stages it has passed
	LogLevel   string    // the least severe messages that an MCP client wants, by their name there; empty if it did not say
	Notes
}

// Notes are what the engine and its stages keep about a call while it runs.
type Notes struct {
	Record *Record   // stages note their decisions here; set by the audit stage; nil if no records are kept
	Watch  Watch     // the chain notes its progress here; set by the stage calls
	Began  time.Time // when the call arrived; set by the engine; see Start
	// Memo holds what a runner found out about the call when it was asked for its touches, so that it need not do so
	// again when the call runs. Set by the engine; nil if nothing is kept.
	Memo *Memo
	// Holds returns an error if another call has taken the idempotency key: the call must not begin then on a machine that may not know
	// it. Set by the stage for such keys; nil if the call has none.
	Holds func() error
	// Credentials are what the caller has connected for the tool's source; set by the connection stage.
	Credentials []*Credential
}

// A Handover gives a caller that stores the outcome of a call the record of that call, so that both are written at once.
type Handover struct {
	Record *Record           // set by the audit stage if the call ran and may have changed something; nil if it is written
	Missed func(error) error // to be told if the record cannot be written; it returns the error of the call
}

// A Memo holds what the runner already knows of a call. All copies of a call share it.
type Memo struct {
	Args json.RawMessage // the arguments that Read was decoded from
	Read any             // the arguments as a value of the tool's own type
	View any             // the part of a workspace that the call sees
	// Leased is one more than the tier up to which a lease of the call has been used.
	Leased int
	// Secrets knows what is secret in this call alone, such as the keys of its caller; nil means nothing. It is a *secret.Redactor.
	Secrets any
}

// Start returns when the call came into the engine. All stages measure from there: reading the clock takes a hundredth
// of a small call, and each stage would do it.
func (c *Call) Start() time.Time {
	if c.Began.IsZero() {
		return time.Now()
	}
	return c.Began
}

// Definition identifies the definition by which the call is judged, if its tool is one of other nodes, which may have several.
func (c *Call) Definition() string {
	if c.Spec == nil {
		return ""
	}
	return c.Spec.Digest
}

// MaxDepth is the greatest depth of a call; the engine refuses deeper ones. It stops recursion through plans or code,
// which no limit of a single call would.
const MaxDepth = 8

// Inner returns a call that c makes of another tool: for the same caller, as a part of the same run and trace, behind
// the walls that c was given, and one deeper. It has no session; the code that wants that of c sets it.
func (c *Call) Inner(name string, args json.RawMessage) *Call {
	return &Call{
		Tool: name, Args: args, Caller: c.Caller, Run: c.Run, Trace: c.Trace, Span: c.Span, Parent: c.ID,
		Depth: c.Depth + 1, Guarantees: c.Guarantees, Background: c.Background,
	}
}

// A Kind is the type of an Event.
type Kind string

// The seven kinds. The Data of each is the JSON object named beside it.
const (
	KindLog        Kind = "log"         // Log
	KindProgress   Kind = "progress"    // Progress
	KindOutput     Kind = "output"      // Output
	KindStatePatch Kind = "state_patch" // the patch itself, an object
	KindAsset      Kind = "asset"       // Asset
	KindUIEvent    Kind = "ui_event"    // UIEvent
	KindError      Kind = "error"       // ErrorEvent: an error that the tool reported and survived
)

// An Event is one observation while a call runs.
type Event struct {
	Seq  uint64          `json:"seq"`  // 1, 2, 3 ... within the call; set by the engine
	Time time.Time       `json:"time"` // set by the engine if a runner left it zero
	Kind Kind            `json:"kind"`
	Data json.RawMessage `json:"data"` // one JSON object; owned by the event, never reused by the emitter
	// File is the file of an asset, opened by the runner, which knows what the tool may read; it is valid until Emit
	// returns. It is nil if the asset is on another machine, whose path means nothing here.
	File *os.File `json:"-"`
	// Blocked describes what a wall stopped, if the event reports that.
	Blocked *Blocked `json:"-"`
	// Ours is set if a stage of the chain reports the event, not the tool.
	Ours bool `json:"-"`
}

// Log is the data of a log event.
type Log struct {
	Level   string          `json:"level"` // debug, info, warn, error
	Message string          `json:"message"`
	Fields  json.RawMessage `json:"fields,omitzero"`
	// Set for an MCP server, which has more levels than we have, may name its loggers, and may send any JSON: Data, if it
	// is neither a text nor an object.
	Severity string          `json:"severity,omitempty"`
	Logger   string          `json:"logger,omitempty"`
	Data     json.RawMessage `json:"data,omitzero"`
}

// Progress is the data of a progress event.
type Progress struct {
	Progress float64 `json:"progress"`
	Total    float64 `json:"total,omitempty"`
	Message  string  `json:"message,omitempty"`
}

// Output is the data of an output event: a piece of the result that is ready before the rest.
type Output struct {
	Stream string `json:"stream,omitempty"` // stdout, stderr, or a name that the tool chose
	Text   string `json:"text"`
}

// Asset is the data of an asset event: a file that the tool made. SHA256 and Size are set once the asset is registered.
type Asset struct {
	AssetID   string          `json:"assetId"`
	Kind      string          `json:"kind,omitempty"`
	MediaType string          `json:"mediaType"`
	Path      string          `json:"path"`
	Metadata  json.RawMessage `json:"metadata,omitzero"`
	SHA256    string          `json:"sha256,omitempty"`
	Size      int64           `json:"size,omitempty"`
}

// UIEvent is the data of a ui_event: something the caller's interface may show or ask.
type UIEvent struct {
	Event   string          `json:"event"`
	Payload json.RawMessage `json:"payload,omitzero"`
}

// ErrorEvent is the data of an error event.
type ErrorEvent struct {
	Code    string          `json:"errorCode"`
	Message string          `json:"errorMessage"`
	Details json.RawMessage `json:"details,omitzero"`
}

// NewEvent makes an event of one of the data types above.
func NewEvent(k Kind, data any) Event {
	b, err := json.Marshal(data)
	if err != nil { // only an invalid RawMessage inside data gets here
		b, _ = json.Marshal(ErrorEvent{Code: string(CodeProtocol), Message: "event data is not JSON: " + err.Error()})
		k = KindError
	}
	return Event{Kind: k, Data: b}
}

// LogEvent makes a log event.
func LogEvent(level, message string) Event {
	return NewEvent(KindLog, Log{Level: level, Message: message})
}

// A Result is the outcome of a call whose tool answered. A tool's own failure is a Result with OK false and a Failure;
// the outcome of a call without a Result is the Go error of its Handler.
type Result struct {
	OK      bool            `json:"ok"`
	Output  json.RawMessage `json:"output,omitzero"`
	Summary string          `json:"summary,omitempty"`
	Failure *Error          `json:"error,omitempty"`
	Ask     *Ask            `json:"ask,omitempty"` // the tool needs an answer first: call again with Call.Answers
	Trace   Trace           `json:"trace,omitzero"`
	// Content is the result of an MCP server as the server wrote it, for doors that speak MCP; Output and Failure hold the
	// same for all others. It is nil if the tool is not one of an MCP server. A store keeps it beside the Result.
	Content *Content `json:"-"`
}

// Content is a list of texts, pictures and the like, in the order in which a model reads them.
type Content struct {
	Blocks     []json.RawMessage `json:"blocks"`              // JSON objects, or whatever else the server sent
	Structured bool              `json:"structured,omitzero"` // the server sent Output with them; else it was made of their texts
	Meta       json.RawMessage   `json:"meta,omitzero"`       // the _meta of the result
}

// Size returns its size in bytes; that of nil is 0.
func (c *Content) Size() (n int) {
	if c == nil {
		return 0
	}
	for _, block := range c.Blocks {
		n += len(block)
	}
	return n + len(c.Meta)
}

// A Stored is a Result as it is stored: with its Content.
type Stored struct {
	Result
	Content *Content `json:"content,omitzero"`
}

// Elapsed returns the duration of the call that began at start. It takes it from the result if it can, since reading
// the clock takes a hundredth of a small call. The result may be nil.
func (r *Result) Elapsed(start time.Time) time.Duration {
	if r != nil && r.Trace.Duration > 0 {
		return r.Trace.Duration
	}
	return time.Since(start)
}

// An Ask is a tool's question that it needs answered before it can go on, returned as an outcome: the call is made
// again with the answers. Most ask a person one question; Needs is for the rest.
type Ask struct {
	ID      string          `json:"id"` // Call.Resume repeats it
	Message string          `json:"message"`
	Kind    string          `json:"kind,omitzero"` // AskApproval, AskConnection, or empty if the tool itself asks
	Awaits  *Awaited        `json:"approval,omitzero"`
	Schema  json.RawMessage `json:"schema,omitzero"` // of the answers, if there are no Needs
	// Needs is for several questions, or for those that no person answers. Answers are then an object with a member for
	// each, by its Key.
	Needs []Need `json:"needs,omitzero"`
	// Drop tells a tool that waits for the answer that there will be none. It is nil if no tool waits, and has no effect
	// once the question is answered.
	Drop func() `json:"-"`
}

// A NeedKind defines who is asked, and for what.
type NeedKind string

// The kinds of needs, each with the form of its answer. If the caller cannot be asked, or fails to answer, the answer to
// any of them is {"error": {"code": -32603, "message": "..."}}.
const (
	NeedForm  NeedKind = "form"  // a person fills in Schema: {"action": "accept|decline|cancel", "content": {...}}
	NeedLink  NeedKind = "link"  // a person goes to a URL, which is in Params: {"action": "accept|decline|cancel"}
	NeedModel NeedKind = "model" // the caller's model continues the messages in Params: {"role", "content", "model"}
	NeedRoots NeedKind = "roots" // the caller lists the folders it works in: {"roots": [{"uri", "name"}]}
)

// A Need is one of the questions of an Ask.
type Need struct {
	Key     string          `json:"key"`
	Kind    NeedKind        `json:"kind"`
	Message string          `json:"message,omitzero"`
	Schema  json.RawMessage `json:"schema,omitzero"` // of a form's content
	Params  json.RawMessage `json:"params,omitzero"` // further data for the one that answers
	// Optional is set if the tool can go on without an answer when the caller cannot provide one.
	Optional bool `json:"optional,omitzero"`
}

// A person's possible reactions to a form or a link.
const (
	Accept  = "accept"
	Decline = "decline" // a clear no
	Cancel  = "cancel"  // neither yes nor no
)

// A Trace describes how a call was run. Details are in the words of the protocol that ran it.
type Trace struct {
	ID       string         `json:"id,omitempty"`
	Call     string         `json:"call,omitempty"`
	Tool     string         `json:"tool,omitempty"`
	Source   string         `json:"source,omitempty"`
	Protocol string         `json:"protocol,omitempty"`
	Start    time.Time      `json:"start,omitzero"`
	Duration time.Duration  `json:"-"`                // duration_ms in JSON
	Cached   bool           `json:"cached,omitempty"` // it is the outcome of an earlier call, and nothing ran
	Details  map[string]any `json:"details,omitempty"`
}

// A Sink takes the events of one call in order. Emit blocks for back-pressure. An error from it means that the receiver
// has gone: the emitter stops the call and returns that error. The Sink that the engine passes to a runner may be used
// by several goroutines at once.
type Sink interface {
	Emit(Event) error
}

// SinkFunc makes a Sink of a function.
type SinkFunc func(Event) error

// Emit calls f.
func (f SinkFunc) Emit(e Event) error { return f(e) }

// Discard is a Sink for callers that want the outcome alone.
var Discard Sink = SinkFunc(func(Event) error { return nil })

// A Handler runs a call: events to out, exactly one outcome returned.
//
//   - Exactly one of the two results is nil.
//   - A tool's own failure is a Result. An error, always an *Error by the time a door sees it, means
//     that there is no result: refused, crashed, timed out, cancelled.
//   - When ctx ends, Invoke returns promptly, and nothing that it started is left running.
//   - After Invoke returned, out is no longer used.
//   - A call is never changed; its Args are only read.
type Handler interface {
	Invoke(ctx context.Context, c *Call, out Sink) (*Result, error)
}

// HandlerFunc makes a Handler of a function.
type HandlerFunc func(ctx context.Context, c *Call, out Sink) (*Result, error)

// Invoke calls f.
func (f HandlerFunc) Invoke(ctx context.Context, c *Call, out Sink) (*Result, error) {
	return f(ctx, c, out)
}

// A Middleware is a stage of the engine: it wraps a handler and only ever subtracts: it refuses,
// delays, records or replays, and never widens what a caller may do.
type Middleware func(Handler) Handler

// First makes a stage that does something with a call before it goes on. An error refuses the call.
func First(do func(context.Context, *Call) error) Middleware {
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, c *Call, out Sink) (*Result, error) {
			if err := do(ctx, c); err != nil {
				return nil, err
			}
			return next.Invoke(ctx, c, out)
		})
	}
}

// Recovered turns a panic of anything inside into an internal error, whose details are in log, and every error into an
// *Error. Callers are told where the details are.
func Recovered(log *slog.Logger, where string) Middleware {
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, c *Call, out Sink) (r *Result, err error) {
			defer Recover(log, "a call panicked", func() []any {
				r, err = nil, Errorf(CodeInternal, "%s: an internal error; %s has the details", c.Tool, where)
				return []any{"tool", c.Tool, "call", c.ID}
			})
			if r, err = next.Invoke(ctx, c, out); err != nil {
				return nil, AsError(err)
			}
			return r, nil
		})
	}
}

// Recover is for a defer statement: it ends a panic, and logs it. answer sets what is returned instead, and returns what
// the log has to know.
func Recover(log *slog.Logger, message string, answer func() []any) {
	if p := recover(); p != nil {
		log.Error(message, append(answer(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))...)
	}
}

// A Runner is a bound source: it runs the calls of its tools and owns what it started for them.
// Close ends all of it, within the time that ctx gives, and is called once, after the last Invoke.
type Runner interface {
	Handler
	Close(ctx context.Context) error
}

// Opened returns the results of a protocol's Open. If the runner could not be made it is nil, and not a nil pointer in
// an interface, which would compare unequal to nil.
func Opened[R Runner](r R, err error) (Runner, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// A Source brings tools. The specs' Source and Protocol are set by the engine.
type Source interface {
	Tools(ctx context.Context) ([]*Spec, error)
}

// A Catalog lists the tools that a caller may see.
type Catalog interface {
	// Lookup finds a tool by name or alias. Unknown and invisible tools result in the same not_found.
	Lookup(ctx context.Context, p Principal, name string) (*Spec, error)
	// Specs yields every visible tool, sorted by name. A tool that cannot be called now comes with the reason as its
	// error; the listing goes on after it. A source that could not even list its tools comes as a Spec that has a Source
	// and no Name.
	Specs(ctx context.Context, p Principal) iter.Seq2[*Spec, error]
}

// A Door takes calls from outside, in its protocol, to h. Serve returns nil when ctx ended or the peer disconnected in
// good order, after the calls in flight have been answered or cancelled.
type Door interface {
	Serve(ctx context.Context, h Handler, c Catalog) error
}
