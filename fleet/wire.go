package fleet

import (
	"encoding/json"
	"slices"
	"time"

	"toolpost/engine/policy"
	"toolpost/tool"
	"toolpost/wire/packed"
	"toolpost/wire/receipt"
	"toolpost/wire/strictjson"
)

// The subjects. Every node subscribes to one subject, to which hubs alone may publish. It answers on the subject of the
// hub's stream, which names the node: a server lets no node publish below the name of another.
const (
	subjectJoin    = "fleet.join"    // requests of nodes that join
	subjectJoined  = "fleet.joined." // the answers, each for one connection
	subjectUp      = "fleet.up."     // announcements of a node
	subjectHubs    = "fleet.hubs"    // the addresses of the hubs, from each of them
	subjectNode    = "fleet.node."   // what a hub sends to a node
	subjectStreams = "fleet.hub."    // HUB.NODE.STREAM: what a node sends to a hub
)

// linkVersion is the version of what nodes say to each other. A hub takes nodes of its own version and of the one before.
const linkVersion = 2

const (
	reasonLink = tool.ReasonLink
	reasonGone = tool.ReasonGone
)

// A request is a call on its way to a node. The bytes of the arguments, the answers and the state follow it unchanged.
type request struct {
	To         string          `json:"to"`    // the run of the node's program that it is for: no other one takes it
	Reply      string          `json:"reply"` // the subject of its stream: it counts in no other one
	Attempt    int             `json:"attempt"`
	Call       string          `json:"call"`
	Source     string          `json:"source"`
	Tool       string          `json:"tool"`
	Digest     string          `json:"digest"` // of the tool's definition, as the hub knows it
	Caller     string          `json:"caller"`
	Door       string          `json:"door"`
	Roles      []string        `json:"roles,omitempty"`
	Session    string          `json:"session,omitempty"`
	Key        string          `json:"key,omitempty"`
	Run        string          `json:"run,omitempty"`
	Trace      string          `json:"trace,omitempty"`
	Span       string          `json:"span,omitempty"`
	Parent     string          `json:"parent,omitempty"`
	Depth      int             `json:"depth,omitempty"`
	Resume     string          `json:"resume,omitempty"`
	LogLevel   string          `json:"log_level,omitempty"`
	Receipt    int             `json:"receipt,omitempty"` // the version of the receipt that the hub asks for; 0: none
	Left       time.Duration   `json:"left,omitempty"`    // the time that the call still has; 0: no limit. A duration, since clocks differ
	Guarantees tool.Guarantees `json:"guarantees,omitzero"`
	Scope      json.RawMessage `json:"scope,omitzero"` // the files that the policy of the hub leaves to the call
	Keys       []byte          `json:"keys,omitempty"` // of the connections of its caller: see purpose
}

// newRequest writes a call for a node.
func newRequest(c *tool.Call, to, reply string, attempt int, digest string, left time.Duration) (r request, err error) {
	r = request{
		To: to, Reply: reply, Attempt: attempt, Call: c.ID, Source: c.Spec.Source, Tool: ownName(c.Spec), Digest: digest,
		Caller: c.Caller.ID, Door: c.Caller.Door, Roles: c.Caller.Roles(), Session: c.Session, Key: c.Key, Run: c.Run,
		Trace: c.Trace, Span: c.Span, Parent: c.Parent, Depth: c.Depth, Resume: c.Resume, LogLevel: c.LogLevel, Left: left,
		Guarantees: c.Guarantees,
	}
	if c.Scope != nil {
		r.Scope, err = strictjson.Marshal(c.Scope)
	}
	if !c.Spec.Effects.Repeatable() {
		r.Receipt = receipt.Version
	}
	return r, err
}

// call is the inverse. The rights of the caller were judged by the hub; the roles remain for the node's own policy.
func (r *request) call(args, answers, state []byte) (c *tool.Call, err error) {
	c = &tool.Call{
		FromHub: true, ID: r.Call, Tool: r.Source + "." + r.Tool, Session: r.Session, Key: r.Key, Run: r.Run, Trace: r.Trace, Span: r.Span,
		Parent: r.Parent, Depth: r.Depth, Resume: r.Resume, LogLevel: r.LogLevel, Guarantees: r.Guarantees,
		Caller: tool.Principal{ID: r.Caller, Door: r.Door, Rights: &tool.Rights{Roles: r.Roles}},
		Args:   args, Answers: answers, State: state,
	}
	if len(r.Scope) > 0 {
		c.Scope, err = policy.ReceiveScope(r.Scope, c)
	}
	return c, err
}

// purpose binds the keys of a call to the one stream on which a node runs it once.
func (r *request) purpose() []byte { return []byte(r.To + "\x00" + r.Reply + "\x00" + r.Call) }

// ownName is the name of a tool at its source.
func ownName(s *tool.Spec) string {
	if s.Own != "" {
		return s.Own
	}
	return s.Name
}

// at returns one of the raw parts, or nil.
func at(raw [][]byte, i int) []byte {
	if i < len(raw) {
		return raw[i]
	}
	return nil
}

// A reply is a result without its output and its content, which follow it unchanged.
type reply struct {
	tool.Result
	Output     json.RawMessage `json:"output,omitzero"` // hides that of the result, and is empty
	Structured bool            `json:"structured,omitzero"`
	Content    bool            `json:"content,omitzero"` // the raw bytes behind the output are the _meta and the blocks of a content
	Drops      bool            `json:"drops,omitzero"`   // a program waits for the answer to the question
}

func encodeResult(r *tool.Result) ([]byte, error) {
	out := reply{Result: *r, Drops: r.Ask != nil && r.Ask.Drop != nil}
	out.Trace = tool.Trace{Cached: r.Trace.Cached, Details: r.Trace.Details} // the hub has its own
	raw := [][]byte{r.Output}
	if c := r.Content; c != nil {
		out.Content, out.Structured = true, c.Structured
		raw = append(raw, c.Meta)
		for _, block := range c.Blocks {
			raw = append(raw, block)
		}
	}
	return packed.Write(&out, raw...)
}

func decodeResult(b []byte) (r *tool.Result, drops bool, err error) {
	var in reply
	raw, err := packed.Read(b, &in)
	if err == nil {
		err = checkJSON(raw...)
	}
	if err != nil {
		return nil, false, err
	}
	in.Result.Output = at(raw, 0)
	if in.Content {
		c := &tool.Content{Structured: in.Structured, Meta: at(raw, 1)}
		for _, block := range raw[min(2, len(raw)):] {
			c.Blocks = append(c.Blocks, block)
		}
		in.Result.Content = c
	}
	return &in.Result, in.Drops, nil
}

// checkJSON refuses raw parts that are no JSON. Blocks of an MCP server need not be strict.
func checkJSON(raw ...[]byte) error {
	for _, r := range raw {
		if err := strictjson.Check(r); len(r) > 0 && err != nil && !strictjson.Loose(r) {
			return err
		}
	}
	return nil
}

// An event is an event without its data, which follow it unchanged.
type event struct {
	Kind    tool.Kind     `json:"kind"`
	Time    time.Time     `json:"time,omitzero"`
	Blocked *tool.Blocked `json:"blocked,omitzero"`
	Ours    bool          `json:"ours,omitzero"`
	File    bool          `json:"file,omitzero"` // the bytes of its file came before it
	SHA256  []byte        `json:"sha256,omitzero"`
}

// encodeError writes an error, with its class.
func encodeError(err error) []byte {
	b, bad := strictjson.Marshal(wireError{tool.AsError(err), tool.NotRun(err)})
	if bad != nil {
		b, _ = strictjson.Marshal(wireError{Error: &tool.Error{Code: tool.CodeOf(err), Message: "its message cannot be sent"}})
	}
	return b
}

// A wireError is an error on its way to another machine.
type wireError struct {
	*tool.Error
	Before bool `json:"before_run,omitzero"` // the tool has done nothing
}

// ended reads an error.
func ended(b []byte) error {
	var in wireError
	if err := strictjson.Unmarshal(b, &in); err != nil || in.Error == nil || in.Code == "" {
		return tool.Errorf(tool.CodeProtocol, "a node of the fleet sent an error that cannot be read").Because(reasonLink)
	}
	if !slices.Contains(tool.Codes(), in.Code) { // metrics count by code: a node makes up none
		in.Code = tool.CodeInternal
	}
	if in.Before {
		return tool.BeforeRun(in.Error)
	}
	return in.Error
}
