package rest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/protocol/rest"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// peer starts a server that answers every request in the same way, and returns a client of it.
func peer(t *testing.T, answer http.HandlerFunc) *rest.Client {
	t.Helper()
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	c := kit.Must(rest.Dial(srv.URL, token, ""))(t)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func streams(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, body)
	}
}

const anEvent = "id: 1\nevent: log\ndata: {\"seq\":1,\"time\":\"2026-01-02T03:04:05Z\",\"kind\":\"log\",\"data\":{\"level\":\"info\",\"message\":\"hi\"}}\n\n"

func TestAStreamThatIsNotOursIsAnError(t *testing.T) {
	tooltest.NoLeaks(t)
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		code   tool.Code
	}{
		"nothing":                      {streams(""), tool.CodeCrash},
		"no result":                    {streams(anEvent), tool.CodeCrash},
		"half a result":                {streams(anEvent + "event: result\ndata: {\"ok\":true}\n"), tool.CodeCrash},
		"half a line":                  {streams(anEvent + "event: result\ndata: {\"ok"), tool.CodeCrash},
		"a result that is not JSON":    {streams("event: result\ndata: {\n\n"), tool.CodeProtocol},
		"a result of another type":     {streams("event: result\ndata: []\n\n"), tool.CodeProtocol},
		"a result of null":             {streams("event: result\ndata: null\n\n"), tool.CodeProtocol},
		"a result that is not clear":   {streams("event: result\ndata: {}\n\n"), tool.CodeProtocol},
		"a duplicate key":              {streams("event: result\ndata: {\"ok\":true,\"ok\":false}\n\n"), tool.CodeProtocol},
		"an error without a code":      {streams("event: no_outcome\ndata: {\"ok\":false,\"error\":{}}\n\n"), tool.CodeProtocol},
		"an error of an unknown code":  {streams("event: no_outcome\ndata: {\"ok\":false,\"error\":{\"code\":\"new\"}}\n\n"), tool.CodeInternal},
		"an event that is not JSON":    {streams("event: log\ndata: x\n\n"), tool.CodeProtocol},
		"an event of another kind":     {streams(strings.Replace(anEvent, "event: log", "event: asset", 1)), tool.CodeProtocol},
		"an event without a kind":      {streams("data: {}\n\n"), tool.CodeProtocol},
		"an event with data of a type": {streams("event: log\ndata: {\"kind\":\"log\",\"data\":7}\n\n"), tool.CodeProtocol},
		"a page":                       {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, tool.CodeProtocol},
		"an error page":                {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", 502) }, tool.CodeProtocol},
		"a redirect":                   {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/v1/elsewhere", 307) }, tool.CodeProtocol},
		"an error of ours": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"ok":false,"error":{"code":"quota_exceeded","message":"m"}}`, 429)
		}, tool.CodeQuotaExceeded},
		"the end of the connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, tool.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := peer(t, c.answer).Invoke(kit.Context(t), &tool.Call{Tool: "x"}, tool.Discard)
			if r != nil || tool.CodeOf(err) != c.code {
				t.Errorf("%+v, %v; the code %s is wanted", r, err, c.code)
			}
		})
	}
}

func TestServerSentEventsAreReadAsTheyMayBeWritten(t *testing.T) {
	for body, want := range map[string]string{
		"data: a\n\n":                                  "[=a]",
		"data:a\n\n":                                   "[=a]",
		"data:  a\n\n":                                 "[= a]",
		"event: x\r\ndata: a\r\n\r\n":                  "[x=a]",
		"data: a\ndata: b\ndata\ndata: c\n\n":          "[=a\nb\n\nc]",
		": comment\n\n:\nid: 7\nretry: 1\ndata: a\n\n": "[=a]",
		"event: x\n\ndata: a\n\n":                      "[=a]",
		"event: x\nevent: y\ndata: a\n\ndata: b\n\n":   "[y=a][=b]",
		"unknown: 1\nDATA: no\ndata: a\n\n":            "[=a]",
		"data: a\n":                                    "",
		"data:\n\n":                                    "[=]",
	} {
		events, datas, err := rest.Messages(strings.NewReader(body), 1<<10)
		var got strings.Builder
		for i := range events {
			fmt.Fprintf(&got, "[%s=%s]", events[i], datas[i])
		}
		if got.String() != want || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q was read as %s, %v", body, got.String(), err)
		}
	}
}

func TestAMessageWithoutEndIsCutOff(t *testing.T) {
	for name, line := range map[string]string{"a line": "data: " + strings.Repeat("x", 2000), "many lines": strings.Repeat("data: x\n", 2000)} {
		_, datas, err := rest.Messages(io.MultiReader(strings.NewReader("data: a\n\n"), strings.NewReader(line)), 1000)
		if len(datas) != 1 || err == nil || !strings.Contains(err.Error(), "1000") {
			t.Errorf("%s: %d messages, %v", name, len(datas), err)
		}
	}
}

func TestAServerThatFallsSilentIsGivenUp(t *testing.T) {
	tooltest.NoLeaks(t)
	cancelled := make(chan string, 1)
	c := peer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "DELETE" {
			cancelled <- r.URL.Path
			return
		}
		streams(anEvent)(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	c.SetSilence(50 * time.Millisecond)
	_, err := c.Invoke(kit.Context(t), &tool.Call{ID: "c1", Tool: "x"}, tool.Discard)
	kit.Refused(t, err, tool.CodeCrash, "no sign of life")
	kit.Equal(t, kit.Receive(t, "the cancelling", cancelled), "/v1/calls/c1", "cancelled")
}

func TestSlowSinkIsNotTakenForASilentServer(t *testing.T) {
	tooltest.NoLeaks(t)
	taken := make(chan struct{})
	c := peer(t, func(w http.ResponseWriter, r *http.Request) {
		streams(anEvent)(w, r)
		_ = http.NewResponseController(w).Flush()
		<-taken
		streams("event: result\ndata: {\"ok\":true}\n\n")(w, r)
	})
	const silence = 2 * time.Second // enough for a busy machine to send the next event
	c.SetSilence(silence)
	r, err := c.Invoke(kit.Context(t), &tool.Call{Tool: "x"}, tool.SinkFunc(func(tool.Event) error {
		time.Sleep(silence + silence/2)
		close(taken)
		return nil
	}))
	if err != nil || !r.OK {
		t.Error(r, err)
	}
}

func TestStreamOpenAfterItsResultDoesNotBlock(t *testing.T) {
	tooltest.NoLeaks(t)
	c := peer(t, func(w http.ResponseWriter, r *http.Request) {
		streams("event: result\ndata: {\"ok\":true}\n\n")(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx := kit.Context(t)
	r, err := c.Invoke(ctx, &tool.Call{Tool: "x"}, tool.Discard)
	if err != nil || !r.OK || ctx.Err() != nil {
		t.Error(r, err, ctx.Err())
	}
}

func TestTheSinksErrorIsReturnedAlsoWhenTheContextHasEnded(t *testing.T) {
	tooltest.NoLeaks(t)
	ctx, cancel := context.WithCancel(kit.Context(t))
	defer cancel()
	_, err := peer(t, streams(anEvent)).Invoke(ctx, &tool.Call{Tool: "x"}, tool.SinkFunc(func(tool.Event) error {
		cancel()
		return io.ErrClosedPipe
	}))
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

func TestUnreachableServerErrorSaysWhatToDo(t *testing.T) {
	tooltest.NoLeaks(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	kit.OK(t, err)
	addr := ln.Addr().String()
	ln.Close()
	c := kit.Must(rest.Dial("http://"+addr, token, ""))(t)
	_, err = c.Invoke(kit.Context(t), &tool.Call{Tool: "x"}, tool.Discard)
	_, listErr := c.Tools(kit.Context(t))
	for _, err := range []error{err, listErr} {
		if tool.CodeOf(err) != tool.CodeUnavailable || !strings.Contains(err.Error(), "toolpost serve") || !strings.Contains(err.Error(), addr) {
			t.Error(err)
		}
	}
	for s, why := range c.Specs(kit.Context(t), tool.Principal{}) {
		if s.Name != "" || s.Source == "" || tool.CodeOf(why) != tool.CodeUnavailable {
			t.Errorf("%+v %v", s, why)
		}
	}
}

func TestInvalidAddressesAreRefused(t *testing.T) {
	for _, address := range []string{"", "localhost", "192.0.2.1:8700", "ftp://x", "http://", "http://me:secret@x", "http://x?y", "http://x/#y", "http://%"} {
		if _, err := rest.Dial(address, token, ""); tool.CodeOf(err) != tool.CodeInvalidInput || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
	kit.Refused(t, kit.Err(rest.Dial("http://x", "a\nb", "")), tool.CodeInvalidInput, "")
}

// shop is a catalogue with one tool of each condition.
type shop struct{}

func (shop) Lookup(ctx context.Context, p tool.Principal, name string) (*tool.Spec, error) {
	for s := range (shop{}).Specs(ctx, p) {
		if s.Name == name && name != "" {
			return s, nil
		}
	}
	return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", name)
}

func (shop) Specs(context.Context, tool.Principal) iter.Seq2[*tool.Spec, error] {
	return func(yield func(*tool.Spec, error) bool) {
		_ = yield(&tool.Spec{Source: "dead", Protocol: "mcp"}, tool.Errorf(tool.CodeCrash, "it died")) &&
			yield(&tool.Spec{Name: "a/b", Source: "s", Protocol: "p", Aliases: []string{"ab"}, Input: []byte(`{"minimum": 1.50}`), Tier: 2, Timeout: 1500 * time.Millisecond, Effects: tool.Effects{Reads: true}}, nil) &&
			yield(&tool.Spec{Name: "bad", Source: "s", Protocol: "p", Input: []byte(`{"a":1,"a":2}`)}, nil) &&
			yield(&tool.Spec{Name: "out", Source: "s", Protocol: "p", Description: "ä"}, errors.New("out of order: \xff"))
	}
}

func TestListingReportsAvailabilityWithReason(t *testing.T) {
	tooltest.NoLeaks(t)
	h := open(t, setup{catalog: shop{}})
	a := h.do(h.request("GET", "/v1/tools", ""))
	for _, want := range []string{
		`{"name":"a/b","source":"s","protocol":"p","aliases":["ab"],"input":{"minimum":1.50},"effects":{"reads":true},"tier":2,"timeout_ms":1500,"available":true}`,
		`"available":false,"reason":"out of order: ` + "\uFFFD" + `"}`,
		`{"name":"bad","source":"s","protocol":"p","tier":0,"available":false,"reason":"its description cannot be written as JSON`,
		`"failed_sources":[{"name":"","source":"dead","protocol":"mcp","tier":0,"available":false,"reason":"it died"}]`,
	} {
		if !bytes.Contains(a.body, []byte(want)) {
			t.Errorf("%s is missing in %s", want, a.body)
		}
	}
	for name, want := range map[string]string{"a%2Fb": `"available":true`, "out": `"reason":"out of order`, "bad": `"available":false`} {
		if a := h.do(h.request("GET", "/v1/tools/"+name, "")); a.status != 200 || !bytes.Contains(a.body, []byte(want)) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

func TestTheClientsCatalogueIsTheDoors(t *testing.T) {
	tooltest.NoLeaks(t)
	c := open(t, setup{catalog: shop{}}).client(t)
	var got []string
	for s, why := range c.Specs(kit.Context(t), tool.Principal{}) {
		got = append(got, fmt.Sprintf("%s/%s: %v", s.Source, s.Name, why))
	}
	want := []string{
		"dead/: unavailable: it died", "s/a/b: <nil>",
		"s/bad: unavailable: its description cannot be written as JSON", "s/out: unavailable: out of order: \uFFFD",
	}
	if len(got) == 4 {
		got[2] = got[2][:min(len(got[2]), len(want[2]))] // the rest is the encoder's
	}
	kit.Equal(t, cmp.Diff(want, got), "")
	here, _ := shop{}.Lookup(kit.Context(t), tool.Principal{}, "a/b")
	there, err := c.Lookup(kit.Context(t), tool.Principal{}, "a/b")
	here.Input = []byte(`{"minimum":1.50}`) // on one line
	if d := cmp.Diff(here, there); d != "" || err != nil {
		t.Error(d, err)
	}
	specs, err := c.Tools(kit.Context(t))
	if len(specs) != 3 || err != nil {
		t.Error(specs, err)
	}
}

func TestAListingThatIsNotOursIsAnError(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, body := range []string{"", "{", "[]", `{"tools":{}}`, `{"tools":[7]}`, `{"tools":[{"name":7}]}`, `{"tools":[{"name":"a","available":"yes"}]}`} {
		c := peer(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
		kit.Refused(t, kit.Err(c.Tools(kit.Context(t))), tool.CodeProtocol, "", body)
		n := 0
		for _, why := range c.Specs(kit.Context(t), tool.Principal{}) {
			if n++; tool.CodeOf(why) != tool.CodeProtocol {
				t.Errorf("%q: %v", body, why)
			}
		}
		if n != 1 {
			t.Errorf("%q: %d entries", body, n)
		}
	}
}

// source reads one entry of a toolpost.yaml.
func source(t *testing.T, fields string) config.Source {
	t.Helper()
	c := kit.Must(config.Parse("toolpost.yaml", []byte("sources:\n  - {name: far, protocol: rest, "+fields+"}\n")))(t)
	return c.Sources[0]
}

func TestASourceBringsTheToolsOfAnotherServer(t *testing.T) {
	tooltest.NoLeaks(t)
	h := open(t, setup{})
	t.Setenv("FAR_TOKEN", token)
	r, err := rest.Open(kit.Context(t), source(t, `url: "http://`+h.addr+`/", token_env: FAR_TOKEN, timeout: 5s`), nil)
	kit.OK(t, err)
	defer r.Close(kit.Context(t))
	specs, err := r.(tool.Source).Tools(kit.Context(t))
	if err != nil || len(specs) != len(tooltest.Specs()) || specs[0].Timeout != 5*time.Second {
		t.Errorf("%+v, %v", specs, err)
	}
	res, err := r.Invoke(kit.Context(t), &tool.Call{Tool: "echo", Args: []byte(`{"a":1}`), Spec: specs[0]}, tool.Discard)
	if err != nil || string(res.Output) != `{"a":1}` {
		t.Errorf("%+v, %v", res, err)
	}
}

// We cannot build walls on another machine: a call is refused here if the server there has not promised them.
func TestGuaranteesThatTheOtherServerHasNotPromisedRefuseTheCall(t *testing.T) {
	tooltest.NoLeaks(t)
	h := open(t, setup{handler: tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true}, nil
	})})
	t.Setenv("FAR_TOKEN", token)
	r, err := rest.Open(kit.Context(t), source(t, `url: "http://`+h.addr+`/", token_env: FAR_TOKEN`), nil)
	kit.OK(t, err)
	defer r.Close(context.Background())
	specs := kit.Must(r.(tool.Source).Tools(kit.Context(t)))(t)
	spec := *specs[0]
	kit.Check(t, kit.Err(r.Invoke(kit.Context(t), &tool.Call{Tool: spec.Name, Spec: &spec}, tool.Discard)))
	spec.Guarantees.NoNetwork = true
	_, err = r.Invoke(kit.Context(t), &tool.Call{Tool: spec.Name, Spec: &spec}, tool.Discard)
	if e := tool.AsError(err); e == nil || e.Reason != "coverage_missing" {
		t.Error(err)
	}
}

// To the other server we are one caller. Ids that our callers chose independently must not collide there.
func TestIDsOfCallersDoNotCollideUpstream(t *testing.T) {
	tooltest.NoLeaks(t)
	seen := make(chan tool.Call, 8)
	h := open(t, setup{handler: tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		seen <- *c
		return &tool.Result{OK: true}, nil
	})})
	t.Setenv("FAR_TOKEN", token)
	r := kit.Must(rest.Open(kit.Context(t), source(t, `url: "http://`+h.addr+`/", token_env: FAR_TOKEN`), nil))(t)
	defer r.Close(context.Background())
	made := func(who, session, key string) tool.Call {
		c := &tool.Call{ID: "mine", Tool: "x", Session: session, Key: key, Caller: tool.Principal{ID: who}, Args: []byte(`{}`)}
		kit.Must(r.Invoke(t.Context(), c, tool.Discard))(t)
		return <-seen
	}
	ada, eve, again := made("ada", "work", "k"), made("eve", "work", "k"), made("ada", "work", "k")
	if ada.ID == eve.ID || ada.Session == eve.Session || ada.Key == eve.Key {
		t.Errorf("ada's call and eve's meet: %+v, %+v", ada, eve)
	}
	if ada.ID == again.ID || ada.Session != again.Session || ada.Key != again.Key {
		t.Errorf("one caller's calls with the same key do not meet: %+v, %+v", ada, again)
	}
	if other := made("ada", "", "k"); other.Session != "" || other.Key == ada.Key {
		t.Errorf("%+v", other)
	}
}

func TestASourceThatDoesNotWorkIsNoticedAtOnce(t *testing.T) {
	tooltest.NoLeaks(t)
	h := open(t, setup{})
	t.Setenv("WRONG_TOKEN", "not the token at all")
	for fields, want := range map[string]tool.Code{
		`url: "http://` + h.addr + `"`:                           tool.CodeAccessDenied,
		`url: "http://` + h.addr + `", token_env: WRONG_TOKEN`:   tool.CodeAccessDenied,
		`url: "http://` + h.addr + `", token_env: NO_SUCH_TOKEN`: tool.CodeUnavailable,
		`url: ""`:                    tool.CodeInvalidInput,
		`url: "http://x", tokn: "y"`: tool.CodeInvalidInput,
	} {
		kit.Refused(t, kit.Err(rest.Open(kit.Context(t), source(t, fields), nil)), want, "", fields)
	}
}
