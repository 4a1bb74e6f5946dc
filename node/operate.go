package node

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"toolpost/builtin/operate"
	"toolpost/config"
	"toolpost/engine/audit"
	"toolpost/host/kernel"
	"toolpost/identity"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

var _ operate.Server = (*Node)(nil)

// ShowConfig implements operate.Server.
func (n *Node) ShowConfig(context.Context) (operate.Config, error) {
	n.mu.Lock()
	now := n.now
	n.mu.Unlock()
	shown := operate.Config{Path: now.cfg.Path, Taken: now.taken, Errors: []operate.Fault{}, Problems: []operate.Fault{}}
	for _, p := range n.mistakes(now.cfg) {
		f := n.fault(p.Err)
		f.About = p.About
		shown.Problems = append(shown.Problems, f)
	}
	if shown.Path == "" {
		return shown, nil
	}
	text, cfg, err := config.Look(shown.Path)
	if err == nil {
		_, err = n.understand(cfg)
	}
	switch {
	case err != nil:
		shown.Errors = append(shown.Errors, n.fault(err))
	default:
		shown.Restart = n.fixed(cfg)
	}
	shown.Differs = len(shown.Restart) > 0 || !bytes.Equal(text, now.cfg.Text())
	secret := func(name string) bool { return audit.SpeaksOfSecrets(name, n.storing.Audit.Redact) }
	shown.Text = config.Shown(text, secret) // secrets of the config are redacted as everywhere
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
	x, err := n.Explain(&tool.Call{Tool: a.Tool, Args: a.Args, Caller: p, Session: a.Session}, time.Now())
	told.Explanation, told.Anonymous = x, p.ID != "" && p.ID == n.Anonymous()[door].Name
	return told, err
}

// ListCallers implements operate.Server.
func (n *Node) ListCallers(ctx context.Context) (operate.Callers, error) {
	known := n.callers.Load()
	out := operate.Callers{Callers: []operate.Caller{}, Roles: []operate.Role{}, Issuers: known.Issuers()}
	for _, name := range slices.Sorted(maps.Keys(known.Roles())) {
		out.Roles = append(out.Roles, operate.Role{
			Name: name, All: known.Roles()[name] == nil, Tools: known.Roles()[name],
		})
	}
	operator := func(name, by string) {
		out.Callers = append(out.Callers, operate.Caller{
			Name: name, Kind: operate.KindOperator, Roles: []string{tool.OwnerRole}, All: true, By: []string{by},
		})
	}
	operator(identity.Local, "the user who runs this program")
	if known.HasOwner() {
		operator(identity.Owner, "the owner's token")
	}
	for _, one := range known.List() {
		out.Callers = append(out.Callers, operate.Caller{
			Name: one.Name, Kind: operate.KindListed, Roles: one.Roles, All: one.Tools == nil, Tools: one.Tools, By: one.By,
		})
	}
	caller := func(name, kind string) *operate.Caller {
		i := slices.IndexFunc(out.Callers, func(c operate.Caller) bool { return c.Name == name })
		if i < 0 {
			i = len(out.Callers)
			out.Callers = append(out.Callers, operate.Caller{Name: name, Kind: kind})
		}
		return &out.Callers[i]
	}
	for _, door := range slices.Sorted(maps.Keys(n.Anonymous())) {
		c := caller(n.Anonymous()[door].Name, operate.KindAnonymous)
		c.Doors = append(c.Doors, door)
	}
	if err := n.addTokens(ctx, caller); err != nil {
		return out, err
	}
	for i := range out.Callers {
		c := &out.Callers[i]
		c.Roles, c.By = append([]string{}, c.Roles...), append([]string{}, c.By...)
		c.Tokens = append([]identity.Token{}, c.Tokens...)
	}
	return out, nil
}

// addTokens adds the live tokens to their callers.
func (n *Node) addTokens(ctx context.Context, caller func(name, kind string) *operate.Caller) error {
	if n.store == nil {
		return nil
	}
	tokens, err := n.store.Tokens().List(ctx, 0)
	for _, t := range tokens {
		if t.State != identity.Live {
			continue
		}
		c := caller(t.Caller, operate.KindToken)
		c.Tokens = append(c.Tokens, t)
	}
	return err
}

// fullest is how many entries are listed for each limit of a quota.
const fullest = 5

// ShowUsage implements operate.Server.
func (n *Node) ShowUsage(ctx context.Context) (operate.Usage, error) {
	u := operate.Usage{Quotas: n.quotas.Usage(fullest), Queues: n.engine.Crowds()}
	if free, total, err := kernel.Disk(n.StateDir()); err == nil {
		u.Disk = &operate.Disk{Path: n.StateDir(), Free: int64(free), Total: int64(total)}
	}
	if n.store == nil {
		return u, nil
	}
	kind, _, _ := strings.Cut(n.storing.URL, ":")
	u.Store = &operate.Store{Kind: kind, Waiting: n.trail.Left()}
	var err error
	if u.Store.Bytes, err = n.store.Size(ctx); err == nil {
		u.Store.Calls, err = n.store.Audit().Head(ctx)
	}
	if err != nil { // an operator wants to know about a store that is away
		u.Store.Error = message(n.redactor.Error(err))
	}
	return u, ctx.Err()
}
