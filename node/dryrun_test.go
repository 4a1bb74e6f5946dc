package node_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"toolpost/node"
)

// A dry run that a door overlooks is a call that runs, and it may have been asked for because running it is dangerous.
func TestADryRunHasNoEffectThroughAnyDoor(t *testing.T) {
	const token = "sixteen-letters-or-more"
	e := &effects{ran: map[string]int{}}
	ready := make(chan node.Listening, 3)
	n := open(t, parse(t, t.TempDir(), `
sources: [{name: till, protocol: effects}]
doors: {http: {listen: "127.0.0.1:0"}, nats: {listen: "127.0.0.1:0"}, namel3ss: {listen: "127.0.0.1:0"}}
`), node.Options{Protocols: e.protocol(), Token: token, Ready: func(l node.Listening) { ready <- l }})
	defer shut(t, n)
	stop := serve(t, n)
	defer stop()
	for range 3 {
		door := <-ready
		for given, runs := range map[string]int{"true": 0, "false": 1, "yes": 0} {
			bill := door.Door + " " + given
			answer := askDry(t, door, token, bill, given)
			if e.mu.Lock(); e.ran[bill] != runs {
				t.Errorf("%s: it ran %d times: %s", bill, e.ran[bill], answer)
			}
			e.mu.Unlock()
			if decided := strings.Contains(answer, `"dry_run":true`); decided != (given == "true") {
				t.Errorf("%s: %s", bill, answer)
			}
			if given == "yes" && !strings.Contains(answer, "the header Toolpost-Dry-Run is neither true nor false") {
				t.Errorf("%s: %s", bill, answer)
			}
		}
	}
}

// askDry calls the tool at a door, and gives the whole answer.
func askDry(t *testing.T, door node.Listening, token, bill, dry string) string {
	t.Helper()
	args := `{"bill":"` + bill + `"}`
	if door.Door == "nats" {
		nc, err := nats.Connect(door.URL, nats.Token(token))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		m, err := nc.RequestMsgWithContext(t.Context(), &nats.Msg{
			Subject: "tools.execute.pay", Data: []byte(args), Header: nats.Header{"Toolpost-Dry-Run": {dry}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(m.Data)
	}
	path, body := "/v1/tools/pay/call", args
	if door.Door == "namel3ss" {
		path, body = "", `{"protocol_version":1,"tool_name":"pay","payload":`+args+`}`
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, door.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + token}, "Toolpost-Dry-Run": {dry}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}
