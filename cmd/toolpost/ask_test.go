package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// inquirer asks for a value of every kind.
var inquirer = map[string]string{
	"toolpost.yaml": "sources: [{name: inquirer, protocol: narratoria, command: [python3, inquirer.py]}]",
	"inquirer.py": `
import json, sys
request = json.load(sys.stdin)
def say(**fields): print(json.dumps({"version": "0", **fields}), flush=True)
if "answers" in request:
    say(type="done", ok=True, output=request["answers"])
else:
    schema = {"type": "object", "required": ["name", "sure", "colour", "pin"], "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2},
        "sure": {"type": "boolean"},
        "age": {"type": "integer", "minimum": 18, "default": 30},
        "colour": {"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#00f", "title": "Blue"}]},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}},
        "note": {"type": "string"},
        "pin": {"type": "string", "format": "password"},
    }}
    say(type="ui_event", event="ask", payload={"message": "Who is there?\u001b[2J", "schema": schema})
    say(type="done", ok=True)
`,
}

// typedAt runs a command on a terminal and types a line at each prompt. It returns everything that was on the screen.
func typedAt(t *testing.T, cmd *exec.Cmd, lines ...string) string {
	t.Helper()
	tooltest.NoLeaks(t)
	ours, theirs := openTerminal(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	kit.OK(t, cmd.Start())
	theirs.Close()
	var screen strings.Builder
	buf, prompts := make([]byte, 4096), 0
	for {
		n, err := ours.Read(buf)
		screen.Write(buf[:n])
		for strings.Count(screen.String(), "\n> ")+strings.Count(screen.String(), "? [y/N] ") > prompts && prompts < len(lines) {
			kit.OK(t, kit.Err(ours.WriteString(lines[prompts])))
			prompts++
		}
		if err != nil { // EIO: the other end is closed
			return screen.String()
		}
	}
}

func TestAtATerminalAToolsQuestionIsAskedFieldByField(t *testing.T) {
	cmd := program(t, inquirer, "call", "inquirer")
	screen := typedAt(t, cmd, "A\n", "Ada\n", "perhaps\n", "y\n", "7\n", "\n", "2\n", "1, c\n", "\n", "hush\n")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, screen)
	}
	at := strings.LastIndex(screen, "{\r\n")
	var got map[string]any
	if err := json.NewDecoder(strings.NewReader(screen[max(at, 0):])).Decode(&got); err != nil {
		t.Fatalf("%v\n%q", err, screen)
	}
	want := `{"age":30,"colour":"#00f","name":"Ada","pin":"hush","sure":true,"tags":["a","c"]}`
	if b, _ := json.Marshal(got); string(b) != want {
		t.Errorf("it was answered %s\n%s", b, screen)
	}
	for _, words := range []string{`Who is there?\u001b[2J`, "Your name", "1  Red", "2  Blue", "default 30", "may be left empty", "y/n"} {
		kit.Contains(t, screen, words, "the screen")
	}
	if shown := strings.Count(screen, "hush"); shown != 1 { // in the result alone
		t.Errorf("the password is on the screen %d times: %q", shown, screen)
	}
}

func TestCtrlDEndsACallThatAsks(t *testing.T) {
	cmd := program(t, inquirer, "call", "inquirer")
	screen := typedAt(t, cmd, "\x04")
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(screen, "was not answered") {
		t.Errorf("exit code %d: %q", code, screen)
	}
}

func TestCtrlCEndsACallThatAsks(t *testing.T) {
	cmd := program(t, inquirer, "call", "inquirer")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // Ctrl-C goes to the owner of the terminal
	screen := typedAt(t, cmd, "\x03")
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d: %q", code, screen)
	}
}

func TestCtrlCEndsAQuestionForConsent(t *testing.T) {
	cmd := program(t, map[string]string{"toolpost.yaml": "sources: [{name: files, protocol: builtin}]"}, "connect", "cursor", "gemini")
	cmd.Env = append(cmd.Env, "HOME="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	screen := typedAt(t, cmd, "\x03")
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || strings.Contains(screen, "wrote") || strings.Contains(screen, "Gemini") {
		t.Errorf("exit code %d: %q", code, screen)
	}
}

func TestConsentIsAskedAtATerminal(t *testing.T) {
	for answer, word := range map[string]string{"y\n": "wrote", "YES\n": "wrote", "\n": "left as it is", "\x04": "left as it is"} {
		cmd := program(t, map[string]string{"toolpost.yaml": "sources: [{name: files, protocol: builtin}]"}, "connect", "cursor")
		cmd.Env = append(cmd.Env, "HOME="+t.TempDir())
		screen := typedAt(t, cmd, answer)
		if err := cmd.Wait(); err != nil || !strings.Contains(screen, word) {
			t.Errorf("%q: %v: %q", answer, err, screen)
		}
	}
}

var connected = map[string]string{"toolpost.yaml": `
connections: [{name: api, key: pasted, hosts: [api.example], env: KEY}]
sources: [{name: hi, protocol: command, tool: hi, command: [echo, hi, there], input: {type: object}, connections: [api]}]
`}

func TestKeyTypedAtATerminalIsHidden(t *testing.T) {
	for _, args := range [][]string{{"connections", "add", "api", "--key-stdin"}, {"connections", "add", "api"}} {
		cmd := program(t, connected, args...)
		screen := typedAt(t, cmd, "canary-0123456789\n")
		kit.OK(t, cmd.Wait())
		kit.Contains(t, screen, "paste the key for api", args)
		kit.Contains(t, screen, "connected", args)
		if strings.Contains(screen, "canary") {
			t.Errorf("%v: the key is on the screen: %q", args, screen)
		}
	}
}

func TestLinkIsAnsweredWithDone(t *testing.T) {
	for line, want := range map[string]string{"done": "accept", "": "accept", "what\nYes": "accept", "n": "decline"} {
		in, typed, err := os.Pipe()
		kit.OK(t, err)
		kit.OK(t, kit.Err(typed.WriteString(line+"\n")))
		typed.Close()
		p := newPrompter(in, newScreen(kit.Must(os.OpenFile(os.DevNull, os.O_WRONLY, 0))(t)))
		n := tool.Need{Key: "api", Kind: tool.NeedLink, Message: "m", Params: json.RawMessage(`{"url": "http://h"}`)}
		got := kit.Must(p.answer(t.Context(), "hi", &tool.Ask{Message: "m: open it", Needs: []tool.Need{n}}))(t)
		kit.Equal(t, string(got), `{"api":{"action":"`+want+`"}}`, line)
	}
}
