package node_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/envelope"
)

const envelopeToken = "sixteen-letters-or-more"

// withHeaders serves tools at every door whose protocol has headers, and returns those doors.
func withHeaders(t *testing.T, protocols []node.Protocol) []node.Listening {
	t.Helper()
	ready := make(chan node.Listening, 8)
	n := open(t, parse(t, t.TempDir(), `
sources: [{name: s, protocol: `+protocols[0].Name+`}]
doors: {http: {listen: "127.0.0.1:0"}, nats: {listen: "127.0.0.1:0"}, namel3ss: {listen: "127.0.0.1:0"}}
`), node.Options{Protocols: protocols, Token: envelopeToken, Ready: func(l node.Listening) { ready <- l }})
	stop := serve(t, n)
	t.Cleanup(func() { stop(); shut(t, n) })
	doors := []node.Listening{<-ready, <-ready, <-ready, <-ready, <-ready}
	return slices.DeleteFunc(doors, func(l node.Listening) bool { return l.Door == "mcp" }) // has _meta instead
}

// post calls a tool at a door with some headers, and returns the whole answer.
func post(t *testing.T, door node.Listening, name, args string, header map[string][]string) string {
	t.Helper()
	if door.Door == "nats" {
		nc := kit.Must(nats.Connect(door.URL, nats.Token(envelopeToken), nats.Timeout(time.Minute)))(t)
		defer nc.Close()
		ctx := kit.Context(t)
		m, err := nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: "tools.execute." + name, Data: []byte(args), Header: header})
		kit.OK(t, err)
		return string(m.Data)
	}
	path, body := "/v1/tools/"+name+"/call", args
	if door.Door == "namel3ss" {
		path, body = "", `{"protocol_version":1,"tool_name":"`+name+`","payload":`+args+`}`
	}
	if door.Door == "openai" {
		path = "/openai/tool_calls"
		body = fmt.Sprintf(`{"tool_calls":[{"id":"c","type":"function","function":{"name":%q,"arguments":%q}}]}`, name, args)
	}
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, door.URL+path, strings.NewReader(body)))(t)
	req.Header.Set("Authorization", "Bearer "+envelopeToken)
	req.Header.Set("Content-Type", "application/json")
	for name, values := range header {
		req.Header[name] = values
	}
	req.Close = true // a persistent connection would outlive the test
	resp := kit.Must(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	answer := kit.Must(io.ReadAll(resp.Body))(t)
	if door.Door == "openai" { // its messages contain JSON as text
		return strings.ReplaceAll(string(answer), `\"`, `"`)
	}
	return string(answer)
}

// If a door overlooks a dry run, the call runs, perhaps one that was dry because running it is dangerous.
func TestADryRunHasNoEffectThroughAnyDoor(t *testing.T) {
	e := &effects{ran: map[string]int{}}
	for _, door := range withHeaders(t, e.protocol()) {
		for given, runs := range map[string]int{"true": 0, "false": 1, "yes": 0} {
			bill := door.Door + " " + given
			answer := post(t, door, "pay", `{"bill":"`+bill+`"}`, map[string][]string{"Toolpost-Dry-Run": {given}})
			e.mu.Lock()
			ran := e.ran[bill]
			e.mu.Unlock()
			decided := strings.Contains(answer, `"dry_run":true`)
			refused := strings.Contains(answer, "the header Toolpost-Dry-Run is neither true nor false")
			if ran != runs || decided != (given == "true") || refused != (given == "yes") {
				t.Errorf("%s: it ran %d times: %s", bill, ran, answer)
			}
		}
	}
}

// A mirror is a protocol with one tool, which reports how it was called.
type mirror chan string

func (m mirror) protocol() []node.Protocol {
	return []node.Protocol{{Name: "mirror", Open: func(context.Context, config.Source, *slog.Logger) (tool.Runner, error) { return m, nil }}}
}

func (m mirror) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{{Name: "look"}}, nil
}
func (m mirror) Close(context.Context) error { return nil }

func (m mirror) Invoke(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	deadline, _ := ctx.Deadline()
	short := deadline.Before(time.Now().Add(10 * time.Second)) // a tool has 30 s by default
	m <- fmt.Sprint("id=", c.ID, " session=", c.Session, " key=", c.Key, " lease=", c.Lease, " run=", c.Run, " resume=", c.Resume,
		" answers=", string(c.Answers), " trace=", c.Trace, " short=", short)
	if c.Resume == "" && strings.Contains(string(c.Args), "ask") {
		return &tool.Result{Ask: &tool.Ask{ID: "a-1", Message: "sure?"}}, nil
	}
	return &tool.Result{OK: true}, nil
}

func TestEveryHeaderOfACallArrivesThroughEveryDoor(t *testing.T) {
	fields := map[string][2]string{ // what is sent, and what the tool sees
		"Toolpost-Call": {"my-call", "id=my-call "}, "Toolpost-Session": {"größe", " session=größe "}, "Idempotency-Key": {"k-1", " key=k-1 "},
		"Toolpost-Lease": {"l-1", " lease=l-1 "}, "Toolpost-Run": {"r-1", " run=r-1 "}, "Toolpost-Timeout": {"5s", " short=true"},
		"traceparent":      {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", " trace=0af76519-16cd-43dd-8448-eb211c80319c "},
		"Toolpost-Dry-Run": {"false", " short=false"}, // true is tested above
	}
	for _, header := range envelope.Headers() {
		_, ok := fields[header]
		if !ok && header != envelope.HeaderAnswers && header != envelope.HeaderResume { // they are tested below
			t.Errorf("%s is not tested", header)
		}
	}
	m := make(mirror, 1)
	for _, door := range withHeaders(t, m.protocol()) {
		for header, f := range fields {
			for _, name := range []string{header, strings.ToLower(header)} {
				sent, want := f[0], f[1]
				if header == "Idempotency-Key" { // the second of two calls with one key is the first
					sent += door.Door + name
					want = " key=" + sent + " "
				}
				answer := post(t, door, "look", `{}`, map[string][]string{name: {sent}})
				select {
				case seen := <-m:
					kit.Contains(t, seen, want, "%s at %s became", name, door.Door)
				default:
					t.Errorf("%s at %s: %s", name, door.Door, answer)
				}
			}
		}
	}
}

// The id of a question is bound to its caller and call, not to a door: one that cannot carry a question accepts answers.
func TestAnAnswerArrivesThroughEveryDoorOnce(t *testing.T) {
	m := make(mirror, 1)
	doors := withHeaders(t, m.protocol())
	at := slices.IndexFunc(doors, func(l node.Listening) bool { return l.Door == "http" })
	for _, door := range doors {
		asked := post(t, doors[at], "look", `{"ask":1}`, nil)
		<-m
		id := regexp.MustCompile(`"id":"([^"]{40,})"`).FindStringSubmatch(asked)
		if id == nil {
			t.Fatalf("%s", asked)
		}
		answer := func(args, answers string) string {
			return post(t, door, "look", args, map[string][]string{"Toolpost-Resume": {id[1]}, "Toolpost-Answers": {answers}})
		}
		kit.Contains(t, answer(`{"ask":2}`, `{"sure":true}`), "has not asked you", "%s: for other arguments", door.Door)
		got := answer(`{"ask":1}`, `{"sure":true}`)
		select {
		case seen := <-m:
			kit.Contains(t, seen, ` resume=a-1 answers={"sure":true} `, "at %s they became", door.Door)
		default:
			t.Errorf("%s: %s", door.Door, got)
		}
		kit.Contains(t, answer(`{"ask":1}`, `{"sure":true}`), "answered already", "%s: once more", door.Door)
	}
}

func TestEveryDoorRefusesUnknownHeaders(t *testing.T) {
	m := make(mirror, 1)
	for _, door := range withHeaders(t, m.protocol()) {
		for want, header := range map[string]map[string][]string{
			`is not known; did you mean Toolpost-Dry-Run?`:                      {"Toolpost-Dryrun": {"true"}},
			`is not known; did you mean Idempotency-Key?`:                       {"toolpost-key": {"k"}},
			`is not known; known are Toolpost-Call, `:                           {"Toolpost-Quux": {"true"}},
			`the header Toolpost-Session is there 2 times: send it once`:        {"Toolpost-Session": {"a", "b"}},
			`the header Toolpost-Lease is longer than 1024 bytes: shorten it`:   {"Toolpost-Lease": {strings.Repeat("x", 2000)}},
			`the header Toolpost-Timeout is not a duration above zero, such as`: {"Toolpost-Timeout": {"5"}},
		} {
			answer := post(t, door, "look", `{}`, header)
			select {
			case <-m:
				t.Errorf("%v at %s was passed over: %s", header, door.Door, answer)
			default:
				kit.Contains(t, answer, want, header, door.Door)
			}
		}
		own := map[string][]string{"Toolpost-Style": {"native"}, "Toolpost-Ack": {"true"}} // specific to NATS
		answer := post(t, door, "look", `{"arguments":{}}`, own)
		select {
		case <-m:
			kit.Equal(t, door.Door, "nats", own, answer)
		default:
			if door.Door == "nats" || !strings.Contains(answer, "is not known") {
				t.Errorf("%v at %s: %s", own, door.Door, answer)
			}
		}
	}
}
