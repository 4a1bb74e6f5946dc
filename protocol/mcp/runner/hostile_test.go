package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"toolpost/internal/kit"
	"toolpost/protocol/mcp/mcptest"
	"toolpost/protocol/mcp/runner"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// unharmed checks that the next call works, whatever the server did before.
func unharmed(t *testing.T, r *runner.Runner) {
	t.Helper()
	kit.Equal(t, works(t, r, "deep", `{"root":{"n":1}}`), `"{\"root\": {\"n\": 1}}"`, "the next call")
}

func TestMisbehavingServerDoesNotAffectOtherCalls(t *testing.T) {
	ways(t, ", max_message: 1000000", func(t *testing.T, r *runner.Runner, modern bool) {
		http := strings.Contains(t.Name(), "http")
		kit.Equal(t, works(t, r, "twice", `{}`), `"first"`, "twice")
		unharmed(t, r)
		kit.Equal(t, works(t, r, "unknown", `{}`), `"mine"`, "unknown")
		unharmed(t, r)
		if !http {
			kit.Equal(t, works(t, r, "noise", `{}`), `"noisy"`, "noise")
			unharmed(t, r)
		}
		if got := works(t, r, "oddkeys", `{}`); got != `"b"` { // the last counts, as for lenient readers
			t.Errorf("oddkeys gives %s", got)
		}
		unharmed(t, r)
		fails(t, r, &tool.Call{Tool: "nocontent"}, tool.CodeProtocol, "no content")
		if !modern {
			kit.Equal(t, works(t, r, "wrongera", `{}`), `"legacy all the same"`, "a word of the other era")
		} else {
			fails(t, r, &tool.Call{Tool: "endless"}, tool.CodeProtocol, "again and again")
			if http { // an answer cannot be sent there
				fails(t, r, &tool.Call{Tool: "wrongera"}, tool.CodeProtocol, "in the middle of a call")
			} else if got := works(t, r, "wrongera", `{}`); !strings.Contains(got, "input_required") {
				t.Errorf("a question of the other era gets %s", got)
			}
		}
		unharmed(t, r)
		var events kept
		if res, err := invoke(t, r, &tool.Call{Tool: "flood", Args: json.RawMessage(`{"count":5000}`)}, &events); err != nil || !res.OK {
			t.Errorf("flood: %+v, %v", res, err)
		}
		unharmed(t, r)
		fails(t, r, &tool.Call{Tool: "huge", Args: json.RawMessage(`{"bytes":2000000}`)}, tool.CodeProtocol, "longer than 1000000")
		unharmed(t, r)
	})
}

func TestAServerThatDiesIsStartedAgain(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			tooltest.NoLeaks(t)
			r := open(t, mcptest.Server(t, era))
			list(t, r)
			changed := r.Changed()
			fails(t, r, &tool.Call{Tool: "die"}, tool.CodeCrash, "crashed")
			unharmed(t, r)
			kit.Receive(t, "another process may have other tools", changed)
		})
	}
}

func TestAServerThatDiesWithAQuestionOpenEndsItsCall(t *testing.T) {
	tooltest.NoLeaks(t)
	r := open(t, mcptest.Server(t, "legacy"))
	res, err := invoke(t, r, &tool.Call{Tool: "ask"}, tool.Discard)
	if err != nil || res.Ask == nil {
		t.Fatalf("%+v, %v", res, err)
	}
	fails(t, r, &tool.Call{Tool: "die"}, tool.CodeCrash, "crashed")
	fails(t, r, &tool.Call{Tool: "ask", Resume: res.Ask.ID, Answers: json.RawMessage(`{"answer":{"action":"accept"}}`)},
		tool.CodeCrash, "crashed")
	unharmed(t, r)
}

// Questions of a parked call are not mixed up with another's.
func TestTwoCallsWithQuestionsAreKeptApart(t *testing.T) {
	ways(t, "", func(t *testing.T, r *runner.Runner, _ bool) {
		one := &tool.Call{Tool: "asktwice", Caller: tool.Principal{ID: "ada"}}
		first, err := invoke(t, r, one, tool.Discard)
		if err != nil || first.Ask == nil {
			t.Fatalf("%+v, %v", first, err)
		}
		got := answers(t, r, &tool.Call{Tool: "ask", Caller: tool.Principal{ID: "bob"}}, func(a *tool.Ask) string {
			return fmt.Sprintf(`{%q:{"action":"accept","content":{"colour":"bobs"}}}`, a.Needs[0].Key)
		})
		kit.Contains(t, got, "bobs", "bob's tool")
		next := *one
		next.Resume = first.Ask.ID
		next.Answers = json.RawMessage(fmt.Sprintf(`{%q:{"action":"accept","content":{"colour":"adas"}}}`, first.Ask.Needs[0].Key))
		got = answers(t, r, &next, func(a *tool.Ask) string {
			return fmt.Sprintf(`{%q:{"action":"accept","content":{"colour":"adas"}}}`, a.Needs[0].Key)
		})
		if !strings.Contains(got, "adas") || strings.Contains(got, "bobs") {
			t.Errorf("ada's tool got %s", got)
		}
	})
}

func TestAServerThatNeverAnswersIsReplaced(t *testing.T) {
	tooltest.NoLeaks(t)
	r := open(t, mcptest.Server(t, "legacy")+", concurrency: 1, grace: 30s")
	before := works(t, r, "pid", `{}`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	kit.Refused(t, kit.Err(r.Invoke(ctx, &tool.Call{Tool: "never"}, tool.Discard)), tool.CodeTimeout, "")
	// It still answers the probe, so it is not replaced.
	kit.Equal(t, works(t, r, "pid", `{}`), before, "a server that answers was replaced")
}

func TestProtocolEraIsDetected(t *testing.T) {
	tooltest.NoLeaks(t)
	for era, want := range map[string]string{"modern": "modern", "legacy": "legacy", "mute": "legacy", "blunt": "legacy"} {
		r := open(t, mcptest.Server(t, era))
		res, err := invoke(t, r, &tool.Call{Tool: "echo"}, tool.Discard)
		if err != nil || res.Trace.Details["era"] != want {
			t.Errorf("%s: %+v, %v", era, res, err)
		}
	}
	for fields, says := range map[string]string{
		mcptest.Server(t, "future"):                   "no common version",
		mcptest.Server(t, "liar"):                     `answers initialize with version \"1899-01-01\"`,
		mcptest.Server(t, "legacy") + ", era: modern": "leave `era` out",
		mcptest.Server(t, "modern") + ", era: legacy": "did not start",
		"command: [/bin/cat], start_timeout: 2s":      "",
	} {
		kit.Fails(t, kit.Err(open(t, fields).Tools(t.Context())), strings.ReplaceAll(says, `\"`, `"`), fields)
	}
}

func TestIdleServersAreEndedAndStartedOnDemand(t *testing.T) {
	tooltest.NoLeaks(t)
	r := open(t, mcptest.Server(t, "modern")+", idle: 300ms")
	before := works(t, r, "pid", `{}`)
	pid := kit.Must(strconv.Atoi(strings.Trim(before, `"`)))(t)
	kit.Eventually(t, "the server is ended", func() bool { return len(tooltest.Descendants(os.Getpid())) == 0 })
	if after := works(t, r, "pid", `{}`); after == before && pid != 1 && pid != 2 {
		t.Logf("its own number is the same in another room: %s", after)
	}
	if len(tooltest.Descendants(os.Getpid())) == 0 {
		t.Error("nothing was started for the call")
	}
}

func TestAServerOverHTTPComesBack(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			tooltest.NoLeaks(t)
			url, end := pyHTTP(t, era, "0")
			r := open(t, "url: '"+url+"'")
			works(t, r, "deep", `{}`)
			end()
			kit.Fails(t, kit.Err(invoke(t, r, &tool.Call{Tool: "deep"}, tool.Discard)),
				"", "a dead server gives a result")
			fails(t, r, &tool.Call{Tool: "deep"}, tool.CodeUnavailable, "nothing answers")
			port := strings.TrimSuffix(url[strings.LastIndex(url, ":")+1:], "/mcp")
			pyHTTP(t, era, port)
			unharmed(t, r) // in the legacy era, in another session
		})
	}
}

func TestASessionThatIsForgottenIsBegunAgain(t *testing.T) {
	tooltest.NoLeaks(t)
	url, _ := pyHTTP(t, "legacy", "0")
	r := open(t, "url: '"+url+"'")
	list(t, r)
	req, _ := http.NewRequest(http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	session := resp.Header.Get("Mcp-Session-Id")
	_ = resp.Body.Close()
	req, _ = http.NewRequest(http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","method":"x","params":{"name":"forget"}}`))
	req.Header.Set("Mcp-Session-Id", session)
	if resp, err = http.DefaultClient.Do(req); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	unharmed(t, r)
}

func TestSecretHeaderIsNotSentAfterARedirect(t *testing.T) {
	tooltest.NoLeaks(t)
	var stolen atomic.Value
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen.Store(r.Header.Get("X-Key")) }))
	defer thief.Close()
	seen := make(chan string, 1)
	moved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case seen <- r.Header.Get("X-Key"):
		default:
		}
		http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
	}))
	defer moved.Close()
	src := sourceOf(t, t.TempDir(), "url: '"+moved.URL+"', headers: {X-Key: 'k-${secret:KEY}'}", secretsOf{"KEY": "hush"})
	r, err := runner.Open(t.Context(), src, discard())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(t.Context())
	_, err = r.(tool.Source).Tools(t.Context())
	if err == nil || !strings.Contains(err.Error(), "moved to") || strings.Contains(err.Error(), "hush") {
		t.Errorf("got %v", err)
	}
	kit.Equal(t, <-seen, "k-hush", "the server")
	if stolen.Load() != nil {
		t.Errorf("the thief got %v", stolen.Load())
	}
}

func TestWrongSourcesAreRefused(t *testing.T) {
	for fields, says := range map[string]string{
		"timeout: 1s":                                          "needs `command`",
		"command: [a], url: 'http://x'":                        "not both",
		"url: 'ftp://x'":                                       "not the address of a server",
		"url: 'http://u:p@x/'":                                 "has a user",
		"url: 'http://x', era: old":                            "era must be",
		"url: 'http://x', env: {A: b}":                         "are for a program",
		"url: 'http://x', headers: {Host: a}":                  "cannot be the name of a header",
		"url: 'http://x', headers: {A: '${env:B}'}":            "write ${secret:NAME}",
		"command: [a], headers: {A: b}":                        "headers are for a server at a url",
		"url: 'http://x', tier: 9":                             "tier must be",
		"url: 'http://x', log_level: loud":                     "log_level must be",
		"url: 'http://x', oauth: {redirect: 'http://a.b:1/c'}": "loopback address",
		"url: 'http://x', oauth: {client_secret: S}":           "need the oauth.client_id",
		"url: 'http://x', concurrency: -1":                     "cannot be negative",
	} {
		_, err := runner.Open(t.Context(), sourceOf(t, t.TempDir(), fields, secretsOf{}), discard())
		if err == nil || !strings.Contains(err.Error(), says) || tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("%s: %v", fields, err)
		}
	}
}

func TestNonMCPAddressErrorNamesWhatToCheck(t *testing.T) {
	answers := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, at := range map[string]struct {
		handler http.HandlerFunc
		tls     bool
		code    tool.Code
		says    string
	}{
		"a page":         {answers(200, "text/html", "<html></html>"), false, tool.CodeProtocol, "answered with text/html that is not a message"},
		"other JSON":     {answers(200, "application/json", `{"a":1}`), false, tool.CodeProtocol, "check that the URL"},
		"nothing there":  {answers(404, "text/plain", "no"), false, tool.CodeProtocol, "404 Not Found; check the URL"},
		"a stranger":     {answers(401, "text/plain", "no"), false, tool.CodeAccessDenied, "run `toolpost mcp login up`"},
		"a certificate":  {answers(200, "application/json", `{}`), true, tool.CodeUnavailable, "there is no TLS connection to https://"},
		"an answer of 5": {answers(500, "text/plain", "no"), false, tool.CodeUnavailable, "500 Internal Server Error"},
	} {
		t.Run(name, func(t *testing.T) {
			tooltest.NoLeaks(t)
			server := httptest.NewUnstartedServer(at.handler)
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			if at.tls {
				server.StartTLS()
			} else {
				server.Start()
			}
			defer server.Close()
			_, err := open(t, "url: '"+server.URL+"'").Tools(t.Context())
			if err == nil || tool.CodeOf(err) != at.code || !strings.Contains(err.Error(), at.says) {
				t.Errorf("got %s, %v; want %s with %q", tool.CodeOf(err), err, at.code, at.says)
			}
		})
	}
}

// A server over HTTP that refuses calls for a while is unavailable, and the time after which to try again is passed on.
func TestServerThatIsBusySaysWhenToTryAgain(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, body := range []string{`{"error":"slow down"}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"slow down"}}`, "slow down"} {
		var busy atomic.Bool
		library := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return goServer() }, nil)
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !busy.Load() || r.Method != http.MethodPost {
				library.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(func() { front.CloseClientConnections(); front.Close() }) // after the runner, which ends its session
		r := open(t, fmt.Sprintf("url: %q, era: legacy", front.URL))
		list(t, r)
		busy.Store(true)
		_, err := invoke(t, r, &tool.Call{Tool: "greet", Args: json.RawMessage(`{"name":"Ada"}`)}, tool.Discard)
		if e := tool.AsError(err); e == nil || e.Code != tool.CodeUnavailable || e.Retry() != 7*time.Second {
			t.Errorf("%s: %v", body, err)
		}
	}
}
