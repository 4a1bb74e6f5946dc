// Package prose is what a model reads of a call's outcome, whichever protocol carries it.
package prose

import (
	"encoding/json"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Of is what a tool gave to be read: its output, or its summary where the output says no more than that all is well.
func Of(res *tool.Result) json.RawMessage {
	more := !res.OK || len(res.Output) > 100+6*len(res.Summary) // which a summary cannot be, however it is written
	if !more && len(res.Output) > 0 && string(res.Output) != "null" {
		err := strictjson.Object(res.Output, func(name, _ []byte) error {
			more = more || string(name) != "ok" && string(name) != "summary"
			return nil
		})
		more = more || err != nil // it is no object
	}
	if more && len(res.Output) > 0 {
		return res.Output
	}
	return strictjson.Quote(res.Summary)
}

// Plain is an output in words: a text as it is, everything else as JSON.
func Plain(output json.RawMessage) string {
	if strictjson.KindOf(output) == "string" {
		if text, err := strictjson.Unquote(output); err == nil {
			return string(text)
		}
	}
	return string(output)
}
