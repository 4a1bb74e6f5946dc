package openai

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/model"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

func TestTheTableOfCodesIsComplete(t *testing.T) {
	for _, code := range tool.Codes() {
		if errorTypes[code] == "" {
			t.Errorf("%s has no word", code)
		}
		var doc struct {
			Type  string `json:"type"`
			Error struct {
				Type, Message, Code string
			} `json:"error"`
		}
		body := problem(tool.Errorf(code, "it \xff failed"))
		if err := json.Unmarshal(body, &doc); err != nil || doc.Type != "error" || doc.Error.Type != errorTypes[code] ||
			doc.Error.Code != string(code) || doc.Error.Message == "" {
			t.Errorf("%s: %s", body, err)
		}
		if status := statusOf(tool.Errorf(code, "x")); status < 400 || status > 599 {
			t.Errorf("%s has the status %d", code, status)
		}
	}
	if body := problem(tool.Errorf(tool.CodeAccessDenied, "x").Because("unauthenticated")); !strings.Contains(string(body), "authentication_error") {
		t.Errorf("%s", body)
	}
}

func TestStrictModeIsSetIfTheSchemaAllowsIt(t *testing.T) {
	closed := func(members string) string {
		return `{"type":"object","properties":{` + members + `},"required":["a"],"additionalProperties":false}`
	}
	deep := closed(`"a":{"type":"string"}`)
	for range 12 {
		deep = closed(`"a":` + deep)
	}
	for schema, want := range map[string]bool{
		closed(`"a":{"type":"string","description":"x","enum":["p","q"]}`):                          true,
		closed(`"a":{"type":["string","null"]}`):                                                    true,
		closed(`"a":{"anyOf":[{"type":"string"},{"type":"null"}]}`):                                 true,
		closed(`"a":{"type":"array","items":` + closed(`"a":{"type":"integer","minimum":1}`) + `}`): true,
		`{"type":"object","properties":{},"required":[],"additionalProperties":false}`:              true,
		`{"type":"object","additionalProperties":false}`:                                            true,
		`{"type":"object"}`: false,
		closed(`"a":{"type":"string"},"b":{"type":"string"}`):                    false, // b may be left out
		closed(`"a":{"type":"object"}`):                                          false,
		closed(`"a":{"type":"object","additionalProperties":{"type":"string"}}`): false,
		closed(`"a":{"oneOf":[{"type":"string"}]}`):                              false,
		closed(`"a":{"type":"string","default":"x"}`):                            false,
		closed(`"a":{}`):   false,
		closed(`"a":true`): false,
		closed(`"a":{"type":"array","items":{"type":"object"}}`): false,
		deep:   false,
		`true`: false, `[]`: false, ``: false,
	} {
		kit.Equal(t, strict(json.RawMessage(schema)), want, schema)
	}
}

// A request is read, or refused with invalid_input or unsupported. One that was read can be sent to both kinds of
// servers, or is refused by name.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":{},"stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]},
			{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"x","arguments":"{"}}],
			"toolpost":{"messages":[{"role":"assistant","tool_calls":[]}]}},{"role":"tool","tool_call_id":"1","content":"r"}],
			"tools":[{"type":"function","function":{"name":"x","parameters":{}}}],"tool_choice":"required","temperature":1,"stop":"a"}`,
		`{"model":"m","input":[{"role":"user","content":"x"},{"type":"mcp_call","id":"1","name":"x","arguments":"{}","output":"y","error":null},
			{"type":"function_call","call_id":"2","name":"z","arguments":""},{"type":"function_call_output","call_id":"2","output":"q"}],
			"text":{"format":{"type":"json_schema","name":"n","schema":{}}},"reasoning":{"effort":"low"},"max_output_tokens":7}`,
		`{"model":"m","max_tokens":1,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[
			{"type":"thinking","thinking":"t","signature":"s"},{"type":"mcp_tool_use","id":"1","name":"x","input":{}},{"type":"tool_use","id":"2","name":"y","input":{}},
			{"type":"mcp_tool_result","tool_use_id":"1","content":[{"type":"text","text":"r"}]}]},{"role":"user","content":[{"type":"tool_result",
			"tool_use_id":"2","is_error":true,"content":"z"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}]}],
			"tools":[{"name":"y","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"y"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if strictjson.CheckObject(body) != nil {
			return
		}
		for _, on := range []wire{chat{}, responses{}, messages{}} {
			r, err := on.read(body)
			if code := tool.CodeOf(err); err != nil && code != tool.CodeInvalidInput && code != tool.CodeUnsupported {
				t.Fatalf("%T: %v", on, err)
			}
			if err != nil {
				continue
			}
			for _, m := range r.messages {
				if m.Role == "" {
					t.Fatalf("%T: somebody without a role says %v", on, m.Parts)
				}
			}
			for _, w := range r.tools {
				if w.name == "" || w.name != w.own.Name {
					t.Fatalf("%T: a tool without a name", on)
				}
			}
			for _, api := range []model.API{model.OpenAI, model.Anthropic} {
				ask := model.Request{Messages: r.messages, Choice: r.choice, Settings: r.settings}
				for _, w := range r.tools {
					ask.Tools = append(ask.Tools, w.own)
				}
				body, err := ask.Encode(api, true)
				if err == nil {
					err = strictjson.CheckObject(body)
				}
				expected := []tool.Code{tool.CodeInvalidInput, tool.CodeUnsupported}
				if err != nil && !slices.Contains(expected, tool.CodeOf(err)) {
					t.Fatalf("%T to %s: %v", on, api, err)
				}
			}
		}
	})
}
