// Package notify tells webhooks about calls that wait for an approval, the decisions about them, and failed jobs, so that a
// chat can show them. Messages are signed as the specification Standard Webhooks wants it, and retried for a while.
package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/engine/persist"
	"toolpost/host/backoff"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Options is the section notify of a config. The zero value notifies no one.
type Options struct {
	Webhooks []Webhook `yaml:"webhooks" doc:"addresses that get a POST for each event"`
}

// A Webhook is an address that gets events.
type Webhook struct {
	URL    string `yaml:"url" doc:"its URL: https, or http on this machine"`
	Secret string `yaml:"secret" doc:"name of the secret that signs what is sent, as the header webhook-signature shows; a value that begins with whsec_ is decoded from base64"`
}

// Validate refuses addresses that others on the network could read along with. The config calls it.
func (w *Webhook) Validate() error {
	u, err := url.Parse(w.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("a webhook needs a URL, such as https://chat.example/hooks/toolpost")
	case w.Secret == "":
		return fmt.Errorf("the webhook at %s has no secret, so what it gets could come from anyone; name one of `secrets`", u.Host)
	case u.Scheme == "http" && u.Hostname() != "localhost":
		if ip, err := netip.ParseAddr(u.Hostname()); err != nil || !ip.IsLoopback() {
			return fmt.Errorf("the webhook at %s is on another machine, and http is not encrypted; use https", u.Host)
		}
	}
	return nil
}

// Section is the part of the config that the notifier reads.
func Section() config.Part {
	return config.Part{Name: "notify", Doc: "webhooks for approvals and failed jobs; default: none", Options: Options{}}
}

// An Event is one message. Its id is the same however often it is sent, and whichever program sends it.
type Event struct {
	ID   string    `json:"id"`
	Type string    `json:"type"`
	Time time.Time `json:"timestamp"`
	Text string    `json:"text"` // a sentence for people, which chats show; post makes it one line without hidden characters
	Data any       `json:"data"`
	// Open is set if the event still matters after a restart, as a call does that still waits.
	Open bool `json:"-"`
}

// Env is what a notifier needs of the surrounding program.
type Env struct {
	Secret  func(name string) (string, error)
	Look    func(context.Context) ([]Event, error) // the latest events, those of long ago excepted
	Changed func() <-chan struct{}
	Log     *slog.Logger
	Faults  *persist.Faults // logs that the store cannot be used; may be nil
}

// A Notifier sends events to the webhooks of a config.
type Notifier struct {
	env    Env
	hooks  []Webhook
	client http.Client
}

// Open makes the notifier of a config.
func Open(cfg *config.Config, env Env) (*Notifier, error) {
	var o Options
	err := cfg.Section(Section().Name).Decode(&o)
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Notifier{env, o.Webhooks, http.Client{Timeout: 10 * time.Second, CheckRedirect: stay}}, err
}

// Problems returns the webhooks that will get no events, because their secret is missing or cannot be used.
func (n *Notifier) Problems() (found []config.Problem) {
	for _, w := range n.hooks {
		if _, err := n.key(w); err != nil {
			found = append(found, config.Problem{About: "webhook " + w.host(), Err: err})
		}
	}
	return found
}

// drain is how long webhooks have, once ctx has ended, to get what has happened until then.
const drain = 5 * time.Second

// Run sends events until ctx ends, and then those that are left, for a short while. All webhooks share one look at the store,
// and none waits for another.
func (n *Notifier) Run(ctx context.Context) {
	if len(n.hooks) == 0 {
		return
	}
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var hooks sync.WaitGroup
	feeds := make([]chan []Event, len(n.hooks))
	for i, w := range n.hooks {
		feeds[i] = make(chan []Event, 1)
		hooks.Go(func() { n.send(sending, w, feeds[i]) })
	}
	n.look(ctx, feeds)
	defer time.AfterFunc(drain, cancel).Stop()
	if events, err := n.env.Look(sending); err == nil {
		for _, feed := range feeds {
			replace(feed, events)
		}
	}
	for _, feed := range feeds {
		close(feed)
	}
	hooks.Wait()
}

// lookEvery is how often to look for what other programs that share the store did.
const lookEvery = 2 * time.Second

// look gives every feed the latest events, in place of those that it has not taken yet.
func (n *Notifier) look(ctx context.Context, feeds []chan []Event) {
	failing := false
	for ctx.Err() == nil {
		changed := n.env.Changed() // before the look, so that nothing is missed in between
		events, err := n.env.Look(ctx)
		if err != nil && !failing && ctx.Err() == nil && !n.env.Faults.Report(err) { // once, not every two seconds
			n.env.Log.Error("cannot look for events; webhooks get none until that works again", "error", tool.AsError(err).Message)
		}
		failing = err != nil
		for _, feed := range feeds {
			if err == nil {
				replace(feed, events)
			}
		}
		select {
		case <-changed:
		case <-time.After(lookEvery):
		case <-ctx.Done():
		}
	}
}

// replace puts events into a feed of length one; no one else does, so that it never waits.
func replace(feed chan []Event, events []Event) {
	select {
	case <-feed:
	default:
	}
	feed <- events
}

// send sends the events of one webhook, one after the other. While it tries again, events wait where Look finds them. What
// was over before the start is old. Calls that still wait are sent again after a restart; other events that are left when
// ctx ends are lost.
func (n *Notifier) send(ctx context.Context, w Webhook, feed <-chan []Event) {
	var sent map[string]bool // by the ids of the latest events; nil at the start
	left := 0
	for events := range feed {
		before := sent
		sent = map[string]bool{}
		for _, e := range slices.Backward(events) {
			sent[e.ID] = true
			if !before[e.ID] && (before != nil || e.Open) && !n.deliver(ctx, w, e) && !e.Open {
				left++
			}
		}
	}
	if left > 0 {
		n.env.Log.Error("a webhook did not get the last events before the end", "webhook", w.host(), "events", left)
	}
}

// How often an event is sent, and the first pause, which doubles: nine minutes in all.
const (
	tries     = 10
	firstWait = time.Second
	// The longest pause that a webhook can ask for with Retry-After: later events wait for this one.
	maxRetryAfter = time.Minute
)

// deliver sends an event until it has arrived, or it is no use. It returns false if ctx ended before.
func (n *Notifier) deliver(ctx context.Context, w Webhook, e Event) bool {
	for try, pause := 1, firstWait; ctx.Err() == nil; try, pause = try+1, 2*pause {
		again, err := n.post(ctx, w, e)
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case again == 0 || try == tries:
			n.env.Log.Error("a webhook did not get an event", "webhook", w.host(), "event", e.ID, "error", tool.AsError(err).Message)
			return true
		}
		select {
		case <-time.After(max(pause, again)):
		case <-ctx.Done():
		}
	}
	return false
}

// post sends an event once. If it fails, again is the time after which another try may help, or 0 if none will.
func (n *Notifier) post(ctx context.Context, w Webhook, e Event) (again time.Duration, err error) {
	e.Text = tool.VisibleName(e.Text) // a caller chooses the names of files
	key, err := n.key(w)
	body, err2 := strictjson.Marshal(e)
	r, err3 := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err := errors.Join(err, err2, err3); err != nil {
		return 0, err
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header.Set("Content-Type", "application/json")
	for name, value := range map[string]string{"id": e.ID, "timestamp": at, "signature": "v1," + sign(key, e.ID, at, body)} {
		r.Header.Set("webhook-"+name, value)
	}
	answer, err := n.client.Do(r)
	if err != nil {
		return firstWait, fmt.Errorf("%s cannot be reached", w.host()) // the error of the library has the URL, which may be secret
	}
	defer answer.Body.Close()
	switch code := answer.StatusCode; {
	case code/100 == 2:
		return 0, nil
	case code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout:
		again = max(firstWait, min(backoff.RetryAfter(answer.Header.Get("Retry-After")), maxRetryAfter))
	}
	return again, fmt.Errorf("it answered %d", answer.StatusCode)
}

// key returns the key of a webhook's signatures. Libraries for Standard Webhooks decode a secret that begins with whsec_, so
// the key of such a secret has to be decoded here as well.
func (n *Notifier) key(w Webhook) ([]byte, error) {
	text, err := n.env.Secret(w.Secret)
	coded, ok := strings.CutPrefix(text, "whsec_")
	if err != nil || !ok {
		return []byte(text), err
	}
	key, err := base64.StdEncoding.DecodeString(coded)
	if err != nil || len(key) == 0 { // the error of the library is about the secret
		return nil, errors.New("its secret begins with whsec_, but no base64 follows; copy it again from the receiver, or use one without whsec_")
	}
	return key, nil
}

// sign signs a message: HMAC-SHA256 of its id, its time and its body, with dots between.
func sign(key []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// host names a webhook in logs: its path is often a secret.
func (w *Webhook) host() string {
	u, _ := url.Parse(w.URL) // it was checked
	return u.Host
}
