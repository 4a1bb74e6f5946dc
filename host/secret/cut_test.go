package secret_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
)

// markup returns the ways in which a program may write a value into HTML.
func markup() map[string]func(string) string {
	each := func(format string) func(string) string {
		return func(s string) string {
			var b strings.Builder
			for _, r := range s {
				fmt.Fprintf(&b, format, r)
			}
			return b.String()
		}
	}
	named := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;")
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b[1 : len(b)-1]) }
	return map[string]func(string) string{
		"HTML":             html.EscapeString, // &amp; &lt; &gt; &#34; &#39;
		"HTML, named":      named.Replace,
		"HTML, all":        each("&#%d;"),
		"HTML, hex":        each("&#x%x;"),
		"HTML, HEX":        each("&#X%04X;"),
		"HTML, zeros":      each("&#%06d;"),
		"HTML twice":       func(s string) string { return html.EscapeString(html.EscapeString(s)) },
		"HTML in JSON":     func(s string) string { return quoted(html.EscapeString(s)) }, // \u0026amp;
		"JSON in HTML":     func(s string) string { return html.EscapeString(quoted(s)) },
		"query in HTML":    func(s string) string { return html.EscapeString(url.QueryEscape(s) + "&") },
		"lower JSON":       func(s string) string { return strings.ToLower(each(`\u%04X`)(s)) },
		"all HTML in JSON": func(s string) string { return strings.ReplaceAll(each("&#x%x;")(s), "&", `\u0026`) },
	}
}

// marked returns values that escapes change.
func marked() map[string]string {
	return map[string]string{
		"AMP": `a&b<c>d"e'f&&g`, "KEY": "hunter2&hunter3<horse>battery", "QUOTED": `{"key":"s3cr3t&<>"}`,
		"LONG": `x&y"<0123456789>&[abcdefghij]<klmnopqrst>&{uvwxyz}`, "WORD": "pass-word&",
	}
}

func TestAValueIsReplacedByItsNameInHTML(t *testing.T) {
	values := marked()
	r := vault(t, values).Redactor()
	for name, value := range values {
		for kind, encode := range markup() {
			if kind == "lower JSON" && strings.ToLower(value) != value {
				continue
			}
			for _, around := range []string{"%s", "<td>%s</td>", "a=%s&b;"} {
				if got := r.String(fmt.Sprintf(around, encode(value))); !strings.Contains(got, "[secret "+name+"]") || len(got) > 60 {
					t.Errorf("%s, %s of %q: %q", around, kind, value, got)
				}
			}
		}
	}
	for _, text := range []string{"&", "&;", "&amp", "&#;", "&#x;", "&#x110000;", "&#99999999999;", "&nosuch;", "fish &amp; chips", "&#65", "a&b"} {
		kit.Equal(t, r.String(text), text)
	}
}

// all returns all the ways in which a program may write a value.
func all() map[string]func(string) string {
	kinds := markup()
	for kind, encode := range encodings() {
		kinds[kind] = encode
	}
	return kinds
}

// told returns how much of a value a text reveals, however it is read: the length of the longest piece.
func told(text, value string) int {
	most := 0
	for _, read := range readings(text, 2) {
		for from := range value {
			for from+most < len(value) && strings.Contains(read, value[from:from+most+1]) {
				most++
			}
		}
	}
	return most
}

// readings returns a text with its escapes decoded, up to deep levels.
func readings(text string, deep int) []string {
	list := []string{text}
	if deep == 0 {
		return list
	}
	for _, e := range []struct {
		mark string
		read func(string) string
	}{{"&", html.UnescapeString}, {"%", unquery}, {`\`, unquote}} {
		if strings.Contains(text, e.mark) {
			list = append(list, readings(e.read(text), deep-1)...)
		}
	}
	return list
}

func unquery(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+3 <= len(text) {
			if c, err := hex.DecodeString(text[i+1 : i+3]); err == nil {
				b.WriteByte(c[0])
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

func unquote(text string) string {
	var b strings.Builder
	for text != "" {
		if strings.HasPrefix(text, `\/`) {
			text = text[1:]
		}
		r, multibyte, rest, err := strconv.UnquoteChar(text, 0)
		if err != nil {
			b.WriteByte(text[0])
			text = text[1:]
			continue
		}
		if r < 0x80 || !multibyte {
			b.WriteByte(byte(r))
		} else {
			b.WriteRune(r)
		}
		text = rest
	}
	return b.String()
}

// allowed is how much of a value, or of its digits, may be revealed where a text was cut: less than half of it, and less
// than 8 bytes, and one more if an escape such as &#49 was cut.
func allowed(value, text string) int {
	n := max(3, min(7, (len(value)-1)/2))
	text = strings.NewReplacer(`\u0026`, "&", "&amp;", "&").Replace(text)
	if at := strings.LastIndexByte(text, '&'); at >= 0 && !strings.Contains(text[at:], ";") {
		n++
	}
	return n
}

// Wherever a text is cut in two, and whatever a message puts around the parts, the remainder of a secret is not revealed.
func TestTruncatedSecretIsRedacted(t *testing.T) {
	values := marked()
	values["TOKEN"] = "ghp_abcdefghijABCDEFGHIJ0123456789"
	r := vault(t, values).Redactor()
	for _, value := range values {
		forms := []string{value, hex.EncodeToString([]byte(value)), base64.StdEncoding.EncodeToString([]byte(value))[:len(value)*8/6]}
		for kind, encode := range all() {
			text := encode(value)
			if strings.HasPrefix(kind, "base64,") || kind == "hex, lines" || kind == "lower JSON" && strings.ToLower(value) != value {
				continue
			}
			for cut := 1; cut < len(text); cut += rounds.Of(3, 1) {
				arounds := []string{"%s", "it said: \n%s", "%s… and more", "the end was `%s`", "...%s..."}
				around := arounds[cut%len(arounds)]
				for _, part := range []string{text[:cut], text[cut:]} {
					got := r.String(fmt.Sprintf(around, part))
					for _, form := range forms {
						if n := told(got, form); n > allowed(form, got) {
							t.Fatalf("%s of %q cut at %d, %s: %q tells %d bytes", kind, value, cut, around, got, n)
						}
					}
				}
			}
		}
	}
}

// In a text that comes in parts nothing at all is revealed, at whatever place it is cut.
func TestSecretSplitInAStreamIsRedacted(t *testing.T) {
	values := marked()
	r := vault(t, values).Redactor()
	for name, value := range values {
		for kind, encode := range all() {
			if kind == "lower JSON" && strings.ToLower(value) != value {
				continue
			}
			text := "before " + encode(value) + " after\n"
			for cut := 1; cut < len(text); cut += rounds.Of(3, 1) {
				s := secret.Stream{Redactor: r}
				got := s.Write(text[:cut]) + s.Write(text[cut:]) + s.Pause()
				whole := r.String(text)
				if strings.HasPrefix(kind, "base64") { // the digits beside it may have been shown
					fill := strings.NewReplacer("=", "", "%3D", "")
					got, whole = fill.Replace(got[strings.Index(got+"[", "["):]), fill.Replace(whole[strings.Index(whole, "["):])
				}
				if got != whole || !strings.Contains(got, "[secret "+name+"]") {
					t.Fatalf("%s of %q cut at %d: %q, want %q", kind, value, cut, got, whole)
				}
				l := secret.Stream{Redactor: r}
				first, second := l.Write(text[:cut])+l.Pause(), l.Write(text[cut:])+l.Pause()
				if n := max(told(first, value), told(second, value)); n > allowed(value, first) || told(first+second, value) == len(value) {
					t.Fatalf("%s of %q cut at %d: the lines %q and %q tell %d bytes", kind, value, cut, first, second, n)
				}
			}
		}
	}
}

// The public part of an address or a key is not secret at a cut either.
func TestPublicPartOfASecretIsKept(t *testing.T) {
	r := vault(t, map[string]string{
		"DB": "postgres://app:0123456789abcdef@db.example.org/main", "HOOK": "https://hooks.example.org/services/?key=0123456789abcdef",
		"PEM": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----\n",
	}).Redactor()
	for _, text := range []string{
		"postgres://app", "it is at 'postgres://app'", "https://hooks.example.org/services/", "@db.example.org/main", "-----BEGIN PRIVATE KEY-----\n",
		"-----END PRIVATE KEY-----\n", "\n-----END PRIVATE KEY-----\n",
	} {
		kit.Equal(t, r.String(text), text)
	}
	for text, want := range map[string]string{
		"postgres://app:01234567…": "[secret DB]…", "89abcdef@db.example.org/main": "[secret DB]", "https://hooks.example.org/services/?key=01234567": "[secret HOOK]",
		"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADA": "[secret PEM]",
	} {
		kit.Equal(t, r.String(text), want, "%q became", text)
	}
}
