package rest_test

import (
	"encoding/json"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/protocol/rest"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The output that is written by hand equals that of Marshal.
func TestAnswersAreWrittenAsTheirTypesSay(t *testing.T) {
	start := time.Date(2026, 2, 3, 4, 5, 6, 70, time.FixedZone("", 3600))
	whole := tool.Trace{
		ID: "t", Call: "c", Tool: "größe \"x\"\n", Source: "s", Protocol: "p", Start: start, Duration: 1234567 * time.Nanosecond,
		Cached: true, Details: map[string]any{"b": 1, "a": []string{"<&>"}},
	}
	for name, r := range map[string]*tool.Result{
		"nothing":     {},
		"an output":   {OK: true, Output: json.RawMessage(" { \"a\" : [ 1 ,\n2.50 ] , \"b\":\"\\u00e9\" } "), Trace: whole},
		"a summary":   {OK: true, Summary: "two\nlines", Trace: tool.Trace{Start: start}},
		"a failure":   {Failure: tool.Errorf(tool.CodeConflict, "no").Because("why"), Output: json.RawMessage(`null`), Trace: whole},
		"a question":  {OK: true, Ask: &tool.Ask{ID: "1", Message: "?", Schema: json.RawMessage(`{"type":"string"}`)}, Trace: whole},
		"no start":    {OK: true, Trace: tool.Trace{ID: "t", Duration: time.Second}},
		"a short one": {OK: true, Output: json.RawMessage(`"x"`), Trace: tool.Trace{Start: start, Duration: 1}},
	} {
		want := kit.Must(strictjson.Marshal(struct {
			*tool.Result
			Call string `json:"call"`
		}{r, "id"}))(t)
		kit.Equal(t, string(kit.Must(rest.EncodeAnswer(r, "id"))(t)), string(want), name)
	}
	for name, raw := range map[string]string{
		"half": `{"a":`, "a name twice": `{"a":1,"a":2}`, "no UTF-8": "\"\xff\"", "two values": `1 2`,
	} {
		kit.Fails(t, kit.Err(rest.EncodeAnswer(&tool.Result{OK: true, Output: json.RawMessage(raw)}, "id")),
			"", "%s was written", name)
	}
}
