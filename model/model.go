// Package model is a client for language models: those that a config lists, behind servers that speak OpenAI's chat
// completions or responses, or Anthropic's messages. Callers use one form of a conversation, whatever the wire. Answers
// are parsed strictly and within bounds; a request to a busy server is retried within the time available.
package model

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"toolpost/config"
	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/nearest"
)

// An API is the protocol of a server.
type API string

// The supported APIs.
const (
	OpenAI    API = "openai"    // chat completions, used by most servers
	Responses API = "responses" // OpenAI's newer one
	Anthropic API = "anthropic" // messages
)

// Options is one entry of the section models.
type Options struct {
	Name   string `yaml:"name" doc:"name of the entry, by which requests and planners ask for it"`
	URL    string `yaml:"url" doc:"address of the server, up to and including its version, such as http://127.0.0.1:9000/v1"`
	Key    string `yaml:"key" doc:"name of the secret that is sent as the server's key; default: none is sent"`
	Model  string `yaml:"model" doc:"what the server calls the model; default: the name of the entry"`
	API    API    `yaml:"api" schema:"enum=openai|responses|anthropic default=openai" doc:"what the server speaks: OpenAI's chat completions or responses, or Anthropic's messages"`
	Tools  string `yaml:"tools" schema:"enum=named|offer default=named" doc:"offer: a request without tools is offered all that its caller may use; named: none"`
	Prices Prices `yaml:"prices" doc:"what a million tokens costs, for limits on cost; default: nothing"`
	// Callers limits whose prompts the key pays for.
	Callers tool.Globs `yaml:"callers" doc:"who may use the model, by role or name; owner and local have the role owner; default: every caller"`
}

// Prices are for a million tokens, in the currency of the limits.
type Prices struct {
	Input  float64 `yaml:"input" doc:"price of a million tokens that the model reads"`
	Output float64 `yaml:"output" doc:"price of a million tokens that the model writes"`
}

// Of returns the cost of a use.
func (p Prices) Of(u Usage) float64 { return (p.Input*float64(u.In) + p.Output*float64(u.Out)) / 1e6 }

// Validate checks that the entry can be used.
func (o *Options) Validate() error {
	if o.Name == "" {
		return errors.New("a model has no name; give it one, such as `name: demo`")
	}
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("model %q: url is the address of a server, such as http://127.0.0.1:9000/v1", o.Name)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("model %q: url may have a host and a path, and nothing else; the key is the name of a secret",
			o.Name)
	case withoutRoute(o.URL) != strings.TrimRight(o.URL, "/"):
		return fmt.Errorf("model %q: url ends before the route, with the version of the API: such as %s", o.Name,
			withoutRoute(o.URL))
	case !slices.Contains([]API{"", OpenAI, Responses, Anthropic}, o.API):
		return fmt.Errorf("model %q: api is openai, responses or anthropic, not %q", o.Name, o.API)
	case !slices.Contains([]string{"", "named", "offer"}, o.Tools):
		return fmt.Errorf("model %q: tools is named or offer, not %q", o.Name, o.Tools)
	case o.Callers != nil && len(o.Callers) == 0:
		return fmt.Errorf("model %q: callers is an empty list, so that nobody could use it; name some, or leave it out",
			o.Name)
	case o.Prices.Input < 0 || o.Prices.Output < 0:
		return fmt.Errorf("model %q: a price is below zero", o.Name)
	}
	return nil
}

// Route returns the path of the model's API on its server.
func (m *Model) Route() string { return m.wire().path() }

// routes are the paths that clients append to the address of a server, and that people copy with it.
func routes() []string {
	return []string{completions{}.path(), "/completions", responses{}.path(), messages{}.path(), "/models"}
}

// withoutRoute removes a route from the end of an address.
func withoutRoute(address string) string {
	address = strings.TrimRight(address, "/")
	for _, r := range routes() {
		if cut, ok := strings.CutSuffix(address, r); ok {
			return cut
		}
	}
	return address
}

// Section is the section of a config that lists models.
func Section() config.Part {
	return config.Part{
		Name: "models", Options: []Options(nil),
		Doc: "models behind servers that speak OpenAI's or Anthropic's API, for the chat routes of the door openai and " +
			"for planners",
	}
}

// An Env is what models need from the program.
type Env struct {
	Secrets  config.Secrets   // the current ones
	Redactor *secret.Redactor // removes secrets, such as the key, from a server's answers; nil removes nothing
}

// A Model is a configured model.
type Model struct {
	Options
	env Env
}

// Read returns the models of a config.
func Read(cfg *config.Config, env Env) (Models, error) {
	var entries []Options
	if err := cfg.Section(Section().Name).Decode(&entries); err != nil {
		return nil, err
	}
	var all Models
	for _, o := range entries {
		if slices.ContainsFunc(all, func(m *Model) bool { return m.Name == o.Name }) {
			return nil, tool.Errorf(tool.CodeInvalidInput, "two models are called %q; give one of them another name", o.Name)
		}
		o.URL, o.Model, o.API = strings.TrimRight(o.URL, "/"), cmp.Or(o.Model, o.Name), cmp.Or(o.API, OpenAI)
		all = append(all, &Model{o, env})
	}
	return all, nil
}

// Models are those of a config, in its order.
type Models []*Model

// For returns those that a caller may use. The others do not exist for that caller.
func (all Models) For(p tool.Principal) (some Models) {
	for _, m := range all {
		if p.Is(m.Callers) {
			some = append(some, m)
		}
	}
	return some
}

// Named finds a model by its name.
func (all Models) Named(name string) (*Model, error) {
	var names []string
	for _, m := range all {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	hint := cmp.Or(nearest.Hint(name, names), "; add it to the section models")
	return nil, tool.Errorf(tool.CodeNotFound, "there is no model %.100q%s", name, hint).Because("model_not_found")
}

// A Registry holds the models of the last config that was read.
type Registry struct {
	env Env
	now atomic.Pointer[Models]
}

// NewRegistry makes a registry without models.
func NewRegistry(env Env) *Registry {
	r := &Registry{env: env}
	r.now.Store(new(Models))
	return r
}

// Read reads the models of a config; apply switches to them.
func (r *Registry) Read(cfg *config.Config) (apply func(), err error) {
	next, err := Read(cfg, r.env)
	return func() { r.now.Store(&next) }, err
}

// Models returns the current ones. A nil Registry has none.
func (r *Registry) Models() Models {
	if r == nil {
		return nil
	}
	return *r.now.Load()
}

// Problem returns a known reason for which requests to the model will fail. It makes no request.
func (m *Model) Problem() error {
	_, err := m.secret()
	return err
}

// secret returns the value of the key, or "" if the server needs none.
func (m *Model) secret() (string, error) {
	if m.Key == "" {
		return "", nil
	}
	if m.env.Secrets == nil {
		return "", tool.Errorf(tool.CodeUnavailable, "the key %s of model %s is no secret of the config", m.Key, m.Name)
	}
	return m.env.Secrets.Secret(m.Key)
}
