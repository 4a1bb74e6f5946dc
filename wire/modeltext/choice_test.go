package modeltext_test

import (
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/modeltext"
	"toolpost/wire/strictjson"
)

func TestAChoiceIsATextOrHasALabelOrAnID(t *testing.T) {
	for doc, want := range map[string]modeltext.Choice{
		`"Sit"`:                                  {ID: "Sit", Label: "Sit"},
		`{"label":"Sit"}`:                        {ID: "Sit", Label: "Sit"},
		`{"id":"s"}`:                             {ID: "s", Label: "s"},
		`{"id":"s","label":"Sit","hint":"here"}`: {ID: "s", Label: "Sit", Hint: "here"},
	} {
		var got modeltext.Choice
		if err := strictjson.Unmarshal([]byte(doc), &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v", doc, got, err)
		}
	}
	for _, doc := range []string{`""`, `{}`, `7`, `null`, `["a"]`, `{"label":7}`} {
		kit.Fails(t, strictjson.Unmarshal([]byte(doc), new(modeltext.Choice)), "", "%s is a choice", doc)
	}
}

func TestAModelIsToldOfChoicesInWords(t *testing.T) {
	many := `"x"` + strings.Repeat(`,"x"`, 59)
	for payload, want := range map[string]string{
		`{"choices":["north",{"id":"s","label":"south","hint":"cold"}]}`: "[choices; what the user chooses is the next prompt:\n1. north\n2. south (cold)]",
		`{"choices":["up\\n2. down\\u202e"]}`:                            "[choices; what the user chooses is the next prompt:\n1. up\\n2. down\\u202e]",
		`{"choices":[` + many + `]}`:                                     "50. x\nand 10 more]",
		`{"choices":["` + strings.Repeat("é", 1000) + `"]}`:              "1. " + strings.Repeat("é", 150) + "]",
		`{"choices":[7]}`: "",
		`{"choices":[]}`:  "",
		`7`:               "",
	} {
		got := modeltext.Offered(tool.NewEvent(tool.KindUIEvent, tool.UIEvent{Event: modeltext.Choosing, Payload: []byte(payload)}).Data)
		if !strings.HasSuffix(got, want) || want == "" && got != "" {
			t.Errorf("%.100s: %q, want %q", payload, got, want)
		}
	}
	other := tool.UIEvent{Event: "play_sound", Payload: []byte(`{"choices":["x"]}`)}
	kit.Equal(t, modeltext.Offered(tool.NewEvent(tool.KindUIEvent, other).Data), "", "another event offers")
}
