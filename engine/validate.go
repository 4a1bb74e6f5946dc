package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"

	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// schemas are a tool's two schemas. A nil schema demands nothing beyond what every call must meet: arguments are an
// object.
type schemas struct{ input, output *schema.Schema }

// A contract is the schemas of a tool, compiled at its first call. Most tools of a large source are listed and never
// called. A compiled schema takes more memory than its text, and compiling it more time than the rest of publishing a
// tool.
type contract struct {
	spec   *tool.Spec
	broken error // why the schemas do not compile, if that was tried

	once sync.Once
	schemas
	err error
}

func (k *contract) compiled() (schemas, error) {
	k.once.Do(func() {
		k.err = tool.Errorf(tool.CodeInternal, "its schemas could not be read") // kept if compile panics
		k.schemas, k.err = compile(k.spec)
	})
	return k.schemas, k.err
}

// A Runner may vouch for the schemas of a tool, if it knows that they compile. All other schemas are tried when they are
// published: a tool whose schema does not work reports that on every list.
type sound interface{ Sound(*tool.Spec) bool }

// contract returns the contract of one of the source's tools. A tool that the source brought before keeps its contract.
func (s *source) contract(given, own *tool.Spec) *contract {
	if k := s.contracts[given]; k != nil {
		return k
	}
	k := &contract{spec: own}
	if r, ok := s.Runner.(sound); !ok || !r.Sound(given) {
		_, k.broken = compile(own)
	}
	return k
}

func compile(s *tool.Spec) (schemas, error) {
	in, err := compileOne("input", s.Input)
	if err != nil {
		return schemas{}, err
	}
	if anyObject(s.Input) {
		in = nil
	}
	out, err := compileOne("output", s.Output)
	return schemas{in, out}, err
}

func compileOne(which string, raw json.RawMessage) (*schema.Schema, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	s, err := schema.Compile(raw)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "its %s schema does not work: %v", which, err)
	}
	return s, nil
}

// anyObject reports whether a schema demands only an object, as for the many tools whose protocol knows no schemas.
// Their arguments can be checked without decoding them.
func anyObject(raw json.RawMessage) bool {
	asks := 0
	err := strictjson.Object(raw, func(name, value []byte) error {
		switch string(name) {
		case "$schema", "$comment", "title", "description":
		case "type":
			if string(value) != `"object"` {
				asks++
			}
		default:
			asks++
		}
		return nil
	})
	return err == nil && asks == 0
}

// validate checks the arguments against the tool's input schema before any other stage reads them, and a successful
// output against the output schema before it is passed on.
func validate(k *contract) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			s, err := k.compiled()
			if err != nil {
				return nil, err
			}
			c, err = withArgs(c, s.input)
			if err != nil {
				return nil, err
			}
			r, err := next.Invoke(ctx, c, out)
			if err != nil || !r.OK || s.output == nil || c.DryRun {
				return r, err
			}
			if err := checkOutput(c.Tool, r.Output, s.output); err != nil {
				return nil, err
			}
			return r, nil
		})
	}
}

func withArgs(c *tool.Call, input *schema.Schema) (*tool.Call, error) {
	if len(bytes.TrimSpace(c.Args)) == 0 {
		empty := *c
		empty.Args = json.RawMessage(`{}`)
		c = &empty
	}
	args, err := decodeArgs(c.Args, input)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s are not JSON: %v", c.Tool, err)
	}
	if kind := strictjson.KindOf(c.Args); kind != "object" {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s must be a JSON object, not %s", c.Tool,
			kind)
	}
	if input == nil {
		return c, nil
	}
	if faults := input.Validate(args); faults != nil {
		if absent := input.Absent(args); len(absent) > 0 {
			return withArgs(without(c, absent), input)
		}
		return nil, mismatch(tool.CodeInvalidInput, "the arguments of "+c.Tool, faults)
	}
	return c, nil
}

// without drops arguments that are null and mean "absent", as models write optional ones. The record notes it, and its
// shape tells which they were.
func without(c *tool.Call, absent []string) *tool.Call {
	own, w := *c, strictjson.NewWriter(len(c.Args))
	_ = strictjson.Object(c.Args, func(name, value []byte) error { // it was parsed before
		if !slices.Contains(absent, string(name)) {
			w.Named(string(name), value)
		}
		return nil
	})
	own.Args = w.Done()
	if c.Record != nil {
		c.Record.Reason = tool.ReasonNulls
	}
	return &own
}

// decodeArgs decodes arguments if there is a schema to check them against, and otherwise only checks their syntax. Large
// arguments are always decoded: a later stage may need them, and this bounds their size.
func decodeArgs(args json.RawMessage, input *schema.Schema) (any, error) {
	if input == nil && len(args) < strictjson.MaxTree/256 {
		return nil, strictjson.Check(args)
	}
	return strictjson.DecodeWithin(args, strictjson.MaxTree)
}

func checkOutput(name string, raw json.RawMessage, output *schema.Schema) error {
	v, err := decodeOutput(raw, output)
	if err != nil {
		return tool.Errorf(tool.CodeProtocol, "the output of %s is not JSON: %v", name, err)
	}
	if faults := output.Validate(v); faults != nil {
		return mismatch(tool.CodeProtocol, "the output of "+name, faults)
	}
	return nil
}

// decodeOutput decodes an output to check it against its schema. That would copy a text, such as a file that was read.
// So if the schema accepts any text, the empty one is checked in its place.
func decodeOutput(raw json.RawMessage, output *schema.Schema) (any, error) {
	if output.AnyText() && strictjson.KindOf(raw) == "string" {
		return "", strictjson.Check(raw)
	}
	return strictjson.Decode(raw)
}

// mismatch lists the faults with their places: the first few in words, all of them (within reason) as details.
func mismatch(code tool.Code, what string, faults []schema.Fault) error {
	e := tool.Errorf(code, "%s: %s", what, schema.Words(faults))
	e.Details, _ = strictjson.Marshal(map[string]any{"faults": faults})
	return e
}
