package machina_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/protocol/machina"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// contract(machina): | `kind` | enum | `PICK` / `ASK_SUP` / `NOOP` / `INVALID` |
// contract(machina): | `sid` | string? | SID (e.g. `"SID0007"`), present only for `PICK` |
// contract(machina): | `input_patch_json` | string? | Optional JSON object to merge into runner inputs |
// contract(machina): | `raw` | string | Raw text returned by selector |
func TestSelectionGrammar(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for raw, want := range map[string]machina.Selection{
		"<PICK><SID0007><END>":                                      {Kind: "PICK", SID: "SID0007"},
		" \n<PICK><SID0007><END>\r\n":                               {Kind: "PICK", SID: "SID0007"},
		`<PICK><SID0007><INP>{"a":1}</INP><END>`:                    {Kind: "PICK", SID: "SID0007", InputPatchJSON: `{"a":1}`},
		`<PICK><SID0007><INP>{"a":"</INP><END>"}</INP><END>`:        {Kind: "PICK", SID: "SID0007", InputPatchJSON: `{"a":"</INP><END>"}`},
		"<PICK><SID0007><INP>{\n\"a\":1}</INP><END>":                {Kind: "PICK", SID: "SID0007", InputPatchJSON: "{\n\"a\":1}"},
		"<PICK><SID0007><INP64>" + b64(`{"a":1}`) + "</INP64><END>": {Kind: "PICK", SID: "SID0007", InputPatchJSON: `{"a":1}`},
		"<PICK><SID0007><INP64>eyJhIjoxMn0</INP64><END>":            {Kind: "PICK", SID: "SID0007", InputPatchJSON: `{"a":12}`}, // no padding
		"<PICK><SID0007><INP64>eyJh\n IjoxfQ=\t=</INP64><END>":      {Kind: "PICK", SID: "SID0007", InputPatchJSON: `{"a":1}`},
		"<ASK_SUP><END>": {Kind: "ASK_SUP"},
		"<NOOP><END>":    {Kind: "NOOP"},
	} {
		want.Raw = raw
		kit.Equal(t, cmp.Diff(want, machina.ParseSelection(raw)), "", raw)
	}
	for _, raw := range []string{
		"", "PICK", "<PICK><END>", "<PICK><SID007><END>", "<PICK><SID00007><END>", "<PICK><sid0007><END>", "<PICK><SID0007>", "<PICK><SID0007><END><END>",
		"<NOOP><END> and more", "Sure: <NOOP><END>", "<ASK_SUP>", "<pick><SID0007><END>", "<NOOP><END><NOOP><END>", "<PICK><SID0007> <END>",
		"<PICK><SID0007><INP></INP><END>", "<PICK><SID0007><INP>[]</INP><END>", `<PICK><SID0007><INP>{"a":1,"a":2}</INP><END>`, "<PICK><SID0007><INP>{}<END>",
		"<PICK><SID0007><INP64></INP64><END>", "<PICK><SID0007><INP64>!!</INP64><END>", "<PICK><SID0007><INP64>ey=JhIjoxfQ==</INP64><END>", "<PICK><SID0007><INP64>eyJhIjoxf</INP64><END>", "<PICK><SID0007><INP64>" + b64("[]") + "</INP64><END>",
		"<PICK><SID0007><INP>{}</INP><INP>{}</INP><END>", "<PICK><SID٠٠٠٧><END>",
		"<PICK><SID0007><INP>{\"a\":\"" + strings.Repeat("x", 64<<10) + "\"}</INP><END>",
	} {
		if got := machina.ParseSelection(raw); got.Kind != machina.Invalid || got.SID != "" || got.InputPatchJSON != "" {
			t.Errorf("%.100q: %+v", raw, got.Kind)
		}
	}
}

func policy(t *testing.T) machina.Policy {
	abs := kit.Must(filepath.Abs("testdata/policy.py"))(t)
	return machina.Policy{"python3", abs}
}

func TestAnExternalPolicySelects(t *testing.T) {
	tooltest.NoLeaks(t)
	menu, err := machina.Menu([]*tool.Spec{{Name: "query", Source: "memory"}, {Name: "append", Source: "memory"}, {Name: "query", Source: "other"}})
	if err != nil || len(menu) != 3 || menu[0].SID != "SID0001" || menu[0].AID != "AID.MEMORY.APPEND.v1" || menu[2].SID != "SID0003" {
		t.Fatalf("%+v, %v", menu, err)
	}
	header := machina.Header(&tool.Call{})
	for wish, want := range map[string]machina.SelectionKind{
		"append": machina.Pick, "supervisor": machina.AskSup, "nothing": machina.Noop, "other": machina.Pick, "a pony": machina.Invalid, "flood": machina.Invalid,
	} {
		inputs, _ := json.Marshal(map[string]string{"wish": wish, "k": "1"})
		s, err := policy(t).Select(t.Context(), header, menu, inputs)
		if err != nil || s.Kind != want {
			t.Errorf("%s: %+v, %v", wish, s.Kind, err)
			continue
		}
		picked, err := machina.Picked(menu, s)
		switch {
		case wish == "append":
			args, _ := s.Inputs(inputs)
			if err != nil || picked.Name != "append" || string(args) != `{"aid":"AID.MEMORY.APPEND.v1","k":"3","wish":"append"}` {
				t.Errorf("%+v, %s, %v", picked, args, err)
			}
		case tool.AsError(err) == nil || tool.AsError(err).Reason != "INVALID_PICK" || !strings.HasPrefix(tool.AsError(err).Message, "INVALID_PICK: "):
			t.Errorf("%s: %+v, %v", wish, picked, err)
		}
	}
}

func TestAPolicyThatFails(t *testing.T) {
	tooltest.NoLeaks(t)
	for wish, want := range map[string]tool.Code{"crash": tool.CodeCrash, "hang": tool.CodeTimeout} {
		limit := time.Minute
		if want == tool.CodeTimeout {
			limit = time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := policy(t).Select(ctx, machina.Header(&tool.Call{}), nil, json.RawMessage(`{"wish":"`+wish+`"}`))
		cancel()
		kit.Refused(t, err, want, "", wish)
	}
	kit.Refused(t, kit.Err((machina.Policy{"/nonexistent"}).Select(t.Context(), machina.RunHeader{}, nil, nil)), tool.CodeUnavailable, "")
	kit.Refused(t, kit.Err(machina.Menu(make([]*tool.Spec, 10_000))), tool.CodeInvalidInput, "")
}

func TestTheInputsOfASelection(t *testing.T) {
	for _, c := range []struct{ inputs, patch, want string }{
		{"", "", "{}"}, {`{"a":1}`, "", `{"a":1}`}, {"", `{"a":1}`, `{"a":1}`}, {`{"a":1,"b":2}`, `{"a":{"c":3}}`, `{"a":{"c":3},"b":2}`}, {" {} ", "", " {} "},
	} {
		kit.Equal(t, string(kit.Must(machina.Selection{InputPatchJSON: c.patch}.Inputs(json.RawMessage(c.inputs)))(t)),
			c.want, "%q with %q", c.inputs, c.patch)
	}
	for _, bad := range []string{"5", "[]", "{", `{"a":1,"a":2}`} {
		for _, patch := range []string{"", "{}"} {
			kit.Refused(t, kit.Err((machina.Selection{InputPatchJSON: patch}).Inputs(json.RawMessage(bad))), tool.CodeInvalidInput, "", bad)
		}
	}
}
