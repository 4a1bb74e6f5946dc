package singularity

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

// An exchange is a request and its answer as the contract prints them, without the comments on some lines, which are not
// JSON.
type exchange struct {
	name, subject, tool, request string
	args                         string // the tool's arguments
	tells                        tool.HandlerFunc
	answer                       string
}

func exchanges() []exchange {
	return slices.Concat(readExchanges(), fileExchanges(), shellExchanges(), codeExchanges())
}

const fileArgs = `{"path":"/path/to/file.txt"}`

func readExchanges() []exchange {
	const toolResponse = `{
  "tool_call_id": "call_abc123",
  "role": "tool",
  "name": "readFile",
  "content": "file contents here..."
}`
	return []exchange{
		// contract(singularity): `tools.file.read` | Read file contents | 30s
		// contract(singularity): "tool_call_id": "call_abc123", "role": "tool", "name": "readFile", "content": "file contents here..."
		{"file.read as a tool call", "tools.file.read", "readFile", `{
  "tool_call_id": "call_abc123",
  "function": {
    "name": "readFile",
    "arguments": "{\"path\":\"/path/to/file.txt\"}"
  }
}`, fileArgs, gives(`"file contents here..."`), toolResponse},
		// contract(singularity): All tool calls use OpenAI's function calling format:
		// contract(singularity): "id": "call_abc123", "type": "function", "function": {"name": "readFile", "arguments": "{\"path\":\"/path/to/file.txt\"}"}
		{"file.read as a raw OpenAI call", "tools.file.read", "readFile", `{
  "id": "call_abc123",
  "type": "function",
  "function": {
    "name": "readFile",
    "arguments": "{\"path\":\"/path/to/file.txt\"}"
  }
}`, fileArgs, gives(`"file contents here..."`), toolResponse},
		// contract(singularity): "data": any, // Tool-specific result
		// contract(singularity): "error": null
		{"file.read with plain arguments", "tools.file.read", "readFile", fileArgs, fileArgs,
			gives(`"file contents here..."`), `{"data":"file contents here...","error":null}`},
		// contract(singularity): Elixir should return structured errors:
		// contract(singularity): "error": "AccessDenied: /etc/passwd is not allowed"
		{"a structured error", "tools.file.read", "readFile", `{"path":"/etc/passwd"}`, `{"path":"/etc/passwd"}`,
			refuses(tool.Errorf(tool.CodeAccessDenied, "/etc/passwd is not allowed")), `{
  "data": null,
  "error": "AccessDenied: /etc/passwd is not allowed"
}`},
	}
}

func fileExchanges() []exchange {
	return []exchange{
		// contract(singularity): `tools.file.write` | Write file contents | 30s
		// contract(singularity): "data": { "bytes_written": 123 }
		{"file.write", "tools.file.write", "writeFile", `{
  "path": "/path/to/file.txt",
  "content": "content to write"
}`, `{"path":"/path/to/file.txt","content":"content to write"}`, gives(`{ "bytes_written": 123 }`), `{
  "data": { "bytes_written": 123 },
  "error": null
}`},
		// contract(singularity): `tools.file.delete` | Delete file | 30s
		// contract(singularity): "data": { "deleted": true }
		{"file.delete", "tools.file.delete", "deleteFile", `{
  "path": "/path/to/file.txt"
}`, fileArgs, gives(`{ "deleted": true }`), `{
  "data": { "deleted": true },
  "error": null
}`},
		// contract(singularity): `tools.file.list` | List directory contents | 30s
		// contract(singularity): "recursive": true, // optional
		// contract(singularity): "pattern": "*.ex" // optional glob pattern
		{"file.list", "tools.file.list", "listFiles", `{
  "path": "/path/to/directory",
  "recursive": true,
  "pattern": "*.ex"
}`, `{"path":"/path/to/directory","recursive":true,"pattern":"*.ex"}`, gives(`[
    { "path": "/path/to/directory/file1.ex", "size": 1234, "type": "file" },
    { "path": "/path/to/directory/file2.ex", "size": 5678, "type": "file" }
  ]`), `{
  "data": [
    { "path": "/path/to/directory/file1.ex", "size": 1234, "type": "file" },
    { "path": "/path/to/directory/file2.ex", "size": 5678, "type": "file" }
  ],
  "error": null
}`},
	}
}

func shellExchanges() []exchange {
	return []exchange{
		// contract(singularity): `tools.shell.exec` | Execute shell command | 60s
		// contract(singularity): "args": ["-la", "/tmp"], // optional
		// contract(singularity): "cwd": "/home/user" // optional
		// contract(singularity): "stdout": "output here...", "stderr": "", "exit_code": 0
		{"shell.exec", "tools.shell.exec", "execShell", `{
  "command": "ls",
  "args": ["-la", "/tmp"],
  "cwd": "/home/user"
}`, `{"command":"ls","args":["-la","/tmp"],"cwd":"/home/user"}`, gives(`{
    "stdout": "output here...",
    "stderr": "",
    "exit_code": 0
  }`), `{
  "data": {
    "stdout": "output here...",
    "stderr": "",
    "exit_code": 0
  },
  "error": null
}`},
		// contract(singularity): "error": string        // Error message
		// contract(singularity): "error": "Command 'rm' is not allowed by security policy"
		{"shell.exec of a command that is not allowed", "tools.shell.exec", "execShell", `{"command":"rm"}`, `{"command":"rm"}`,
			refuses(tool.Errorf(tool.CodeAccessDenied, "Command 'rm' is not allowed by security policy").Because("command_denied")), `{
  "data": null,
  "error": "Command 'rm' is not allowed by security policy"
}`},
	}
}

func codeExchanges() []exchange {
	return []exchange{
		// contract(singularity): `tools.code.search` | Semantic code search | 30s
		// contract(singularity): "limit": 10, // optional, default 10
		// contract(singularity): "codebase_id": "my-proj" // optional
		// contract(singularity): "similarity": 0.95
		{"code.search", "tools.code.search", "searchCode", `{
  "query": "async function handler",
  "limit": 10,
  "codebase_id": "my-proj"
}`, `{"query":"async function handler","limit":10,"codebase_id":"my-proj"}`, gives(`[
    {
      "path": "/src/handler.ts",
      "line": 42,
      "snippet": "async function handler(req, res) {...}",
      "similarity": 0.95
    }
  ]`), `{
  "data": [
    {
      "path": "/src/handler.ts",
      "line": 42,
      "snippet": "async function handler(req, res) {...}",
      "similarity": 0.95
    }
  ],
  "error": null
}`},
		// contract(singularity): `tools.code.grep` | Grep for patterns | 30s
		// contract(singularity): "ignore_case": false // optional
		{"code.grep", "tools.code.grep", "grepCode", `{
  "pattern": "defmodule.*Controller",
  "path": "/lib",
  "ignore_case": false
}`, `{"pattern":"defmodule.*Controller","path":"/lib","ignore_case":false}`, gives(`[
    {
      "path": "/lib/my_controller.ex",
      "line": 1,
      "content": "defmodule MyController do"
    }
  ]`), `{
  "data": [
    {
      "path": "/lib/my_controller.ex",
      "line": 1,
      "content": "defmodule MyController do"
    }
  ],
  "error": null
}`},
	}
}

func TestTheDoorAnswersEveryRequestOfTheContractAsPrinted(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "127.0.0.1:0")
	nc := connect(t, s)
	for _, x := range exchanges() {
		t.Run(x.name, func(t *testing.T) {
			var got *tool.Call
			box := toolbox{x.tool: func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				got = c
				return x.tells(ctx, c, out)
			}}
			stop := serve(t, DoorOptions{Server: s}, box, box)
			answer := ask(t, nc, x.subject, x.request)
			stop()
			same(t, "the answer", answer, x.answer)
			same(t, "the arguments", string(got.Args), x.args)
			kit.Equal(t, got.Caller, tool.Principal{ID: "tester", Door: "nats"}, "the caller")
		})
	}
}

// contract(singularity): Decode response
func TestTheRunnerUnderstandsEveryAnswerOfTheContractAsPrinted(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "127.0.0.1:0")
	own := connectOwn(t, s)
	for _, x := range exchanges() {
		t.Run(x.name, func(t *testing.T) {
			style := "plain"
			if strings.Contains(x.answer, "tool_call_id") {
				style = "tool_call"
			}
			sub := kit.Must(own.Subscribe(x.subject, func(m *nats.Msg) {
				var call struct {
					ID string `json:"tool_call_id"`
				}
				_ = json.Unmarshal(m.Data, &call)
				_ = m.Respond([]byte(strings.ReplaceAll(x.answer, "call_abc123", call.ID)))
			}))(t)
			defer func() { _ = sub.Unsubscribe() }()
			kit.OK(t, own.Flush())
			r := mustOpen(t, withToken(t, s.ClientURL(), ", style: "+style+", tools: [{name: "+x.tool+"}]"))
			res, err := r.Invoke(context.Background(), &tool.Call{Tool: x.tool, Args: []byte(x.args)}, tool.Discard)
			want, wantErr := x.tells(context.Background(), nil, nil)
			switch {
			case wantErr == nil && err != nil:
				t.Fatal(err)
			case wantErr == nil:
				same(t, "the output", string(res.Output), string(want.Output))
			default:
				wantCode(t, err, tool.CodeOf(wantErr), tool.AsError(wantErr).Message)
			}
		})
	}
}

// contract(singularity): "content": "Error: Permission denied: /path/to/file.txt"
func TestContractErrorIsTheToolsFailure(t *testing.T) {
	res, err := decodeToolReply("call_abc123", []byte(`{
  "tool_call_id": "call_abc123",
  "role": "tool",
  "name": "readFile",
  "content": "Error: Permission denied: /path/to/file.txt"
}`))
	if err != nil || res.OK || res.Failure.Message != "Permission denied: /path/to/file.txt" || res.Failure.Code != tool.CodeToolError {
		t.Errorf("got %+v, %v", res, err)
	}
}

// The requests that the runner sends are those that the contract prints.
// contract(singularity): **Request (NATS message):**
func TestTheRunnerAsksInTheContractsWords(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "127.0.0.1:0")
	own := connectOwn(t, s)
	received := make(chan *nats.Msg, 1)
	kit.Must(own.Subscribe("tools.file.*", func(m *nats.Msg) {
		received <- m
		_ = m.Respond([]byte(`{"data":true,"error":null,"content":"x"}`))
	}))(t)
	kit.OK(t, own.Flush())
	call := &tool.Call{Tool: "readFile", Args: []byte(`{"path":"/path/to/file.txt"}`)}
	for style, want := range map[string]string{
		"plain":     `{"path":"/path/to/file.txt"}`,
		"tool_call": `{"tool_call_id":"ID","function":{"name":"readFile","arguments":"{\"path\":\"/path/to/file.txt\"}"}}`,
	} {
		r := mustOpen(t, withToken(t, s.ClientURL(), ", style: "+style+", tools: [{name: readFile}]"))
		_, _ = r.Invoke(context.Background(), call, tool.Discard)
		m := <-received
		var sent struct {
			ID string `json:"tool_call_id"`
		}
		kit.OK(t, json.Unmarshal(m.Data, &sent))
		same(t, style, string(m.Data), strings.Replace(want, "ID", sent.ID, 1))
		if m.Subject != "tools.file.read" || len(m.Header) > 0 {
			t.Errorf("%s: subject %s, headers %v", style, m.Subject, m.Header)
		}
	}
}

// contract(singularity): `AccessDenied` - Path/command not allowed by policy
// contract(singularity): `NotFound` - File/directory doesn't exist
// contract(singularity): `InvalidInput` - Malformed request
// contract(singularity): `Timeout` - Operation exceeded timeout
// contract(singularity): `SystemError` - Unexpected error (disk full, etc.)
func TestEveryCodeHasOneOfTheFiveTypes(t *testing.T) {
	want := map[tool.Code]string{
		tool.CodeAccessDenied: "AccessDenied", tool.CodeLeaseRequired: "AccessDenied", tool.CodeLeaseRejected: "AccessDenied",
		tool.CodeQuotaExceeded: "SystemError", tool.CodeNotFound: "NotFound", tool.CodeInvalidInput: "InvalidInput",
		tool.CodeConflict: "InvalidInput", tool.CodeTimeout: "Timeout", tool.CodeCancelled: "SystemError",
		tool.CodeBreakerOpen: "SystemError", tool.CodeUnavailable: "SystemError", tool.CodeCrash: "SystemError",
		tool.CodeProtocol: "SystemError", tool.CodeUnsupported: "SystemError", tool.CodeInternal: "SystemError",
		tool.CodeToolError: "SystemError",
	}
	for _, code := range tool.Codes() {
		kit.Equal(t, errorText(&tool.Error{Code: code, Message: "detail"}), want[code]+": detail", code)
	}
	for text, code := range map[string]tool.Code{
		"AccessDenied: x": tool.CodeAccessDenied, "NotFound: x": tool.CodeNotFound,
		"InvalidInput: x": tool.CodeInvalidInput, "Timeout: x": tool.CodeTimeout,
	} {
		_, err := failed(text)
		wantCode(t, err, code, "x")
	}
	limited := tool.Errorf(tool.CodeQuotaExceeded, "too often").RetryAfter(1500 * time.Millisecond)
	kit.Equal(t, errorText(limited), "SystemError: rate limit: too often; try again in 1.5s", "a rate limit")
	_, err := failed(errorText(limited))
	wantCode(t, err, tool.CodeQuotaExceeded, "rate limit: too often")
	for _, text := range []string{"SystemError: disk full", "Access denied", "no space: left"} {
		if res, err := failed(text); err != nil || res.OK || !strings.HasSuffix(text, res.Failure.Message) {
			t.Errorf("%s: %+v, %v", text, res, err)
		}
	}
	for e, want := range map[*tool.Error]string{
		{Code: tool.CodeToolError, Reason: "NotFound", Message: "x"}:                     "NotFound: x",
		{Code: tool.CodeToolError, Message: "Timeout: x"}:                                "Timeout: x",
		{Code: tool.CodeToolError, Reason: "ValueError", Message: "x"}:                   "SystemError: x",
		{Code: tool.CodeAccessDenied, Reason: "command_denied", Message: "Command 'rm'"}: "Command 'rm'",
		{Code: tool.CodeInternal, Message: "a\xffb"}:                                     "SystemError: a\uFFFDb",
	} {
		kit.Equal(t, errorText(e), want, e)
	}
}

// contract(singularity): | Subject | Purpose | Timeout |
func TestSubjectsHaveTheTimeoutsOfTheContract(t *testing.T) {
	for subject, limit := range map[string]time.Duration{
		"tools.file.read": 30 * time.Second, "tools.file.write": 30 * time.Second, "tools.file.delete": 30 * time.Second,
		"tools.file.list": 30 * time.Second, "tools.shell.exec": 60 * time.Second, "tools.code.search": 30 * time.Second,
		"tools.code.grep": 30 * time.Second, "tools.execute.readFile": 0, "tools.execute": 0, "tools.file.move": 0,
	} {
		kit.Equal(t, kit.Must(routeOf(subject))(t).limit, limit, subject)
	}
	var left time.Duration
	box := toolbox{"execShell": func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return &tool.Result{OK: true}, nil
	}}
	s := startServer(t, "127.0.0.1:0")
	nc := connect(t, s)
	stop := serve(t, DoorOptions{Server: s}, box, box)
	same(t, "a result without output", ask(t, nc, "tools.shell.exec", `{}`), `{"data":{},"error":null}`)
	stop()
	if left <= 0 || left > time.Minute {
		t.Errorf("the deadline is %v away, want up to 60 s", left)
	}
	r := mustOpenDeclared(t, s, "execShell", "grepCode", "other")
	specs, _ := r.Tools(context.Background())
	for i, want := range []time.Duration{60 * time.Second, 30 * time.Second, 0} {
		kit.Equal(t, specs[i].Timeout, want, "%s: timeout", specs[i].Name)
	}
}

func mustOpenDeclared(t *testing.T, s *Server, names ...string) *Runner {
	t.Helper()
	list := []string{}
	for _, n := range names {
		list = append(list, "{name: "+n+"}")
	}
	return mustOpen(t, withToken(t, s.ClientURL(), ", tools: ["+strings.Join(list, ", ")+"]"))
}

// contract(singularity): All messages use JSON encoding via NATS JSON codec.
func TestStylesAndNamesOfRequests(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	nc := connect(t, s)
	box := toolbox{"readFile": echo, "execShell": echo, "searchCode": echo, "grepCode": echo, "my tool.v2": echo, "text": gives(`"plain text"`),
		"file.move": echo, "summary": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			return &tool.Result{OK: true, Summary: "done"}, nil
		}, "asks": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			return &tool.Result{Ask: &tool.Ask{ID: "1", Message: "sure?"}}, nil
		}, "broken": gives(`{"a":`)}
	serve(t, DoorOptions{Server: s}, box, box)
	for _, c := range []struct{ name, subject, request, answer string }{
		{"arguments may be an object", "tools.file.read", `{"tool_call_id":"1","function":{"name":"readFile","arguments":{"a":1}}}`,
			`{"tool_call_id":"1","role":"tool","name":"readFile","content":"{\"a\":1}"}`},
		{"arguments may be absent, null or empty", "tools.file.read", `{"tool_call_id":"1","function":{"name":"readFile","arguments":""}}`,
			`{"tool_call_id":"1","role":"tool","name":"readFile","content":"{}"}`},
		{"a number may name a call, and stays one", "tools.file.read", `{"tool_call_id":7,"function":{"name":"readFile","arguments":"{}"}}`,
			`{"tool_call_id":7,"role":"tool","name":"readFile","content":"{}"}`},
		{"a number stays as it is written", "tools.execute.readFile", `{"tool_call_id":12345678901234567890.50,"function":{"name":"readFile"}}`,
			`{"tool_call_id":12345678901234567890.50,"role":"tool","name":"readFile","content":"{}"}`},
		{"a number in a raw call", "tools.execute", `{"id":0,"type":"function","function":{"name":"readFile","arguments":{}}}`,
			`{"tool_call_id":0,"role":"tool","name":"readFile","content":"{}"}`},
		{"an error of a call with a number", "tools.file.write", `{"tool_call_id":-1,"function":{"name":"writeFile","arguments":"{}"}}`,
			`{"tool_call_id":-1,"role":"tool","name":"writeFile","content":"Error: NotFound: no tool named \"writeFile\""}`},
		{"a bad request of a call with a number", "tools.file.read", `{"tool_call_id":3,"function":{"name":"readFile","arguments":7}}`,
			`{"tool_call_id":3,"role":"tool","name":"readFile","content":"Error: InvalidInput: the request to tools.file.read: arguments must be an object, or a string that holds one, not number"}`},
		{"a field that happens to be called so is an argument", "tools.execute.readFile", `{"tool_call_id":7,"a":1}`, `{"data":{"tool_call_id":7,"a":1},"error":null}`},
		{"shell is a name of execShell", "tools.shell.exec", `{"tool_call_id":"1","function":{"name":"shell","arguments":null}}`,
			`{"tool_call_id":"1","role":"tool","name":"shell","content":"{}"}`},
		{"strings stay as they are in content", "tools.execute.text", `{"tool_call_id":"1","function":{"name":"text"}}`,
			`{"tool_call_id":"1","role":"tool","name":"text","content":"plain text"}`},
		{"tools.execute names the tool", "tools.execute", `{"tool_name":"my tool.v2","arguments":{"n":1.50},"correlation_id":"c-1"}`,
			`{"tool_name":"my tool.v2","result":{"n":1.50},"success":true,"correlation_id":"c-1"}`},
		{"arguments may be text there too", "tools.execute", `{"tool_name":"my tool.v2","arguments":"{\"n\":1}"}`,
			`{"tool_name":"my tool.v2","result":{"n":1},"success":true,"correlation_id":null}`},
		{"an error of tools.execute", "tools.execute", `{"tool_name":"nope","correlation_id":7}`,
			`{"tool_name":"nope","result":"NotFound: no tool named \"nope\"","success":false,"correlation_id":7}`},
		{"a tool call at tools.execute", "tools.execute", `{"id":"1","type":"function","function":{"name":"my tool.v2","arguments":"{}"}}`,
			`{"tool_call_id":"1","role":"tool","name":"my tool.v2","content":"{}"}`},
		{"a name is a token", "tools.execute.my%20tool%2Ev2", `{"a":null}`, `{"data":{"a":null},"error":null}`},
		{"a name with dots is taken as it is", "tools.execute.file.move", `{}`, `{"data":{},"error":null}`},
		{"other subjects are dotted names", "tools.file.move", `{}`, `{"data":{},"error":null}`},
		{"an empty message has no arguments", "tools.file.read", ``, `{"data":{},"error":null}`},
		{"null is absent", "tools.code.search", `{"query":"q","limit":null}`, `{"data":{"query":"q"},"error":null}`},
		{"codebaseId is codebase_id", "tools.code.search", `{"codebaseId":"p"}`, `{"data":{"codebase_id":"p"},"error":null}`},
		{"ignoreCase is ignore_case", "tools.code.grep", `{"ignoreCase":true}`, `{"data":{"ignore_case":true},"error":null}`},
		{"a summary is the data of a result without output", "tools.execute.summary", `{}`, `{"data":"done","error":null}`},
		{"a question cannot be asked", "tools.execute.asks", `{}`,
			`{"data":null,"error":"SystemError: asks needs an answer first, and questions cannot be asked in this style: sure?"}`},
		{"a tool that is not there", "tools.file.write", `{"path":"x"}`, `{"data":null,"error":"NotFound: no tool named \"writeFile\""}`},
		{"a tool that is not there, as a tool call", "tools.file.write", `{"tool_call_id":"1","function":{"name":"writeFile","arguments":"{}"}}`,
			`{"tool_call_id":"1","role":"tool","name":"writeFile","content":"Error: NotFound: no tool named \"writeFile\""}`},
	} {
		t.Run(c.name, func(t *testing.T) { same(t, c.subject, ask(t, nc, c.subject, c.request), c.answer) })
	}
	for _, c := range []struct{ name, subject, request, says string }{
		{"bad JSON", "tools.file.read", `{"path":`, "InvalidInput: the request to tools.file.read: the JSON ends too early"},
		{"not an object", "tools.file.read", `[1]`, "InvalidInput: the request to tools.file.read: expected a JSON object"},
		{"duplicate keys", "tools.file.read", `{"a":1,"a":2}`, "InvalidInput: "},
		{"invalid UTF-8", "tools.file.read", "{\"a\":\"\xff\"}", "InvalidInput: "},
		{"too deep", "tools.file.read", strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300), "InvalidInput: "},
		{"one name in both forms", "tools.code.grep", `{"ignoreCase":true,"ignore_case":false}`, "InvalidInput: "},
		{"which tool?", "tools.execute", `{"a":1}`, "InvalidInput: the request to tools.execute: which tool?"},
		{"a name that is not UTF-8", "tools.execute.%FF", `{}`, "NotFound: "},
		{"a bad token", "tools.execute.%zz", `{}`, "InvalidInput: "},
		{"a tool whose output is no JSON", "tools.execute.broken", `{}`, "SystemError: the result of broken cannot be written as JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a struct {
				Data  *json.RawMessage `json:"data"`
				Error *string          `json:"error"`
			}
			answer := ask(t, nc, c.subject, c.request)
			if err := strictjson.Unmarshal([]byte(answer), &a); err != nil || a.Data != nil || a.Error == nil || !strings.HasPrefix(*a.Error, c.says) {
				t.Errorf("got %s", answer)
			}
		})
	}
	for _, c := range []struct{ name, subject, request, says string }{
		{"a tool call of another tool", "tools.file.read", `{"tool_call_id":"1","function":{"name":"execShell","arguments":"{}"}}`, `"Error: InvalidInput: a call of`},
		{"a tool call without a name", "tools.file.read", `{"tool_call_id":"1","function":{"arguments":"{}"}}`, `"Error: InvalidInput: the request to tools.file.read: function.name`},
		{"arguments that are a list", "tools.file.read", `{"tool_call_id":"1","function":{"name":"readFile","arguments":"[1]"}}`, `"Error: InvalidInput: `},
		{"arguments that are no JSON", "tools.file.read", `{"tool_call_id":"1","function":{"name":"readFile","arguments":"{\"a\""}}`, `"Error: InvalidInput: `},
		{"a tool call of a name that is not UTF-8", "tools.execute.%FF", `{"tool_call_id":"1","function":{"name":"x"}}`, `"Error: InvalidInput: a call of`},
		{"tool_name that is no name", "tools.execute", `{"tool_name":7}`, `"InvalidInput: the request to tools.execute: tool_name`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if answer := ask(t, nc, c.subject, c.request); !strings.Contains(answer, c.says) || strings.Contains(answer, `"data"`) {
				t.Errorf("got %s", answer)
			}
		})
	}
}
