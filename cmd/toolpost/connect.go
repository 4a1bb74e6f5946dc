package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/builtin/operate"
	tokentools "toolpost/builtin/token"
	"toolpost/cmd/toolpost/connect"
	"toolpost/config"
	"toolpost/identity"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/nearest"
)

// A connecting is one run of `toolpost connect`.
type connecting struct {
	*app
	yes, undo, dry, http bool
	url, name, file      string
	source               string // the one source that the agent gets; "" means all

	cfg     *config.Config
	machine connect.Machine
}

func (a *app) connectCommand() *cobra.Command {
	q := &connecting{app: a}
	var known, ids []string
	machine, _ := connect.Here() // without a home, clients are listed without one
	for _, c := range connect.Clients() {
		if ids = append(ids, c.ID); machine.Env != nil {
			known = append(known, fmt.Sprintf("  %-15s %-16s %s", c.ID, c.Name, c.File(machine)))
		}
	}
	c := &cobra.Command{
		Use: "connect [AGENT ...] [flags]", Short: "Let the agents on this machine use these tools",
		Args: words(0, -1), DisableFlagsInUseLine: true,
		Long: "Adds this Toolpost to the MCP servers of the agents on this machine, or of the agents that you name. The\n" +
			"entry is a program that the agent starts (`toolpost as mcp` with this config) or, with --http, the address\n" +
			"of a server and a token for the agent. The command shows each change and asks first. Everything else in\n" +
			"the agent's file stays as it is, comments too, and the old file is kept beside it. With --source, the\n" +
			"entry offers one source under its own names, in place of an MCP server that the agent had before.\n\n" +
			"The agents, and the file of each:\n" + strings.Join(known, "\n"),
		Example: "  toolpost connect\n  toolpost connect claude-code --yes\n  toolpost connect cursor --undo\n" +
			"  toolpost connect cursor --source memory",
		ValidArgs: ids,
		RunE:      func(c *cobra.Command, args []string) error { return q.run(c.Context(), args) },
	}
	f := c.Flags()
	f.BoolVarP(&q.yes, "yes", "y", false, "write without asking")
	f.BoolVar(&q.dry, "dry-run", false, "only show what would be written")
	f.BoolVar(&q.undo, "undo", false, "remove the entry again")
	f.BoolVar(&q.http, "http", false, "let the agent call the running toolpost serve, with a token of its own")
	f.StringVar(&q.url, "url", "", "with --http: the URL of the server (default: the running server of the config, or else its HTTP door)")
	f.StringVar(&q.source, "source", "", "offer only this source, under its own names (see toolpost as mcp)")
	f.StringVar(&q.name, "name", "", "name of the entry in the agent's settings (default: toolpost, or the source)")
	f.StringVar(&q.file, "file", "", "settings file, such as a project's; for one AGENT only (default: the file above)")
	return a.withJSON("print the changes as JSON; without --yes, write nothing", c)
}

// The outcomes for a client.
const (
	didWrite     = "written"
	didRemove    = "removed"
	didNothing   = "unchanged"
	wouldWrite   = "would be written"
	wouldRemove  = "would be removed"
	notConnected = "not connected"
	didRefuse    = "declined"
	didFail      = "failed"
)

// A connection is the report on one client.
type connection struct {
	Client string `json:"client"`
	Name   string `json:"name"`
	File   string `json:"file"`
	Did    string `json:"did"`
	// Changes are the lines that it adds to the file and removes, with + and -; values of other settings are left out.
	Changes []string `json:"changes,omitempty"`
	Backup  string   `json:"backup,omitempty"`
	Error   string   `json:"error,omitempty"`
	First   string   `json:"first,omitempty"` // a step it needs before it works
	Then    string   `json:"then,omitempty"`
}

func (q *connecting) run(ctx context.Context, ids []string) (err error) {
	if err := q.check(ids); err != nil {
		return err
	}
	if q.machine, err = connect.Here(); err != nil {
		return err
	}
	clients, err := q.clients(ids)
	if err != nil {
		return err
	}
	all, failed := []connection{}, error(nil)
	for _, c := range clients {
		one, err := q.one(ctx, c)
		if err != nil {
			one.Did, one.Error = didFail, tool.AsError(err).Message
			failed = cmp.Or(failed, err)
			if !q.json {
				q.complain(err)
			}
		}
		if all = append(all, one); ctx.Err() != nil {
			break
		}
	}
	if err := q.conclude(map[string]any{"clients": all}, func() {}, false); err != nil {
		return err
	}
	err = q.conclusion(all)
	if failed != nil {
		return exit(exitCode(tool.AsError(failed)))
	}
	return err
}

// conclusion ends a run. A run that could not ask for consent has not done its job.
func (q *connecting) conclusion(all []connection) error {
	for _, one := range all {
		if !q.dry && (one.Did == wouldWrite || one.Did == wouldRemove) {
			if !q.json {
				fmt.Fprintln(q.err, "nothing was written: there is no terminal to ask at; --yes writes, --dry-run only shows")
			}
			return exitRefused
		}
	}
	return nil
}

func (q *connecting) check(ids []string) (err error) {
	q.name = cmp.Or(q.name, q.source, "toolpost")
	switch {
	case q.file != "" && len(ids) != 1:
		return tool.Errorf(tool.CodeInvalidInput, "--file is the file of one agent: name it, such as `toolpost connect "+
			"cursor --file .cursor/mcp.json`")
	case q.url != "" && !q.http:
		return tool.Errorf(tool.CodeInvalidInput, "--url goes with --http")
	case q.source != "" && q.http:
		return tool.Errorf(tool.CodeInvalidInput, "--source does not go with --http: a server offers all sources at its address")
	case strings.Trim(q.name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "":
		return tool.Errorf(tool.CodeInvalidInput, "--name %q: use letters, digits, _ and -", q.name)
	case q.undo: // undoes an earlier run, whatever the config says now
		q.cfg, _ = q.load()
		return nil
	}
	if q.cfg, err = q.load(); err != nil {
		return err
	}
	names := q.cfg.SourceNames()[1:] // without our own
	if q.source != "" && !slices.Contains(names, q.source) {
		return tool.Errorf(tool.CodeNotFound, "there is no source %q%s", q.source,
			nearest.Suggest(q.source, names, "; `toolpost sources` lists them"))
	}
	if q.cfg.Path == "" {
		return tool.Errorf(tool.CodeInvalidInput, "there is no config here for agents to use; `toolpost init` writes one, and "+
			"--config names another")
	}
	return nil
}

// clients returns the named clients, or all that are found.
func (q *connecting) clients(ids []string) (found []connect.Client, err error) {
	var known []string
	for _, c := range connect.Clients() {
		if known = append(known, c.ID); len(ids) == 0 && c.Found(q.machine) {
			found = append(found, c)
		}
	}
	for _, id := range ids {
		c, ok := connect.Find(id)
		if !ok {
			return nil, tool.Errorf(tool.CodeInvalidInput, "no known agent is named %q%s", id,
				nearest.Suggest(id, known, "; known are "+strings.Join(known, ", ")))
		}
		found = append(found, c)
	}
	if len(found) > 0 {
		return found, nil
	}
	s, err := q.program("NAME")
	if err != nil {
		return nil, err
	}
	return nil, tool.Errorf(tool.CodeNotFound, "no agent was found in %s; name one of %s, or tell yours to start this MCP "+
		"server:\n  %s %s", q.machine.Home, strings.Join(known, ", "), s.Command, strings.Join(s.Args, " "))
}

// program returns the entry for a client that starts this program.
func (q *connecting) program(caller string) (connect.Server, error) {
	path, err := connect.Program()
	if err != nil {
		return connect.Server{}, err
	}
	args := []string{"as", "mcp", "--caller", caller}
	if q.source != "" {
		args = append(args, q.source)
	}
	if q.cfg != nil {
		args = append(args, "--config", q.cfg.Path)
		if q.givenState() != "" { // the agent has neither our flags nor our environment
			args = append(args, "--state", q.cfg.StateDir())
		}
	}
	return connect.Server{Name: q.name, Command: path, Args: args}, nil
}

// one handles one client.
func (q *connecting) one(ctx context.Context, c connect.Client) (connection, error) {
	file := cmp.Or(q.file, c.File(q.machine))
	told := connection{Client: c.ID, Name: c.Name, File: file, Did: didNothing}
	ch, s, err := q.plan(ctx, c, file)
	if err != nil {
		return told, err
	}
	defer ch.Close()
	told.File = ch.File
	if ch.Nothing() {
		if q.undo {
			told.Did = notConnected
		}
		q.say("%s  %s: %s", q.out.bold(c.Name), ch.File, told.Did)
		return told, nil
	}
	told.Changes = ch.Diff()
	q.show(ch)
	ok, asked := q.yes, false
	if !q.yes && !q.dry && !q.json {
		what := map[bool]string{true: "remove it from ", false: "write "}[q.undo]
		if ok, asked, err = q.agreed(ctx, q.out, what+ch.File); err != nil {
			return told, err
		}
	}
	switch {
	case q.dry || !ok && !asked:
		told.Did = map[bool]string{true: wouldRemove, false: wouldWrite}[q.undo]
		return told, nil
	case !ok:
		told.Did = didRefuse
		q.say("left as it is")
		return told, nil
	}
	if err := q.apply(ctx, c, &ch, &s); err != nil {
		return told, err
	}
	q.done(ctx, &told, ch, s)
	return told, nil
}

// say prints a line for people.
func (q *connecting) say(format string, args ...any) {
	if !q.json {
		fmt.Fprintf(q.out, format+"\n", args...)
	}
}

func (q *connecting) done(ctx context.Context, told *connection, ch *connect.Change, s connect.Server) {
	if told.Did = didWrite; q.undo {
		if told.Did = didRemove; ch.Gone && q.file == "" {
			connect.Tidy(q.machine.Home, ch.File)
		}
		q.say("%s %s", q.out.green("removed it from"), ch.File)
		return
	}
	told.Then = ch.Client.Then
	if !ch.New {
		told.Backup = ch.Backup()
	}
	q.say("%s %s", q.out.green("wrote"), ch.File)
	if told.Backup != "" {
		q.say("  as it was before: %s", told.Backup)
	}
	if told.First = connect.Unready(ctx, s.URL, s.Token); told.First != "" {
		q.say("  first: %s", told.First)
	}
	q.say("  next: %s", told.Then)
}

// plan works out what to do. The client's token is issued only after consent; until then a placeholder is shown.
func (q *connecting) plan(ctx context.Context, c connect.Client, file string) (*connect.Change, connect.Server, error) {
	if q.undo {
		ch, err := connect.Disconnect(c, file, q.name)
		return ch, connect.Server{}, err
	}
	s, err := q.program(c.ID)
	if err == nil && q.http {
		s, err = q.address(ctx)
	}
	if err != nil {
		return nil, s, err
	}
	ch, err := connect.Connect(c, file, s)
	if err != nil || !q.http {
		return ch, s, err
	}
	if token := connect.TokenOf(ch.Entry); token != "" && connect.URLOf(ch.Entry) == s.URL {
		live, err := q.live(ctx, token)
		if err != nil || !live {
			return ch, s, err
		}
		ch.Close()
		s.Token = token
		ch, err = connect.Connect(c, file, s)
		return ch, s, err
	}
	return ch, s, nil
}

// unissued is the placeholder for a token that does not exist yet.
const unissued = "tp_(a new token)"

// address returns the entry for a client that calls a server.
func (q *connecting) address(ctx context.Context) (connect.Server, error) {
	at := q.url
	if at == "" {
		at = q.served(ctx)
	}
	if at == "" {
		var err error
		if at, err = node.MCPAddress(q.cfg); err != nil {
			return connect.Server{}, err
		}
	}
	u, err := url.Parse(at)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return connect.Server{}, tool.Errorf(tool.CodeInvalidInput, "--url %q is not the address of a server; such as "+
			"http://127.0.0.1:8700/mcp", at)
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return connect.Server{}, tool.Errorf(tool.CodeInvalidInput, "%s would carry the token in clear over the network; use "+
			"https, or an address of this machine", at)
	}
	if u.Path == "" || u.Path == "/" { // as `toolpost serve` prints it
		u.Path = "/mcp"
	}
	return connect.Server{Name: q.name, URL: u.String(), Token: unissued}, nil
}

// served returns the address of the running server of this config, whose port may be another than in the config. It returns
// "" if there is none, or the door mcp has an address of its own.
func (q *connecting) served(ctx context.Context) string {
	home, err := node.HTTPAddress(q.cfg)
	at, bad := node.MCPAddress(q.cfg)
	shares := err == nil && strings.HasPrefix(at, home+"/") || err != nil && bad != nil // both if the port is 0
	if !shares || q.locate(ctx) != nil || !q.server.found {
		return ""
	}
	shown, _ := ask[operate.Config](ctx, q.app, own{name: "showConfig", does: "see the address of the server"}, struct{}{})
	return shown.URL
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// live reports whether a token is still valid.
func (q *connecting) live(ctx context.Context, token string) (bool, error) {
	all, err := ask[tokentools.Listed](ctx, q.app, own{"token.list", "list tokens", store}, struct{}{})
	return slices.ContainsFunc(all.Tokens, func(t identity.Token) bool {
		return t.ID == identity.TokenID(token) && t.State == identity.Live
	}), err
}

// apply makes the agreed change. A token is issued for the entry and revoked with it.
func (q *connecting) apply(ctx context.Context, c connect.Client, ch **connect.Change, s *connect.Server) (err error) {
	old := connect.TokenOf((*ch).Entry)
	secret := s.Token != ""
	if s.Token == unissued {
		var id string
		if s.Token, id, err = q.issue(ctx, c); err != nil {
			return err
		}
		defer func() {
			if err != nil { // no client has the token
				_, also := ask[identity.Token](ctx, q.app, revokesTokens, tokentools.RevokeArgs{ID: id})
				err = errors.Join(err, also)
			}
		}()
		(*ch).Close()
		if *ch, err = connect.Connect(c, cmp.Or(q.file, c.File(q.machine)), *s); err != nil {
			return err
		}
	}
	if err := (*ch).Apply(secret); err != nil {
		return err
	}
	if old != "" && old != s.Token {
		q.revoke(ctx, old)
	}
	return nil
}

// issue issues the token of a client, for the agent of that name. If the config lists that caller, with or without agent/,
// its entry applies.
func (q *connecting) issue(ctx context.Context, c connect.Client) (token, id string, err error) {
	args := map[string]any{"caller": tool.AgentPrefix + c.ID, "ttl_ms": 0, "note": "toolpost connect, for " + c.Name}
	var listed identity.Options
	if err := q.cfg.Callers.Decode(&listed); err != nil {
		return "", "", err
	}
	if _, ok := listed.List[c.ID]; ok {
		args["caller"] = c.ID
	} else if _, ok := listed.List[tool.AgentPrefix+c.ID]; !ok {
		args["tools"] = []string{"*"}
	}
	t, err := ask[tokentools.Issued](ctx, q.app, issuesTokens, args)
	return t.Secret, t.ID, err
}

// revoke revokes the token of a removed entry. A token of another store is left alone.
func (q *connecting) revoke(ctx context.Context, token string) {
	id := identity.TokenID(token)
	if q.cfg == nil || q.cfg.Path == "" {
		fmt.Fprintf(q.err, "its token is still good: `toolpost token revoke %s`, where its config is\n", id)
		return
	}
	_, err := ask[identity.Token](ctx, q.app, revokesTokens, tokentools.RevokeArgs{ID: id})
	switch {
	case err == nil:
		q.say("  revoked its token %s", id)
	case tool.CodeOf(err) != tool.CodeConflict: // a conflict: it had ended before
		fmt.Fprintf(q.err, "its token %s was not revoked: %s\n", id, because(err))
	}
}

// show prints what would change.
func (q *connecting) show(ch *connect.Change) {
	if !q.json {
		fmt.Fprintf(q.out, "%s  %s\n", q.out.bold(ch.Client.Name), ch.File)
		q.out.diff("  ", ch.Diff())
	}
}
