package audit

import (
	"context"
	"encoding/json"

	"toolpost/host/secret"
	"toolpost/tool"
)

// A redacted log gets to keep no secret.
type redacted struct {
	of       Log
	redactor *secret.Redactor
	columns  Table
}

// Begin implements Log.
func (l redacted) Begin(ctx context.Context, r *tool.Record) error {
	return l.redactor.Error(l.of.Begin(ctx, l.clean(r)))
}

// Append implements Log.
func (l redacted) Append(ctx context.Context, r *tool.Record, durable bool) error {
	return l.redactor.Error(l.of.Append(ctx, l.clean(r), durable))
}

// clean returns a record without secrets. Digests stay as they are: nobody reads a value off them.
func (l redacted) clean(was *tool.Record) *tool.Record {
	if l.redactor.Idle() {
		return was
	}
	r := *was
	for i := range l.columns {
		if c := &l.columns[i]; !c.Ours {
			redactValue(l.redactor, c.Value(&r))
		}
	}
	return &r
}

// redactValue replaces a value. What it shares with another record stays as it is.
func redactValue(redactor *secret.Redactor, value any) {
	switch v := value.(type) {
	case *string:
		*v = redactor.String(*v)
	case *json.RawMessage:
		*v = redactor.JSON(*v)
	case *[]string:
		*v = redactedTexts(redactor, *v)
	case *[][]string:
		var lists [][]string
		for _, list := range *v {
			lists = append(lists, redactedTexts(redactor, list))
		}
		*v = lists
	}
}

func redactedTexts(redactor *secret.Redactor, was []string) (texts []string) {
	for _, text := range was {
		texts = append(texts, redactor.String(text))
	}
	return texts
}
