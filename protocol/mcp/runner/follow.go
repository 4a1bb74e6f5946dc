package runner

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// updates holds the followed resources of a server, and their followers.
type updates struct {
	opened tool.Changes // signals that a modern server opened a stream

	followMu sync.Mutex // serialises Follow and its stop
	mu       sync.Mutex
	all      map[string]*followedResource
}

type followedResource struct {
	followers map[*func(uri, changed string)]bool
	end       func()
}

// maxFollowed bounds the resources of a server that all callers together follow.
const maxFollowed = 1_000

// join adds a follower of a resource. fresh is true if the server does not report its changes yet.
func (u *updates) join(uri string, heard *func(string, string)) (f *followedResource, fresh bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f = u.all[uri]
	if fresh = f == nil; fresh && len(u.all) == maxFollowed {
		return nil, false
	}
	if fresh {
		f = &followedResource{map[*func(string, string)]bool{}, func() {}}
		if u.all == nil {
			u.all = map[string]*followedResource{}
		}
		u.all[uri] = f
	}
	f.followers[heard] = true
	return f, fresh
}

// leave undoes join.
func (u *updates) leave(uri string, heard *func(string, string)) {
	u.mu.Lock()
	f := u.all[uri]
	last := f != nil && f.followers[heard] && len(f.followers) == 1
	if last {
		delete(u.all, uri)
	} else if f != nil {
		delete(f.followers, heard)
	}
	u.mu.Unlock()
	if last {
		f.end()
	}
}

func (u *updates) uris() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.all))
}

// notify notifies the followers of a resource, or of the nearest one that contains it.
func (u *updates) notify(changed string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	uri := changed
	for uri != "" && u.all[uri] == nil {
		uri = strings.TrimRight(uri[:strings.LastIndexByte(uri, '/')+1], "/")
	}
	if f := u.all[uri]; f != nil {
		for heard := range f.followers {
			(*heard)(uri, changed)
		}
	}
}

// updated handles a server's notification that a resource has changed.
func (r *Runner) updated(params json.RawMessage) {
	var msg struct {
		URI string `json:"uri"`
	}
	if strictjson.Unmarshal(strictjson.OrEmpty(params), &msg) == nil && len(msg.URI) <= mcp.MaxURI {
		r.updates.notify(msg.URI)
	}
}

// setServer records the server whose tools were listed. A server that replaced another one does not know the followed
// resources, and these may have changed.
func (r *Runner) setServer(ctx context.Context, info *serverInfo) {
	if before := r.server.Swap(info); before == nil || before == info {
		return
	}
	for _, uri := range r.updates.uris() {
		if !info.modern {
			_ = r.sendResource(ctx, mcp.MethodSubscribe, uri) // if it refuses, the resource can still be read
		}
		r.updates.notify(uri)
	}
}

// Follow implements tool.Follower.
func (r *Runner) Follow(ctx context.Context, uris []string, heard func(uri, changed string)) (stop func(), failed []string) {
	ctx, cancel := context.WithTimeout(ctx, extrasTime)
	defer cancel()
	r.updates.followMu.Lock()
	defer r.updates.followMu.Unlock()
	info := r.server.Load()
	if info == nil || info.capabilities.Resources == nil || !info.capabilities.Resources.Subscribe || r.life.Err() != nil {
		return func() {}, uris
	}
	for _, uri := range uris {
		switch f, fresh := r.updates.join(uri, &heard); {
		case f == nil:
			failed = append(failed, uri)
		case fresh && info.modern:
			f.end = r.stream(ctx, uri)
		case fresh && r.sendResource(ctx, mcp.MethodSubscribe, uri) != nil:
			r.updates.leave(uri, &heard)
			failed = append(failed, uri)
		case fresh:
			f.end = func() {
				ctx, cancel := context.WithTimeout(r.life, cancelTime)
				defer cancel()
				_ = r.sendResource(ctx, mcp.MethodUnsubscribe, uri) // a courtesy
			}
		}
	}
	return func() {
		r.updates.followMu.Lock()
		defer r.updates.followMu.Unlock()
		for _, uri := range uris {
			r.updates.leave(uri, &heard)
		}
	}, failed
}

// sendResource sends a legacy server a request about a resource.
func (r *Runner) sendResource(ctx context.Context, method, uri string) error {
	_, err := r.upstream.ask(ctx, &query{method: method, params: func(_ *serverInfo, w *strictjson.Writer) { w.Text("uri", uri) }})
	return err
}

// stream has a modern server report changes of a resource, until end. It waits until the server has begun to. Each
// resource has its own stream, as in the official clients: some servers forget the subscriptions of other streams when
// one ends.
func (r *Runner) stream(ctx context.Context, uri string) (end func()) {
	life, end := context.WithCancel(r.life)
	opened := r.updates.opened.Changed()
	r.running.Go(func() {
		keepListening(life, func(first bool) error {
			if !first {
				r.updates.notify(uri) // changes in between were missed
			}
			_, err := r.upstream.ask(life, listenQuery(mcp.Filter{URIs: []string{uri}}))
			return err
		})
	})
	select {
	case <-opened:
	case <-ctx.Done():
	case <-life.Done():
	}
	return end
}

// lists returns the lists whose changes a modern server reports on request.
func (info *serverInfo) lists() (f mcp.Filter, some bool) {
	changes := func(a *listCapability) bool { return info.modern && a != nil && a.ListChanged }
	f = mcp.Filter{Tools: changes(info.capabilities.Tools), Prompts: changes(info.capabilities.Prompts), Resources: changes(info.capabilities.Resources)}
	return f, f.Tools || f.Prompts || f.Resources
}

func listenQuery(f mcp.Filter) *query {
	return &query{method: mcp.MethodListen, stream: true, params: func(_ *serverInfo, w *strictjson.Writer) {
		b, _ := strictjson.Marshal(f) // booleans and strings
		w.Raw("notifications", b)
	}}
}

// Pauses before listening to a server again.
const (
	firstListen = time.Second
	lastListen  = 30 * time.Second
)

// keepListening listens again and again until ctx ends. It gives up if the server's first answer is an error.
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
		tool.Sleep(ctx, pause)
		pause = min(2*pause, lastListen)
	}
}
