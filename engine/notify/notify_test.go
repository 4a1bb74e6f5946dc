package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/internal/kit"
)

// open returns a notifier for webhooks whose secret has this value.
func open(value string, hooks ...Webhook) *Notifier {
	return &Notifier{hooks: hooks, env: Env{
		Secret:  func(string) (string, error) { return value, nil },
		Changed: func() <-chan struct{} { return nil },
		Log:     slog.New(slog.DiscardHandler),
	}}
}

// The example is that of the specification's libraries.
func TestSecretsOfStandardWebhooksAreDecoded(t *testing.T) {
	n := open("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	key := kit.Must(n.key(Webhook{}))(t)
	got := sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	kit.Equal(t, got, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	kit.Equal(t, string(kit.Must(open("plain-text").key(Webhook{}))(t)), "plain-text")
	for _, bad := range []string{"whsec_", "whsec_?hunter2"} {
		_, err := open(bad).key(Webhook{})
		kit.Fails(t, err, "its secret begins with whsec_, but no base64 follows; copy it again")
		if strings.Contains(err.Error(), "hunter2") {
			t.Error(err)
		}
	}
}

func TestMissingSecretIsAProblem(t *testing.T) {
	n := open("", Webhook{URL: "https://chat.example/hook"})
	kit.Equal(t, len(n.Problems()), 0)
	n.env.Secret = func(string) (string, error) { return "", errors.New("there is no secret hook") }
	found := n.Problems()
	kit.MustEqual(t, len(found), 1)
	kit.Equal(t, found[0].About, "webhook chat.example")
	kit.Fails(t, found[0].Err, "there is no secret hook")
}

func TestRetryAfterIsBounded(t *testing.T) {
	for header, want := range map[string]time.Duration{"": time.Second, "7": 7 * time.Second, "3600": time.Minute} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", header)
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		again, err := open("key").post(t.Context(), Webhook{URL: s.URL}, Event{ID: "a"})
		s.Close()
		kit.Fails(t, err, "429")
		kit.Equal(t, again, want, header)
	}
}

// A caller chooses the names of the files that its call touches.
func TestTextForChatsIsOneLineWithoutHiddenCharacters(t *testing.T) {
	var got Event
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&got)
	}))
	defer s.Close()
	_, err := open("key").post(t.Context(), Webhook{URL: s.URL}, Event{ID: "a", Text: "writes /a\nok\x1b[2K\u202e\u200b/b"})
	kit.OK(t, err)
	kit.Equal(t, got.Text, `writes /a\u000aok\u001b[2K\u202e\u200b/b`)
}

// A noNetwork accepts and counts what is posted, without a network.
type noNetwork struct {
	posts atomic.Int64
	code  int // that it answers; 0 means 200
}

func (p *noNetwork) RoundTrip(*http.Request) (*http.Response, error) {
	p.posts.Add(1)
	return &http.Response{StatusCode: cmp.Or(p.code, http.StatusOK), Body: http.NoBody}, nil
}

func TestWebhooksShareOneLookAndItsFailureIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, net, log := open("key", Webhook{URL: "https://a.example"}, Webhook{URL: "https://b.example"}), new(noNetwork), new(strings.Builder)
		n.client.Transport, n.env.Log = net, slog.New(slog.NewTextHandler(log, nil))
		looks, broken := 0, errors.New("the store is away")
		n.env.Look = func(context.Context) ([]Event, error) {
			if looks++; looks%5 != 1 { // it works, fails four times, and works again
				return nil, broken
			}
			return []Event{{ID: "old"}, {ID: "open", Open: true}}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 6*lookEvery-time.Millisecond)
		defer cancel()
		n.Run(ctx)
		kit.Equal(t, looks, 7)            // and once at the end
		kit.Equal(t, net.posts.Load(), 2) // the open event, once for each webhook
		kit.Equal(t, strings.Count(log.String(), "the store is away"), 1, log)
	})
}

// What happened just before the end is sent, or it is said how much was not.
func TestLastEventsAreSentOrCounted(t *testing.T) {
	for name, c := range map[string]struct {
		code  int
		posts int64
		log   string
	}{
		"sent": {http.StatusOK, 2, ""},
		"left": {http.StatusServiceUnavailable, 3, "events=2"}, // tried for a short while
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, net, log := open("key", Webhook{URL: "https://a.example"}), &noNetwork{code: c.code}, new(strings.Builder)
				n.client.Transport, n.env.Log = net, slog.New(slog.NewTextHandler(log, nil))
				ctx, cancel := context.WithCancel(t.Context())
				n.env.Look = func(context.Context) ([]Event, error) {
					if ctx.Err() == nil {
						time.AfterFunc(lookEvery/2, cancel)
						return nil, nil
					}
					return []Event{{ID: "2"}, {ID: "1"}}, nil
				}
				n.Run(ctx)
				kit.Equal(t, net.posts.Load(), c.posts)
				kit.Contains(t, log.String(), c.log, "the log")
			})
		})
	}
}

func TestSlowWebhookDelaysNoOther(t *testing.T) {
	got := make(chan string, 10)
	hold := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	fast := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("webhook-id") }))
	defer slow.Close()
	defer fast.Close()
	defer close(hold)
	n := open("key", Webhook{URL: slow.URL}, Webhook{URL: fast.URL})
	changed := make(chan struct{}, 1)
	n.env.Changed = func() <-chan struct{} { return changed }
	var second atomic.Bool
	n.env.Look = func(context.Context) ([]Event, error) {
		if second.Load() {
			return []Event{{ID: "2"}, {ID: "1", Open: true}}, nil
		}
		return []Event{{ID: "1", Open: true}}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); n.Run(ctx) }()
	kit.Equal(t, kit.Receive(t, "the first event", got), "1")
	second.Store(true)
	changed <- struct{}{}
	kit.Equal(t, kit.Receive(t, "the second event", got), "2")
	cancel()
	<-done
}
