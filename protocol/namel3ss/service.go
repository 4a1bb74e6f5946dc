package namel3ss

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"toolpost/config"
	"toolpost/host/process"
	"toolpost/host/walls"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// serviceVariable is the last place that is searched for the address of a service.
const serviceVariable = "N3_TOOL_SERVICE_URL"

// excerptSize is how much of an invalid answer an error quotes.
const excerptSize = 200

// A serviceTool is a tool that a service runs for us, over HTTP.
type serviceTool struct {
	*facts
	url       string
	handshake string // its address
	required  bool   // shake hands even if no guarantee is asked for
	token     string
	form      serviceForm
	http      *http.Transport
	agreed    agreements
}

// A serviceForm is the encoded part that all requests for a tool share.
type serviceForm struct {
	head   []byte // up to the payload
	root   []byte // a JSON string
	header http.Header
}

func (f *facts) serviceForm(token string) (form serviceForm, err error) {
	form.header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	if token != "" {
		form.header.Set("Authorization", "Bearer "+token)
	}
	head, err := strictjson.Marshal(struct {
		ProtocolVersion int    `json:"protocol_version"`
		ToolName        string `json:"tool_name"`
		Kind            string `json:"kind"`
		Entry           string `json:"entry"`
	}{protocolVersion, f.spec.Name, f.kind, f.entry})
	if err != nil {
		return form, err
	}
	form.head = append(bytes.TrimSuffix(head, []byte("}")), `,"payload":`...)
	form.root, err = strictjson.Marshal(f.root)
	return form, err
}

// fill writes the document of one call: the fields that the contract discloses to a service.
func (form *serviceForm) fill(inv *invocation, limit int64) ([]byte, error) {
	trace := inv.traceID()
	if !utf8.ValidString(trace) || !utf8.ValidString(inv.call.Session) {
		return nil, errors.New("it is not UTF-8")
	}
	b := make([]byte, 0, len(form.head)+len(inv.args)+len(form.root)+len(trace)+len(inv.call.Session)+80)
	b = append(append(b, form.head...), inv.args...)
	b = strconv.AppendInt(append(b, `,"timeout_ms":`...), limit, 10)
	b = strictjson.AppendString(append(b, `,"trace_id":`...), trace)
	b = append(append(b, `,"project":{"app_root":`...), form.root...)
	if inv.call.Session != "" {
		b = strictjson.AppendString(append(b, `,"flow":`...), inv.call.Session)
	}
	return append(b, '}', '}'), nil
}

func (b *builder) service(f *facts, bound *appfile.Binding) (way, error) {
	address := cmp.Or(bound.URL, b.app.settings.Python.ServiceURL, os.Getenv(serviceVariable))
	if address == "" {
		return nil, tool.Errorf(tool.CodeUnavailable,
			"its runner is service, but no URL is configured; set url in its binding, service_url under "+
				"[python_tools] in namel3ss.toml, or %s", serviceVariable)
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"its url %.100q is not the address of a service, such as http://127.0.0.1:8787/tools", address)
	case u.User != nil:
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"its url has a password in it; give the service's token with token_env")
	}
	token, err := config.FromEnv(b.TokenEnv, "token", u.Redacted())
	if err != nil {
		return nil, err
	}
	form, err := f.serviceForm(token)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"its name, its entry or its app's folder cannot be written as JSON: %w", err)
	}
	shake := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: handshakePath}
	return &serviceTool{
		facts: f, url: u.String(), handshake: shake.String(), token: token, form: form, http: newTransport(),
		required: b.Handshake || b.app.settings.Python.Handshake, agreed: agreements{ttl: agreementTTL},
	}, nil
}

// newTransport has no timeout for a whole request, because every request has its context. No http.Client wraps it: a client
// would follow redirects and so send the arguments to another server.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     30 * time.Second,
		MaxIdleConnsPerHost: 64,
		DisableCompression:  true,
	}
}

func (t *serviceTool) describe(tr *trace) {
	tr.set("service_url", t.url)
	tr.set("service_handshake", false)
}

func (t *serviceTool) close(context.Context) error {
	t.http.CloseIdleConnections()
	return nil
}

func (t *serviceTool) run(ctx context.Context, inv *invocation) (*reply, error) {
	if err := t.shakeHands(ctx, inv); err != nil {
		return nil, err
	}
	doc, err := t.form.fill(inv, timeLeft(ctx))
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: the trace or the session of the call: %w", t.spec.Name, err)
	}
	body, err := t.post(ctx, inv, t.url, doc)
	if err != nil {
		return nil, about(t.spec.Name, err)
	}
	rep, err := parseReply(body)
	if err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "%s: the service at %s broke the protocol: %w; it answered: %s",
			t.spec.Name, t.url, err, t.excerpt(body))
	}
	return rep, nil
}

// timeLeft returns how long the service may take, in whole milliseconds.
func timeLeft(ctx context.Context) int64 {
	deadline, _ := ctx.Deadline() // every call has one
	return max(1, int64(math.Ceil(millis(time.Until(deadline)))))
}

// post sends a document and returns the whole answer, if it is valid.
func (t *serviceTool) post(ctx context.Context, inv *invocation, address string, doc []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(doc))
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w", address, err)
	}
	req.Header = t.form.header // transports only read it
	if parent := tool.Traceparent(inv.call.Trace, inv.call.Span); parent != "" {
		req.Header = maps.Clone(t.form.header)
		req.Header["Traceparent"] = []string{parent}
	}
	if len(inv.call.Credentials) > 0 {
		req.Header = maps.Clone(req.Header)
		if _, err := walls.Authorize(req, inv.call.Credentials); err != nil {
			return nil, err
		}
	}
	resp, err := t.http.RoundTrip(req)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable,
			"the service at %s cannot be reached, or went away without an answer: %w", address, err).
			Because("service_unreachable")
	}
	defer resp.Body.Close()
	body, err := bounded.ReadDocument(resp.Body, maxDocument)
	var limit *bounded.LimitError
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, tool.Errorf(tool.CodeUnavailable, "the service at %s failed with HTTP %s%s", address, resp.Status,
			t.said(body)).
			Because(fmt.Sprintf("http_%d", resp.StatusCode))
	case errors.As(err, &limit):
		return nil, tool.Errorf(tool.CodeProtocol, "the answer of the service at %s is longer than %d MiB", address,
			maxDocument>>20)
	case err != nil:
		return nil, tool.Errorf(tool.CodeProtocol, "the answer of the service at %s broke off after %d bytes%s: %w",
			address, len(body), t.said(body), err)
	}
	return body, nil
}

func (t *serviceTool) said(body []byte) string {
	if text := t.excerpt(body); text != "" {
		return ", saying: " + text
	}
	return ""
}

// excerpt returns the start of an answer as one line, without anything that may be secret.
func (t *serviceTool) excerpt(body []byte) string {
	text := strings.ToValidUTF8(string(body[:min(len(body), 4*excerptSize)]), "\uFFFD")
	if t.token != "" {
		text = strings.ReplaceAll(text, t.token, "[token]")
	}
	text = t.redact.Replace(strings.Join(strings.Fields(text), " "))
	if len(text) > excerptSize {
		text = strings.ToValidUTF8(text[:excerptSize], "") + "..."
	}
	return process.LastLines(text) // it is a single line; this removes its control characters
}
