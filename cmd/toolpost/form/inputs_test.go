package form

import "testing"

func TestInputLinesShowTypesAndChoices(t *testing.T) {
	got := InputLines([]byte(`{"properties": {"language": {"enum": ["python", "javascript"], "description": "which"},
		"body": {"$ref": "#/$defs/Order"}, "free": {}},
		"$defs": {"Order": {"type": "object", "properties": {"qty": {}, "item": {}}, "required": ["item"]}},
		"required": ["body"]}`))
	want := "  body      object             required  {item, qty?}\n" +
		"  free                         optional\n" +
		"  language  python|javascript  optional  which"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
