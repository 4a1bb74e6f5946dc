// Package define is the one way to define a built-in tool: a spec, and a function that takes the tool's arguments as a
// struct and returns its output as a Go value. The tags of the two types are the schemas that callers see (see package
// typeschema for the words), and arguments are decoded strictly into the same struct, once for each call.
package define

import (
	"context"
	"encoding/json"
	"reflect"
	"strconv"

	"toolpost/tool"
	"toolpost/wire/strictjson"
	"toolpost/wire/typeschema"
)

// A Call is a call while a tool runs it: the request, the sink for its events, and what the result contains beside the
// output.
type Call struct {
	*tool.Call
	Out     tool.Sink
	Summary string
	Details map[string]any // of the result's trace
	Failure *tool.Error    // the tool ran and failed, whatever its output is; nil if it succeeded
}

// Count writes a number of things, for a summary.
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// Operating refuses callers that are not operators; does completes the error "you may not …".
func (c *Call) Operating(does string) error {
	if c.Caller.Operator() {
		return nil
	}
	return tool.Errorf(tool.CodeAccessDenied, "%q may not %s: only the owner and who runs toolpost on its command line "+
		"may", c.Caller.ID, does)
}

// Told refuses a call whose outcome would be written to disk, since a secret that it returns, such as a token, is shown once
// and not kept. Those are a call with an idempotency key, whose outcome is remembered, and a call of a plan, which is kept
// with the outputs of its tools.
func (c *Call) Told(what string) error {
	var why string
	switch {
	case c.Key != "":
		why = "takes no idempotency key"
	case c.Parent != "":
		why = "cannot be called by a plan, whose results are kept"
	default:
		return nil
	}
	return tool.Errorf(tool.CodeInvalidInput, "%s %s: %s is shown once and not stored; call this tool by itself, without a key",
		c.Tool, why, what).Because("kept")
}

// ForOperators makes a tool refuse callers that are not operators.
func ForOperators[A, O any](
	does string, run func(context.Context, *Call, A) (O, error),
) func(context.Context, *Call, A) (O, error) {
	return func(ctx context.Context, c *Call, args A) (out O, err error) {
		if err := c.Operating(does); err != nil {
			return out, err
		}
		return run(ctx, c, args)
	}
}

// A Tool is one tool: its spec, and how it runs.
type Tool struct {
	Spec    *tool.Spec
	invoke  func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error)
	touches func(*tool.Call) (tool.Touches, error)
}

// New defines a tool. The schemas of the spec follow from the types of run, unless the spec has its own: a json.RawMessage
// output could be anything, and some inputs depend on a config.
func New[A, O any](spec tool.Spec, run func(context.Context, *Call, A) (O, error)) Tool {
	return Touching(spec, run, nil)
}

// Touching defines a tool whose arguments show, before it runs, what a call touches.
func Touching[A, O any](
	spec tool.Spec, run func(context.Context, *Call, A) (O, error), touches func(*tool.Call, A) (tool.Touches, error),
) Tool {
	if spec.Input == nil {
		spec.Input = Input[A](nil)
	}
	if out := reflect.TypeFor[O](); spec.Output == nil && out != reflect.TypeFor[json.RawMessage]() {
		spec.Output = written(typeschema.Output(out))
	}
	return Tool{
		Spec: &spec,
		invoke: func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			var r struct { // one allocation: every call of every tool passes here
				Call
				args A
			}
			if err := read(c, &r.args); err != nil {
				return nil, err
			}
			r.Call = Call{Call: c, Out: out}
			output, err := run(ctx, &r.Call, r.args)
			if err != nil {
				return nil, err
			}
			return r.result(output)
		},
		touches: func(c *tool.Call) (tool.Touches, error) {
			args := new(A)
			if err := decode(c, args); err != nil || touches == nil {
				return tool.Touches{}, err
			}
			if c.Memo != nil {
				c.Memo.Args, c.Memo.Read = c.Args, args
			}
			return touches(c, *args)
		},
	}
}

// Input returns the schema of arguments. A non-nil adjust changes what depends on a config.
func Input[A any](adjust func(properties *typeschema.Object)) json.RawMessage {
	s := typeschema.Input(reflect.TypeFor[A]())
	if adjust != nil {
		adjust(s.At("properties"))
	}
	return written(s)
}

// written writes a schema. It fails only for a type of ours that has no JSON form.
func written(s *typeschema.Object) json.RawMessage {
	b, err := s.MarshalJSON()
	if err != nil {
		panic(err)
	}
	return b
}

// read decodes the arguments of a call, unless that was done to find out what it touches.
func read[A any](c *tool.Call, args *A) error {
	if m := c.Memo; m != nil && len(m.Args) > 0 && len(m.Args) == len(c.Args) && &m.Args[0] == &c.Args[0] {
		if known, ok := m.Read.(*A); ok {
			*args = *known
			return nil
		}
	}
	return decode(c, args)
}

func decode(c *tool.Call, args any) error {
	if err := strictjson.UnmarshalClosed(strictjson.OrEmpty(c.Args), args); err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "the arguments of %s: %w", nameOf(c), err)
	}
	return nil
}

func (c *Call) result(output any) (*tool.Result, error) {
	raw, ok := output.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = strictjson.Marshal(output); err != nil {
			return nil, err
		}
	}
	return &tool.Result{
		OK: c.Failure == nil, Output: raw, Summary: c.Summary, Failure: c.Failure, Trace: tool.Trace{Details: c.Details},
	}, nil
}
