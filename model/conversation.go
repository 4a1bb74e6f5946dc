package model

import (
	"encoding/json"
	"net/http"
	"strings"

	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Request is a conversation for a model to continue.
type Request struct {
	Messages []Message
	Tools    []Tool
	Choice   Choice
	Serial   bool // the model should call one tool at a time
	Settings Settings

	// A request that came in the form of an API goes to a server of that API unchanged: Base has its members, and
	// InBase is how many of Messages they contain.
	Of     API
	Base   map[string]json.RawMessage
	InBase int
	Header http.Header
	Query  string // with its question mark
}

// body begins the document for a server of an API. It returns the member with the conversation so far and the messages
// that are yet to be encoded.
func (r *Request) body(api API, m *Model, said string) (doc object, before json.RawMessage, rest []Message, err error) {
	if r.Of != api {
		words := api
		if api == Responses { // its parameters are nearly the same
			words = OpenAI
		}
		doc, err = r.Settings.in(words, m, r.Of)
		return doc, nil, r.Messages, err
	}
	doc = object{}
	for name, value := range r.Base {
		doc[name] = value
	}
	return doc, r.Base[said], r.Messages[r.InBase:], nil
}

// joined returns a list as it came, with more elements appended.
func joined(before json.RawMessage, more []any) []any {
	var had []json.RawMessage
	_ = strictjson.Unmarshal(before, &had) // a list that was parsed before
	return append(list(had, func(one json.RawMessage) any { return one }), more...)
}

// Settings are the other parameters of a request, such as temperature, in the form of an API. A server of another API
// gets those that it has an equivalent for.
type Settings struct {
	API    API
	Values map[string]json.RawMessage
}

// A Role is the author of a message.
type Role string

// The roles.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	ToolRole  Role = "tool" // its parts are results
)

// A Message is one message of a conversation.
type Message struct {
	Role  Role
	Name  string // of the author, if several share a role
	Parts []Part
}

// A Kind is the type of a Part.
type Kind string

// The kinds.
const (
	Text     Kind = "text"
	Thinking Kind = "thinking" // a model's reasoning
	Refusal  Kind = "refusal"
	Image    Kind = "image"
	Calls    Kind = "call"   // the model calls a tool
	Results  Kind = "result" // the result of a call
	Other    Kind = "other"  // specific to one API, in Raw
	Extra    Kind = "extra"  // what only one API has beside a text, in Raw: a piece of its block, or members of its message
)

// A Part is a piece of a message.
type Part struct {
	Kind   Kind
	Text   string // of a text, a thought, a refusal
	Seal   string // of a thought: its server wants it back together with the thought
	URL    string // of an image; its data too, as a data: URL
	Call   Call
	Result Result
	// Raw is the part as it came, including what no other API knows; Of is its API.
	Raw json.RawMessage
	Of  API
}

// A Call is a model's request to call a tool.
type Call struct {
	ID   string
	Name string
	Args string // JSON, unless the model made a mistake
}

// A Result is the result of a Call.
type Result struct {
	ID     string // of the call
	Parts  []Part // texts and images
	Failed bool
}

// TextResult returns a result that consists of a text.
func TextResult(id, text string, failed bool) Result {
	return Result{ID: id, Parts: []Part{{Kind: Text, Text: text}}, Failed: failed}
}

// Text returns the text of a result, without its images.
func (r Result) Text() string { return textOf(r.Parts, Text) }

// Marked is Text for chat completions, which cannot express a failure.
func (r Result) Marked() string {
	if r.Failed {
		return "Error: " + r.Text()
	}
	return r.Text()
}

func textOf(parts []Part, kind Kind) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Kind == kind {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// A Tool is a tool that a model may call.
type Tool struct {
	Name        string
	Description string
	Input       json.RawMessage // JSON Schema of an object
	Strict      bool            // the model must follow the schema
	Raw         json.RawMessage // as its owner has written it, for the API Of; nil if it is not tied to an API
	Of          API
}

// A Choice states whether a model calls tools.
type Choice struct {
	Mode Mode
	Tool string          // of mode One
	Raw  json.RawMessage // as the request has it, for the API of the request
}

// Lets reports whether the choice allows the next answer to call a tool. A server may ignore its choice.
func (c Choice) Lets(name string) bool { return c.Mode != None && (c.Mode != One || c.Tool == name) }

// A Mode is a kind of Choice.
type Mode string

// The modes.
const (
	Auto Mode = ""     // the model decides
	None Mode = "none" // not at all
	Any  Mode = "any"  // at least one
	One  Mode = "one"  // this one
)

// An Answer is a model's next message.
type Answer struct {
	Header http.Header // of the server
	Parts  []Part
	Finish Finish
	Usage  Usage
	Rest   map[string]json.RawMessage // members of the server's document, as they came
}

// Text returns the text of the answer.
func (a *Answer) Text() string { return textOf(a.Parts, Text) }

// Refusal returns why the model does not answer, or "" if it does.
func (a *Answer) Refusal() string { return textOf(a.Parts, Refusal) }

// Calls lists the calls that the model requests.
func (a *Answer) Calls() (list []Call) {
	for _, p := range a.Parts {
		if p.Kind == Calls {
			list = append(list, p.Call)
		}
	}
	return list
}

// clean removes secrets from an answer. Texts of one kind are treated as one, since some APIs join them; a part with a
// seal must stay as it was sealed.
func (a *Answer) clean(r *secret.Redactor) {
	texts := map[Kind]*secret.Stream{}
	for i := range a.Parts {
		p := &a.Parts[i]
		if texts[p.Kind] == nil {
			texts[p.Kind] = &secret.Stream{Redactor: r}
		}
		p.Text = texts[p.Kind].Write(p.Text)
		if i+1 == len(a.Parts) || a.Parts[i+1].Kind != p.Kind || p.Seal != "" {
			p.Text += texts[p.Kind].Pause()
		}
		p.Seal, p.Raw = r.String(p.Seal), r.JSON(p.Raw)
		p.Call = Call{r.String(p.Call.ID), r.String(p.Call.Name), string(r.JSON(json.RawMessage(p.Call.Args)))}
	}
	for name, value := range a.Rest {
		a.Rest[name] = r.JSON(value)
	}
}

// A Finish is why a model stopped.
type Finish string

// The reasons.
const (
	Stopped  Finish = "stop"     // the answer is complete
	Called   Finish = "calls"    // it waits for tools
	Length   Finish = "length"   // it reached its length limit
	Filtered Finish = "filter"   // its server does not allow the answer
	Refused  Finish = "refusal"  // the model refuses
	Paused   Finish = "pause"    // it continues when it is asked again
	Sequence Finish = "sequence" // it produced a stop sequence
)

// Usage is how many tokens were used.
type Usage struct {
	In       int64 // read, including those in the server's cache
	Cached   int64 // of In
	Written  int64 // of In: into the server's cache
	Out      int64 // written, with thoughts
	Thoughts int64 // of Out
}

// Add adds v.
func (u *Usage) Add(v Usage) {
	u.In, u.Cached, u.Written = u.In+v.In, u.Cached+v.Cached, u.Written+v.Written
	u.Out, u.Thoughts = u.Out+v.Out, u.Thoughts+v.Thoughts
}

// maxUsage is more than any request uses, and small enough that sums do not overflow.
const maxUsage = 1 << 40

// sane returns the usage without impossible values: negative ones would offset the use of other rounds.
func (u Usage) sane() Usage {
	within := func(n int64) int64 { return min(max(n, 0), maxUsage) }
	return Usage{within(u.In), within(u.Cached), within(u.Written), within(u.Out), within(u.Thoughts)}
}

// Total returns the sum.
func (u Usage) Total() int64 { return u.In + u.Out }

// carries refuses tools that only another API knows.
func (r *Request) carries(m *Model) error {
	for _, t := range r.Tools {
		if len(t.Input) == 0 && (t.Raw == nil || t.Of != m.API) {
			return tool.Errorf(tool.CodeInvalidInput, "tools: model %s speaks the API %s, which does not know the tool "+
				"%.100q; leave it out, or use a model with api: %s", m.Name, m.API, t.Name, t.Of)
		}
	}
	return nil
}
