package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"toolpost/strictjson"
	"toolpost/tool"
)

// schemas are a tool's two schemas, compiled once when it is shelved.
type schemas struct{ input, output *jsonschema.Schema }

func compile(s *tool.Spec) (schemas, error) {
	in, err := compileOne("input", s.Input)
	if err != nil {
		return schemas{}, err
	}
	out, err := compileOne("output", s.Output)
	return schemas{in, out}, err
}

func compileOne(which string, raw json.RawMessage) (*jsonschema.Schema, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	doc, err := strictjson.Decode(raw)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "its %s schema is not JSON: %v", which, err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "its %s schema does not work: %v", which, err)
	}
	s, err := c.Compile(schemaURL)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "its %s schema does not work: %v", which, err)
	}
	return s, nil
}

// schemaURL only names the document inside the compiler.
const schemaURL = "schema:tool"

// A schema is data from a tool: it must not make us read files or the network.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("a $ref to another document (%s) is not followed; put it under $defs", url)
}

// validate checks the arguments against the tool's input schema before anything else looks at them,
// and a successful output against the output schema before anyone sees it.
func validate(s schemas) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			c, err := withArgs(c, s.input)
			if err != nil {
				return nil, err
			}
			r, err := next.Invoke(ctx, c, out)
			if err != nil || !r.OK || s.output == nil {
				return r, err
			}
			if err := checkOutput(c.Tool, r.Output, s.output); err != nil {
				return nil, err
			}
			return r, nil
		})
	}
}

func withArgs(c *tool.Call, schema *jsonschema.Schema) (*tool.Call, error) {
	if len(bytes.TrimSpace(c.Args)) == 0 {
		empty := *c
		empty.Args = json.RawMessage(`{}`)
		c = &empty
	}
	args, err := strictjson.Decode(c.Args)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s are not JSON: %v", c.Tool, err)
	}
	if _, ok := args.(map[string]any); !ok {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s must be a JSON object, not %s", c.Tool, strictjson.KindOf(c.Args))
	}
	if schema == nil {
		return c, nil
	}
	if err := schema.Validate(args); err != nil {
		return nil, mismatch(tool.CodeInvalidInput, "the arguments of "+c.Tool, err)
	}
	return c, nil
}

func checkOutput(name string, output json.RawMessage, schema *jsonschema.Schema) error {
	v, err := strictjson.Decode(output)
	if err != nil {
		return tool.Errorf(tool.CodeProtocol, "the output of %s is not JSON: %v", name, err)
	}
	if err := schema.Validate(v); err != nil {
		return mismatch(tool.CodeProtocol, "the output of "+name, err)
	}
	return nil
}

// A fault is one place where a document does not match its schema.
type fault struct {
	At      string `json:"at"` // JSON pointer
	Problem string `json:"problem"`
}

// mismatch lists the faults, each with its place; the first few in words, all of them (within reason) as details.
func mismatch(code tool.Code, what string, err error) error {
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return tool.Errorf(code, "%s: %v", what, err)
	}
	faults := leaves(nil, v, message.NewPrinter(language.English))
	var words []string
	for _, f := range faults[:min(len(faults), 3)] {
		words = append(words, strings.TrimPrefix(f.At+": "+f.Problem, ": "))
	}
	if n := len(faults) - len(words); n > 0 {
		words = append(words, fmt.Sprintf("and %d more", n))
	}
	e := tool.Errorf(code, "%s: %s", what, strings.Join(words, "; "))
	e.Details, _ = strictjson.Marshal(map[string]any{"faults": faults})
	return e
}

const maxFaults = 20

func leaves(faults []fault, v *jsonschema.ValidationError, p *message.Printer) []fault {
	if len(faults) == maxFaults {
		return faults
	}
	if len(v.Causes) == 0 {
		return append(faults, fault{pointer(v.InstanceLocation), v.ErrorKind.LocalizedString(p)})
	}
	for _, cause := range v.Causes {
		faults = leaves(faults, cause, p)
	}
	return faults
}

func pointer(path []string) string {
	var b strings.Builder
	for _, part := range path {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return b.String()
}
