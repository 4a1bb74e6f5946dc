package listing_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/listing"
	"toolpost/wire/strictjson"
)

func TestAnEntryIsReadAsItWasWritten(t *testing.T) {
	spec := &tool.Spec{Name: "x", Source: "s", Protocol: "p", Input: json.RawMessage(`{"type":"object"}`)}
	for _, why := range []error{nil, errors.New("it is away")} {
		got, reason, err := listing.Decode(listing.Encode(spec, why))
		if d := cmp.Diff(spec, got); err != nil || d != "" {
			t.Errorf("%v %s", err, d)
		}
		if (why == nil) != (reason == nil) || why != nil && tool.AsError(reason).Message != "it is away" {
			t.Errorf("the reason is %v", reason)
		}
	}
	for _, bad := range []string{``, `[]`, `{"name":7}`, `{"available":"yes"}`} {
		if _, _, err := listing.Decode([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// A description or a name that cannot be encoded does not hide the other tools.
func TestAnEntryCanAlwaysBeWritten(t *testing.T) {
	for _, spec := range []*tool.Spec{
		{Name: "x", Input: json.RawMessage(`{`)}, {Name: "\xff", Source: "\xff", Input: json.RawMessage(`{`)},
	} {
		b := listing.Encode(spec, nil)
		kit.Check(t, strictjson.CheckObject(b), b)
		if s, why, err := listing.Decode(b); err != nil || why == nil || s.Name == "" {
			t.Errorf("%v %v %v", s, why, err)
		}
	}
}
