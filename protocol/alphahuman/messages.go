package alphahuman

import (
	"context"
	"encoding/json"

	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// BeforeMessage shows a user's message to every running skill of the second generation, one after the other,
// and gives it back as they changed it. It is for hosts that have messages; calls have none.
func (r *Runner) BeforeMessage(ctx context.Context, message string) string {
	return r.transform(ctx, methodBeforeMessage, "message", message)
}

// AfterResponse does the same with the response to a user.
func (r *Runner) AfterResponse(ctx context.Context, response string) string {
	return r.transform(ctx, methodAfterResponse, "response", response)
}

func (r *Runner) transform(ctx context.Context, method, name, words string) string {
	for _, p := range r.programs {
		w := p.awake()
		if w == nil {
			continue
		}
		raw, ok := w.hook(ctx, hook{method: method, params: map[string]string{name: words}})
		var answer map[string]json.RawMessage
		if ok && strictjson.Unmarshal(raw, &answer) == nil && strictjson.KindOf(answer[name]) == "string" {
			words = jsonrpc.Text(answer[name])
		}
	}
	return words
}

// Status asks every running skill of the second generation how it is, and gives the answers by its name.
func (r *Runner) Status(ctx context.Context) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for _, p := range r.programs {
		if w := p.awake(); w != nil {
			if raw, ok := w.hook(ctx, hook{method: methodStatus}); ok {
				all[p.name] = raw
			}
		}
	}
	return all
}

// awake returns the worker where it runs and is of the second generation.
func (p *program) awake() *speaker {
	if w := p.Current(); w != nil && w.Own.(*speaker).second {
		return w.Own.(*speaker)
	}
	return nil
}
