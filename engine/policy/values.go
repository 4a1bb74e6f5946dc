package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/traits"

	"toolpost/wire/strictjson"
)

// A value is what every condition can ask for by a name.
type value struct {
	kind    *cel.Type
	touches bool // whether it is part of what the call touches
	get     func(*input) any
}

var values = sync.OnceValue(func() map[string]value {
	words := cel.ListType(cel.StringType)
	return map[string]value{
		"caller":  {kind: cel.StringType, get: func(in *input) any { return in.call.Caller.ID }},
		"door":    {kind: cel.StringType, get: func(in *input) any { return in.call.Caller.Door }},
		"session": {kind: cel.StringType, get: func(in *input) any { return in.call.Session }},
		"tool":    {kind: cel.StringType, get: func(in *input) any { return in.spec.Ref().Name }},
		"source":  {kind: cel.StringType, get: func(in *input) any { return in.spec.Source }},
		"tier":    {kind: cel.IntType, get: func(in *input) any { return in.spec.Tier }},
		"effects": {kind: cel.MapType(cel.StringType, cel.BoolType), get: (*input).effects},
		"args":    {kind: cel.MapType(cel.StringType, cel.DynType), get: (*input).arguments},
		"paths": {kind: words, touches: true, get: func(in *input) any {
			return slices.Concat(in.touches.Reads, in.touches.Writes)
		}},
		"reads":    {kind: words, touches: true, get: func(in *input) any { return in.touches.Reads }},
		"writes":   {kind: words, touches: true, get: func(in *input) any { return in.touches.Writes }},
		"commands": {kind: cel.ListType(words), touches: true, get: func(in *input) any { return in.touches.Commands }},
		"now":      {kind: cel.TimestampType, get: func(in *input) any { return in.now }},
	}
})

// ResolveName implements cel.Activation: a condition pays for the values that it asks for.
func (in *input) ResolveName(name string) (any, bool) {
	v, ok := values()[name]
	if !ok {
		return nil, false
	}
	return v.get(in), true
}

// Parent implements cel.Activation.
func (in *input) Parent() cel.Activation { return nil }

func (in *input) effects() any {
	e := in.spec.Effects
	return newObject(map[string]any{
		"reads": e.Reads, "writes": e.Writes, "network": e.Network, "exec": e.Exec,
		"idempotent": e.Idempotent, "destructive": e.Destructive,
	})
}

// arguments reads the arguments, once. What they cannot be read for is an error to whatever asks for them.
func (in *input) arguments() any {
	if in.args == nil {
		args, err := readArguments(in.call.Args)
		if in.args = args; err != nil {
			in.args = types.WrapErr(err)
		}
	}
	return in.args
}

func readArguments(args json.RawMessage) (any, error) {
	v, err := strictjson.Decode(args)
	if err != nil {
		return nil, err
	}
	if _, ok := v.(map[string]any); !ok {
		return nil, errors.New("the arguments are not an object")
	}
	return celValue(v)
}

// celValue turns what the JSON decoder gives into what CEL counts and compares with.
func celValue(v any) (_ any, err error) {
	switch v := v.(type) {
	case json.Number:
		return number(string(v))
	case []any:
		for i := range v {
			if v[i], err = celValue(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for name := range v {
			if v[name], err = celValue(v[name]); err != nil {
				return nil, err
			}
		}
		return newObject(v), nil
	}
	return v, nil
}

// number decides by the value and not by its spelling what a number is to CEL, which does not add 1 and 1.0: a caller
// who writes 5.0 for 5 must not get around a rule. Whole numbers of 64 bits stay exact; any other number is a double,
// as JSON is to CEL elsewhere too.
func number(text string) (any, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil: // a double would be infinite, and equal to others that are too large
		return nil, fmt.Errorf("the number %s is too large to count with", short(text))
	case f == math.Trunc(f) && math.Abs(f) <= 1<<53:
		return int64(f), nil
	}
	return f, nil
}

// An object is a JSON object that is gone through in the order of its names. A Go map has no order, and the
// same call would be decided now so and now otherwise.
type object struct {
	traits.Mapper
	names []string
}

func newObject(m map[string]any) object {
	return object{types.NewStringInterfaceMap(types.DefaultTypeAdapter, m), slices.Sorted(maps.Keys(m))}
}

// Iterator implements traits.Iterable.
func (o object) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, o.names).Iterator()
}
