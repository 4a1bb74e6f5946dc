package mcpservers

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"toolpost/internal/kit"
	"toolpost/internal/served"
)

var update = flag.Bool("update", false, "try the servers, and write their table in docs/protocols/mcp-servers.md")

const (
	page = "../../docs/protocols/mcp-servers.md"
	// node22 comes with the peers of package mcp; without it, the Node on PATH runs the servers.
	node22 = "../../protocol/mcp/testdata/js/node_modules/.bin"
	// patience is how long a server may take until it lists its tools.
	patience = 2 * time.Minute
	least    = 27
)

// A server is a package from npm. In its arguments and variables $DIR is its own folder, which it may change if write is
// set, and which it gets as a root if roots is set.
type server struct {
	name, version string
	args, env     []string
	write, roots  bool
	calls         []call // whose answers must be the same directly and through us; arguments that do not fit are refused by us
	needs         string
	why           string // why it does not start here
}

// A call is one of a tool of a server.
type call struct {
	tool string
	args map[string]any
}

func servers() []server {
	const key = "dummy-key-0123456789abcdef"
	const official = "@modelcontextprotocol/server-"
	return []server{
		{name: official + "everything", version: "2026.8.31", roots: true, needs: "a folder: `roots`", calls: []call{
			{"echo", map[string]any{"message": "hi"}}, {"get-sum", map[string]any{"a": 1, "b": 2}}, {"get-tiny-image", nil},
			{"get-resource-links", map[string]any{"count": 2}}, {"get-structured-content", map[string]any{"location": "Chicago"}},
		}},
		{name: official + "filesystem", version: "2026.8.31", args: []string{"$DIR"}, write: true, needs: "a folder: `--write`", calls: []call{
			{"list_allowed_directories", nil}, {"write_file", map[string]any{"path": "$DIR/a.txt", "content": "a\n"}},
			{"read_text_file", map[string]any{"path": "$DIR/a.txt"}}, {"read_text_file", map[string]any{"path": "$DIR/nowhere"}},
			{"list_directory", map[string]any{"path": "$DIR"}},
		}},
		{name: official + "memory", version: "2026.8.31", env: []string{"MEMORY_FILE_PATH=$DIR/graph.jsonl"}, write: true,
			needs: "a file: `MEMORY_FILE_PATH`, `--write`", calls: []call{{"read_graph", nil}, {"search_nodes", map[string]any{"query": "a"}}}},
		{name: official + "sequential-thinking", version: "2026.8.31", calls: []call{
			{"sequentialthinking", map[string]any{"thought": "a", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1}},
		}},
		{name: official + "github", version: "2025.4.8", env: []string{"GITHUB_PERSONAL_ACCESS_TOKEN=" + key}, needs: "a token"},
		{name: official + "gitlab", version: "2025.4.25", env: []string{"GITLAB_PERSONAL_ACCESS_TOKEN=" + key}, needs: "a token"},
		{name: official + "slack", version: "2025.4.25", env: []string{"SLACK_BOT_TOKEN=" + key, "SLACK_TEAM_ID=T0"}, needs: "a token"},
		{name: official + "postgres", version: "0.6.2", args: []string{"postgresql://127.0.0.1:1/db"}, needs: "a database, from the first call on"},
		{name: official + "puppeteer", version: "2025.5.12", needs: "a browser, from the first call on"},
		{name: official + "brave-search", version: "0.6.2", env: []string{"BRAVE_API_KEY=" + key}, needs: "a key"},
		{name: official + "google-maps", version: "0.6.2", env: []string{"GOOGLE_MAPS_API_KEY=" + key}, needs: "a key"},
		{name: official + "redis", version: "2025.4.25", args: []string{"redis://127.0.0.1:1"}, needs: "a database",
			why: "does not start without its database"},
		{name: official + "gdrive", version: "2025.1.14", needs: "a login in a browser",
			why: "does not start without the file that its login leaves"},
		{name: official + "pdf", version: "2.0.4", args: []string{"--stdio"}},
		{name: "@playwright/mcp", version: "0.0.83", needs: "a browser, from the first call on"},
		{name: "chrome-devtools-mcp", version: "1.11.0", needs: "a browser, from the first call on"},
		{name: "mongodb-mcp-server", version: "3.0.4", needs: "a database, from the first call on"},
		{name: "@notionhq/notion-mcp-server", version: "2.5.2", env: []string{"NOTION_TOKEN=ntn_" + key}, needs: "a token"},
		{name: "@supabase/mcp-server-supabase", version: "0.13.0", env: []string{"SUPABASE_ACCESS_TOKEN=sbp_" + key}, needs: "a token, the network",
			why: "asks its service before it lists: `--network api.supabase.com`"},
		{name: "@sentry/mcp-server", version: "0.39.0", env: []string{"SENTRY_ACCESS_TOKEN=" + key}, needs: "a token"},
		{name: "@stripe/mcp", version: "0.3.3", args: []string{"--api-key=rk_test_" + key}, needs: "a key, the network",
			why: "passes everything on to its service: `--network mcp.stripe.com`"},
		{name: "firecrawl-mcp", version: "3.26.0", env: []string{"FIRECRAWL_API_KEY=fc-" + key}, needs: "a key"},
		{name: "tavily-mcp", version: "0.2.22", env: []string{"TAVILY_API_KEY=tvly-" + key}, needs: "a key"},
		{name: "exa-mcp-server", version: "3.4.1", env: []string{"EXA_API_KEY=" + key}, needs: "a key"},
		{name: "@upstash/context7-mcp", version: "4.1.1", needs: "the network, from the first call on"},
		{name: "figma-developer-mcp", version: "0.13.2", args: []string{"--stdio", "--figma-api-key=" + key}, needs: "a key"},
		{name: "@azure/mcp", version: "2.0.5", args: []string{"server", "start"}, needs: "a login, from the first call on"},
		{name: "@heroku/mcp-server", version: "1.2.8", env: []string{"HEROKU_API_KEY=" + key}, needs: "a key, the program `heroku`",
			why: "looks for a file of the SDK that the version which npm finds does not have"},
		{name: "@elastic/mcp-server-elasticsearch", version: "0.3.1", env: []string{"ES_URL=http://127.0.0.1:1", "ES_API_KEY=" + key},
			needs: "a key, a database from the first call on",
			why:   "writes lines to stdout that are no messages, which the client of go-sdk does not take"},
		{name: "@browserbasehq/mcp-server-browserbase", version: "2.4.3", env: []string{"BROWSERBASE_API_KEY=" + key,
			"BROWSERBASE_PROJECT_ID=p", "GEMINI_API_KEY=" + key}, needs: "keys"},
		{name: "@hubspot/mcp-server", version: "0.4.0", env: []string{"PRIVATE_APP_ACCESS_TOKEN=pat-" + key}, needs: "a token"},
		{name: "@wonderwhy-er/desktop-commander", version: "0.2.52",
			why: "one of its parts asks for a version that npm did not find"},
		{name: "mcp-server-kubernetes", version: "4.1.7", needs: "a cluster, from the first call on"},
		{name: "@antv/mcp-server-chart", version: "0.9.10"},
	}
}

func TestServers(t *testing.T) {
	if !*update {
		t.Skip("it installs hundreds of megabytes from npm; `make servers` runs it")
	}
	if dir, err := filepath.Abs(node22); err == nil {
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	}
	bin, cache := served.Build(t), t.TempDir()
	var mu sync.Mutex
	rows := readRows(t)
	t.Run("each", func(t *testing.T) {
		for _, s := range servers() {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				row := s.try(t, bin, cache)
				mu.Lock()
				defer mu.Unlock()
				rows[s.name] = row
			})
		}
	})
	writeRows(t, rows)
	if n := started(rows); n < least {
		t.Errorf("%d servers list their tools; at least %d have to", n, least)
	}
}

// A listing is a client's view of a server.
type listing struct {
	tools map[string]*sdk.Tool
	more  map[string]any // what it has beside tools, and the answers to the calls
	err   string
}

// try installs a server, lists its tools directly and through us, and returns its row.
func (s server) try(t *testing.T, bin, cache string) string {
	t.Helper()
	dir := t.TempDir()
	own := filepath.Join(dir, "own")
	config := filepath.Join(dir, "toolpost.yaml")
	kit.OK(t, os.Mkdir(own, 0o700))
	kit.OK(t, os.WriteFile(config, []byte("doors: {mcp: {search_above: 0}}\n"), 0o600))
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LANG=C.UTF-8"}
	words := []string{"mcp", "add", "--name", "it", "--no-try", "--json"}
	if s.write {
		words = append(words, "--write", own)
	}
	for _, one := range s.env {
		words = append(words, "--env", strings.ReplaceAll(one, "$DIR", own))
		env = append(env, strings.ReplaceAll(one, "$DIR", own))
	}
	words = append(words, "--", "npx", "-y", s.name+"@"+s.version)
	for _, one := range s.args {
		words = append(words, strings.ReplaceAll(one, "$DIR", own))
	}
	var added struct {
		Source struct {
			Command []string
			Dir     string
		}
	}
	npm := append(os.Environ(), "npm_config_cache="+cache)
	if out, err := command(t, dir, npm, bin, words...).Output(); err != nil || json.Unmarshal(out, &added) != nil {
		t.Logf("it is not installed: %v: %s", err, out)
		return s.row(t, listing{err: string(out)}, listing{})
	}
	if s.roots {
		text, err := os.ReadFile(config)
		if err == nil {
			err = os.WriteFile(config, bytes.Replace(text, []byte("protocol: mcp\n"), []byte("protocol: mcp\n    roots: [./own]\n"), 1), 0o600)
		}
		kit.OK(t, err)
	}
	at := filepath.Join(dir, added.Source.Dir)
	direct := s.list(t, own, command(t, at, env, added.Source.Command[0], added.Source.Command[1:]...), 1, patience)
	limit := patience
	if len(direct.tools) == 0 {
		limit /= 10
	}
	through := s.list(t, own, command(t, dir, env[:3], bin, "as", "mcp", "--config", config), max(1, len(direct.tools)), limit)
	if len(through.tools) == 0 {
		out, _ := command(t, dir, env[:3], bin, "mcp", "list").CombinedOutput()
		through.err = string(out)
	}
	if len(direct.tools) > 0 {
		alone := s.list(t, own, command(t, dir, env[:3], bin, "as", "mcp", "it", "--config", config), len(direct.tools), limit)
		if diff := cmp.Diff(direct.more, alone.more); diff != "" {
			t.Errorf("in place of the server (+) we say something else: %s\n%s", diff, alone.err)
		}
	}
	t.Logf("%d tools directly %s\n%d tools through us %s", len(direct.tools), direct.err, len(through.tools), through.err)
	return s.row(t, direct, through)
}

func command(t *testing.T, dir string, env []string, program string, words ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, words...)
	cmd.Dir, cmd.Env = dir, env
	return cmd
}

// list lists the tools of a server, once it has as many as expected and no more arrive, and what else it has.
func (s server) list(t *testing.T, own string, cmd *exec.Cmd, expected int, limit time.Duration) (l listing) {
	t.Helper()
	var said bytes.Buffer
	cmd.Stderr = &said
	client := sdk.NewClient(&sdk.Implementation{Name: "table", Version: "1"}, &sdk.ClientOptions{
		//nolint:staticcheck // what is deprecated is in the field, and asked for
		CreateMessageHandler: func(context.Context, *sdk.CreateMessageRequest) (*sdk.CreateMessageResult, error) {
			return nil, context.Canceled
		},
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return &sdk.ElicitResult{Action: "cancel"}, nil
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	session, err := client.Connect(ctx, &sdk.CommandTransport{Command: cmd}, &sdk.ClientSessionOptions{ProtocolVersion: "2025-11-25"}) // theirs
	if err != nil {
		return listing{err: fmt.Sprintf("%v\n%s", err, said.String())}
	}
	defer session.Close()
	for before := -1; ; time.Sleep(time.Second) {
		now := map[string]*sdk.Tool{}
		for one, err := range session.Tools(ctx, nil) {
			if err != nil {
				l.err = fmt.Sprintf("%v\n%s", err, said.String())
				return l
			}
			now[one.Name] = one
		}
		if l.tools = now; len(now) == before && len(now) >= expected {
			l.more = s.beside(ctx, own, session)
			return l
		}
		before = len(now)
	}
}

// beside returns what a server says about itself, what it has beside tools, and its answers to the calls.
func (s server) beside(ctx context.Context, own string, session *sdk.ClientSession) map[string]any {
	self := session.InitializeResult()
	all := map[string]any{"instructions": self.Instructions, "name": self.ServerInfo.Name, "version": self.ServerInfo.Version}
	keep := func(key string, value any, err error) {
		text, _ := json.Marshal(value) //nolint:errchkjson // it was JSON
		all[key] = strings.ReplaceAll(string(text), own, "$DIR")
		if err != nil {
			all[key] = "failed"
		}
	}
	for one, err := range session.Prompts(ctx, nil) {
		if err != nil {
			break
		}
		keep("prompt "+one.Name, one, nil)
	}
	for one, err := range session.Resources(ctx, nil) {
		if err != nil {
			break
		}
		keep("resource "+one.URI, one, nil)
	}
	for one, err := range session.ResourceTemplates(ctx, nil) {
		if err != nil {
			break
		}
		keep("template "+one.URITemplate, one, nil)
	}
	for i, c := range s.calls {
		args := map[string]any{}
		for name, value := range c.args {
			if text, ok := value.(string); ok {
				value = strings.ReplaceAll(text, "$DIR", own)
			}
			args[name] = value
		}
		res, err := session.CallTool(ctx, &sdk.CallToolParams{Name: c.tool, Arguments: args})
		if res != nil {
			res.Meta = nil // why it failed, for programs
		}
		keep(fmt.Sprintf("%d %s", i, c.tool), res, err)
	}
	return all
}

// row returns the server's line of the table. Everything it lists directly must be listed through us.
func (s server) row(t *testing.T, direct, through listing) string {
	t.Helper()
	var more []string
	for name := range through.tools {
		if direct.tools[name] == nil {
			more = append(more, "`"+name+"`")
		}
	}
	remark := s.why
	if len(more) > 0 && remark == "" {
		remark = "also lists " + strings.Join(more, ", ") + ", which needs a client that can do more"
	}
	for name, want := range direct.tools {
		got := through.tools[name]
		if in, ok := want.InputSchema.(map[string]any); ok && in["type"] == nil {
			in["type"] = "object" // the protocol requires it, and we add it
		}
		if got == nil {
			t.Errorf("%s is not listed through us", name)
			continue
		}
		for what, pair := range map[string][2]any{
			"title": {want.Title, got.Title}, "description": {want.Description, got.Description},
			"inputSchema": {want.InputSchema, got.InputSchema}, "outputSchema": {want.OutputSchema, got.OutputSchema},
		} {
			kit.DeepEqual(t, pair[0], pair[1], "%s has another %s through us", name, what)
		}
	}
	if len(direct.tools)+len(through.tools) == 0 && s.why == "" {
		t.Errorf("it does not start, and nothing says why: %s", direct.err)
	}
	return fmt.Sprintf("| `%s` | %s | %s | %d | %d | %s | %s |", s.name, s.version, s.needs, len(direct.tools), len(through.tools),
		remark, time.Now().UTC().Format(time.DateOnly))
}

const (
	head = "| server | version | needs | tools, directly | tools, through us | remark | tried |\n|---|---|---|---|---|---|---|\n"
	tail = "\n<!-- end of the table -->\n"
)

// readRows returns the rows of the page, by server: those not tried this time stay.
func readRows(t *testing.T) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for _, line := range strings.Split(table(t), "\n") {
		if fields := strings.Split(line, "|"); len(fields) > 2 {
			rows[strings.Trim(fields[1], " `")] = line
		}
	}
	return rows
}

func table(t *testing.T) string {
	t.Helper()
	text := kit.Must(os.ReadFile(page))(t)
	_, rest, _ := strings.Cut(string(text), head)
	rows, _, ok := strings.Cut(rest, tail)
	if !ok {
		t.Fatal("the page has no table")
	}
	return rows
}

func writeRows(t *testing.T, rows map[string]string) {
	t.Helper()
	var lines []string
	for _, s := range servers() {
		if rows[s.name] != "" {
			lines = append(lines, rows[s.name])
		}
	}
	text, err := os.ReadFile(page)
	if err == nil {
		all := strings.Replace(string(text), head+table(t)+tail, head+strings.Join(lines, "\n")+tail, 1)
		err = os.WriteFile(page, []byte(all), 0o644)
	}
	kit.OK(t, err)
}

// started counts the servers that list all their tools through us.
func started(rows map[string]string) (n int) {
	for _, row := range rows {
		var direct, through int
		if f := strings.Split(row, "|"); len(f) > 5 {
			_, _ = fmt.Sscan(f[4]+f[5], &direct, &through)
		}
		if through > 0 && through >= direct {
			n++
		}
	}
	return n
}

// The page has a row for each server at its version, and enough of them start.
func TestTheTableIsWhole(t *testing.T) {
	rows := readRows(t)
	for _, s := range servers() {
		if !strings.HasPrefix(rows[s.name], fmt.Sprintf("| `%s` | %s |", s.name, s.version)) {
			t.Errorf("the table has no row for %s %s; run make servers", s.name, s.version)
		}
	}
	if n := started(rows); n < least || len(rows) != len(servers()) {
		t.Errorf("%d of %d servers start", n, len(rows))
	}
}
