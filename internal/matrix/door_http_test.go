package matrix

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"toolpost/tool"
)

// A door is a column of the matrix: an entry point, used as an outside caller uses it.
type door struct {
	name     string
	about    string // for the page
	call     func(t *testing.T, h *house, r *runner, req request) *outcome
	word     func(tool.Code) string // the door's name for a class of errors
	sessions bool                   // a caller can name the session of a call
	carries  carries
}

// doors lists the columns.
func doors() []*door {
	return []*door{
		commandLine(), httpDoor(), openaiDoor(),
		namel3ssServiceDoor(), namel3ssStdin(),
		natsPlainDoor(), natsToolCallDoor(),
		skillOneDoor(), skillTwoDoor(),
		machinaRunDoor(), machinaServeDoor(),
		narratoriaDoor(),
		mcpDoor("modern", "stdio"), mcpDoor("modern", "HTTP"), mcpDoor("legacy", "stdio"), mcpDoor("legacy", "HTTP"),
	}
}

// code is for doors that use our names of classes.
func code(c tool.Code) string { return string(c) }

func httpDoor() *door {
	return &door{
		name: "HTTP", about: "`POST /v1/tools/NAME/call`, with an event stream",
		call: callHTTP, word: code, sessions: true,
	}
}

func callHTTP(t *testing.T, h *house, r *runner, req request) *outcome {
	url := h.doors.http + "/v1/tools/" + r.where(req.tool) + "." + req.tool + "/call"
	post, err := http.NewRequestWithContext(req.ctx, http.MethodPost, url, strings.NewReader(req.args))
	if err != nil {
		t.Error(err)
		return &outcome{}
	}
	post.Header.Set("Authorization", "Bearer "+token)
	post.Header.Set("Content-Type", "application/json")
	post.Header.Set("Accept", "text/event-stream")
	post.Header.Set("Toolpost-Session", strings.ReplaceAll(req.session, " ", "_"))
	if req.resume != "" {
		post.Header.Set("Toolpost-Resume", req.resume)
		post.Header.Set("Toolpost-Answers", req.answers)
	}
	answer, err := h.web.Do(post)
	if err != nil {
		if !req.gone() {
			t.Error(err)
		}
		return &outcome{}
	}
	defer answer.Body.Close()
	return readEvents(t, req, answer.Body)
}

// readEvents reads server-sent events as specified; the last is the outcome.
func readEvents(t *testing.T, req request, body io.Reader) *outcome {
	out, name := &outcome{}, ""
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			name = kind
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
		case name == "result" || name == "no_outcome":
			out.native(t, []byte(data))
			return out
		default:
			out.addNative(t, []byte(data))
		}
	}
	if !req.gone() {
		t.Errorf("the stream ended without an outcome: %v", lines.Err())
	}
	return out
}

// addNative adds an event in our own format.
func (o *outcome) addNative(t *testing.T, raw []byte) {
	e := read[struct {
		Kind tool.Kind       `json:"kind"`
		Data json.RawMessage `json:"data"`
	}](t, raw)
	o.add(t, e.Kind, e.Data)
}

// native sets a result, or {"error": ...}, in our own format.
func (o *outcome) native(t *testing.T, raw []byte) {
	r := read[struct {
		OK     bool            `json:"ok"`
		Output json.RawMessage `json:"output"`
		Ask    *tool.Ask       `json:"ask"`
		Error  struct {
			Code    string `json:"code"`
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"error"`
	}](t, raw)
	o.ok, o.output, o.ask = r.OK, r.Output, r.Ask
	o.class, o.reason, o.message = r.Error.Code, r.Error.Reason, r.Error.Message
}
