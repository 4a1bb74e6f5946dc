package mcpsuite

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// script runs one of the programs from npm, in the folder of the node, and returns its output.
func (h *house) script(t *testing.T, interpreter, path string, words ...string) []byte {
	t.Helper()
	program := kit.Must(filepath.Abs(filepath.Join(peers, path)))(t)
	var out, failed bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{orphanage, interpreter, program}, words...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = h.dir, &out, &failed
	cmd.Env = append(os.Environ(), "HOME="+h.dir)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s\n%s", path, words, err, out.String(), failed.String())
	}
	return out.Bytes()
}

// program returns the command that starts an MCP server on stdin and stdout, with the same tools in their own folder.
func (h *house) program(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, config.FileName)
	err := errors.Join(os.CopyFS(dir, os.DirFS("testdata")), os.Mkdir(filepath.Join(dir, "notes"), 0o700), os.Remove(path),
		os.WriteFile(path, []byte(h.text), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return []string{served.Build(t), "as", "mcp", "--config", path}
}

// The SDK for TypeScript checks every message against its schemas, and refuses those that do not match.
func TestTheOfficialClientsForTypeScript(t *testing.T) {
	interpreter := requirePeers(t)
	h := openHouse(t)
	stdio := h.program(t)
	for _, era := range []string{"modern", "legacy", "first"} {
		for over, words := range map[string][]string{"http": {h.url, token}, "stdio": stdio} {
			t.Run(era+" over "+over, func(t *testing.T) {
				var got map[string]any
				out := h.script(t, interpreter, "peer.mjs", append([]string{era, over}, words...)...)
				if err := json.Unmarshal(out, &got); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				want := expected(era, over)
				if got["tools"] == nil || got["tools"].(float64) < 30 {
					t.Errorf("%v tools are listed", got["tools"])
				}
				delete(got, "tools")
				for name, value := range got {
					kit.DeepEqual(t, value, want[name], name)
					delete(want, name)
				}
				if len(want) > 0 {
					t.Errorf("%v were not told", want)
				}
			})
		}
	}
}

func expected(era, over string) map[string]any {
	const skill = "Read the whole change. Say what is wrong first, then what could be simpler.\n"
	version, missing := "2025-11-25", -32602.0 // the SDK 2.x converts the legacy code to it
	switch era {
	case "modern":
		version = "2026-07-28"
	case "first":
		missing = -32002
	}
	want := map[string]any{
		"version": version, "schema": "addressDef", "simple": "This is a simple text response for testing.",
		"kinds": []any{"text", "image", "resource"}, "progress": []any{0.0, 50.0, 100.0},
		"failed":  []any{true, "This tool intentionally returns an error for testing"},
		"unknown": -32602.0, "invalid": true, "cancelled": "cancelled",
		"asked":   `User response: {"username": "ada", "email": "ada@example.org", "name": "Ada", "ok": true}`,
		"sampled": "LLM response: Paris", "several": `Paris Ada, [{"uri": "file:///work", "name": "work"}]`,
		"prompts": []any{
			"review", "test_input_required_result_prompt", "test_prompt_with_arguments", "test_prompt_with_embedded_resource",
			"test_prompt_with_image", "test_simple_prompt",
		},
		"skill":  skill,
		"prompt": "Prompt with arguments: arg1='a', arg2='b'", "picture": "Please look at the image above.|image",
		"resources": []any{"skill://review/SKILL.md", "test://static-binary", "test://static-text", "test://watched-resource"},
		"templates": []any{"test://template/{id}/data", "toolpost://assets/{sha256}", "toolpost://sessions/{session}"},
		"read": []any{
			`{"id":"7","templateTest":true,"data":"Data for ID: 7"}`, "image/png",
			skill,
		},
		"missing": missing, "link": []any{"large.bin", 1572864.0, 2097152.0}, "session": era,
	}
	if over == "http" {
		want["news"] = "tools"
	}
	return want
}

func TestTheOfficialInspectorListsAndCalls(t *testing.T) {
	interpreter := requirePeers(t)
	h := openHouse(t)
	stdio := h.program(t)
	stdio = append(stdio[:3:3], "--cwd", filepath.Dir(stdio[4])) // --config means something else to the inspector
	for over, server := range map[string][]string{
		"http": {h.url, "--transport", "http", "--header", "Authorization: Bearer " + token}, "stdio": stdio,
	} {
		t.Run(over, func(t *testing.T) {
			inspect := func(into any, words ...string) {
				t.Helper()
				const launcher = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
				all := slices.Concat([]string{"--cli"}, server, words)
				if out := h.script(t, interpreter, launcher, all...); json.Unmarshal(out, into) != nil {
					t.Fatalf("%q: %s", words, out)
				}
			}
			var list struct{ Tools []struct{ Name string } }
			inspect(&list, "--method", "tools/list")
			var names []string
			for _, one := range list.Tools {
				names = append(names, one.Name)
			}
			if !slices.Contains(names, "test_simple_text") || len(names) < 30 {
				t.Errorf("the inspector sees %q", names)
			}
			var answer struct {
				IsError bool
				Content []struct{ Text string }
			}
			inspect(&answer, "--method", "tools/call", "--tool-name", "test_x_mcp_header", "--tool-arg", "region=north")
			if answer.IsError || len(answer.Content) != 1 || !strings.Contains(answer.Content[0].Text, "north") {
				t.Errorf("%+v", answer)
			}
			var prompt struct{ Messages []json.RawMessage }
			inspect(&prompt, "--method", "prompts/get", "--prompt-name", "review")
			kit.Equal(t, len(prompt.Messages), 1, prompt.Messages)
		})
	}
}
