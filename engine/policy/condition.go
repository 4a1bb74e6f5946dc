package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Limits of a condition: of its text, and of the cost of one evaluation in CEL's own units.
const (
	maxCondition = 4096 // bytes
	maxNesting   = 100
	maxCost      = 1_000_000 // a fifth of a second at worst
)

// A Condition is the expression of a rule, in CEL; docs/06-policy.md lists the values that it can use.
type Condition struct {
	text    string
	ast     *ast.AST
	run     cel.Program // nil if there is no condition
	touches bool        // whether it reads what the call touches, which takes time to find out
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Condition) UnmarshalText(b []byte) error {
	parsed, err := parseCondition(string(b))
	if err != nil {
		return fmt.Errorf("the condition cannot be read: %w", err)
	}
	*c = parsed
	return nil
}

func parseCondition(text string) (Condition, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return Condition{}, errors.New("it is empty; leave it out to match every call")
	case len(text) > maxCondition:
		return Condition{}, fmt.Errorf("it is longer than %d bytes", maxCondition)
	}
	env, err := language()
	if err != nil {
		return Condition{}, err
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return Condition{}, unreadable(text, issues.Errors()[0])
	}
	// The type of a condition may be known only when it runs, as with args.force.
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return Condition{}, fmt.Errorf("it must be true or false, and is of type %s", t)
	}
	run, err := env.Program(checked, cel.CostLimit(maxCost), cel.CostTracking(meter{}),
		cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return Condition{}, err
	}
	c := Condition{text: text, ast: checked.NativeRep(), run: run}
	for _, r := range c.ast.ReferenceMap() {
		c.touches = c.touches || values()[r.Name].touches
	}
	return c, nil
}

// language is CEL with the values of a call. It is made only for a config that has a condition.
var language = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{
		cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true), cel.ParserRecursionLimit(maxNesting),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateDurationLiterals(),
			zones{}),
	}
	for name, v := range values() {
		options = append(options, cel.Variable(name, v.kind))
	}
	return cel.NewEnv(options...)
})

// unreadable returns the first mistake in a condition. Later ones are often consequences of it.
func unreadable(text string, e *cel.Error) error {
	message := e.Message
	if raw, ok := strings.CutPrefix(message, "Syntax error: "); ok {
		message = misspelled(raw)
	}
	undeclared, rest, _ := strings.Cut(strings.TrimPrefix(message, "undeclared reference to '"), "'")
	switch {
	case strings.Contains(message, "has() macro"):
		message += ", which takes a field, such as has(args.path)"
	case strings.HasPrefix(message, "undeclared") && rest == "" && !strings.Contains(text, undeclared+"("):
		message += "; known are " + strings.Join(slices.Sorted(maps.Keys(values())), ", ")
	}
	if e.Location.Line() < 1 { // of the whole condition
		return errors.New(message)
	}
	return fmt.Errorf("at %s: %s", place(e.Location), message)
}

// misspelled translates the parser's grammar terms into plain words. A long list of what the parser would have accepted
// is dropped, because it does not help.
func misspelled(raw string) string {
	what, wanted, _ := strings.Cut(raw, " expecting ")
	_, found, _ := strings.Cut(what, "'")
	found = strings.TrimSuffix(found, "'")
	hint := ""
	if wanted != "" && !strings.HasPrefix(wanted, "{") && wanted != "<EOF>" {
		hint = "; expected " + wanted
	}
	switch {
	case strings.HasPrefix(what, "missing "):
		token, _, _ := strings.Cut(what, " at ")
		return token
	case strings.Contains(what, "<EOF>"):
		return "it ends too early" + hint
	case strings.HasPrefix(what, "token recognition error") && strings.HasPrefix(found, "="):
		return "= means nothing here; to compare, write =="
	case strings.HasPrefix(what, "token recognition error"):
		return fmt.Sprintf("%q means nothing here; text is written in quotes, at both ends", found)
	case strings.HasPrefix(what, "mismatched input"), strings.HasPrefix(what, "extraneous input"),
		strings.HasPrefix(what, "no viable alternative"):
		return fmt.Sprintf("%q is not expected here", found) + hint
	}
	return raw
}

// place returns a column, counted from 1, with its line if there are several.
func place(at common.Location) string {
	if at.Line() == 1 {
		return fmt.Sprint(at.Column() + 1)
	}
	return fmt.Sprintf("line %d, %d", at.Line(), at.Column()+1)
}

// zones finds unknown time zones while the config is read, as CEL's own validators do for patterns and times.
type zones struct{}

// Name implements cel.ASTValidator.
func (zones) Name() string { return "toolpost.zones" }

// Validate implements cel.ASTValidator.
func (zones) Validate(_ *cel.Env, _ cel.ValidatorConfig, a *ast.AST, issues *cel.Issues) {
	for _, call := range ast.MatchDescendants(ast.NavigateAST(a), ast.KindMatcher(ast.CallKind)) {
		args := call.AsCall().Args()
		if !call.AsCall().IsMemberFunction() || len(args) != 1 || args[0].Kind() != ast.LiteralKind {
			continue
		}
		zone, ok := args[0].AsLiteral().(types.String)
		if !ok || !strings.HasPrefix(call.AsCall().FunctionName(), "get") { // getHours and the like
			continue
		}
		if types.IsError((types.Timestamp{}).Receive(overloads.TimeGetHours, "", []ref.Val{zone})) {
			issues.ReportErrorAtID(args[0].ID(), unknownZone, string(zone))
		}
	}
}

// A meter charges for the length of texts and lists. CEL itself charges nothing for the size of a text, nor for
// operators whose types are known only at run time, as in all of args: a loop over such operators would never end.
type meter struct{}

// CallCost implements cost.ActualCostEstimator.
func (meter) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	if function == overloads.Matches {
		return nil // CEL's own charge, which also considers the pattern
	}
	total := 1 + weight(result, false)
	for _, v := range args {
		total += weight(v, goesThrough(function, v))
	}
	return &total
}

// goesThrough reports whether an operator reads every element of a value.
func goesThrough(function string, v ref.Val) bool {
	_, object := v.(traits.Mapper)
	return function == operators.Equals || function == operators.NotEquals || function == operators.In && !object
}

func weight(v ref.Val, through bool) (total uint64) {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v)) / 32
	case types.Bytes:
		return uint64(len(v)) / 32
	case traits.Lister:
		for it := v.Iterator(); through && it.HasNext() == types.True; {
			total += 1 + weight(it.Next(), true)
		}
	case traits.Mapper:
		for it := v.Iterator(); through && it.HasNext() == types.True; {
			total += 1 + weight(v.Get(it.Next()), true)
		}
	}
	return total
}

var errCost = errors.New("it takes too long")

// holds evaluates the condition. An error means that it cannot be decided.
func (c Condition) holds(in *input) (bool, error) {
	v, _, err := c.run.Eval(in)
	if err != nil {
		return false, c.undecided(err)
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, fmt.Errorf("it must be true or false, and is of type %s", v.Type())
	}
	return bool(b), nil
}

// undecided returns where and why an evaluation failed.
func (c Condition) undecided(err error) error {
	if cancelled := (interpreter.EvalCancelledError{}); errors.As(err, &cancelled) {
		return errCost
	}
	var failed *types.Err
	if !errors.As(err, &failed) {
		return err
	}
	message := failed.Error()
	if name, ok := strings.CutPrefix(message, "no such key: "); ok {
		return fmt.Errorf("there is no field %s; has() asks for it first", short(name))
	}
	if strings.HasPrefix(message, "no such overload") {
		message = "these values are of types that do not go together"
	}
	// The library labels errors with their node, but some of them are one variable for all evaluations.
	if failed.NodeID() == 0 || ref.Val(failed) == types.NoSuchOverloadErr() {
		return errors.New(message)
	}
	return fmt.Errorf("at %s: %s", place(c.ast.SourceInfo().GetStartLocation(failed.NodeID())), message)
}

// short cuts a foreign name for a message.
func short(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:60], "") + "..."
	}
	return fmt.Sprintf("%q", s)
}

// A value is something that every condition can use by a name.
type value struct {
	kind    *cel.Type
	touches bool // whether it is part of what the call touches
	get     func(*input) any
}

var values = sync.OnceValue(func() map[string]value {
	words := cel.ListType(cel.StringType)
	return map[string]value{
		"caller":  {kind: cel.StringType, get: (*input).caller},
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

// ResolveName implements cel.Activation. A value is computed only if the condition uses it.
func (in *input) ResolveName(name string) (any, bool) {
	v, ok := values()[name]
	if !ok {
		return nil, false
	}
	return v.get(in), true
}

// Parent implements cel.Activation.
func (in *input) Parent() cel.Activation { return nil }

// caller returns the name of the caller. A condition cannot be decided by a name that the caller chose.
func (in *input) caller() any {
	if id := in.call.Caller.ID; !tool.SelfNamed(id) {
		return id
	}
	return types.NewErr("it depends on the name of the caller, and %s named itself; start it with `toolpost as mcp --caller NAME`",
		in.call.Caller.ID)
}

func (in *input) effects() any {
	e := in.spec.Effects
	return newObject(map[string]any{
		"reads": e.Reads, "writes": e.Writes, "network": e.Network, "exec": e.Exec,
		"idempotent": e.Idempotent, "destructive": e.Destructive, "pure": e.Pure,
	})
}

// arguments decodes the arguments, once. If that fails, every use of them is an error.
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

// celValue converts the output of the JSON decoder into values that CEL can count and compare.
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

// number decides by the value, not by its spelling, which type a number has in CEL, which does not add 1 and 1.0: a
// caller that writes 5.0 for 5 must not get around a rule. 64-bit integers stay exact; any other number is a double, as
// JSON is in CEL elsewhere too.
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

// An object is a JSON object that is iterated in the order of its names. A Go map has no order, so the same call could
// be decided differently each time.
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
