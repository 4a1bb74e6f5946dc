package door

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// allChanges is the filter of legacy clients: they can choose only resources.
func allChanges() mcp.Filter { return mcp.Filter{Tools: true, Prompts: true, Resources: true} }

// Bounds on the resources that one client watches, which are kept for as long as it listens.
const (
	maxURIs     = 1_000
	maxURIBytes = 128 << 10 // bytes of all URIs together
)

// subscribe is subscriptions/listen: it sends changes until the client cancels, or the server ends.
func (s *server) subscribe(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	var params struct {
		Notifications mcp.Filter `json:"notifications"`
	}
	if bad := r.read(&params); bad != nil {
		return nil, bad
	}
	want := params.Notifications
	sub, ok := newSubscription(want.URIs...)
	if !ok {
		return nil, tooManyURIs("one subscription")
	}
	r.detach()
	own, bad := s.ownTasks(ctx, r, want.Tasks)
	if want.Tasks = own; bad != nil {
		return nil, bad
	}
	marked := strictjson.NewWriter(60)
	marked.Raw(metaSubscription, r.id)
	mark := marked.Done()
	tell := func(method string, more *strictjson.Writer) error { // called concurrently
		more.Raw("_meta", mark)
		return to.notify(method, more.Done())
	}
	offered := s.offers(ctx, r.caller)
	want.URIs = slices.DeleteFunc(want.URIs, func(uri string) bool { return !offered(uri) })
	sub.retain(want.URIs)
	w := s.watch(ctx, r.caller, sub) // before the acknowledgement, so that no change is missed
	want.URIs = slices.DeleteFunc(want.URIs, func(uri string) bool { return slices.Contains(w.failed, uri) })
	honoured, _ := strictjson.Marshal(want) // booleans and strings
	ack := strictjson.NewWriter(200 + len(honoured))
	ack.Raw("notifications", honoured)
	if tell(mcp.NoteAcknowledged, ack) == nil {
		following, stop := context.WithCancel(ctx)
		var tasks sync.WaitGroup
		for _, id := range want.Tasks {
			tasks.Go(func() { s.watchTask(following, r, id, tell) })
		}
		w.run(ctx, want, tell)
		stop()
		tasks.Wait()
	}
	s.subscriptions.leave(r.caller.ID, sub)
	return newResult(r, 0), nil
}

// A watcher finds the changes that concern one caller.
type watcher struct {
	*server
	caller       tool.Principal
	subscription *subscription
	changed      <-chan struct{}
	before       lists
	failed       []string // resources whose server cannot report changes now
}

func (s *server) watch(ctx context.Context, p tool.Principal, sub *subscription) *watcher {
	s.subscriptions.join(p.ID, sub)
	changed := tool.Changed(s.catalog)
	failed := s.refollow(ctx, p, sub)
	return &watcher{s, p, sub, changed, s.lists(ctx, p), failed}
}

// run sends changes as they happen until ctx ends or sending fails. A catalogue reports that something changed, but not
// what, nor for whom: if a list is the same as before for this caller, nothing is sent.
func (w *watcher) run(ctx context.Context, want mcp.Filter, tell func(method string, params *strictjson.Writer) error) {
	for err := error(nil); err == nil; {
		select {
		case <-ctx.Done():
			return
		case <-w.subscription.wake:
			for _, uri := range w.subscription.takeChanged() {
				params := strictjson.NewWriter(100 + len(uri))
				params.Text("uri", uri)
				if err = tell(mcp.NoteUpdated, params); err != nil {
					return
				}
			}
		case <-w.changed:
			w.changed = tool.Changed(w.catalog)
			w.failed = w.refollow(ctx, w.caller, w.subscription)
			before := w.before
			w.before = w.lists(ctx, w.caller)
			for _, list := range []struct {
				note string
				tell bool
			}{
				{mcp.NoteToolsChanged, want.Tools && before.tools != w.before.tools},
				{mcp.NotePromptsChanged, want.Prompts && before.prompts != w.before.prompts},
				{mcp.NoteListChanged, want.Resources && before.resources != w.before.resources},
			} {
				if list.tell && err == nil {
					err = tell(list.note, strictjson.NewWriter(100))
				}
			}
		}
	}
}

// lists are digests of a caller's lists, valid within this process.
type lists struct{ tools, prompts, resources uint64 }

func (s *server) lists(ctx context.Context, p tool.Principal) lists {
	var tools maphash.Hash
	tools.SetSeed(s.subscriptions.seed())
	for spec, err := range s.catalog.Specs(ctx, p) {
		if err != nil {
			continue
		}
		for _, part := range []string{spec.Name, spec.Title, spec.Description, spec.TaskSupport} {
			_, _ = tools.WriteString(part) // never fails, nor do the others
			_ = tools.WriteByte(0)
		}
		_, _ = tools.Write(spec.Input)
		_, _ = tools.Write(spec.Output)
		_, _ = tools.Write(annotations(spec))
		_, _ = tools.Write(spec.Extra)
	}
	return lists{
		tools: tools.Sum64(), prompts: s.digest(s.prompts(ctx, p)),
		resources: s.digest(append(s.resources(ctx, p, true), s.resources(ctx, p, false)...)),
	}
}

func (s *server) digest(list any) uint64 {
	b, _ := json.Marshal(list) //nolint:errchkjson // lists of texts
	return maphash.Bytes(s.subscriptions.seed(), b)
}

// A subscription collects which of some resources changed. Several changes of one resource are reported once.
type subscription struct {
	wake chan struct{}

	mu      sync.Mutex
	uris    map[string]bool
	changed map[string]bool // these of them, and parts of them
	size    int             // of the URIs, in bytes

	followMu sync.Mutex
	follows  []func() // each stops following resources of an MCP server
}

// refollow subscribes at MCP servers to the resources that a subscription watches, and to no others. It returns the
// URIs that no server reports on.
func (s *server) refollow(ctx context.Context, p tool.Principal, sub *subscription) (failed []string) {
	sub.followMu.Lock()
	defer sub.followMu.Unlock()
	before := sub.follows
	sub.follows = nil
	uris := sub.upstream(s.splitSourceURI)
	for spec, live := range tool.Offers(ctx, s.catalog, p) {
		if own := uris[spec.Source]; spec.Method == mcp.MethodReadResource && live != nil && own != nil {
			stop, not := live.Follow(ctx, own, func(uri, changed string) {
				sub.markChanged(s.sourceURI(spec.Source, uri), s.sourceURI(spec.Source, changed))
			})
			sub.follows, uris[spec.Source] = append(sub.follows, stop), not
		}
	}
	for _, stop := range before {
		stop()
	}
	for source, remaining := range uris {
		for _, uri := range remaining {
			failed = append(failed, s.sourceURI(source, uri))
		}
	}
	return failed
}

// upstream returns the watched URIs of MCP servers, as the servers know them, by source.
func (s *subscription) upstream(split func(uri string) (source, own string, ok bool)) map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	uris := map[string][]string{}
	for uri := range s.uris {
		if source, own, ok := split(uri); ok {
			uris[source] = append(uris[source], own)
		}
	}
	return uris
}

// unfollow ends all subscriptions at MCP servers.
func (s *subscription) unfollow() {
	s.followMu.Lock()
	defer s.followMu.Unlock()
	for _, stop := range s.follows {
		stop()
	}
	s.follows = nil
}

// newSubscription returns a subscription for some URIs. ok is false if they are too many.
func newSubscription(uris ...string) (s *subscription, ok bool) {
	s = &subscription{wake: make(chan struct{}, 1), uris: map[string]bool{}, changed: map[string]bool{}}
	for _, uri := range uris {
		if !s.add(uri) {
			return nil, false
		}
	}
	return s, true
}

// retain watches only these URIs.
func (s *subscription) retain(uris []string) {
	for _, uri := range slices.Collect(maps.Keys(s.uris)) { // not shared yet
		if !slices.Contains(uris, uri) {
			s.drop(uri)
		}
	}
}

func (s *subscription) takeChanged() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := slices.Sorted(maps.Keys(s.changed))
	clear(s.changed)
	return changed
}

// markChanged notes that a resource, or a part of it, changed.
func (s *subscription) markChanged(uri, changed string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.uris[uri] {
		return
	}
	if len(s.changed) >= maxURIs { // the server names more parts than there is room for
		changed = uri
	}
	s.changed[changed] = true
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// add watches a resource. It returns false if there are too many.
func (s *subscription) add(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.uris[uri] {
		if len(s.uris) >= maxURIs || len(uri) > mcp.MaxURI || s.size+len(uri) > maxURIBytes {
			return false
		}
		s.size += len(uri)
	}
	s.uris[uri] = true
	return true
}

func (s *subscription) drop(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uris[uri] {
		delete(s.uris, uri)
		delete(s.changed, uri)
		s.size -= len(uri)
	}
}

func tooManyURIs(where string) *jsonrpc.Error {
	return mcp.Invalid("%d resources, with %d bytes of URIs, are the most for %s", maxURIs, maxURIBytes, where)
}

// subscriptions are those of all connected clients, by caller: a client is not notified of what another caller's call
// changed.
type subscriptions struct {
	mu   sync.Mutex
	all  map[string]map[*subscription]int // the number of its streams
	once sync.Once
	salt maphash.Seed
}

func (s *subscriptions) seed() maphash.Seed {
	s.once.Do(func() { s.salt = maphash.MakeSeed() })
	return s.salt
}

func (s *subscriptions) join(caller string, one *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]map[*subscription]int{}
	}
	if s.all[caller] == nil {
		s.all[caller] = map[*subscription]int{}
	}
	s.all[caller][one]++
}

func (s *subscriptions) leave(caller string, one *subscription) {
	if s.remove(caller, one) {
		one.unfollow()
	}
}

// remove removes a stream of a subscription, and reports whether it was the last.
func (s *subscriptions) remove(caller string, one *subscription) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[caller][one]--; s.all[caller][one] <= 0 {
		delete(s.all[caller], one)
		last = true
	}
	if len(s.all[caller]) == 0 {
		delete(s.all, caller)
	}
	return last
}

// open reports whether a subscription's client has a stream.
func (s *subscriptions) open(caller string, one *subscription) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[caller][one] > 0
}

func (s *subscriptions) notify(caller, uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.all[caller] {
		one.markChanged(uri, uri)
	}
}

// subscribeResource is resources/subscribe: a legacy client is notified on the stream of its session.
func (s *server) subscribeResource(ctx context.Context, r *request, _ peer) (*strictjson.Writer, *jsonrpc.Error) {
	switch {
	case r.session == nil || r.uri == "" || len(r.uri) > mcp.MaxURI:
		return nil, mcp.Invalid("uri must be that of a resource")
	case !s.offers(ctx, r.caller)(r.uri):
		return nil, noResource(r)
	case !r.session.subscription.add(r.uri):
		return nil, tooManyURIs("one session; unsubscribe from some")
	}
	if s.subscriptions.open(r.caller.ID, r.session.subscription) &&
		slices.Contains(s.refollow(ctx, r.caller, r.session.subscription), r.uri) {
		r.session.subscription.drop(r.uri)
		return nil, mcp.Invalid("nothing tells of changes of %s; read it again", jsonrpc.Clip(r.uri))
	}
	return strictjson.NewWriter(0), nil
}

func (s *server) unsubscribeResource(ctx context.Context, r *request, _ peer) (*strictjson.Writer, *jsonrpc.Error) {
	if r.session != nil {
		r.session.subscription.drop(r.uri)
		if s.subscriptions.open(r.caller.ID, r.session.subscription) {
			_ = s.refollow(ctx, r.caller, r.session.subscription)
		}
	}
	return strictjson.NewWriter(0), nil
}
