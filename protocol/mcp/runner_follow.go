package mcp

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// updates are the resources of a server of which changes are told, and to whom.
type updates struct {
	opened tool.Changes // a stream of a modern server

	turn sync.Mutex // one that follows or leaves at a time
	mu   sync.Mutex
	all  map[string]map[*func(uri string)]bool
	of   map[string]*batch
}

// A batch is resources that the server was asked to tell of with one stream, or one after the other. They are left
// together: servers lose track of those who ask for one resource in several streams.
type batch struct {
	uris []string
	end  func()
}

// maxFollowed bounds the resources of a server that all callers together follow.
const maxFollowed = 1_000

// join notes who is told of some resources, and gives those of which the server does not tell yet.
func (u *updates) join(uris []string, heard *func(string)) (fresh []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all, u.of = map[string]map[*func(string)]bool{}, map[string]*batch{}
	}
	for _, uri := range uris {
		if u.all[uri] == nil {
			u.all[uri] = map[*func(string)]bool{}
		}
		if u.all[uri][heard] = true; u.of[uri] == nil {
			fresh = append(fresh, uri)
		}
	}
	return fresh
}

func (u *updates) begun(b *batch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, uri := range b.uris {
		u.of[uri] = b
	}
}

// leave undoes join, and ends batches of which nothing is followed any more.
func (u *updates) leave(uris []string, heard *func(string)) {
	u.mu.Lock()
	var over []*batch
	for _, uri := range uris {
		if delete(u.all[uri], heard); len(u.all[uri]) == 0 {
			delete(u.all, uri)
		}
		b := u.of[uri]
		if b == nil || slices.ContainsFunc(b.uris, func(uri string) bool { return u.all[uri] != nil }) {
			continue
		}
		for _, uri := range b.uris {
			delete(u.of, uri)
		}
		over = append(over, b)
	}
	u.mu.Unlock()
	for _, b := range over {
		b.end()
	}
}

func (u *updates) uris() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.all))
}

// tell tells those who follow a resource, or one that it is a part of.
func (u *updates) tell(uris ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, uri := range uris {
		for uri != "" && u.all[uri] == nil {
			uri = strings.TrimRight(uri[:strings.LastIndexByte(uri, '/')+1], "/")
		}
		for heard := range u.all[uri] {
			(*heard)(uri)
		}
	}
}

// updated takes the word of a server that a resource has changed.
func (r *Runner) updated(params json.RawMessage) {
	var said struct {
		URI string `json:"uri"`
	}
	if strictjson.Unmarshal(orEmpty(params), &said) == nil && len(said.URI) <= maxURI {
		r.updates.tell(said.URI)
	}
}

// meets notes who has listed its tools. A server that took the place of another one does not know what is followed, and
// that may have changed.
func (r *Runner) meets(ctx context.Context, g *greeting) {
	if before := r.met.Swap(g); before == nil || before == g {
		return
	}
	uris := r.updates.uris()
	if !g.modern {
		_ = r.aboutURIs(ctx, methodSubscribe, uris) // one that does not tell of them any more is still read
	}
	r.updates.tell(uris...)
}

// Follow tells of changes of resources: see tool.Offering.
func (r *Runner) Follow(ctx context.Context, uris []string, heard func(uri string)) (stop func(), err error) {
	g := r.met.Load()
	if g == nil || g.can.Resources == nil || !g.can.Resources.Subscribe {
		return nil, tool.Errorf(tool.CodeUnsupported, "the server does not tell of changes of its resources: read them again")
	}
	ctx, cancel := context.WithTimeout(ctx, besideTime)
	defer cancel()
	r.updates.turn.Lock()
	defer r.updates.turn.Unlock()
	b := &batch{uris: r.updates.join(uris, &heard)}
	switch {
	case len(b.uris) == 0:
	case len(r.updates.uris()) > maxFollowed:
		err = tool.Errorf(tool.CodeQuotaExceeded, "callers follow %d resources of the server, which is the most", maxFollowed)
	case g.modern:
		b.end = r.stream(ctx, b.uris)
	default:
		err = r.aboutURIs(ctx, methodSubscribe, b.uris)
		b.end = func() {
			ctx, cancel := context.WithTimeout(r.life, leaveTime)
			defer cancel()
			_ = r.aboutURIs(ctx, methodUnsubscribe, b.uris) // a courtesy
		}
	}
	if err != nil {
		r.updates.leave(uris, &heard)
		return nil, err
	}
	r.updates.begun(b)
	return func() {
		r.updates.turn.Lock()
		defer r.updates.turn.Unlock()
		r.updates.leave(uris, &heard)
	}, nil
}

// aboutURIs tells a server of the legacy era something about resources, one by one.
func (r *Runner) aboutURIs(ctx context.Context, method string, uris []string) error {
	for _, uri := range uris {
		q := &query{method: method, params: func(_ *greeting, w *strictjson.Writer) { w.Text("uri", uri) }}
		if _, err := r.to.ask(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// stream has a modern server tell of resources, until end. It waits until the server has begun to.
func (r *Runner) stream(ctx context.Context, uris []string) (end func()) {
	life, end := context.WithCancel(r.life)
	opened := r.updates.opened.Changed()
	r.errands.Go(func() {
		keepListening(life, func(first bool) error {
			if !first {
				r.updates.tell(uris...) // what changed meanwhile was not told
			}
			return r.to.listen(life, listenQuery(filter{URIs: uris}))
		})
	})
	select {
	case <-opened:
	case <-ctx.Done():
	}
	return end
}

// lists are those of a server's lists of whose changes it tells if it is asked to.
func (g *greeting) lists() filter {
	changes := func(a *ability) bool { return g.modern && a != nil && a.ListChanged }
	return filter{Tools: changes(g.can.Tools), Prompts: changes(g.can.Prompts), Resources: changes(g.can.Resources)}
}

// listens reports whether there is something to hear from this server that has to be asked for.
func (g *greeting) listens() bool {
	f := g.lists()
	return f.Tools || f.Prompts || f.Resources
}

func listenQuery(f filter) *query {
	return &query{method: methodListen, params: func(_ *greeting, w *strictjson.Writer) {
		b, _ := strictjson.Marshal(f) // booleans and strings
		w.Raw("notifications", b)
	}}
}

// Pauses before a server is asked again to tell of changes.
const (
	firstListen = time.Second
	lastListen  = 30 * time.Second
)

// keepListening listens again and again until ctx ends. A server that answers that it does not know how is left alone.
func keepListening(ctx context.Context, listen func(first bool) error) {
	pause := firstListen
	for first := true; ctx.Err() == nil; first = false {
		begun := time.Now()
		err := listen(first)
		if answeredError(err) != nil && first {
			return
		}
		if time.Since(begun) > lastListen {
			pause = firstListen
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, lastListen)
	}
}
