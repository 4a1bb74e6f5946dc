package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"toolpost/engine/approval"
	"toolpost/engine/job"
	"toolpost/engine/notify"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// latest is how many approvals and jobs are looked at for news.
const latest = 200

func (n *Node) openNotify() (s setting, err error) {
	n.notify, err = notify.Open(n.cfg, notify.Env{
		Secret: n.Secret, Look: n.events, Changed: n.storage.Approvals.Changed, Log: n.o.Log, Faults: n.storage.Faults,
	})
	return setting{}, err
}

// events returns the latest approvals and failed jobs. They do not have what calls and files contain, nor the words of
// commands: chats keep messages, and words can be passwords.
func (n *Node) events(ctx context.Context) ([]notify.Event, error) {
	list, err := n.storage.Approvals.Latest(ctx, latest)
	var events []notify.Event
	for _, a := range list {
		events = append(events, n.approvalEvents(a)...)
	}
	if err != nil || n.storage.Jobs == nil {
		return n.withoutSecrets(events), err
	}
	doc, err := n.storage.Jobs.All(ctx, job.Failed, latest)
	var jobs struct {
		Jobs []job.Job `json:"jobs"`
	}
	if err == nil {
		err = strictjson.Unmarshal(doc, &jobs)
	}
	for _, j := range jobs.Jobs {
		events = append(events, notify.Event{
			ID: j.ID + ".failed", Type: "job.failed", Time: j.Ended, Data: j,
			Text: fmt.Sprintf("the job %s of %s has failed: %s", j.ID, n.plain(j.Caller), n.plain(j.Tool)),
		})
	}
	return n.withoutSecrets(events), err
}

// withoutSecrets redacts what is sent: the name of a file can have a secret in it.
func (n *Node) withoutSecrets(events []notify.Event) []notify.Event {
	if n.redactor.Idle() {
		return events
	}
	for i := range events {
		e := &events[i]
		data, err := strictjson.Marshal(e.Data)
		if err != nil {
			data = nil // it cannot be looked through
		}
		e.Text, e.Data = n.redactor.String(e.Text), n.redactor.JSON(data)
	}
	return events
}

// approvalEvents returns what has happened to an approval, the latest first.
func (n *Node) approvalEvents(a approval.Approval) (events []notify.Event) {
	a.Args, a.Changes = nil, nil
	if len(a.Touches.Commands) > 0 { // the paths are taken from the words of the commands, so they go as well
		a.Touches = tool.Touches{Commands: programs(a.Touches.Commands)}
	}
	what := fmt.Sprintf("%s by %s", a.Tool, a.Caller)
	for _, path := range a.Touches.Writes {
		what += ", writes " + path
	}
	for _, argv := range a.Touches.Commands {
		what += ", runs " + argv[0]
	}
	what = n.plain(what)
	add := func(event string, at time.Time, text string) {
		open := a.State == approval.Waiting
		events = append(events, notify.Event{ID: a.ID + "." + event, Type: "approval." + event, Time: at, Data: a, Open: open, Text: text})
	}
	if a.Ran != nil {
		add("ran", a.Used, fmt.Sprintf("it ran (%s): %s", a.Ran.Outcome, what))
	}
	if a.By != "" {
		add("decided", a.Decided, fmt.Sprintf("%s by %s: %s. %s", a.State, n.plain(a.By), what, oneLine(n.plain(a.Reason))))
	}
	reason := ""
	if len(a.Rules) > 0 { // a stored approval can have none
		reason = a.Rules[0].Reason
	}
	add("waiting", a.Asked, fmt.Sprintf("has to be approved: %s. %s", what, oneLine(reason)))
	return events
}

// plain replaces what chats read as mentions, links and code, in names and words that callers and tools choose. The data of an
// event has them as they are, and the reason of a rule is the config's own. Secrets go first: they may have such characters.
func (n *Node) plain(text string) string { return markup.Replace(n.redactor.String(text)) }

var markup = strings.NewReplacer("<", "‹", ">", "›", "`", "'", "[", "(", "]", ")", "@", "＠", "://", "：//", "www.", "www．")

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// programs returns commands without their arguments.
func programs(commands [][]string) (names [][]string) {
	for _, argv := range commands {
		if len(argv) > 0 {
			names = append(names, argv[:1])
		}
	}
	return names
}
