package openapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/protocol/openapi"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// startAPI starts the API of testdata and returns its address.
func startAPI(t *testing.T) string {
	t.Helper()
	return "http://127.0.0.1:" + kit.Start(t, exec.Command("python3", "testdata/server.py")).Line()
}

// A source is an opened source.
type source struct {
	tool.Runner
	t     *testing.T
	specs map[string]*tool.Spec
	names []string // in order
}

func vault() tooltest.Vault {
	return tooltest.Vault{
		"HEADER": "k-header", "QUERY": "k query&more", "COOKIE": "k-cookie", "BEARER": "k-bearer", "BASIC": "user:pass:word",
	}
}

// try opens a source with these fields.
func try(t *testing.T, fields string) (tool.Runner, error) {
	t.Helper()
	dir := kit.Must(filepath.Abs("testdata/docs"))(t)
	c, err := config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte("sources:\n- {name: api, protocol: openapi, "+fields+"}\n"))
	kit.OK(t, err)
	src := c.Sources[0]
	src.Secrets = vault()
	return openapi.Open(kit.Context(t), src, slog.New(slog.DiscardHandler))
}

func open(t *testing.T, format string, args ...any) *source {
	t.Helper()
	r := kit.Must(try(t, fmt.Sprintf(format, args...)))(t)
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	s := &source{Runner: r, t: t, specs: map[string]*tool.Spec{}}
	specs := kit.Must(r.(tool.Source).Tools(kit.Context(t)))(t)
	for _, spec := range specs {
		s.specs[spec.Name] = spec
		s.names = append(s.names, spec.Name)
	}
	return s
}

// openText opens a document that is JSON.
func openText(t *testing.T, doc string) *source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api.json")
	kit.OK(t, os.WriteFile(path, []byte(doc), 0o600))
	return open(t, `document: %q, server: "http://127.0.0.1:1"`, path)
}

// why returns why a tool cannot be called.
func (s *source) why(name string) string {
	if err := s.Runner.(interface{ Unavailable(string) error }).Unavailable(name); err != nil {
		return tool.AsError(err).Message
	}
	return ""
}

// faults validates arguments against the schema of a tool, as the engine does.
func (s *source) faults(name, args string) []schema.Fault {
	s.t.Helper()
	compiled, err := schema.Compile(s.specs[name].Input)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", name, err, s.specs[name].Input)
	}
	v := kit.Must(strictjson.Decode([]byte(args)))(s.t)
	return compiled.Validate(v)
}

func (s *source) invoke(ctx context.Context, name, args string, out tool.Sink) (*tool.Result, error) {
	return s.Invoke(ctx, &tool.Call{ID: tool.NewID(), Tool: name, Args: json.RawMessage(args), Spec: s.specs[name]}, out)
}

// An arrived is the request as the API received it.
type arrived struct {
	Method  string              `json:"method"`
	Target  string              `json:"target"`
	Steps   []string            `json:"steps"`
	Query   map[string][]string `json:"query"`
	Headers map[string]string   `json:"headers"`
	Cookies map[string]string   `json:"cookies"`
	Body    []byte              `json:"base64"`
	Form    map[string][]string `json:"form"`
	JSON    json.RawMessage     `json:"json"`
	Parts   []part              `json:"parts"`
}

type part struct {
	Name, Filename, Type string
	Content              []byte `json:"base64"`
}

// call calls a tool with arguments that match its schema, and returns the request that arrived.
func (s *source) call(name, args string) arrived {
	s.t.Helper()
	if faults := s.faults(name, args); len(faults) > 0 {
		s.t.Fatalf("%s: %s: %s", name, args, schema.Words(faults))
	}
	res, err := s.invoke(kit.Context(s.t), name, args, tool.Discard)
	kit.OK(s.t, err, name)
	var a arrived
	if !res.OK || json.Unmarshal(res.Output, &a) != nil {
		s.t.Fatalf("%s: %+v %v", name, res, res.Failure)
	}
	return a
}

// refused calls a tool that must refuse the call with a code, before anything is sent.
func (s *source) refused(name, args string, code tool.Code) {
	s.t.Helper()
	res, err := s.invoke(kit.Context(s.t), name, args, tool.Discard)
	kit.Refused(s.t, err, code, "", name, args, res)
}
