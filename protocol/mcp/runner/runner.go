// Package runner is our client of other MCP servers, of both eras. A server is a program that we start (program.go), or is
// reached over HTTP (http.go); a call does not depend on which.
package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/sandbox"
	"toolpost/host/secret"
	"toolpost/host/spawn"
	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// SourceOptions are the fields of a source with protocol mcp: a program to start, or the url of a server.
type SourceOptions struct {
	Command []string `yaml:"command" kind:"path" doc:"program that speaks MCP on stdin and stdout, with its arguments"`

	URL     string            `yaml:"url" doc:"URL of an MCP server, such as https://mcp.example.com/mcp"`
	Headers map[string]string `yaml:"headers" doc:"headers of every request to url; \u0024{secret:NAME} stands for the value of a secret"`
	OAuth   OAuth             `yaml:"oauth" doc:"our OAuth client at the server's authorization server, for 'toolpost mcp login' or for tokens without a person"`

	spawn.Options // of a program; a server at a url uses only the timeout

	Era         string       `yaml:"era" schema:"enum=modern|legacy" doc:"modern: 2026-07-28; legacy: 2025-11-25 and earlier; default: found out by asking the server"`
	Roots       []string     `yaml:"roots" kind:"path" doc:"folders to report when the server asks where to work; default: those that its walls name; without any, modern servers get the caller's answer, legacy servers none"`
	LogLevel    string       `yaml:"log_level" schema:"enum=debug|info|notice|warning|error|critical|alert|emergency" doc:"least severe messages to take from the server; default: info, and less severe ones while a client that wants them calls"`
	Concurrency int          `yaml:"concurrency" doc:"calls that the server gets at a time; default: unlimited"`
	MaxMessage  int          `yaml:"max_message" kind:"bytes" schema:"default=16777216" doc:"bytes of one message"`
	Effects     tool.Effects `yaml:"effects" doc:"what the tools do to the world; what the server says can only add to it; default: everything"`
	TrustHints  bool         `yaml:"trust_hints" doc:"believe the server's hints about what its tools do, even if they make a tool look harmless"`
	Tier        *int         `yaml:"tier" doc:"0 (safe) to 3 (dangerous); default: from the effects, and 1 if nothing is known of them"`

	StartTimeout config.Duration `yaml:"start_timeout" schema:"default=30s" doc:"how long the server may take to introduce itself"`
	Grace        config.Duration `yaml:"grace" schema:"default=2s" doc:"a program that left a call unanswered and then stays silent for this long is replaced"`
	Idle         config.Duration `yaml:"idle" schema:"default=30m" doc:"a program without calls for this long is stopped; the next call starts it again; -1s: never"`
	AskTimeout   config.Duration `yaml:"ask_timeout" schema:"default=10m" doc:"how long a question from the server waits for its answer"`
}

// The values of Era.
const (
	eraModern = "modern"
	eraLegacy = "legacy"
)

func (o *SourceOptions) check() error {
	switch {
	case (len(o.Command) == 0 && o.Container.Image == "") == (o.URL == ""):
		return tool.Errorf(tool.CodeInvalidInput,
			"an mcp source needs `command`, a program to start, or `url`, a server; not both")
	case o.Era != "" && o.Era != eraModern && o.Era != eraLegacy:
		return tool.Errorf(tool.CodeInvalidInput, "era must be %s or %s, not %q", eraModern, eraLegacy, o.Era)
	case tool.CheckTier(o.Tier) != nil:
		return tool.CheckTier(o.Tier)
	case o.Concurrency < 0 || o.MaxMessage < 0:
		return tool.Errorf(tool.CodeInvalidInput, "concurrency and max_message cannot be negative")
	case o.LogLevel != "" && !slices.Contains(mcp.Levels(), o.LogLevel):
		return tool.Errorf(tool.CodeInvalidInput,
			"log_level must be one of %s, not %q", strings.Join(mcp.Levels(), ", "), o.LogLevel)
	case o.URL == "" && len(o.Headers) > 0:
		return tool.Errorf(tool.CodeInvalidInput,
			"headers are for a server at a url; a program gets its secrets with `secrets`")
	}
	if err := o.OAuth.check(); err != nil {
		return err
	}
	if o.URL != "" {
		return o.checkURL()
	}
	return o.Options.Check()
}

func (o *SourceOptions) checkURL() error {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return tool.Errorf(tool.CodeInvalidInput,
			"%s is not the address of a server: write it like https://mcp.example.com/mcp", o.shown())
	}
	if u.User != nil || u.Fragment != "" {
		return tool.Errorf(tool.CodeInvalidInput,
			"the url of %s has a user or a fragment; put credentials into headers", o.shown())
	}
	if o.Dir != "" || len(o.Env) > 0 || len(o.PassEnv) > 0 || len(o.Secrets) > 0 || len(o.SecretFiles) > 0 {
		return tool.Errorf(tool.CodeInvalidInput,
			"dir, env, pass_env, secrets and secret_files are for a program that is started here; "+
				"a server at a url gets headers")
	}
	if o.OAuth.Grant != "" && o.OAuth.IDP.Connection == "" && slices.ContainsFunc(slices.Collect(maps.Keys(o.Headers)), isAuthorization) {
		return tool.Errorf(tool.CodeInvalidInput, "the source has both a header Authorization and oauth.grant; leave one out")
	}
	for name := range o.Headers {
		if !httpguts.ValidHeaderFieldName(name) || slices.Contains(ownHeaders(), http.CanonicalHeaderKey(name)) {
			return tool.Errorf(tool.CodeInvalidInput, "%q cannot be the name of a header here", name)
		}
	}
	return nil
}

func isAuthorization(name string) bool { return http.CanonicalHeaderKey(name) == "Authorization" }

// shown returns the address for messages: without the parts that may hold a secret.
func (o *SourceOptions) shown() string {
	u, err := url.Parse(o.URL)
	if err != nil {
		return "the server"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

func (o *SourceOptions) setDefaults() {
	o.StartTimeout = cmp.Or(o.StartTimeout, config.Duration(30*time.Second))
	o.Grace = cmp.Or(o.Grace, config.Duration(2*time.Second))
	o.Idle = cmp.Or(o.Idle, config.Duration(30*time.Minute))
	o.AskTimeout = cmp.Or(o.AskTimeout, config.Duration(10*time.Minute))
	o.MaxMessage = cmp.Or(o.MaxMessage, 16<<20)
}

func sourceOptions(src config.Source) (*SourceOptions, error) {
	o := &SourceOptions{Options: spawn.Of(src)}
	if err := src.Decode(o); err != nil {
		return nil, err
	}
	o.setDefaults()
	return o, o.check()
}

var secretInText = regex.Lazy(`\$\{secret:([A-Za-z_][A-Za-z0-9_]*)\}`)

// secretOf returns the value of a secret; there may be none at all.
func secretOf(secrets secret.Source, name string) (string, error) {
	if secrets == nil {
		secrets = (*secret.Vault)(nil)
	}
	return secrets.Secret(name)
}

// headers returns those of the config, with the values of secrets filled in.
func (o *SourceOptions) headers(secrets secret.Source) (http.Header, error) {
	h := http.Header{}
	for name, text := range o.Headers {
		var missing error
		value := secretInText().ReplaceAllStringFunc(text, func(ref string) string {
			value, err := secretOf(secrets, secretInText().FindStringSubmatch(ref)[1])
			if err != nil {
				missing = err
			}
			return value
		})
		switch {
		case missing != nil:
			return nil, missing
		case strings.Contains(value, "${"):
			return nil, tool.Errorf(tool.CodeInvalidInput,
				"the header %s has a ${...} that is not understood; write ${secret:NAME}", name)
		case !httpguts.ValidHeaderFieldValue(value):
			return nil, tool.Errorf(tool.CodeInvalidInput,
				"the value of the header %s has characters that a header cannot have", name)
		}
		h.Set(name, value)
	}
	return h, nil
}

// A Runner calls the tools of one MCP server.
type Runner struct {
	o        *SourceOptions
	log      *slog.Logger
	upstream upstream
	walls    func(*tool.Spec) // adds a program's walls to a spec; nil for a server at a url

	tool.Changes             // of the server's tools
	stale        atomic.Bool // the tools may have changed since they were listed

	life      context.Context // ends with the runner
	end       context.CancelFunc
	running   sync.WaitGroup
	questions questions // of the server, that wait for an answer
	serverLog limitedLog
	levels    levels
	updates   updates                    // of resources
	server    atomic.Pointer[serverInfo] // of the server whose tools were listed last, or nil

	listing sync.Mutex // one at a time
	mu      sync.Mutex
	tools   map[string]*upstreamTool // nil until listed
	specs   []*tool.Spec
}

var (
	_ tool.Runner   = (*Runner)(nil)
	_ tool.Source   = (*Runner)(nil)
	_ tool.Changing = (*Runner)(nil)
	_ tool.Follower = (*Runner)(nil)
)

// Open returns the runner of a configured source. It starts nothing and sends nothing until the tools are listed.
func Open(_ context.Context, src config.Source, log *slog.Logger) (tool.Runner, error) {
	o, err := sourceOptions(src)
	if err != nil {
		return nil, err
	}
	r := &Runner{o: o, log: log, levels: levels{setting: make(chan struct{}, 1)}}
	r.questions.timeout = time.Duration(o.AskTimeout)
	r.stale.Store(true)
	if o.Roots == nil && o.Container.Image == "" { // a server elsewhere has no walls
		o.Roots = slices.Concat(o.Walls.Write, o.Walls.Read)
	}
	for i, root := range o.Roots {
		o.Roots[i] = offlimits.Under(src.Dir, root)
	}
	if o.URL == "" {
		err = r.openProgram(src)
	} else {
		err = r.openHTTP(src)
	}
	if err != nil {
		return nil, err
	}
	r.life, r.end = context.WithCancel(context.Background())
	return r, nil
}

// Claim returns the files that a configured source starts from, those that it keeps for itself, and those that its
// program may change.
func Claim(src config.Source) (offlimits.Claim, error) {
	o := SourceOptions{Options: spawn.Of(src)}
	err := src.Decode(&o)
	if err == nil {
		err = o.check()
	}
	if o.URL != "" {
		return offlimits.Claim{Keeps: append(o.OAuth.Documents(src.Dir), filepath.Dir(TokenFile(src))+"/")}, err
	}
	return o.Claim(src.Dir, o.Command), err
}

// Opens returns how long a source may take to open: until its server has introduced itself, and 10 s to list its tools.
func Opens(src config.Source) time.Duration {
	o := SourceOptions{}
	_ = src.Decode(&o) // Open reports the error
	o.setDefaults()
	return time.Duration(o.StartTimeout) + 10*time.Second
}

// Places returns how many calls the server takes at once, which its tools share.
func (r *Runner) Places(string) (pool string, calls int) {
	if r.o.Concurrency == 0 {
		return "", 0
	}
	return "server", r.o.Concurrency
}

// Remote reports whether the server is not a program of ours, so that its places are one server's for all callers.
func (r *Runner) Remote() bool { return r.o.URL != "" }

// KeepsAsking reports whether the server continues calls that asked, as one of the legacy era does. A modern one gets
// another request.
func (r *Runner) KeepsAsking() bool {
	r.questions.mu.Lock()
	defer r.questions.mu.Unlock()
	for _, one := range r.questions.open {
		if one.kept {
			return true
		}
	}
	return false
}

// changed marks the tools as stale.
func (r *Runner) changed() {
	r.stale.Store(true)
	r.Tell()
}

// Tools implements tool.Source. It asks the server again after the server reported a change of its tools, or after it
// was replaced.
func (r *Runner) Tools(ctx context.Context) ([]*tool.Spec, error) {
	r.listing.Lock()
	defer r.listing.Unlock()
	if r.stale.Swap(false) {
		tools, specs, err := r.list(ctx)
		if err != nil {
			r.stale.Store(true)
			return nil, err
		}
		r.mu.Lock()
		r.tools, r.specs = tools, specs
		r.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.specs, nil
}

// find returns the tool that a call names.
func (r *Runner) find(ctx context.Context, name string) (*upstreamTool, error) {
	r.mu.Lock()
	known, one := r.tools != nil, r.tools[name]
	r.mu.Unlock()
	if !known {
		if _, err := r.Tools(ctx); err != nil {
			return nil, err
		}
		r.mu.Lock()
		one = r.tools[name]
		r.mu.Unlock()
	}
	if one == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "the server has no tool named %q", name)
	}
	return one, nil
}

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if ctx.Err() != nil {
		return nil, tool.Ended(ctx)
	}
	if err := r.checkGuarantees(c); err != nil {
		return nil, err
	}
	if err := strictjson.CheckObject(strictjson.OrEmpty(c.Args)); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s cannot be sent: %w", c.Tool, err)
	}
	one, err := r.find(ctx, c.Tool)
	if err != nil {
		return nil, err
	}
	if c.Resume != "" {
		return r.resume(ctx, c, one, out)
	}
	return r.newUpstreamCall(c, one).run(ctx, out, (*upstreamCall).execute)
}

// checkGuarantees refuses a call that asks for more than the walls that the program was started with. A server elsewhere
// has none.
func (r *Runner) checkGuarantees(c *tool.Call) error {
	if r.walls == nil {
		return sandbox.Elsewhere(c.Tool, c.Tightened(r.o.Guarantees))
	}
	return sandbox.Covered(c, r.o.Guarantees, "server")
}

// Close implements tool.Runner: it gives up calls that wait for an answer, and closes the server.
func (r *Runner) Close(ctx context.Context) error {
	r.end()
	r.questions.close()
	err := r.upstream.close(ctx)
	r.updates.followMu.Lock() // a later Follow sees that life has ended
	defer r.updates.followMu.Unlock()
	r.running.Wait() // each ends with life
	return err
}

// rootsAnswer returns the config's answer to roots/list, or nil if it has none.
func (r *Runner) rootsAnswer() json.RawMessage {
	if len(r.o.Roots) == 0 {
		return nil
	}
	type root struct {
		URI  string `json:"uri"`
		Name string `json:"name"`
	}
	var list []root
	for _, path := range r.o.Roots {
		list = append(list, root{(&url.URL{Scheme: "file", Path: path}).String(), filepath.Base(path)})
	}
	b, _ := strictjson.Marshal(map[string]any{"roots": list}) // strings cannot fail: invalid UTF-8 was escaped
	return b
}
