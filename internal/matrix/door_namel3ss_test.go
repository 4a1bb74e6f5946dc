package matrix

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolpost/tool"
)

const namel3ssNoAsk = "the namel3ss contract has one reply, and no questions: the error says what the tool asks"

func namel3ssStdin() *door {
	const line = "the namel3ss contract has one reply and no events: "
	return &door{
		name: "namel3ss stdin", about: "`toolpost as namel3ss`: one document in, one out",
		call: callStdin, word: errorClass,
		carries: carries{
			progress: {asLine, line + "progress goes to stderr"},
			logs:     {asLine, line + "log messages go to stderr"},
			state:    {asLine, line + "a state patch goes to stderr"},
			asset:    {asLine, line + "an asset goes to stderr"},
			choice:   {asLine, line + "choices go to stderr"},
			question: {asError, namel3ssNoAsk},
		},
	}
}

// errorClass returns the door's type of an error. The type of a tool's own failure is the tool's.
func errorClass(c tool.Code) string {
	switch c {
	case tool.CodeInvalidInput:
		return "ValueError"
	case tool.CodeTimeout:
		return "TimeoutError"
	case tool.CodeLeaseRequired:
		return "LeaseError"
	case tool.CodeProtocol:
		return "ProtocolError"
	case tool.CodeUnsupported:
		return "NotImplementedError"
	}
	return "ToolError"
}

func namel3ssServiceDoor() *door {
	const line = "the namel3ss contract has one reply and no events: "
	return &door{
		name: "namel3ss service", about: "`POST /tools` of the service door",
		call: callService, word: errorClass,
		carries: carries{
			progress: {asLine, line + "progress goes to the service's log"},
			logs:     {asLine, line + "log messages go to the service's log"},
			state:    {asLine, line + "a state patch goes to the service's log"},
			asset:    {asLine, line + "an asset goes to the service's log"},
			choice:   {asLine, line + "choices go to the service's log"},
			question: {asError, namel3ssNoAsk},
		},
	}
}

func callService(t *testing.T, h *house, r *runner, req request) *outcome {
	name := r.where(req.tool) + "." + req.tool
	body := `{"protocol_version":1,"tool_name":` + quoted(name) + `,"kind":"python","entry":"tools.any:any","payload":` + req.args +
		`,"timeout_ms":30000,"trace_id":` + quoted(tool.NewID()) + `,"project":{"app_root":"/","flow":"demo"}}`
	post, err := http.NewRequestWithContext(req.ctx, http.MethodPost, h.doors.service, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return &outcome{}
	}
	post.Header.Set("Authorization", "Bearer "+token)
	post.Header.Set("Content-Type", "application/json")
	answer, err := h.web.Do(post)
	if err != nil {
		if !req.gone() {
			t.Error(err)
		}
		return &outcome{}
	}
	defer answer.Body.Close()
	printed, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("%s: %v", answer.Status, err)
	}
	o := namel3ssReply(t, printed)
	o.lines = h.log.about(name)
	return o
}

// A journal is a log that several goroutines may write to.
type journal struct {
	mu    sync.Mutex
	lines []string
}

// Write implements io.Writer, one line per call.
func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, string(b))
	return len(b), nil
}

// about removes and returns the lines about a tool.
func (j *journal) about(name string) (lines []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = slices.DeleteFunc(j.lines, func(line string) bool {
		found := strings.Contains(line, "tool="+name+" ")
		if found {
			lines = append(lines, line)
		}
		return found
	})
	return lines
}

func callStdin(t *testing.T, h *house, r *runner, req request) *outcome {
	name := r.where(req.tool) + "." + req.tool
	printed, lines := h.as(req.ctx, t, `{"protocol_version":1,"tool":`+quoted(name)+`,"entry":"tools.any:any","payload":`+req.args+`}`, "namel3ss")
	o := namel3ssReply(t, printed)
	o.lines = lines
	return o
}

func namel3ssReply(t *testing.T, body []byte) *outcome {
	reply := read[struct {
		OK     bool            `json:"ok"`
		Result json.RawMessage `json:"result"`
		Error  struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}](t, body)
	return &outcome{
		ok: reply.OK, output: reply.Result,
		message: reply.Error.Message, class: reply.Error.Type, reason: reply.Error.Type,
	}
}
