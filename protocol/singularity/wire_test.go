package singularity

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

func TestATokenStandsForExactlyOneName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := string(rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "name"))
		token := EncodeName(name)
		if strings.ContainsAny(token, ".*> \t\r\n") || strings.IndexFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
			t.Fatalf("%q is no safe token", token)
		}
		kit.MustEqual(t, kit.Must(DecodeName(token))(t), name, "%q became %q", name, token)
		if !mayAnswer("x."+token) || !plainSubject("x."+token) {
			t.Fatalf("%q is no subject", token)
		}
	})
	for name, token := range map[string]string{
		"readFile": "readFile", "my_tool-2": "my_tool-2", "file.read": "file%2Eread", "greet someone": "greet%20someone",
		"a*>b": "a%2A%3Eb", "größe": "gr%C3%B6%C3%9Fe", "50%": "50%25", "\n": "%0A", "$SYS": "%24SYS",
	} {
		kit.Equal(t, EncodeName(name), token, "%q became", name)
	}
	for _, bad := range []string{"%", "%2", "a%zz", "%2G"} {
		kit.Fails(t, kit.Err(DecodeName(bad)), "", "%q is a name", bad)
	}
}

func TestReservedReplySubjectsAreRefused(t *testing.T) {
	for subject, ok := range map[string]bool{
		"_INBOX.abc.1": true, "my.box": true, "toolsX": true, "tools": true, "a%20b": true,
		"tools.file.read": false, "toolpost.cancel": false, "$SRV.PING": false, "$JS.ACK.x": false, "a.*": false, "a.>": false, "a b": false,
		"a\nb": false, ".a": false, "a.": false, "a..b": false, strings.Repeat("x", 2000): false,
	} {
		kit.Equal(t, mayAnswer(subject), ok, subject)
	}
}

// FuzzRequest decodes arbitrary messages on a subject. An accepted one is a call with an object of arguments, and both an
// answer and an error can be encoded in its style.
func FuzzRequest(f *testing.F) {
	for _, x := range exchanges() {
		f.Add(x.subject, []byte(x.request), false)
	}
	for _, body := range []string{``, `null`, `[]`, `{"a":1,"a":2}`, `{"tool_name":"x","arguments":"{}","correlation_id":{}}`, "{\"a\":\"\xff\"}",
		`{"tool_call_id":"1","function":{"name":"x","arguments":"\"\""}}`, `{"ignoreCase":null,"codebaseId":1}`, `{"arguments":{},"state":1,"answers":[]}`} {
		f.Add("tools.execute", []byte(body), false)
		f.Add("tools.code.grep", []byte(body), true)
		f.Add("tools.execute.%41", []byte(body), true)
	}
	f.Fuzz(func(t *testing.T, subject string, body []byte, native bool) {
		where, err := routeOf(subject)
		if err != nil {
			return
		}
		var r request
		if native {
			r, err = decodeNativeRequest(body)
		} else {
			r, err = decodeRequest(where, body)
		}
		if err == nil && !native {
			kit.Check(t, strictjson.CheckObject(r.args), "the arguments %q", r.args)
			if where.tool == "" && r.name == "" {
				t.Error("no tool")
			}
		}
		for _, e := range []*tool.Error{nil, {Code: tool.CodeInternal, Message: "x"}} {
			answer, err := encodeReply(r, "x", &tool.Result{OK: true, Output: []byte(`{"a":[1.50]}`)}, e)
			if err != nil || strictjson.CheckObject(answer) != nil {
				t.Errorf("the answer %q: %v", answer, err)
			}
		}
	})
}

// FuzzReply decodes arbitrary replies of a server. An accepted one keeps the contract of handlers.
func FuzzReply(f *testing.F) {
	for _, x := range exchanges() {
		f.Add([]byte(x.answer))
	}
	f.Add([]byte(`{"result":{"ok":true,"output":{},"trace":{"duration_ms":1}}}`))
	f.Add([]byte(`{"error":{"code":"timeout","message":"x"}}`))
	f.Add([]byte(`{"data":1,"data":2}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for name, read := range map[string]func([]byte) (*tool.Result, error){
			"plain": decodePlain, "native": decodeNative,
			"tool_call": func(b []byte) (*tool.Result, error) { return decodeToolReply("call_abc123", b) },
		} {
			res, err := read(bytes.Clone(body))
			switch {
			case (res == nil) == (err == nil):
				t.Errorf("%s: both or none: %v, %v", name, res, err)
			case err != nil:
				if tool.CodeOf(err) == "" {
					t.Errorf("%s: no code: %v", name, err)
				}
			case res.OK == (res.Failure != nil || res.Ask != nil):
				t.Errorf("%s: %+v", name, res)
			case len(res.Output) > 0 && strictjson.Check(res.Output) != nil:
				t.Errorf("%s: the output %q", name, res.Output)
			}
		}
	})
}

// FuzzEvent decodes arbitrary events and pages of a catalogue.
func FuzzEvent(f *testing.F) {
	for _, s := range []string{`{"seq":1,"time":"2026-01-01T00:00:00Z","kind":"log","data":{}}`, `{"kind":7}`, `{"data":null}`, `oops`,
		`{"tools":[{"name":"x","timeout_ms":5}],"next":"x"}`, `{"error":{"code":"internal"}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a := &asking{out: tool.SinkFunc(func(e tool.Event) error {
			if strictjson.CheckObject(e.Data) != nil {
				t.Errorf("the data %q", e.Data)
			}
			return nil
		})}
		_ = a.event(&nats.Msg{Data: body})
		specs, _, _ := decodePage(body)
		for _, s := range specs {
			if s.Name == "" {
				t.Error("a tool without a name")
			}
		}
	})
}

func TestTidyChangesOnlyNullsAndCamelCase(t *testing.T) {
	for _, args := range []string{`{}`, `{ "a" : 1.50,	"b":{"codebaseId":null} }`, `{"\u0061":1}`} {
		kit.Equal(t, string(kit.Must(tidy(json.RawMessage(args)))(t)), args)
	}
	kit.Equal(t, string(kit.Must(tidy(json.RawMessage(`{"a":null,"ignoreCase":{"x":null},"\n":1}`)))(t)), `{"ignore_case":{"x":null},"\n":1}`)
}
