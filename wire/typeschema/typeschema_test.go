package typeschema_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/wire/schema"
	"toolpost/wire/typeschema"
)

type place struct {
	Path string `json:"path" schema:"minLength=1" doc:"Where it is."`
}

type search struct {
	_     struct{}          `schema:"minProperties=1"`
	Query string            `json:"query" schema:"required maxLength=10"`
	Limit int               `json:"limit" schema:"minimum=1 default=10" doc:"How many."`
	Mode  string            `json:"mode" schema:"enum=fast|exact default=fast"`
	Perm  *string           `json:"perm" schema:"pattern=^[0-7]{3,4}$"`
	Globs []string          `json:"globs" schema:"items.minLength=1 maxItems=2"`
	Patch json.RawMessage   `json:"patch" schema:"type=object"`
	Env   map[string]string `json:"env"`
	Skip  bool              `json:"-"`
	place
}

type found struct {
	place
	Size    int64     `json:"size"`
	Seq     uint64    `json:"seq,omitzero"`
	Score   float64   `json:"score,omitzero"`
	Raw     []byte    `json:"raw,omitempty"`
	Changed time.Time `json:"changed"`
	OK      bool      `json:"ok" schema:"const=true"`
	Any     any       `json:"any"`
}

func written(t *testing.T, o *typeschema.Object) string {
	t.Helper()
	b := kit.Must(o.MarshalJSON())(t)
	kit.Check(t, kit.Err(schema.Compile(b)), b)
	return string(b)
}

func TestInputSchemaFollowsTagsInFieldOrder(t *testing.T) {
	got := written(t, typeschema.Input(reflect.TypeFor[search]()))
	want := `{"type":"object","properties":{` +
		`"query":{"type":"string","maxLength":10},` +
		`"limit":{"type":"integer","minimum":1,"default":10,"description":"How many."},` +
		`"mode":{"enum":["fast","exact"],"default":"fast"},` +
		`"perm":{"type":"string","pattern":"^[0-7]{3,4}$"},` +
		`"globs":{"type":"array","items":{"type":"string","minLength":1},"maxItems":2},` +
		`"patch":{"type":"object"},` +
		`"env":{"type":"object","additionalProperties":{"type":"string"}},` +
		`"path":{"type":"string","minLength":1,"description":"Where it is."}},` +
		`"required":["query"],"additionalProperties":false,"minProperties":1}`
	kit.Equal(t, got, want)
}

func TestOutputRequiresFieldsThatAreNotOmitted(t *testing.T) {
	got := written(t, typeschema.Output(reflect.TypeFor[[]found]()))
	want := `{"type":"array","items":{"type":"object","properties":{` +
		`"path":{"type":"string","minLength":1,"description":"Where it is."},"size":{"type":"integer"},` +
		`"seq":{"type":"integer"},"score":{"type":"number"},` +
		`"raw":{"type":"string","contentEncoding":"base64"},"changed":{"type":"string","format":"date-time"},` +
		`"ok":{"const":true},"any":{}},"required":["path","size","changed","ok","any"]}}`
	kit.Equal(t, got, want)
}

func TestAStructWithoutFieldsIsAnEmptyObject(t *testing.T) {
	kit.Equal(t, written(t, typeschema.Input(reflect.TypeFor[struct{}]())), `{"type":"object","additionalProperties":false}`)
}

func TestSchemaCanBeModifiedInPlace(t *testing.T) {
	s := typeschema.Input(reflect.TypeFor[place]())
	s.At("properties", "path").Set("minLength", 2).Set("examples", []string{"a"})
	s.At("properties").Set("more", new(typeschema.Object).Set("type", "boolean"))
	s.Delete("additionalProperties")
	want := `{"type":"object","properties":{"path":{"type":"string","minLength":2,"description":"Where it is.","examples":["a"]},"more":{"type":"boolean"}}}`
	kit.Equal(t, written(t, s), want)
}
