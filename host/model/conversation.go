package model

import (
	"encoding/json"
	"net/http"
	"strings"

	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Request is a conversation that a model is to go on with.
type Request struct {
	Messages []Message
	Tools    []Tool
	Choice   Choice
	Serial   bool // the model is to call one tool at a time
	Settings Settings

	// A request that came in the words of an API goes to a server of that API as it came: Base has its members, and Came says how
	// many of Messages are in them.
	Of     API
	Base   map[string]json.RawMessage
	Came   int
	Header http.Header
	Query  string // with its question mark
}

// body begins the document for a server of an API, and gives the member with what was said so far and the messages that are
// yet to be written.
func (r *Request) body(api API, m *Model, said string) (doc object, before json.RawMessage, rest []Message, err error) {
	if r.Of != api {
		words := api
		if api == Responses { // which has nearly the same
			words = OpenAI
		}
		doc, err = r.Settings.in(words, m, r.Of)
		return doc, nil, r.Messages, err
	}
	doc = object{}
	for name, value := range r.Base {
		doc[name] = value
	}
	return doc, r.Base[said], r.Messages[r.Came:], nil
}

// joined is a list that came, with more behind it.
func joined(before json.RawMessage, more []any) []any {
	var list []json.RawMessage
	_ = strictjson.Unmarshal(before, &list) // a list that was read
	all := make([]any, 0, len(list)+len(more))
	for _, one := range list {
		all = append(all, one)
	}
	return append(all, more...)
}

// Settings are what else a request says, such as temperature, in the words of an API. A server that speaks another one
// gets what that has a word for.
type Settings struct {
	API    API
	Values map[string]json.RawMessage
}

// A Role is who says something.
type Role string

// The roles.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	ToolRole  Role = "tool" // its parts are results
)

// A Message is what somebody says at once.
type Message struct {
	Role  Role
	Name  string // of who says it, where there are several of a role
	Parts []Part
}

// A Kind says what a Part is.
type Kind string

// The kinds.
const (
	Text     Kind = "text"
	Thinking Kind = "thinking" // what a model says to itself
	Refusal  Kind = "refusal"
	Image    Kind = "image"
	Calls    Kind = "call"   // the model calls a tool
	Results  Kind = "result" // what came of that
	Other    Kind = "other"  // what only one API knows: Raw has it
)

// A Part is a piece of a message.
type Part struct {
	Kind   Kind
	Text   string // of a text, a thought, a refusal
	Seal   string // of a thought: what its server wants to see again with it
	URL    string // of an image; its data too, as a data: URL
	Call   Call
	Result Result
	// Raw is the part as it came, with what no other API knows of it; Of says which API that is.
	Raw json.RawMessage
	Of  API
}

// A Call is a tool that a model wants to be called.
type Call struct {
	ID   string
	Name string
	Args string // JSON, if the model writes it correctly
}

// A Result is what is told of a Call.
type Result struct {
	ID     string // of the call
	Parts  []Part // texts and images
	Failed bool
}

// TextResult is a result in words.
func TextResult(id, text string, failed bool) Result {
	return Result{ID: id, Parts: []Part{{Kind: Text, Text: text}}, Failed: failed}
}

// Text is what a result says, without its images.
func (r Result) Text() string { return textOf(r.Parts, Text) }

// Marked is Text for chat completions, which have no word for a failure.
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

// A Tool is one that a model may call.
type Tool struct {
	Name        string
	Description string
	Input       json.RawMessage // JSON Schema of an object
	Strict      bool            // the model is held to the schema
	Raw         json.RawMessage // as its owner has written it, of the API Of; nil: in no API's words
	Of          API
}

// A Choice says whether a model calls tools.
type Choice struct {
	Mode Mode
	Tool string          // of mode One
	Raw  json.RawMessage // as the request has it, of the API of the request
}

// Lets reports whether the choice lets the next answer call a tool. A server may pass over what it was told.
func (c Choice) Lets(name string) bool { return c.Mode != None && (c.Mode != One || c.Tool == name) }

// A Mode is one way to choose.
type Mode string

// The modes.
const (
	Auto Mode = ""     // as the model likes
	None Mode = "none" // not at all
	Any  Mode = "any"  // at least one
	One  Mode = "one"  // this one
)

// An Answer is what a model says next.
type Answer struct {
	Header http.Header // of the server
	Parts  []Part
	Finish Finish
	Usage  Usage
}

// Text is what the answer says in words.
func (a *Answer) Text() string { return textOf(a.Parts, Text) }

// Refusal is why the model does not answer; empty: it does.
func (a *Answer) Refusal() string { return textOf(a.Parts, Refusal) }

// Calls lists what the model wants to be called.
func (a *Answer) Calls() (list []Call) {
	for _, p := range a.Parts {
		if p.Kind == Calls {
			list = append(list, p.Call)
		}
	}
	return list
}

// clean takes secrets out of an answer. Texts of one kind are looked at as one, since some APIs join them; but what has
// a seal has to stay as it was sealed.
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
}

// A Finish is why a model stopped.
type Finish string

// The reasons.
const (
	Stopped  Finish = "stop"     // it has said everything
	Called   Finish = "calls"    // it waits for tools
	Length   Finish = "length"   // it has no more room
	Filtered Finish = "filter"   // its server does not let it say this
	Refused  Finish = "refusal"  // it does not want to
	Paused   Finish = "pause"    // it goes on when it is asked again
	Sequence Finish = "sequence" // it came to words at which it was told to stop
)

// Usage is how many tokens were used.
type Usage struct {
	In       int64 // read, with those that the server had in its cache
	Cached   int64 // of In
	Written  int64 // of In: into the server's cache
	Out      int64 // written, with thoughts
	Thoughts int64 // of Out
}

// Add sums up.
func (u *Usage) Add(v Usage) {
	u.In, u.Cached, u.Written = u.In+v.In, u.Cached+v.Cached, u.Written+v.Written
	u.Out, u.Thoughts = u.Out+v.Out, u.Thoughts+v.Thoughts
}

// maxUsage is more than any request uses, and so little that sums of it are right.
const maxUsage = 1 << 40

// sane is the usage without what cannot be: less than nothing would make up for what other rounds used.
func (u Usage) sane() Usage {
	within := func(n int64) int64 { return min(max(n, 0), maxUsage) }
	return Usage{within(u.In), within(u.Cached), within(u.Written), within(u.Out), within(u.Thoughts)}
}

// Total is all of it.
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
