package node

import (
	"testing"

	"toolpost/engine/approval"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestEventsHaveNoWordsOfCommands(t *testing.T) {
	commands := [][]string{{"mysql", "-phunter2"}, {}}
	events := approvalEvents(approval.Approval{ // without rules, too
		Tool: "execShell", Caller: "ada", Touches: tool.Touches{Commands: commands, Writes: []string{"/data/-phunter2"}},
	})
	kit.MustEqual(t, len(events), 1)
	kit.Equal(t, events[0].Text, "has to be approved: execShell by ada, runs mysql. ")
	kit.DeepEqual(t, events[0].Data.(approval.Approval).Touches, tool.Touches{Commands: [][]string{{"mysql"}}})
	kit.Equal(t, commands[0][1], "-phunter2") // the approval itself is unchanged
	denied := approval.Approval{Tool: "writeFile", Caller: "ada", State: "denied"}
	denied.By, denied.Reason = "bob", "no,\n\tnever"
	events = approvalEvents(denied)
	kit.Equal(t, events[0].Text, "denied by bob: writeFile by ada. no, never")
}
