package node

import (
	"testing"

	"toolpost/engine/approval"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestEventsHaveNoWordsOfCommands(t *testing.T) {
	commands := [][]string{{"mysql", "-phunter2"}, {}}
	events := new(Node).approvalEvents(approval.Approval{ // without rules, too
		Tool: "execShell", Origin: approval.Origin{Caller: "ada"}, Touches: tool.Touches{Commands: commands, Writes: []string{"/data/-phunter2"}},
	})
	kit.MustEqual(t, len(events), 1)
	kit.Equal(t, events[0].Text, "has to be approved: execShell by ada, runs mysql. ")
	kit.DeepEqual(t, events[0].Data.(approval.Approval).Touches, tool.Touches{Commands: [][]string{{"mysql"}}})
	kit.Equal(t, commands[0][1], "-phunter2") // the approval itself is unchanged
	denied := approval.Approval{Tool: "writeFile", Origin: approval.Origin{Caller: "ada"}, State: "denied"}
	denied.By, denied.Reason = "bob", "no,\n\tnever"
	events = new(Node).approvalEvents(denied)
	kit.Equal(t, events[0].Text, "denied by bob: writeFile by ada. no, never")
}

func TestEventsMentionAndLinkNothingThatACallerNames(t *testing.T) {
	a := approval.Approval{
		Tool: "write`File", Origin: approval.Origin{Caller: "agent/~<!here>"},
		Touches: tool.Touches{Writes: []string{"/data/<@U1> [ok](evil.example).txt"}},
		Rules:   []tool.ConsentRule{{Reason: "ask <@U7>"}},
	}
	a.By, a.Reason = "@bob", "<https://evil.example|see>"
	events := new(Node).approvalEvents(a)
	kit.MustEqual(t, len(events), 2)
	what := "write'File by agent/~‹!here›, writes /data/‹＠U1› (ok)(evil.example).txt"
	kit.Equal(t, events[0].Text, " by ＠bob: "+what+". ‹https：//evil.example|see›")
	kit.Equal(t, events[1].Text, "has to be approved: "+what+". ask <@U7>")
	kit.DeepEqual(t, events[1].Data.(approval.Approval).Touches, a.Touches)
}

func TestEventsHaveNoSecretThatLooksLikeMarkup(t *testing.T) {
	n := &Node{redactor: new(secret.Redactor)}
	n.redactor.Add("KEY", "hunter@2[long]")
	a := approval.Approval{
		Tool: "writeFile", Origin: approval.Origin{Caller: "ada"}, State: approval.Denied,
		Touches: tool.Touches{Writes: []string{"/data/hunter@2[long]"}},
	}
	a.By, a.Reason = "bob", "it is hunter@2[long]"
	events := n.approvalEvents(a)
	what := "writeFile by ada, writes /data/(secret KEY). "
	kit.Equal(t, events[0].Text, "denied by bob: "+what+"it is (secret KEY)")
	kit.Equal(t, events[1].Text, "has to be approved: "+what)
}
