package matrix

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func commandLine() *door {
	return &door{
		name: "command line", about: "`toolpost call NAME - --json --server URL`, the program itself",
		call: callProgram, word: code, sessions: true,
	}
}

func callProgram(t *testing.T, h *house, r *runner, req request) *outcome {
	words := []string{
		"call", r.where(req.tool) + "." + req.tool, "-",
		"--json", "--server", h.doors.http, "--session", strings.ReplaceAll(req.session, " ", "_"),
	}
	if req.resume != "" {
		words = append(words, "--resume", req.resume, "--answers", req.answers)
	}
	cmd := exec.CommandContext(req.ctx, h.bin, words...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }                   // as Ctrl-C does
	cmd.Env = append(cmd.Environ(), "TOOLPOST_TOKEN="+token, "XDG_CACHE_HOME="+t.TempDir()) // assets are copied there
	cmd.Stdin = strings.NewReader(req.args)
	printed, err := cmd.Output()
	var exit *exec.ExitError
	if req.gone() {
		kit.Equal(t, cmd.ProcessState.ExitCode(), 130, "the program was interrupted and ended with")
		return &outcome{}
	}
	if err != nil && !errors.As(err, &exit) {
		t.Error(err)
		return &outcome{}
	}
	out := readDocument(t, printed)
	kit.Equal(t, cmd.ProcessState.ExitCode(), exitCode(out), "the program ended with")
	return out
}

// readDocument reads {"events": [...], "result": {...}} or {"events": [...], "error": {...}}.
func readDocument(t *testing.T, printed []byte) *outcome {
	doc := read[struct {
		Events []json.RawMessage `json:"events"`
		Result json.RawMessage   `json:"result"`
		Error  json.RawMessage   `json:"error"`
	}](t, printed)
	out := &outcome{}
	for _, e := range doc.Events {
		out.addNative(t, e)
	}
	if doc.Result != nil {
		out.native(t, doc.Result)
	} else {
		out.native(t, []byte(`{"error":`+string(doc.Error)+`}`))
	}
	return out
}

// exitCode implements the table of the design.
func exitCode(out *outcome) int {
	switch {
	case out.ok:
		return 0
	case out.ask != nil:
		return 6
	case out.class == string(tool.CodeInvalidInput):
		return 2
	case out.class == string(tool.CodeLeaseRequired):
		return 3
	case out.class == string(tool.CodeTimeout):
		return 5
	}
	return 1
}
