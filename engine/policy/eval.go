package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"toolpost/wire/strictjson"
)

// A kind is what a value is, as far as it is known.
type kind int

const (
	kindAny kind = iota
	kindNull
	kindBool
	kindNumber
	kindText
	kindList
	kindObject
	kindTime
)

func (k kind) String() string {
	return []string{"anything", "null", "true or false", "a number", "a text", "a list", "an object", "a time"}[k]
}

func kindOf(v any) kind {
	switch v.(type) {
	case nil:
		return kindNull
	case bool:
		return kindBool
	case *big.Rat, json.Number:
		return kindNumber
	case string:
		return kindText
	case []any:
		return kindList
	case map[string]any:
		return kindObject
	case time.Time:
		return kindTime
	}
	return kindAny
}

// Bounds on what a condition may do. What it may spend is worth some ten milliseconds.
const (
	maxSpent  = 1_000_000
	step      = 4 // what each part costs; texts cost more with each 32 bytes
	maxDigits = 1000
	maxBits   = 1 << 16 // of a number
)

// A frame is one evaluation.
type frame struct {
	in     *input
	locals []any
	spent  int
}

func (f *frame) spend(n int) error {
	if f.spent += n; f.spent > maxSpent {
		return errCost
	}
	return nil
}

// An expr gives a value: nil, bool, string, *big.Rat, []any, map[string]any or time.Time.
type expr func(*frame) (any, error)

// holds evaluates a condition.
func (c Condition) holds(in *input) (bool, error) {
	v, err := c.run(&frame{in: in})
	if err != nil {
		return false, err
	}
	return asBool(v)
}

func asBool(v any) (bool, error) {
	b, ok := v.(bool)
	if !ok {
		return false, wrongKind(v, kindBool)
	}
	return b, nil
}

func wrongKind(v any, want ...kind) error {
	var names []string
	for _, k := range want {
		names = append(names, k.String())
	}
	return fmt.Errorf("%s is wanted, not %s", strings.Join(names, " or "), kindOf(v))
}

func constant(v any) expr {
	return func(f *frame) (any, error) { return v, f.spend(step) }
}

func local(i int) expr {
	return func(f *frame) (any, error) { return f.locals[i], f.spend(step) }
}

func ifElse(test, yes, no expr) expr {
	return func(f *frame) (any, error) {
		v, err := test(f)
		if err != nil {
			return nil, err
		}
		ok, err := asBool(v)
		switch {
		case err != nil:
			return nil, err
		case ok:
			return yes(f)
		}
		return no(f)
	}
}

// both and either do as CEL does: a side that decides decides, also where the other one has no value.
func both(a, b expr) expr   { return junction(a, b, false) }
func either(a, b expr) expr { return junction(a, b, true) }

func junction(a, b expr, decisive bool) expr {
	return func(f *frame) (any, error) {
		left, leftErr := boolOf(a, f)
		if leftErr == nil && left == decisive {
			return decisive, nil
		}
		right, rightErr := boolOf(b, f)
		switch {
		case errors.Is(leftErr, errCost):
			return nil, leftErr
		case rightErr == nil && right == decisive:
			return decisive, nil
		case leftErr != nil:
			return nil, leftErr
		case rightErr != nil:
			return nil, rightErr
		}
		return !decisive, nil
	}
}

func boolOf(e expr, f *frame) (bool, error) {
	v, err := e(f)
	if err != nil {
		return false, err
	}
	return asBool(v)
}

func not(e expr) expr {
	return func(f *frame) (any, error) {
		b, err := boolOf(e, f)
		return !b, err
	}
}

// two evaluates both sides of an operator.
func two(a, b expr, f *frame) (x, y any, err error) {
	if x, err = a(f); err != nil {
		return nil, nil, err
	}
	y, err = b(f)
	return x, y, err
}

func equality(a, b expr, want bool) expr {
	return func(f *frame) (any, error) {
		x, y, err := two(a, b, f)
		if err != nil {
			return nil, err
		}
		same, err := equal(f, x, y)
		return same == want, err
	}
}

// equal compares values of one kind. Null can be compared with everything.
func equal(f *frame, x, y any) (bool, error) {
	if err := f.spend(step); err != nil {
		return false, err
	}
	k := kindOf(x)
	switch {
	case x == nil || y == nil:
		return x == nil && y == nil, nil
	case k != kindOf(y):
		return false, fmt.Errorf("%s and %s cannot be compared", k, kindOf(y))
	}
	switch k {
	case kindNumber:
		c, err := compareNumbers(f, x, y)
		return c == 0, err
	case kindText:
		return x == y, f.spend(len(x.(string)) / 32)
	case kindTime:
		return x.(time.Time).Equal(y.(time.Time)), nil
	case kindList:
		return equalLists(f, x.([]any), y.([]any))
	case kindObject:
		return equalObjects(f, x.(map[string]any), y.(map[string]any))
	case kindAny, kindNull, kindBool:
	}
	return x == y, nil
}

func equalLists(f *frame, x, y []any) (bool, error) {
	if len(x) != len(y) {
		return false, nil
	}
	for i := range x {
		if same, err := equal(f, x[i], y[i]); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func equalObjects(f *frame, x, y map[string]any) (bool, error) {
	if len(x) != len(y) {
		return false, nil
	}
	for _, name := range sortedKeys(x) { // so that the same values give the same error
		other, ok := y[name]
		if !ok {
			return false, nil
		}
		if same, err := equal(f, x[name], other); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func ordered(a, b expr, sign string) expr {
	return func(f *frame) (any, error) {
		x, y, err := two(a, b, f)
		if err != nil {
			return nil, err
		}
		c, err := order(f, x, y)
		switch sign {
		case "<":
			return c < 0, err
		case "<=":
			return c <= 0, err
		case ">":
			return c > 0, err
		}
		return c >= 0, err
	}
}

func order(f *frame, x, y any) (int, error) {
	k := kindOf(x)
	if k != kindOf(y) {
		return 0, fmt.Errorf("%s and %s cannot be compared", k, kindOf(y))
	}
	switch k {
	case kindNumber:
		return compareNumbers(f, x, y)
	case kindText:
		return strings.Compare(x.(string), y.(string)), f.spend(step + len(x.(string))/32)
	case kindTime:
		return x.(time.Time).Compare(y.(time.Time)), f.spend(step)
	case kindAny, kindNull, kindBool, kindList, kindObject:
	}
	return 0, wrongKind(x, kindNumber, kindText, kindTime)
}

func compareNumbers(f *frame, x, y any) (int, error) {
	a, b, err := numbers(f, x, y)
	if err != nil {
		return 0, err
	}
	return a.Cmp(b), nil
}

func numbers(f *frame, x, y any) (a, b *big.Rat, err error) {
	if a, err = asNumber(f, x); err != nil {
		return nil, nil, err
	}
	b, err = asNumber(f, y)
	return a, b, err
}

// asNumber reads the digits of a JSON number only where somebody counts with it.
func asNumber(f *frame, v any) (*big.Rat, error) {
	switch n := v.(type) {
	case *big.Rat:
		return n, f.spend(step + bits(n)/32)
	case json.Number:
		r, ok := new(big.Rat).SetString(string(n))
		if !ok || bits(r) > maxBits {
			return nil, errors.New("a number is too large to count with")
		}
		return r, f.spend(step + bits(r)/32)
	}
	return nil, wrongKind(v, kindNumber)
}

func bits(r *big.Rat) int { return r.Num().BitLen() + r.Denom().BitLen() }

func arithmetic(a, b expr, op func(z, x, y *big.Rat) *big.Rat) expr {
	return func(f *frame) (any, error) {
		x, y, err := two(a, b, f)
		if err != nil {
			return nil, err
		}
		return calculate(f, x, y, op)
	}
}

func calculate(f *frame, x, y any, op func(z, x, y *big.Rat) *big.Rat) (any, error) {
	m, n, err := numbers(f, x, y)
	if err != nil {
		return nil, err
	}
	r := op(new(big.Rat), m, n)
	if bits(r) > maxBits {
		return nil, errors.New("a number is too large to count with")
	}
	return r, nil
}

// plus adds numbers and joins texts.
func plus(a, b expr) expr {
	return func(f *frame) (any, error) {
		x, y, err := two(a, b, f)
		if err != nil {
			return nil, err
		}
		s, isText := x.(string)
		t, areTexts := y.(string)
		if isText && areTexts {
			return s + t, f.spend((len(s) + len(t)) / 32)
		}
		return calculate(f, x, y, (*big.Rat).Add)
	}
}

func within(a, b expr) expr {
	return func(f *frame) (any, error) {
		x, y, err := two(a, b, f)
		if err != nil {
			return nil, err
		}
		switch in := y.(type) {
		case []any:
			return among(f, x, in)
		case map[string]any:
			name, ok := x.(string)
			if !ok {
				return nil, wrongKind(x, kindText)
			}
			_, has := in[name]
			return has, f.spend(step)
		}
		return nil, wrongKind(y, kindList, kindObject)
	}
}

// among is x == e1 || x == e2 ...
func among(f *frame, x any, list []any) (any, error) {
	var first error
	for _, e := range list {
		same, err := equal(f, x, e)
		switch {
		case errors.Is(err, errCost):
			return nil, err
		case err == nil && same:
			return true, nil
		case first == nil:
			first = err
		}
	}
	return false, first
}

func field(object expr, name string) expr {
	return func(f *frame) (any, error) {
		v, err := object(f)
		if err != nil {
			return nil, err
		}
		return lookup(f, v, name)
	}
}

func lookup(f *frame, v any, name string) (any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, wrongKind(v, kindObject)
	}
	value, ok := m[name]
	if !ok {
		return nil, fmt.Errorf("there is no field %s; has() asks for it first", short(name))
	}
	return value, f.spend(step)
}

func hasField(object expr, name string) expr {
	return func(f *frame) (any, error) {
		v, err := object(f)
		if err != nil {
			return nil, err
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil, wrongKind(v, kindObject)
		}
		_, has := m[name]
		return has, f.spend(step)
	}
}

func element(list, index expr) expr {
	return func(f *frame) (any, error) {
		v, i, err := two(list, index, f)
		if err != nil {
			return nil, err
		}
		if name, ok := i.(string); ok {
			return lookup(f, v, name)
		}
		items, ok := v.([]any)
		if !ok {
			return nil, wrongKind(v, kindList)
		}
		n, err := asNumber(f, i)
		if err != nil {
			return nil, err
		}
		if !n.IsInt() || n.Sign() < 0 || n.Cmp(big.NewRat(int64(len(items)), 1)) >= 0 {
			return nil, fmt.Errorf("there is no element %s of %d; the first one is 0", n.RatString(), len(items))
		}
		return items[n.Num().Int64()], nil
	}
}

func listOf(items []expr) expr {
	return func(f *frame) (any, error) {
		out := make([]any, len(items))
		for i, item := range items {
			var err error
			if out[i], err = item(f); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
}

func size(e expr) expr {
	return func(f *frame) (any, error) {
		v, err := e(f)
		if err != nil {
			return nil, err
		}
		var n int
		switch v := v.(type) {
		case string:
			n = utf8.RuneCountInString(v)
		case []any:
			n = len(v)
		case map[string]any:
			n = len(v)
		default:
			return nil, wrongKind(v, kindText, kindList, kindObject)
		}
		return big.NewRat(int64(n), 1), f.spend(step + n/32)
	}
}

// quantified asks for each element of a list, or name of an object: with exists whether the test holds for
// one, else whether for all.
func quantified(list, test expr, exists bool) expr {
	return func(f *frame) (any, error) {
		v, err := list(f)
		if err != nil {
			return nil, err
		}
		items, err := elements(v)
		if err != nil {
			return nil, err
		}
		depth := len(f.locals)
		defer func() { f.locals = f.locals[:depth] }()
		var first error
		for _, item := range items {
			f.locals = append(f.locals[:depth], item)
			b, err := boolOf(test, f)
			switch {
			case errors.Is(err, errCost):
				return nil, err
			case err == nil && b == exists:
				return exists, nil
			case first == nil:
				first = err
			}
		}
		return !exists, first
	}
}

func elements(v any) ([]any, error) {
	switch v := v.(type) {
	case []any:
		return v, nil
	case map[string]any:
		var names []any
		for _, name := range sortedKeys(v) {
			names = append(names, name)
		}
		return names, nil
	}
	return nil, wrongKind(v, kindList, kindObject)
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func textTests() map[string]func(s, t string) bool {
	return map[string]func(s, t string) bool{
		"startsWith": strings.HasPrefix, "endsWith": strings.HasSuffix, "contains": strings.Contains,
	}
}

func methodNames() []string {
	return []string{"startsWith", "endsWith", "contains", "matches", "size", "exists", "all",
		"getFullYear", "getMonth", "getDate", "getDayOfWeek", "getHours", "getMinutes"}
}

func compareTexts(a, b expr, test func(s, t string) bool) expr {
	return func(f *frame) (any, error) {
		x, y, err := two(a, b, f)
		if err != nil {
			return nil, err
		}
		s, isText := x.(string)
		t, areTexts := y.(string)
		switch {
		case !isText:
			return nil, wrongKind(x, kindText)
		case !areTexts:
			return nil, wrongKind(y, kindText)
		}
		return test(s, t), f.spend(step + len(s)/32)
	}
}

// matches takes the time of Go's regular expressions, which grows with the text and not faster.
func matches(e expr, pattern string) (expr, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("%q is not a regular expression: %w", pattern, err)
	}
	return func(f *frame) (any, error) {
		v, err := e(f)
		if err != nil {
			return nil, err
		}
		s, ok := v.(string)
		if !ok {
			return nil, wrongKind(v, kindText)
		}
		if err := f.spend(step + len(s)/4); err != nil {
			return nil, err
		}
		return re.MatchString(s), nil
	}, nil
}

// A timePart reads one number off a time; as in CEL months and days of the week count from 0, Sunday being 0.
type timePart func(time.Time) int

func timeParts() map[string]timePart {
	return map[string]timePart{
		"getFullYear":  time.Time.Year,
		"getMonth":     func(t time.Time) int { return int(t.Month()) - 1 },
		"getDate":      time.Time.Day,
		"getDayOfWeek": func(t time.Time) int { return int(t.Weekday()) },
		"getHours":     time.Time.Hour,
		"getMinutes":   time.Time.Minute,
	}
}

func timeOf(e expr, loc *time.Location, part timePart) expr {
	return func(f *frame) (any, error) {
		v, err := e(f)
		if err != nil {
			return nil, err
		}
		t, ok := v.(time.Time)
		if !ok {
			return nil, wrongKind(v, kindTime)
		}
		return big.NewRat(int64(part(t.In(loc))), 1), f.spend(step)
	}
}

func parseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time such as 2026-01-31T00:00:00Z", text)
	}
	return t, nil
}

// location finds a time zone by name.
func location(zone string) (*time.Location, error) {
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, fmt.Errorf("%q is not a time zone that this machine knows, such as UTC or Europe/Berlin", zone)
	}
	return loc, nil
}

// A variable is a name that every condition knows.
type variable struct {
	name string
	kind kind
	uses uses
	run  expr
}

func variables() []variable {
	text := func(name string, get func(*input) string) variable {
		return variable{name: name, kind: kindText, run: func(f *frame) (any, error) { return get(f.in), f.spend(step) }}
	}
	list := func(name string, get func(*input) []any) variable {
		return variable{name: name, kind: kindList, uses: uses{touches: true}, run: func(f *frame) (any, error) { return get(f.in), f.spend(step) }}
	}
	return []variable{
		text("caller", func(in *input) string { return in.call.Caller.ID }),
		text("door", func(in *input) string { return in.call.Caller.Door }),
		text("session", func(in *input) string { return in.call.Session }),
		text("tool", func(in *input) string { return in.spec.Ref().Name }),
		text("source", func(in *input) string { return in.spec.Source }),
		{name: "tier", kind: kindNumber, run: func(f *frame) (any, error) { return big.NewRat(int64(f.in.spec.Tier), 1), f.spend(step) }},
		{name: "effects", kind: kindObject, run: func(f *frame) (any, error) { return effects(f.in), f.spend(step) }},
		{name: "args", kind: kindObject, uses: uses{args: true}, run: func(f *frame) (any, error) { return f.in.arguments() }},
		list("paths", func(in *input) []any { return texts(in.touches.Reads, in.touches.Writes) }),
		list("reads", func(in *input) []any { return texts(in.touches.Reads) }),
		list("writes", func(in *input) []any { return texts(in.touches.Writes) }),
		list("commands", func(in *input) []any {
			out := make([]any, len(in.touches.Commands))
			for i, argv := range in.touches.Commands {
				out[i] = texts(argv)
			}
			return out
		}),
		{name: "now", kind: kindTime, run: func(f *frame) (any, error) { return f.in.now, f.spend(step) }},
	}
}

func variableNames() []string {
	var names []string
	for _, v := range variables() {
		names = append(names, v.name)
	}
	return names
}

func texts(lists ...[]string) []any {
	var out []any
	for _, list := range lists {
		for _, s := range list {
			out = append(out, s)
		}
	}
	return out
}

func effects(in *input) map[string]any {
	e := in.spec.Effects
	return map[string]any{
		"reads": e.Reads, "writes": e.Writes, "network": e.Network, "exec": e.Exec,
		"idempotent": e.Idempotent, "destructive": e.Destructive,
	}
}

// arguments reads the arguments, once.
func (in *input) arguments() (any, error) {
	if in.args == nil {
		v, err := strictjson.Decode(in.call.Args)
		if err != nil {
			return nil, err
		}
		args, ok := v.(map[string]any)
		if !ok {
			return nil, wrongKind(v, kindObject)
		}
		in.args = args
	}
	return in.args, nil
}

// short cuts a name of somebody else's for a message.
func short(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:60], "") + "..."
	}
	return fmt.Sprintf("%q", s)
}
