package secret_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/slogtest"

	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// encodings returns the ways in which a program may print a value.
func encodings() map[string]func(string) string {
	std, raw := base64.StdEncoding.EncodeToString, base64.RawURLEncoding.EncodeToString
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b[1 : len(b)-1]) }
	percent := func(s string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			fmt.Fprintf(&b, "%%%02x", c)
		}
		return b.String()
	}
	escaped := func(s string) string {
		var b strings.Builder
		for _, r := range s {
			if r > 0xffff {
				b.WriteString(quoted(string(r)))
				continue
			}
			fmt.Fprintf(&b, `\u%04X`, r)
		}
		return b.String()
	}
	return map[string]func(string) string{
		"plain":            func(s string) string { return s },
		"base64":           func(s string) string { return std([]byte(s)) },
		"base64, 1 before": func(s string) string { return std([]byte("x" + s + "yz")) },
		"base64, 2 before": func(s string) string { return std([]byte("xy" + s)) },
		"base64, newline":  func(s string) string { return std([]byte(s + "\n")) },
		"base64, basic":    func(s string) string { return std([]byte("user:" + s)) },
		"base64, url":      func(s string) string { return raw([]byte(s)) },
		"base64, url, 1":   func(s string) string { return base64.URLEncoding.EncodeToString([]byte("x" + s)) },
		"base64, url, 2":   func(s string) string { return raw([]byte("xy" + s + "z")) },
		"base64, escaped":  func(s string) string { return url.QueryEscape(std([]byte(s))) },
		"base64, lines":    func(s string) string { return lines(std([]byte("a header of some length: "+s)), 76) },
		"base64, PEM":      func(s string) string { return strings.ReplaceAll(lines(std([]byte(s)), 64), "\n", "\r\n") },
		"hex":              func(s string) string { return hex.EncodeToString([]byte(s)) },
		"HEX":              func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
		"hex, lines":       func(s string) string { return lines(hex.EncodeToString([]byte(s)), 60) },
		"query":            url.QueryEscape,
		"path":             url.PathEscape,
		"percent":          percent,
		"PERCENT":          func(s string) string { return strings.ReplaceAll(strings.ToUpper(percent(s)), "%20", "+") },
		"lower query":      lowerEscapes,
		"JSON":             quoted,
		"JSON, all":        escaped,
		"JSON, slashes":    func(s string) string { return strings.ReplaceAll(quoted(s), "/", `\/`) },
		"JSON in JSON":     func(s string) string { return quoted(quoted(s)) },
		"query in JSON":    func(s string) string { return quoted(url.QueryEscape(s)) },
		"Go":               func(s string) string { q := strconv.QuoteToASCII(s); return q[1 : len(q)-1] },
	}
}

func lowerEscapes(s string) string {
	var b strings.Builder
	for _, part := range strings.SplitAfter(url.QueryEscape(s), "%") {
		if len(part) > 2 && b.Len() > 0 && strings.HasSuffix(b.String(), "%") {
			part = strings.ToLower(part[:2]) + part[2:]
		}
		b.WriteString(part)
	}
	return b.String()
}

// lines breaks a text as base64(1) and xxd(1) do.
func lines(s string, width int) string {
	var b strings.Builder
	for len(s) > width {
		b.WriteString(s[:width] + "\n")
		s = s[width:]
	}
	return b.String() + s
}

// secrets makes values of all kinds, always the same for a seed.
func secrets(n int, seed uint64) map[string]string {
	random := rand.New(rand.NewPCG(seed, 1))
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	const others = letters + " !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~äß漢🔑\t"
	word := func(n int, from string) string {
		runes := []rune(from)
		out := make([]rune, n)
		for i := range out {
			out[i] = runes[random.IntN(len(runes))]
		}
		return string(out)
	}
	values := map[string]string{}
	for i := range n {
		var value string
		switch i % 8 {
		case 0:
			value = word(6+random.IntN(10), letters)
		case 1:
			value = word(20+random.IntN(60), letters)
		case 2:
			value = "x" + word(8+random.IntN(40), others) + "x"
		case 3:
			value = "ghp_" + word(36, letters)
		case 4:
			value = word(8+random.IntN(8), "123456789")
		case 5:
			value = "postgres://" + word(5, letters) + ":" + word(12, letters) + "@db/" + word(4, letters) + "?a=b&c=%20"
		case 6:
			value = "-----BEGIN KEY-----\n" + lines(word(300, letters+"+/"), 64) + "\n-----END KEY-----"
		case 7:
			value = `{"type":"account","key":"` + word(100, letters) + `\n"}`
		}
		values["S"+strconv.Itoa(i)] = value
	}
	return values
}

// encoded returns a value in every encoding.
func encoded(value string) map[string]string {
	texts := map[string]string{}
	for kind, encode := range encodings() {
		texts[kind] = encode(value)
	}
	return texts
}

// leaks reports whether a text has one of the encodings of a value.
func leaks(text string, encoded map[string]string) bool {
	for _, form := range encoded {
		if strings.Contains(text, form) {
			return true
		}
	}
	return false
}

func TestAValueIsReplacedByItsNameInEveryEncoding(t *testing.T) {
	values := secrets(96, 1)
	r := vault(t, values).Redactor()
	for name, value := range values {
		forms := encoded(value)
		for kind, text := range forms {
			for around, most := range map[string]int{"%s": 60, "„token=%s“\n": 75} {
				got := r.String(fmt.Sprintf(around, text))
				if leaks(got, forms) || !strings.Contains(got, "[secret "+name+"]") || len(got) > most {
					t.Errorf("%s, %s of %q: %q", around, kind, value, got)
				}
			}
		}
	}
}

func TestBase64DigitsOfASecretAreRedacted(t *testing.T) {
	r := vault(t, map[string]string{"KEY": canary}).Redactor()
	for before := range 4 {
		for after := range 4 {
			coded := base64.StdEncoding.EncodeToString([]byte("AAAA"[:before] + canary + "BBBB"[:after]))
			want := base64.RawStdEncoding.EncodeToString([]byte("AAAA"[:before]))[:8*before/6] + "[secret KEY]"
			if got := r.String(coded); !strings.HasPrefix(got, want) || after == 0 && got != want {
				t.Errorf("%d before, %d after: %s, want %s", before, after, got, want)
			}
		}
	}
}

func TestLineWrappedSecretIsRedacted(t *testing.T) {
	value := strings.Repeat("k3y", 5) + "the quick brown fox jumps over the lazy dog 0123456789 " + strings.Repeat("Zx9", 40)
	r := vault(t, map[string]string{"KEY": value}).Redactor()
	for before := range 80 {
		text := lines(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("é", before)+value+" and what follows")), 76)
		for line := range strings.Lines(r.String(text)) {
			plain, _ := base64.RawStdEncoding.DecodeString(strings.TrimSpace(line)[:len(strings.TrimSpace(line))/4*4])
			if strings.Contains(string(plain), "quick brown") || strings.Contains(string(plain), "Zx9Zx9Zx9Zx9") {
				t.Errorf("%d: %q", before, plain)
			}
		}
	}
	for line := range strings.Lines("-----BEGIN X-----\n" + strings.Repeat("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n", 3)) {
		key := vault(t, map[string]string{"KEY": "-----BEGIN X-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nshort\n-----END X-----"}).Redactor()
		if got := key.String(line); strings.HasPrefix(line, "MII") && got != "[secret KEY]\n" || strings.HasPrefix(line, "---") && got != line {
			t.Errorf("%q", got)
		}
	}
}

func TestTextWithoutSecretsIsNotCopied(t *testing.T) {
	text := []byte(strings.Repeat("the token is 100 % \"quoted\\n\" %41\n", 1000))
	doc := strictjson.Quote(text)
	plain := strings.Repeat("nothing to escape, nothing to hide; ", 1000)
	known := vault(t, secrets(50, 2)).Redactor()
	for name, r := range map[string]*secret.Redactor{"nil": nil, "zero": {}, "known": known} {
		if got := r.Bytes(text); &got[0] != &text[0] {
			t.Errorf("%s: bytes were copied", name)
		}
		if got := r.JSON(doc); &got[0] != &doc[0] {
			t.Errorf("%s: a document was copied", name)
		}
		if n := testing.AllocsPerRun(20, func() { r.String(plain) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestReplacementContainsNoSecret(t *testing.T) {
	values := map[string]string{"A": "abcdefgh", "B": "efghijkl", "C": "cdefgh", "D": "abcdefghijklmnop"}
	for name, c := range map[string]struct{ name, value, text, want string }{
		"one in another":     {"E", "other value", "-abcdefgh-", "-[secret A]-"},
		"two that overlap":   {"E", "other value", "-abcdefghijkl-", "-[secret A]-"},
		"the longest":        {"E", "other value", "-abcdefghijklmnop-", "-[secret D]-"},
		"its own name":       {"E", "[secret E]", "-[secret E]-", "-[redacted]-"},
		"a part of all":      {"E", "secret", "a secret, abcdefgh", "a [redacted], [redacted]"},
		"with its neighbour": {"E", "xx[secret A]yy", "xxabcdefghyy", "[secret E]"},
	} {
		values[c.name] = c.value
		kit.Equal(t, vault(t, values).Redactor().String(c.text), c.want, name)
	}
}

func TestRedactedDocumentStaysValidJSON(t *testing.T) {
	r := vault(t, map[string]string{"PIN": "12345678", "WORD": `pass"word`, "DOC": `{"type":"account","key":"k"}`, "ACROSS": `left","right`}).Redactor()
	for doc, want := range map[string]string{
		`{"pin":12345678,"n":1}`:                 `{"pin":"[secret PIN]","n":1}`,
		`{"pin":-12345678.5e3}`:                  `{"pin":"-[secret PIN].5e3"}`,
		`["pass\"word","pass\u0022word"]`:        `["[secret WORD]","[secret WORD]"]`,
		`{"pass\"word":1,"12345678":2}`:          `{"[secret WORD]":1,"[secret PIN] 2":2}`,
		`{ "a" : "x12345678\n" }`:                `{ "a" : "x[secret PIN]\n" }`,
		`"{\"type\":\"account\",\"key\":\"k\"}"`: `"[secret DOC]"`,
		`{"a":{"type":"account","key":"k"}}`:     `{"redacted":"[secret DOC]"}`,
		`["left","right"]`:                       `["[secret ACROSS]"]`,
		`12345678`:                               `"[secret PIN]"`,
		`{"a":12345678`:                          `{"a":[secret PIN]`, // it was not JSON
		`{"a":"123456780"}`:                      `{"a":"[secret PIN]0"}`,
		`{"a":"123"}`:                            `{"a":"123"}`,
		`{"a":"1234567"}`:                        `{"a":"[secret PIN]"}`,
	} {
		kit.Equal(t, string(r.JSON(json.RawMessage(doc))), want, doc)
	}
	if got := r.JSON(nil); got != nil {
		t.Errorf("%s", got)
	}
}

func TestStreamFindsSplitSecretsAndHoldsBackNoOtherText(t *testing.T) {
	values := secrets(8, 3)
	r := vault(t, values).Redactor()
	random := rand.New(rand.NewPCG(5, 5))
	for name, value := range values {
		forms := encoded(value)
		for kind, form := range forms {
			if kind == "JSON in JSON" || kind == "query in JSON" {
				continue // doubly escaped text is found in each part by itself
			}
			text := "before " + form + " after\n"
			for _, size := range []int{1 + random.IntN(9), 1 + random.IntN(60)} {
				s := secret.Stream{Redactor: r}
				var got strings.Builder
				for rest := text; rest != ""; {
					n := min(size, len(rest))
					got.WriteString(s.Write(rest[:n]))
					rest = rest[n:]
				}
				got.WriteString(s.Pause())
				if leaks(got.String(), forms) || !strings.Contains(got.String(), "[secret "+name+"]") || !strings.HasPrefix(got.String(), "before ") || !strings.HasSuffix(got.String(), " after\n") {
					t.Errorf("%s of %q in parts of %d: %q", kind, value, size, got.String())
				}
			}
		}
	}
	s := secret.Stream{Redactor: vault(t, map[string]string{"A": "abc def", "B": "line one\nline two"}).Redactor()}
	for i, c := range []struct{ part, want string }{
		{"hello\n", "hello\n"}, {"ab", ""}, {"!", "ab!"}, {"tail abc", "tail "}, {" def.", "[secret A]."}, {"line one\n", ""}, {"and on\n", "[secret B]\nand on\n"},
		{"50%", "50"}, {" off\\", "% off"}, {"zap.", "\\zap."}, {"abc d", ""},
	} {
		kit.Equal(t, s.Write(c.part), c.want, i, c.part)
	}
	kit.Equal(t, s.Pause(), "[secret A]")
}

func TestSecretSplitAcrossLogLinesIsRedacted(t *testing.T) {
	value := "0123456789abcdefghijklmnopqrstuvwxyz"
	r := vault(t, map[string]string{"KEY": value, "AAA": strings.Repeat("A", 20)}).Redactor()
	for cut := 1; cut < len(value); cut++ {
		l := secret.Stream{Redactor: r}
		first, second, third := l.Write("> "+value[:cut])+l.Pause(), l.Write(value[cut:]+" <")+l.Pause(), l.Write("and on")+l.Pause()
		if strings.Contains(first+second, value) || second != "[secret KEY] <" || third != "and on" || cut >= 8 && first != "> [secret KEY]" || cut < 8 && first != "> "+value[:cut] {
			t.Errorf("%d: %q, %q, %q", cut, first, second, third)
		}
	}
	l := secret.Stream{Redactor: r}
	for i, c := range []struct{ line, want string }{
		{"a whole " + value, "a whole [secret KEY]"}, {"0123", "0123"}, {"89ab", "89ab"}, {"x" + value[:20], "x[secret KEY]"}, {"something else", "something else"},
		{value[:7], value[:7]}, {value[7:20], "[secret KEY]"}, {value[20:], "[secret KEY]"}, {"", ""},
	} {
		kit.Equal(t, l.Write(c.line)+l.Pause(), c.want, i, c.line)
	}
	kit.Equal(t, (&secret.Stream{}).Write(value), value)
}

func TestAStreamOfOneSecretAfterAnotherDoesNotPileUp(t *testing.T) {
	s := secret.Stream{Redactor: vault(t, map[string]string{"A": "aaaaaa"}).Redactor()}
	shown := 0
	for range 1000 {
		if s.Write("aaaaaaa") != "" {
			shown++
		}
	}
	if shown < 100 {
		t.Errorf("%d parts were shown", shown)
	}
}

func TestFormerValuesStayKnown(t *testing.T) {
	r := new(secret.Redactor)
	r.Learn(nil)
	if !r.Idle() {
		t.Error("it knows something")
	}
	for i := range 5 {
		r.Learn(vault(t, map[string]string{"KEY": fmt.Sprint("value-", i)}))
	}
	kit.Equal(t, r.String("value-0 value-4 value-5"), "[secret KEY] [secret KEY] value-5")
	r.Learn(nil)
	kit.Equal(t, r.String("value-3"), "[secret KEY]")
}

func TestAnErrorIsRedactedWithAllThatItWraps(t *testing.T) {
	r := vault(t, map[string]string{"KEY": canary}).Redactor()
	inner := fmt.Errorf("dial %s: %w", canary, context.DeadlineExceeded)
	clean := tool.Errorf(tool.CodeTimeout, "late: %w", context.Canceled)
	dirty := &tool.Error{Code: tool.CodeCrash, Reason: canary, Message: "it said " + canary, Details: json.RawMessage(`{"a":"` + canary + `"}`), Err: inner}
	for name, err := range map[string]error{
		"a tool's":       dirty,
		"in another":     fmt.Errorf("at %s: %w", "x", dirty),
		"only its cause": &tool.Error{Code: tool.CodeCrash, Message: "crashed", Err: inner},
		"plain":          inner,
		"joined":         errors.Join(errors.New("one"), inner),
		"a clean one in": fmt.Errorf("%s: %w: %w", canary, clean, context.DeadlineExceeded),
	} {
		got := r.Error(err)
		for e := got; e != nil; e = errors.Unwrap(e) {
			if text := fmt.Sprintf("%v %+v %#v %s", e, e, e, tool.AsError(e).Details); leaks(text, encoded(canary)) {
				t.Errorf("%s: %s", name, text)
			}
		}
		if !errors.Is(got, context.DeadlineExceeded) || tool.CodeOf(got) != tool.CodeOf(err) {
			t.Errorf("%s: %v is of another class", name, got)
		}
	}
	if text := fmt.Sprintf("%#v %+v", r.Error(said(canary)), r.Error(said(canary))); leaks(text, encoded(canary)) {
		t.Error(text)
	}
	if clean.Message != "late: context canceled" || dirty.Reason != canary {
		t.Error("the errors themselves were changed")
	}
	if got := r.Error(clean); got != error(clean) || r.Error(nil) != nil || r.Failure(nil) != nil {
		t.Error("an error without secrets was copied")
	}
}

type said string

func (s said) Error() string { return string(s) }

type loud struct{ Token string }

func (l loud) LogValue() slog.Value { return slog.GroupValue(slog.String("t", l.Token)) }

// Whether a call has run is no secret.
func TestARedactedErrorKeepsItsMarks(t *testing.T) {
	r := vault(t, map[string]string{"KEY": canary}).Redactor()
	err := tool.Errorf(tool.CodeUnavailable, "the node %s is gone", canary)
	kit.Equal(t, tool.InDoubt(r.Error(tool.Doubt(err))), true)
	kit.Equal(t, tool.NotRun(r.Error(tool.BeforeRun(err))), true)
	kit.Equal(t, tool.InDoubt(r.Error(tool.BeforeRun(err))), false)
	kit.Equal(t, strings.Contains(fmt.Sprintf("%+v", r.Error(tool.Doubt(err))), canary), false)
}

func TestLogsHaveNoSecrets(t *testing.T) {
	r := vault(t, map[string]string{"KEY": canary, "PIN": "12345678"}).Redactor()
	for _, format := range []func(*bytes.Buffer) slog.Handler{
		func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var out bytes.Buffer
		log := slog.New(secret.Handler(format(&out), r))
		token := struct {
			T string
			P *loud
		}{canary, &loud{canary}}
		log.With("bound", canary).WithGroup("g").Warn("said "+canary, "error", fmt.Errorf("no: %s", canary), canary, 1, "any", token, "loud", loud{canary},
			"bytes", []byte(canary), "raw", json.RawMessage(`{"a":"`+canary+`"}`), "pin", 12345678, "map", map[string]any{"x": []string{canary}},
			slog.Group("in", "b64", base64.StdEncoding.EncodeToString([]byte(canary))))
		if text := out.String(); leaks(text, encoded(canary)) || strings.Contains(text, "12345678") || !strings.Contains(text, "said [secret KEY]") {
			t.Error(text)
		}
	}
}

func TestLogHandlerPassesSlogtest(t *testing.T) {
	for name, r := range map[string]*secret.Redactor{"idle": nil, "with secrets": vault(t, map[string]string{"KEY": canary}).Redactor()} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			slogtest.Run(t, func(*testing.T) slog.Handler { out.Reset(); return secret.Handler(slog.NewJSONHandler(&out, nil), r) }, func(t *testing.T) map[string]any {
				var m map[string]any
				kit.OK(t, json.Unmarshal(out.Bytes(), &m))
				return m
			})
		})
	}
}

// FuzzRedactedTextHasNoValue: for any values and text, no value is left, and JSON stays JSON.
func FuzzRedactedTextHasNoValue(f *testing.F) {
	f.Add("abcdefgh", "secret", "xx abcdefgh %61bcdefgh yy", "YWJjZGVmZ2g=")
	f.Add(`pass"word`, "12345678", `{"a":"pass\"word","n":12345678}`, "")
	f.Add("[secret A]", "[redacted]", "[secret A][redacted]", "\\u0041")
	f.Add("aaaaaa", "aaaaaaab", strings.Repeat("a", 50), "%2")
	f.Add(strings.Repeat("long ", 40), "line one\nand two", "line one\\nand two", "\\")
	f.Fuzz(func(t *testing.T, a, b, text, more string) {
		v := fuzzed(t, a, b)
		if v == nil {
			return
		}
		r := v.Redactor()
		s := secret.Stream{Redactor: r}
		parts := s.Write(text) + s.Write(more) + s.Pause()
		doc, _ := json.Marshal(map[string]string{"text": text, more: a + b})
		redacted := r.JSON(doc)
		for _, value := range []string{a, b} {
			for _, got := range []string{r.String(text), r.String(text + a + more + b), string(r.Bytes([]byte(more + b))), parts, string(redacted)} {
				if strings.Contains(got, value) {
					t.Errorf("%q is in %q", value, got)
				}
			}
		}
		if !json.Valid(redacted) {
			t.Errorf("%s is not JSON", redacted)
		}
	})
}

// fuzzed returns a vault of two values, or nil if a vault does not accept them.
func fuzzed(t *testing.T, a, b string) *secret.Vault {
	t.Setenv("SECRET_FUZZ_A", strings.ReplaceAll(a, "\x00", ""))
	t.Setenv("SECRET_FUZZ_B", strings.ReplaceAll(b, "\x00", ""))
	v := secret.Open(t.Context(), "", map[string]secret.From{"A": {Env: "SECRET_FUZZ_A"}, "B": {Env: "SECRET_FUZZ_B"}}, nil)
	gotA, errA := v.Secret("A")
	gotB, errB := v.Secret("B")
	if errA != nil || errB != nil || gotA != a || gotB != b {
		return nil
	}
	return v
}

func BenchmarkOneMiBWithoutSecrets(b *testing.B) {
	text := []byte(strings.Repeat("The quick brown fox jumps over the lazy dog, 0123456789 times.\n", 1<<20/63))
	for name, r := range map[string]*secret.Redactor{
		"none": nil, "one": vault(b, map[string]string{"A": "ghp_0123456789abcdefghijABCDEFGHIJ012345"}).Redactor(),
		"short": vault(b, map[string]string{"A": "hunter2"}).Redactor(), "200": vault(b, secrets(200, 1)).Redactor(),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				r.Bytes(text)
			}
		})
	}
}

func TestTextAndSecretsThatRepeatThemselvesTakeNoTimeOrMemory(t *testing.T) {
	r := vault(t, map[string]string{"A": "aaaaaa", "B": strings.Repeat("a", 1<<13) + "b", "C": strings.Repeat("c", 1<<13), "D": strings.Repeat("%61", 100)}).Redactor()
	for _, part := range []string{"a", "c", "%61", `\u0061`, base64.StdEncoding.EncodeToString([]byte("aaa")), base64.StdEncoding.EncodeToString([]byte("ccc")), "63"} {
		text := strings.Repeat(part, 1<<16/len(part))
		if got := r.String(text); len(got) > len(text)/2 {
			t.Errorf("%s: %d bytes are left", part, len(got))
		}
	}
}

func TestLargeSecretsTakeLittleMemory(t *testing.T) {
	values := map[string]string{}
	random := rand.New(rand.NewPCG(11, 11))
	for i := range 3 {
		b := make([]byte, secret.MaxSize/2)
		for k := range b {
			b[k] = byte(random.Uint32())
		}
		values[fmt.Sprint("S", i)] = hex.EncodeToString(b)
	}
	v := vault(t, values)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := v.Redactor()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grew := int64(after.HeapAlloc) - int64(before.HeapAlloc); grew > 4<<20 {
		t.Errorf("%d bytes for %d secrets", grew, len(values))
	}
	for name, value := range values {
		for _, kind := range []string{"plain", "base64, 1 before", "HEX", "percent"} {
			if got := r.String(encodings()[kind](value)); !strings.Contains(got, "[secret "+name+"]") || len(got) > 60 {
				t.Errorf("%s of %s: %.100s", kind, name, got)
			}
		}
	}
}
