package node

import (
	"bytes"
	"cmp"
	"context"
	"strings"
	"time"

	"toolpost/builtin/operate"
	"toolpost/config"
	"toolpost/kernel"
	"toolpost/node/catalogue"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

var _ operate.Server = (*Node)(nil)

// ShowConfig implements operate.Server.
func (n *Node) ShowConfig(context.Context) (operate.Config, error) {
	now, taken := n.Current()
	shown := operate.Config{Path: now.Path, URL: n.ConsoleURL(), Taken: taken, Errors: []operate.Fault{}, Problems: []operate.Fault{}}
	for _, p := range n.mistakes(now) {
		f := n.fault(p.Err)
		f.About = p.About
		shown.Problems = append(shown.Problems, f)
	}
	if shown.Path == "" {
		return shown, nil
	}
	text, cfg, err := config.Look(shown.Path)
	var read catalogue.Settings
	if err == nil {
		read, err = n.readSettings(cfg)
	}
	if err != nil {
		shown.Errors = append(shown.Errors, n.fault(err))
	} else {
		shown.Restart = read.Restart
	}
	shown.Differs = len(shown.Restart) > 0 || !bytes.Equal(text, now.Text())
	shown.Text = config.Shown(text, n.storage.SpeaksOfSecrets) // secrets of the config are redacted as everywhere
	return shown, nil
}

// fault converts an error of a config, with its place. The message contains neither the place nor the line itself, which may
// contain a secret.
func (n *Node) fault(err error) operate.Fault {
	e := tool.AsError(n.redactor.Error(err))
	var at struct {
		File   string `json:"file"`
		Line   int    `json:"line"`
		Column int    `json:"column"`
	}
	f := operate.Fault{Message: e.Message}
	if len(e.Details) > 0 && strictjson.Unmarshal(e.Details, &at) == nil && at.Line > 0 {
		f.Line, f.Column = at.Line, at.Column
		f.Message, _, _ = strings.Cut(f.Message, "\n")
		if _, rest, ok := strings.Cut(f.Message, ": "); ok && strings.HasPrefix(f.Message, at.File+":") {
			f.Message = rest
		}
	}
	return f
}

// ExplainPolicy implements operate.Server.
func (n *Node) ExplainPolicy(_ context.Context, p tool.Principal, a operate.ExplainArgs) (operate.Explanation, error) {
	door := cmp.Or(a.Door, p.Door)
	if err := n.CheckDoor(door); err != nil {
		return operate.Explanation{}, err
	}
	told := operate.Explanation{}
	if p.Door = door; a.Caller != "" {
		p, told.Unlisted = n.Caller(a.Caller, door), !n.Knows(a.Caller)
	}
	call := tool.Call{Tool: a.Tool, Args: a.Args, Caller: p, Session: a.Session}
	x, err := n.Explain(&call, time.Now())
	if x.Ask != nil {
		call.Spec, _ = n.Spec(a.Tool)
		told.Approved = n.storage.Approvals.Stands(call, x.Ask.Asked())
	}
	told.Explanation, told.Anonymous = x, p.ID != "" && p.ID == n.Anonymous()[door].Name
	return told, err
}

// fullest is how many entries are listed for each limit of a quota.
const fullest = 5

// ShowUsage implements operate.Server.
func (n *Node) ShowUsage(ctx context.Context) (operate.Usage, error) {
	u := operate.Usage{Quotas: n.quotas.Usage(fullest), Queues: n.engine.Crowds()}
	if free, total, err := kernel.Disk(n.StateDir()); err == nil {
		u.Disk = &operate.Disk{Path: n.StateDir(), Free: int64(free), Total: int64(total)}
	}
	u.Store = n.storage.Usage(ctx)
	return u, ctx.Err()
}
