package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"toolpost/config"
	"toolpost/model"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Limits are the limits of one request to a model.
type Limits struct {
	Rounds int             `yaml:"rounds" schema:"default=16" doc:"how often the model is asked in one request"`
	Calls  int             `yaml:"calls" schema:"default=64" doc:"tool calls in one request"`
	Tokens int64           `yaml:"tokens" schema:"default=1000000" doc:"tokens that one request may use, read and written, in all of its rounds"`
	Time   config.Duration `yaml:"time" schema:"default=10m" doc:"how long one request may take, with all of its calls"`
	Cost   float64         `yaml:"cost" doc:"what one request may cost, by the prices of its model; default: no limit"`
}

// Validate reports whether the limits are valid.
func (l *Limits) Validate() error {
	if l.Rounds < 0 || l.Calls < 0 || l.Tokens < 0 || l.Time < 0 || l.Cost < 0 {
		return errors.New("a limit is negative; leave it out for its default")
	}
	return nil
}

func (l Limits) withDefaults() Limits {
	l.Rounds = cmp.Or(l.Rounds, 16)
	l.Calls = cmp.Or(l.Calls, 64)
	l.Tokens = cmp.Or(l.Tokens, 1_000_000)
	l.Time = cmp.Or(l.Time, config.Duration(10*time.Minute))
	return l
}

// A stop is the limit that ended a conversation.
type stop struct {
	limit string // its name in the config
	why   string
}

// words returns the note that follows the model's answer.
func (s *stop) words() string {
	return "[Stopped by Toolpost: " + s.why + ". Send the conversation again to go on.]"
}

// unapproved returns the stop of a request with a call that must be approved, or nil. Its client would see nothing
// during the wait, so the request does not wait.
func unapproved(done []callOutcome) *stop {
	for _, r := range done {
		if r.ask != nil && r.ask.Kind == tool.AskApproval {
			return &stop{tool.AskApproval, fmt.Sprintf("%s waits for the approval %s (`toolpost approve`)", r.Name, r.ask.ID)}
		}
	}
	return nil
}

// pauses reports whether the conversation continues as before if it is sent again.
func (s *stop) pauses() bool { return s.limit == "rounds" || s.limit == "calls" }

// addUsage adds two reports of usage, member by member. What is no number is as the later report has it.
func addUsage(before, now json.RawMessage) json.RawMessage {
	switch {
	case strictjson.KindOf(now) != "object":
		return before
	case strictjson.KindOf(before) != "object":
		return now
	}
	sum := members(before)
	for name, value := range members(now) {
		switch strictjson.KindOf(value) {
		case "object":
			value = addUsage(sum[name], value)
		case "number":
			a, _ := strconv.ParseFloat(string(sum[name]), 64) // 0 if it was missing
			b, _ := strconv.ParseFloat(string(value), 64)
			value = strconv.AppendFloat(nil, a+b, 'f', -1, 64)
		}
		sum[name] = value
	}
	b, _ := strictjson.Marshal(sum) // JSON that was read
	return b
}

// fill adds the members of the server's last answer that we have no own for, and writes the usage in its terms.
func (t *transcript) fill(doc object) object {
	if doc["usage"] != nil && t.spent != nil {
		doc["usage"] = t.spent
	}
	for name, value := range t.rest {
		if !slices.Contains([]string{"id", "object", "type", "role", "model", "created", "created_at", "content", "choices",
			"output", "stop_reason", "status", "error", "incomplete_details", "usage", "tools", label}, name) {
			doc[name] = value
		}
	}
	return doc
}

// spent returns the limit that a request has reached after so many rounds, or nil.
func (l Limits) spent(rounds int, used model.Usage, prices model.Prices) *stop {
	switch {
	case rounds >= l.Rounds:
		return &stop{"rounds", fmt.Sprintf("the model was asked %d times and still calls tools", l.Rounds)}
	case used.Total() >= l.Tokens:
		return &stop{"tokens", fmt.Sprintf("%d tokens were used, and the limit of a request is %d", used.Total(), l.Tokens)}
	case l.Cost > 0 && prices.Of(used) >= l.Cost:
		return &stop{"cost", fmt.Sprintf("the request has cost %.4g, and its limit is %.4g", prices.Of(used), l.Cost)}
	}
	return nil
}

// calls returns the limit that so many more calls would exceed, or nil.
func (l Limits) calls(made, more int) *stop {
	if made+more <= l.Calls {
		return nil
	}
	return &stop{"calls", fmt.Sprintf("%d calls were made, the model wants %d more, and the limit of a request is %d",
		made, more, l.Calls)}
}

func (l Limits) late() *stop {
	return &stop{"time", fmt.Sprintf("the request has used up its %v", time.Duration(l.Time))}
}
