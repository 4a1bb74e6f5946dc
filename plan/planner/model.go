package planner

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/host/process"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Model is one entry of the section models.
type Model struct {
	Name  string `yaml:"name" doc:"name of the entry"`
	URL   string `yaml:"url" doc:"address of an OpenAI-compatible server, up to and including its version, such as http://127.0.0.1:9000/v1"`
	Key   string `yaml:"key" doc:"name of the secret that is sent as a bearer token; default: none is sent"`
	Model string `yaml:"model" doc:"what the server calls the model; default: the name of the entry"`
}

// Validate reports whether the entry can be used.
func (m *Model) Validate() error {
	if m.Name == "" {
		return errors.New("a model has no name; give it one, such as `name: demo`")
	}
	u, err := url.Parse(m.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("model %q: url is the address of a server, such as http://127.0.0.1:9000/v1", m.Name)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("model %q: url may have a host and a path, and nothing else; the key is the name of a secret",
			m.Name)
	}
	return nil
}

func readModels(cfg *config.Config) ([]Model, error) {
	var models []Model
	if err := cfg.Section(Models().Name).Decode(&models); err != nil {
		return nil, err
	}
	for i, m := range models {
		if slices.ContainsFunc(models[:i], func(o Model) bool { return o.Name == m.Name }) {
			return nil, tool.Errorf(tool.CodeInvalidInput, "two models are called %q; give one of them another name", m.Name)
		}
	}
	return models, nil
}

// rules is what a model is told about plans.
//
//go:embed rules.txt
var rules string

// Bounds of what goes to a server, and how often and how patiently it is asked.
const (
	maxQuestion = 1 << 20
	maxTries    = 4
	firstPause  = 500 * time.Millisecond
)

// A model plans: a server is asked for a plan and, where its answer is none, once more with what is wrong with it.
type model struct {
	Model
	system string
	env    Env
	client *http.Client
}

func newModel(m Model, style string, env Env) *model {
	m.URL, m.Model = strings.TrimRight(m.URL, "/")+"/chat/completions", cmp.Or(m.Model, m.Name)
	return &model{
		Model: m, system: strings.TrimSpace(rules + "\n" + style), env: env,
		client: &http.Client{
			// A turn is rare: nothing is kept open between two, and so nothing is left of a config that was replaced.
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
			// The key is for the server that the config names, and so is the story.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// key gives the value of the key; empty: the server wants none.
func (m *model) key() (string, error) {
	if m.Key == "" {
		return "", nil
	}
	if m.env.Secrets == nil {
		return "", tool.Errorf(tool.CodeUnavailable, "the key %s of model %s is no secret of the config", m.Key, m.Name)
	}
	return m.env.Secrets.Secret(m.Key)
}

// A message is one of a conversation.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Plan implements plan.Planner.
func (m *model) Plan(ctx context.Context, r plan.Request) (*plan.Plan, error) {
	about, err := strictjson.Marshal(ask(r))
	if err != nil {
		return nil, err
	}
	said := []message{{"system", m.system}, {"user", string(about)}}
	answer, err := m.complete(ctx, said)
	if err != nil {
		return nil, err
	}
	made, wrong := check(answer, r)
	if wrong == nil {
		return made, nil
	}
	said = append(said, message{"assistant", answer}, message{"user", "That cannot be used: " +
		tool.AsError(wrong).Message + "\nAnswer again, with the corrected Plan JSON and nothing else."})
	if answer, err = m.complete(ctx, said); err != nil {
		return nil, err
	}
	if made, wrong = check(answer, r); wrong != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "model %s gave no plan that can be used, twice; the second time: %s",
			m.Name, tool.AsError(wrong).Message)
	}
	return made, nil
}

// check reads the answer of a model. Many put JSON between the marks of code, whatever they are told: that is the one
// thing which is forgiven.
func check(answer string, r plan.Request) (*plan.Plan, error) {
	doc := strings.TrimSpace(answer)
	if inner, ok := strings.CutPrefix(doc, "```"); ok {
		inner, ok = strings.CutSuffix(strings.TrimPrefix(inner, "json"), "```")
		if ok {
			doc = inner
		}
	}
	made, err := decode([]byte(doc))
	if err != nil {
		return nil, err
	}
	for _, t := range made.Tools {
		name := cmp.Or(t.Name, t.Path)
		offered := func(s *tool.Spec) bool { return s.Name == name || slices.Contains(s.Aliases, name) }
		if !slices.ContainsFunc(r.Tools, offered) {
			return nil, tool.Errorf(tool.CodeProtocol, "the tool %.80q of %.80q is not one of those that were offered",
				name, t.ID)
		}
	}
	return made, nil
}

// A reply is one answer of a server to one request.
type reply struct {
	status int
	after  time.Duration // when it wants to be asked again; below 0: it did not say
	doc    []byte
}

// complete asks for the next message of a conversation. A server that is busy, or in trouble, is asked again.
func (m *model) complete(ctx context.Context, said []message) (string, error) {
	body, err := strictjson.Marshal(struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
		Stream   bool      `json:"stream"`
	}{m.Model.Model, said, false})
	switch {
	case err != nil:
		return "", err
	case len(body) > maxQuestion:
		return "", tool.Errorf(tool.CodeInvalidInput, "what model %s would be told is longer than %d bytes; narrow the "+
			"tools of the planner with `tools: [...]`, or shorten the state of the session", m.Name, maxQuestion)
	}
	for try := 1; ; try++ {
		got, err := m.post(ctx, body)
		if err != nil {
			return "", err
		}
		if got.status == http.StatusOK {
			return m.content(got.doc)
		}
		refused := m.refused(got)
		if !passes(got.status) || try == maxTries {
			return "", refused
		}
		wait := got.after
		if wait < 0 {
			wait = firstPause << (try - 1)
		}
		if err := pause(ctx, wait); err != nil {
			return "", refused.RetryAfter(wait)
		}
	}
}

// passes reports whether a server may answer otherwise when it is asked again.
func passes(status int) bool {
	return status == http.StatusTooManyRequests ||
		status >= http.StatusInternalServerError && status != http.StatusNotImplemented
}

// pause waits, unless there is not that much time.
func pause(ctx context.Context, wait time.Duration) error {
	if until, ok := ctx.Deadline(); ok && time.Until(until) < wait {
		return context.DeadlineExceeded
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *model) post(ctx context.Context, body []byte) (*reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	key, err := m.key()
	if err != nil {
		return nil, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, m.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	got := &reply{status: resp.StatusCode, after: retryAfter(resp.Header.Get("Retry-After"))}
	if got.doc, err = process.ReadDocument(resp.Body, maxAnswer); err != nil {
		if limit, ok := errors.AsType[*process.LimitError](err); ok {
			return nil, tool.Errorf(tool.CodeProtocol, "the answer of model %s: %w", m.Name, limit)
		}
		return nil, m.unreachable(ctx, err)
	}
	return got, nil
}

func (m *model) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return tool.Ended(ctx)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the address is named below, and the method says nothing
	}
	return tool.Errorf(tool.CodeUnavailable, "the server of model %s at %s does not answer: %s", m.Name, m.URL,
		m.env.Redact(err.Error()))
}

// retryAfter reads a number of seconds, or a date; below 0: it is neither.
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 16); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(time.Until(date), 0)
	}
	return -1
}

// refused says in words what a server answered.
func (m *model) refused(got *reply) *tool.Error {
	var said struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = strictjson.Unmarshal(got.doc, &said) // it may be the page of a proxy
	why := ""
	if said.Error.Message != "" {
		why = ": " + tool.Visible(fmt.Sprintf("%.300s", m.env.Redact(said.Error.Message)))
	}
	code, hint := tool.CodeUnavailable, ""
	switch {
	case got.status == http.StatusUnauthorized || got.status == http.StatusForbidden:
		hint = "; check the key of the model"
	case got.status == http.StatusNotFound:
		hint = "; check its url, which ends in /v1 for most servers, and its model"
	case got.status == http.StatusTooManyRequests:
		code = tool.CodeQuotaExceeded
	case got.status/100 == 3:
		hint = "; it is not followed: put the address that it leads to into the config"
	}
	return tool.Errorf(code, "the server of model %s answered HTTP %d %s%s%s", m.Name, got.status,
		http.StatusText(got.status), why, hint)
}

// content is the message in a server's answer.
func (m *model) content(doc []byte) (string, error) {
	var completion struct {
		Choices []struct {
			Message struct {
				Content *string `json:"content"`
				Refusal *string `json:"refusal"`
			} `json:"message"`
			Finish string `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := strictjson.Unmarshal(doc, &completion); err != nil {
		return "", tool.Errorf(tool.CodeProtocol, "the answer of model %s is no chat completion: %w", m.Name, err)
	}
	if len(completion.Choices) == 0 {
		return "", tool.Errorf(tool.CodeProtocol, "the answer of model %s has no choices", m.Name)
	}
	first := completion.Choices[0]
	switch {
	case first.Message.Refusal != nil && *first.Message.Refusal != "":
		return "", tool.Errorf(tool.CodeUnavailable, "model %s refused: %s", m.Name,
			tool.Visible(fmt.Sprintf("%.300s", m.env.Redact(*first.Message.Refusal))))
	case first.Finish == "length":
		return "", tool.Errorf(tool.CodeProtocol, "the answer of model %s was cut off; it needs more room for its answers",
			m.Name)
	case first.Message.Content == nil:
		return "", tool.Errorf(tool.CodeProtocol, "the answer of model %s has no content", m.Name)
	}
	return *first.Message.Content, nil
}
