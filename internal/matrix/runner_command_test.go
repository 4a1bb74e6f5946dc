package matrix

import "fmt"

// commandRunner has programs that know nothing of any protocol. A timeout belongs to a source, so one of them is
// separate.
func commandRunner() *runner {
	const tools = `- name: plain
  protocol: command
  dir: %q
  walls: {write: [%[1]q]}
  tools:
  - {tool: echo, command: [cat], stdin: "{*}", output: json, input: %s}
  - {tool: fail, command: [sh, -c, 'printf %%s "$1" >&2; exit 3', sh, "{message}"], exits: [{code: 3, reason: NoTorch}]}
  - {tool: wait, command: [sleep, 600]}
  - {tool: report, command: [sh, -c, 'echo "1/2 half way" >&2'], progress: '(?P<done>\d+)/(?P<total>\d+) (?P<message>.+)'}
  - {tool: asset, command: [sh, -c, 'printf "a torch" >torch'], assets: [torch]}
  - {tool: large, command: [sh, -c, 'printf "{{\"text\":\""; head -c 1048576 /dev/zero | tr "\0" x; printf "\"}}"'], output: json}
  - {tool: danger, command: ["true"], tier: 3}
- {name: plain-slow, protocol: command, tool: hang, command: [sleep, 600], timeout: %s}
`
	return &runner{
		name: "command", about: "programs as they are",
		sources: func(h *house) string { return fmt.Sprintf(tools, h.assets, echoInput, hangFor) },
		where: func(tool string) string {
			if tool == "hang" {
				return "plain-slow"
			}
			return in("plain", "echo", "fail", "wait", "report", "asset", "large", "danger")(tool)
		},
		carries: carries{
			state:    {never, "a program writes its output and nothing beside it: it knows of no session"},
			choice:   {never, "a program writes its output and nothing beside it, and has no words for choices"},
			question: {never, "a program gets its arguments and its input once, and has no words for a question"},
		},
	}
}
