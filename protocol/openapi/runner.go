package openapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/sandbox"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// Options are the fields of a source with protocol openapi.
type Options struct {
	Document    string            `yaml:"document" kind:"path" doc:"OpenAPI 3.0 or 3.1 document, in JSON or YAML: a file, or an http(s) URL"`
	Operations  []tool.Glob       `yaml:"operations" doc:"operations to offer, by operationId or as 'GET /path'; * and ? match; default: all"`
	Server      string            `yaml:"server" doc:"URL of the server, in place of those that the document names"`
	Variables   map[string]string `yaml:"variables" doc:"values of variables in the document's server URLs; default: the document's"`
	Auth        map[string]string `yaml:"auth" doc:"secret for each security scheme of the document: key, token, or USER:PASSWORD for basic"`
	Private     bool              `yaml:"private" doc:"allow host names that resolve to private addresses; addresses written out are always allowed"`
	Effects     tool.Effects      `yaml:"effects" doc:"what the tools do to the world, in addition to what their methods say"`
	Tier        *int              `yaml:"tier" doc:"0 (safe) to 3 (dangerous); default: from the effects"`
	Timeout     config.Duration   `yaml:"timeout" doc:"time limit of a call"`
	MaxResponse int               `yaml:"max_response" kind:"bytes" schema:"default=16777216" doc:"bytes of an answer"`
	Concurrency int               `yaml:"concurrency" doc:"calls that the server gets at a time; default: unlimited"`
	Refresh     config.Duration   `yaml:"refresh" schema:"default=10m" doc:"how often a document at a URL is read again; -1s: never"`

	connected bool               // calls bring keys of their callers
	keys      []*tool.Credential // as the config has them, without values
}

func (o *Options) check() error {
	switch {
	case o.Document == "":
		return tool.Errorf(tool.CodeInvalidInput,
			"an openapi source needs `document`, the file or the URL of an OpenAPI document")
	case tool.CheckTier(o.Tier) != nil:
		return tool.CheckTier(o.Tier)
	case o.MaxResponse < 0 || o.Concurrency < 0:
		return tool.Errorf(tool.CodeInvalidInput, "max_response and concurrency cannot be negative")
	}
	if o.Server != "" {
		if _, err := parseServer(o.Server); err != nil {
			return tool.Errorf(tool.CodeInvalidInput, "server: %w", err)
		}
	}
	if o.remote() {
		if u, err := url.Parse(o.Document); err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
			return tool.Errorf(tool.CodeInvalidInput, "document: the URL has no host, or has a user or a fragment")
		}
	}
	o.MaxResponse = cmp.Or(o.MaxResponse, 16<<20)
	o.Refresh = cmp.Or(o.Refresh, config.Duration(10*time.Minute))
	return nil
}

// remote reports whether the document is fetched.
func (o *Options) remote() bool {
	return strings.HasPrefix(o.Document, "http://") || strings.HasPrefix(o.Document, "https://")
}

// A Runner calls the operations of one document.
type Runner struct {
	o      *Options
	dir    string
	log    *slog.Logger
	values map[string]string // of secrets, by security scheme
	client *http.Client

	tool.Changes // of a document at a URL

	end  context.CancelFunc
	busy sync.WaitGroup

	mu    sync.Mutex
	sum   [sha256.Size]byte // of the document that defines the tools
	tools map[string]*operation
	specs []*tool.Spec
}

var (
	_ tool.Runner   = (*Runner)(nil)
	_ tool.Source   = (*Runner)(nil)
	_ tool.Changing = (*Runner)(nil)
)

// Open reads the document of a configured source.
func Open(ctx context.Context, src config.Source, log *slog.Logger) (tool.Runner, error) {
	return tool.Opened(open(ctx, src, log))
}

func open(ctx context.Context, src config.Source, log *slog.Logger) (*Runner, error) {
	o := &Options{connected: len(src.Connections) > 0, keys: src.Credentials}
	if err := src.Decode(o); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	values, err := o.credentials(src.Secrets)
	if err != nil {
		return nil, err
	}
	r := &Runner{o: o, dir: src.Dir, log: log, values: values, client: newClient(o.Private)}
	if _, err := r.load(ctx); err != nil {
		r.client.CloseIdleConnections()
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	r.end = end
	if o.remote() && o.Refresh > 0 {
		r.busy.Go(func() { r.keepReading(life) })
	}
	return r, nil
}

// Claim returns the files of a configured source.
func Claim(src config.Source) (offlimits.Claim, error) {
	var o Options
	err := src.Decode(&o)
	if o.remote() {
		return offlimits.Claim{}, err
	}
	return offlimits.Claim{Starts: offlimits.Given(src.Dir, o.Document)}, err
}

// Local reports whether the tools of a source are defined by a file of this machine.
func Local(src config.Source) bool {
	var o Options
	return src.Peek(&o) == nil && !o.remote()
}

// read returns the current document.
func (r *Runner) read(ctx context.Context) ([]byte, *url.URL, error) {
	if r.o.remote() {
		return r.fetch(ctx)
	}
	path := offlimits.Under(r.dir, r.o.Document)
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, tool.Errorf(tool.CodeInvalidInput, "the document %s cannot be read: %w; an address begins with https://", path,
			tool.WithoutPath(err))
	}
	defer f.Close()
	if about, err := f.Stat(); err != nil || !about.Mode().IsRegular() {
		return nil, nil, tool.Errorf(tool.CodeInvalidInput, "the document %s is not a file", path)
	}
	data, err := bounded.ReadDocument(f, maxDocument)
	if err != nil {
		return nil, nil, tool.Errorf(tool.CodeInvalidInput, "the document %s: %w", path, err)
	}
	return data, nil, nil
}

// load reads the document and replaces the tools by its own. It reports whether the document changed.
func (r *Runner) load(ctx context.Context) (changed bool, err error) {
	data, from, err := r.read(ctx)
	if err != nil {
		return false, err
	}
	sum := sha256.Sum256(data)
	r.mu.Lock()
	same := r.tools != nil && r.sum == sum
	r.mu.Unlock()
	if same {
		return false, nil
	}
	list, err := r.readTools(data, from)
	if err != nil {
		return false, err
	}
	tools, specs := map[string]*operation{}, []*tool.Spec{}
	for _, op := range list {
		tools[op.spec.Name] = op
		specs = append(specs, op.spec)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum, r.tools, r.specs = sum, tools, specs
	return true, nil
}

func (r *Runner) readTools(data []byte, from *url.URL) ([]*operation, error) {
	d, err := readDocument(data)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the document %s: %w", r.o.shown(), err)
	}
	d.from = from
	if err := d.checkAuth(r.values); err != nil {
		return nil, err
	}
	list, err := d.operations(r.o, r.values)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the document %s: %w", r.o.shown(), err)
	}
	for _, op := range list {
		if len(r.o.keys) == 0 || op.server == nil || walls.Reaches(r.o.keys, op.server) {
			return list, nil
		}
	}
	if len(list) > 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "its connections send no key to %s: add it to their hosts; without TLS, only an address of "+
			"this machine or its network with a port", walls.Address(list[0].server))
	}
	return list, nil
}

// shown returns the location of the document for messages: without the parts of a URL that may hold a secret.
func (o *Options) shown() string {
	u, err := url.Parse(o.Document)
	if err != nil || !o.remote() {
		return clip(o.Document, 300)
	}
	u.RawQuery = ""
	return u.String()
}

// keepReading reloads the document periodically. If it cannot be read, nothing changes.
func (r *Runner) keepReading(life context.Context) {
	tick := time.NewTicker(time.Duration(r.o.Refresh))
	defer tick.Stop()
	for {
		select {
		case <-life.Done():
			return
		case <-tick.C:
		}
		changed, err := r.load(life)
		switch {
		case err != nil && life.Err() == nil:
			r.log.Warn("the document could not be read again; its tools stay as they are", "error", err)
		case changed:
			r.Tell()
		}
	}
}

// Tools implements tool.Source.
func (r *Runner) Tools(context.Context) ([]*tool.Spec, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.specs, nil
}

func (r *Runner) find(name string) *operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tools[name]
}

// Sound vouches for schemas that were compiled when the document was read.
func (r *Runner) Sound(spec *tool.Spec) bool {
	op := r.find(spec.Name)
	return op != nil && op.spec == spec && !op.doubtful
}

// Unavailable returns why an operation cannot be called.
func (r *Runner) Unavailable(name string) error {
	if op := r.find(name); op != nil && op.err != nil {
		return tool.Errorf(tool.CodeUnavailable, "%s: %w", op.label(), op.err)
	}
	return nil
}

// Places returns how many calls the server takes at once, which its tools share.
func (r *Runner) Places(string) (pool string, calls int) {
	if r.o.Concurrency == 0 {
		return "", 0
	}
	return "server", r.o.Concurrency
}

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if ctx.Err() != nil {
		return nil, tool.Ended(ctx)
	}
	if err := sandbox.Elsewhere(c.Tool, c.Tightened(tool.Guarantees{})); err != nil {
		return nil, err
	}
	op := r.find(c.Tool)
	if op == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "the document has no operation named %q", c.Tool)
	}
	if err := r.Unavailable(c.Tool); err != nil {
		return nil, err
	}
	args, err := arguments(c)
	if err != nil {
		return nil, err
	}
	req, err := op.request(ctx, args)
	if err != nil {
		return nil, err
	}
	client := r.client
	added, err := walls.Authorize(req, c.Credentials)
	if err != nil {
		return nil, err
	}
	if added { // a redirect within the origin could lead to a path that the connection does not name
		own := *client
		own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		client = &own
	}
	res, err := r.send(client, op, req, out)
	if err == nil && res.Failure != nil && res.Trace.Details["status"] == http.StatusUnauthorized {
		explainKey(res.Failure, c.Credentials, req, op)
	}
	return res, err
}

// explainKey says in the failure of a request without valid credentials what to do about the keys of its caller.
func explainKey(e *tool.Error, keys []*tool.Credential, req *http.Request, op *operation) {
	if why := walls.Withheld(keys, req.Method, req.URL); why != "" {
		e.Message += "; " + why
		return
	}
	for _, k := range keys {
		if walls.Sends(k, req.Method, req.URL) {
			e.Message = fmt.Sprintf("%s refuses the key of the connection %s (%s): connect it again%s", op.server.Host, k.Connection, e.Message, k.Again)
			return
		}
	}
}

func arguments(c *tool.Call) (object, error) {
	raw := c.Args
	if len(raw) == 0 {
		raw = json.RawMessage(`{}`)
	}
	v, err := strictjson.Decode(raw)
	args, ok := v.(object)
	if err != nil || !ok {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s are not an object", c.Tool)
	}
	return args, nil
}

// Close implements tool.Runner.
func (r *Runner) Close(context.Context) error {
	r.end()
	r.busy.Wait()
	r.client.CloseIdleConnections()
	return nil
}
