package envelope_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/envelope"
)

type headers = map[string][]string

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// all returns every header, and whole the call that they describe.
func all() headers {
	return headers{
		"Toolpost-Call": {"my-call_1"}, "Toolpost-Session": {"größe"}, "Idempotency-Key": {"k 1"}, "Toolpost-Lease": {"l"},
		"Toolpost-Run": {"run"}, "Toolpost-Resume": {"ask-1"}, "Toolpost-Answers": {`{"name":"Ada"}`},
		"Toolpost-Dry-Run": {"true"}, "Toolpost-Timeout": {"1m30s"}, "traceparent": {parent},
	}
}

func whole() *tool.Call {
	return &tool.Call{
		ID: "my-call_1", Session: "größe", Key: "k 1", Lease: "l", Run: "run", Resume: "ask-1", DryRun: true,
		Answers: json.RawMessage(`{"name":"Ada"}`), Trace: "0af76519-16cd-43dd-8448-eb211c80319c", Span: "b7ad6b7169203331",
	}
}

func TestEveryHeaderIsReadInAnyCaseAndWritten(t *testing.T) {
	if sent := all(); len(sent) != len(envelope.Headers()) {
		t.Fatalf("the test knows %d headers, the table has %v", len(sent), envelope.Headers())
	}
	for name, recase := range map[string]func(string) string{
		"as written": strings.Clone, "over HTTP": http.CanonicalHeaderKey, "lower": strings.ToLower, "upper": strings.ToUpper,
	} {
		h := headers{"Accept": {"a", "b"}, "X-Toolpost-Other": {"theirs"}, "Toolpost": {"theirs"}}
		for header, values := range all() {
			h[recase(header)] = values
		}
		c := new(tool.Call)
		kit.Equal(t, kit.Must(envelope.Read(h, c))(t), 90*time.Second, name)
		kit.Equal(t, cmp.Diff(whole(), c), "", name)
	}
	web, bus := http.Header{}, nats.Header{}
	for _, h := range []headers{web, bus} {
		kit.OK(t, envelope.Write(h, whole(), 90*time.Second))
		kit.Equal(t, cmp.Diff(all(), h), "")
	}
}

func TestAbsentHeadersChangeNothing(t *testing.T) {
	for name, h := range map[string]headers{
		"no headers": nil, "others": {"Accept": {"a"}},
		"empty ones": {"Toolpost-Session": {""}, "Toolpost-Dry-Run": {""}, "Toolpost-Timeout": {}},
	} {
		c := whole()
		if timeout, err := envelope.Read(h, c); err != nil || timeout != 0 || !cmp.Equal(c, whole()) {
			t.Errorf("%s: %v %v %+v", name, timeout, err, c)
		}
	}
	h := http.Header{}
	if err := envelope.Write(h, &tool.Call{Tool: "t", Args: json.RawMessage(`{}`)}, 0); err != nil || len(h) > 0 {
		t.Errorf("%v %v", h, err)
	}
}

func TestInvalidHeadersAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		h    headers
		want string
	}{
		"an id with a slash":   {headers{"Toolpost-Call": {"a/b"}}, "the header Toolpost-Call is not an id: 1 to 64 of"},
		"a long id":            {headers{"Toolpost-Call": {strings.Repeat("x", 65)}}, "is not an id"},
		"two values":           {headers{"Toolpost-Session": {"a", "b"}}, "Toolpost-Session is there 2 times: send it once"},
		"two cases":            {headers{"Toolpost-Session": {"a"}, "toolpost-session": {"a"}}, "is there 2 times"},
		"a long text":          {headers{"Toolpost-Lease": {strings.Repeat("x", 1025)}}, "is longer than 1024 bytes: shorten it"},
		"no UTF-8":             {headers{"Toolpost-Run": {"\xff"}}, "is not plain text"},
		"two lines":            {headers{"Idempotency-Key": {"a\nb"}}, "Idempotency-Key is not plain text: send UTF-8"},
		"spaces":               {headers{"Toolpost-Resume": {" a"}}, "is not plain text"},
		"a number for a time":  {headers{"Toolpost-Timeout": {"5"}}, "Toolpost-Timeout is not a duration above zero, such as"},
		"no time":              {headers{"Toolpost-Timeout": {"0s"}}, "is not a duration above zero"},
		"negative time":        {headers{"Toolpost-Timeout": {"-1s"}}, "is not a duration above zero"},
		"answers, not in JSON": {headers{"Toolpost-Answers": {"yes"}}, "the header Toolpost-Answers is not JSON: "},
		"a key twice":          {headers{"Toolpost-Answers": {`{"a":1,"a":2}`}}, "is not JSON: "},
		"long answers":         {headers{"Toolpost-Answers": {`"` + strings.Repeat("x", 32<<10) + `"`}}, "longer than 32768"},
		"perhaps a dry run":    {headers{"Toolpost-Dry-Run": {"1"}}, "the header Toolpost-Dry-Run is neither true nor false"},
		"nearly a dry run":     {headers{"Toolpost-Dryrun": {"true"}}, `"Toolpost-Dryrun" is not known; did you mean Toolpost-Dry-Run?`},
		"nearly, in capitals":  {headers{"TOOLPOST-DRY_RUN": {"true"}}, "did you mean Toolpost-Dry-Run?"},
		"a variable's name":    {headers{"Toolpost-Key": {"k"}}, "did you mean Idempotency-Key?"},
		"a longer name":        {headers{"Toolpost-Idempotency-Key": {"k"}}, "did you mean Idempotency-Key?"},
		"not of this door":     {headers{"Toolpost-Stream": {"a"}}, "is not known; known are Toolpost-Call, Toolpost-Session, "},
		"nearly of this door":  {headers{"Toolpost-Acks": {"a"}}, "did you mean Toolpost-Ack?"},
		"nothing but ours":     {headers{"Toolpost-": {"a"}}, "is not known; known are"},
	} {
		_, err := envelope.Read(c.h, new(tool.Call), "Toolpost-Ack")
		kit.Refused(t, err, tool.CodeInvalidInput, c.want, name, c.want)
	}
}

func TestADoorMayKnowMoreHeaders(t *testing.T) {
	h := nats.Header{"toolpost-ack": {"true"}, "Toolpost-Stream": {"a", "b"}}
	kit.Check(t, kit.Err(envelope.Read(h, new(tool.Call), "Toolpost-Ack", "Toolpost-Stream")))
	if text, err := envelope.Single(h, "Toolpost-Ack"); text != "true" || err != nil {
		t.Errorf("%q %v", text, err)
	}
	if text, err := envelope.Single(h, "Toolpost-Stream"); err == nil || !strings.Contains(err.Error(), "is there 2 times") {
		t.Errorf("%q %v", text, err)
	}
	if text, err := envelope.Single(h, "Toolpost-Style"); text != "" || err != nil {
		t.Errorf("%q %v", text, err)
	}
}

// W3C: an invalid traceparent is treated as absent.
func TestInvalidTraceparentIsIgnored(t *testing.T) {
	for _, values := range [][]string{{"nonsense"}, {"\xff\n"}, {parent, parent}, {parent + "-more"}} {
		c := new(tool.Call)
		if _, err := envelope.Read(http.Header{"Traceparent": values}, c); err != nil || c.Trace != "" || c.Span != "" {
			t.Errorf("%q: %q %q %v", values, c.Trace, c.Span, err)
		}
	}
}

func TestTheIDCanBeReadFirst(t *testing.T) {
	for text, ok := range map[string]bool{"": true, "a-B_9": true, "a b": false, "ä": false, strings.Repeat("x", 65): false} {
		if id, err := envelope.ID(nats.Header{"toolpost-call": {text}}); (err == nil) != ok || ok && id != text {
			t.Errorf("%q: %q %v", text, id, err)
		}
	}
}

func TestWriteRefusesUnreadableValues(t *testing.T) {
	for _, c := range []*tool.Call{
		{ID: "a b"}, {Session: "a\r\nToolpost-Lease: stolen"}, {Session: " a"}, {Key: "\xff"}, {Run: "a\x00"},
		{Lease: strings.Repeat("x", 2000)}, {Answers: json.RawMessage(`{`)}, {Answers: json.RawMessage(`"` + strings.Repeat("x", 40<<10) + `"`)},
	} {
		kit.Refused(t, envelope.Write(http.Header{}, c, 0), tool.CodeInvalidInput, "", c)
	}
}

func TestHeadersAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trimmed := func(s string) bool { return strings.TrimSpace(s) == s }
		text := rapid.StringMatching(`[a-zA-Zäöü日本 :=-]{0,20}`).Filter(trimmed)
		sent := &tool.Call{
			ID: "id-1", Session: text.Draw(t, "session"), Key: text.Draw(t, "key"), Lease: text.Draw(t, "lease"),
			Run: text.Draw(t, "run"), Resume: text.Draw(t, "resume"), Trace: tool.NewID(), Span: tool.NewSpan(),
			DryRun: rapid.Bool().Draw(t, "dry run"),
		}
		timeout := time.Duration(rapid.Int64Min(0).Draw(t, "timeout"))
		h, got := nats.Header{}, new(tool.Call)
		kit.OK(t, envelope.Write(h, sent, timeout))
		read, err := envelope.Read(h, got)
		if err != nil || read != timeout || !cmp.Equal(sent, got) {
			t.Fatalf("wrote %+v %v, read %+v %v (%v)", sent, timeout, got, read, err)
		}
	})
}

// FuzzRead reads any headers. An accepted call can be written, is plain text on the wire, and is read again as the same
// call.
func FuzzRead(f *testing.F) {
	for name, values := range all() {
		f.Add(name, values[0], "", "")
	}
	f.Add("toolpost-answers", "\"\x7f\"", "Toolpost-Answers", " [1, 2]\t")
	f.Add("Toolpost-Timeout", "9223372036.854775807s", "Toolpost-Dry-Run", "false")
	f.Add("Toolpost-Dryrun", "true", "Toolpoſt-Session", "a")
	f.Fuzz(func(t *testing.T, name, value, name2, value2 string) {
		h := headers{name: {value}}
		h[name2] = append(h[name2], value2)
		c := new(tool.Call)
		timeout, err := envelope.Read(h, c)
		if err != nil {
			kit.MustEqual(t, tool.CodeOf(err), tool.CodeInvalidInput, err)
			return
		}
		written := headers{}
		if err := envelope.Write(written, c, timeout); err != nil {
			if len(c.Answers) == 0 { // white space in them is dropped, but escapes may make them longer than before
				t.Fatalf("%+v was read and cannot be written: %v", c, err)
			}
			return
		}
		for name, values := range written {
			if strings.ContainsAny(values[0], "\r\n\x00\x7f") || len(values) != 1 || strings.TrimSpace(values[0]) != values[0] {
				t.Fatalf("%s: %q", name, values)
			}
		}
		again, rewritten := new(tool.Call), headers{}
		limit, err := envelope.Read(written, again)
		if err == nil {
			err = envelope.Write(rewritten, again, limit)
		}
		c.Answers, again.Answers = nil, nil // may be encoded differently; the encoding is stable
		if err != nil || limit != timeout || !cmp.Equal(c, again) || !cmp.Equal(written, rewritten) {
			t.Fatalf("%+v %v became %+v %v: %v", c, timeout, again, limit, err)
		}
	})
}

// variables returns the variables of all fields that have one.
func variables() map[string]string {
	return map[string]string{
		"TOOLPOST_SESSION": "größe", "TOOLPOST_KEY": "k 1", "TOOLPOST_LEASE": "l", "TOOLPOST_RUN": "run",
		"TOOLPOST_RESUME": "ask-1", "TOOLPOST_ANSWERS": `{"name":"Ada"}`, "TOOLPOST_DRY_RUN": "true", "TOOLPOST_TIMEOUT": "1m30s",
		"TRACEPARENT": parent,
	}
}

// filled passes a call through the environment, and returns what arrives and its remaining time.
func filled(t *testing.T, vars map[string]string, c *tool.Call) (got *tool.Call, left time.Duration) {
	t.Helper()
	fill := kit.Must(envelope.Environment(func(name string) string { return vars[name] }))(t)
	_, _ = fill(tool.HandlerFunc(func(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		if deadline, ok := ctx.Deadline(); ok {
			left = time.Until(deadline)
		}
		got = c
		return nil, nil
	})).Invoke(t.Context(), c, tool.Discard)
	return got, left
}

func TestEnvironmentFillsMissingFields(t *testing.T) {
	want := whole()
	want.ID = "" // it names one call, and the program may make many
	got, left := filled(t, variables(), new(tool.Call))
	if d := cmp.Diff(want, got); d != "" || left <= 80*time.Second || left > 90*time.Second {
		t.Errorf("%s with %v left", d, left)
	}
	own := &tool.Call{
		ID: "i", Tool: "t", Session: "s", Key: "k", Lease: "m", Run: "r", Resume: "a",
		Answers: json.RawMessage(`1`), Trace: "no uuid",
	}
	want = new(tool.Call)
	*want = *own
	want.DryRun = true // never taken back
	if got, _ := filled(t, variables(), own); !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
	if got, left := filled(t, nil, own); !cmp.Equal(own, got) || left != 0 {
		t.Errorf("%s with %v left", cmp.Diff(own, got), left)
	}
}

func TestInvalidVariablesAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"TOOLPOST_SESSION": "a\nb", "TOOLPOST_LEASE": strings.Repeat("x", 2000), "TOOLPOST_ANSWERS": "yes",
		"TOOLPOST_DRY_RUN": "1", "TOOLPOST_TIMEOUT": "5",
	} {
		_, err := envelope.Environment(func(n string) string { return map[string]string{name: text}[n] })
		kit.Refused(t, err, tool.CodeInvalidInput, "the environment variable "+name+" is ", name)
	}
	var asked []string
	_, _ = envelope.Environment(func(n string) string { asked = append(asked, n); return "" })
	slices.Sort(asked)
	for _, name := range asked {
		if _, ok := variables()[name]; !ok && name != "" {
			t.Errorf("%s is read and not tested", name)
		}
	}
}
