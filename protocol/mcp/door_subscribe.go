package mcp

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// A filter selects the changes that a client wants to be notified of.
type filter struct {
	Tools     bool     `json:"toolsListChanged,omitzero"`
	Prompts   bool     `json:"promptsListChanged,omitzero"`
	Resources bool     `json:"resourcesListChanged,omitzero"`
	URIs      []string `json:"resourceSubscriptions,omitzero"`
	Tasks     []string `json:"taskIds,omitzero"`
}

// everything is the filter of legacy clients: they can choose only resources.
func everything() filter { return filter{Tools: true, Prompts: true, Resources: true} }

// Bounds on the resources that one client watches, which are kept for as long as it listens.
const (
	maxURIs  = 1_000
	maxURI   = 4 << 10
	maxHeard = 128 << 10 // bytes of all URIs together
)

// subscribe is subscriptions/listen: it sends changes until the client cancels, or the server ends.
func (s *server) subscribe(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	var said struct {
		Notifications filter `json:"notifications"`
	}
	if bad := r.read(&said); bad != nil {
		return nil, bad
	}
	want := said.Notifications
	ear, ok := newEar(want.URIs...)
	if !ok {
		return nil, tooManyURIs("one subscription")
	}
	r.settle()
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
	ear.keep(want.URIs)
	w := s.watch(ctx, r.caller, ear) // before the acknowledgement, so that no change is missed
	want.URIs = slices.DeleteFunc(want.URIs, func(uri string) bool { return slices.Contains(w.failed, uri) })
	honoured, _ := strictjson.Marshal(want) // booleans and strings
	ack := strictjson.NewWriter(200 + len(honoured))
	ack.Raw("notifications", honoured)
	if tell("notifications/subscriptions/acknowledged", ack) == nil {
		following, stop := context.WithCancel(ctx)
		var tasks sync.WaitGroup
		for _, id := range want.Tasks {
			tasks.Go(func() { s.follow(following, r, id, tell) })
		}
		w.run(ctx, want, tell)
		stop()
		tasks.Wait()
	}
	s.ears.leave(r.caller.ID, ear)
	return begun(r, 0), nil
}

// A watcher finds the changes that concern one caller.
type watcher struct {
	*server
	caller  tool.Principal
	ear     *ear
	changed <-chan struct{}
	before  lists
	failed  []string // resources whose server cannot report changes now
}

func (s *server) watch(ctx context.Context, p tool.Principal, e *ear) *watcher {
	s.ears.join(p.ID, e)
	changed := tool.Changed(s.catalog)
	failed := s.refollow(ctx, p, e)
	return &watcher{s, p, e, changed, s.lists(ctx, p), failed}
}

// run sends changes as they happen until ctx ends or sending fails. A catalogue reports that something changed, but not
// what, nor for whom: if a list is the same as before for this caller, nothing is sent.
func (w *watcher) run(ctx context.Context, want filter, tell func(method string, params *strictjson.Writer) error) {
	for err := error(nil); err == nil; {
		select {
		case <-ctx.Done():
			return
		case <-w.ear.wake:
			for _, uri := range w.ear.heard() {
				params := strictjson.NewWriter(100 + len(uri))
				params.Text("uri", uri)
				if err = tell("notifications/resources/updated", params); err != nil {
					return
				}
			}
		case <-w.changed:
			w.changed = tool.Changed(w.catalog)
			w.failed = w.refollow(ctx, w.caller, w.ear)
			before := w.before
			w.before = w.lists(ctx, w.caller)
			for _, list := range []struct {
				name string
				tell bool
			}{
				{"tools", want.Tools && before.tools != w.before.tools},
				{"prompts", want.Prompts && before.prompts != w.before.prompts},
				{"resources", want.Resources && before.resources != w.before.resources},
			} {
				if list.tell && err == nil {
					err = tell("notifications/"+list.name+"/list_changed", strictjson.NewWriter(100))
				}
			}
		}
	}
}

// lists are digests of a caller's lists, valid within this process.
type lists struct{ tools, prompts, resources uint64 }

func (s *server) lists(ctx context.Context, p tool.Principal) lists {
	var tools maphash.Hash
	tools.SetSeed(s.ears.seed())
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
	}
	return lists{
		tools: tools.Sum64(), prompts: s.digest(s.prompts(ctx, p)),
		resources: s.digest(append(s.resources(ctx, p, true), s.resources(ctx, p, false)...)),
	}
}

func (s *server) digest(list any) uint64 {
	b, _ := json.Marshal(list) //nolint:errchkjson // lists of texts
	return maphash.Bytes(s.ears.seed(), b)
}

// An ear collects which of some resources changed. Several changes of one resource are reported once.
type ear struct {
	wake chan struct{}

	mu   sync.Mutex
	uris map[string]bool // whether they changed
	size int             // of the URIs, in bytes

	turn    sync.Mutex
	follows []func() // each stops following resources of an MCP server
}

// refollow subscribes at MCP servers to the resources that an ear watches, and to no others. It returns the URIs that
// no server reports on.
func (s *server) refollow(ctx context.Context, p tool.Principal, e *ear) (failed []string) {
	e.turn.Lock()
	defer e.turn.Unlock()
	before := e.follows
	e.follows = nil
	uris := e.upstream()
	for spec, live := range tool.Offers(ctx, s.catalog, p) {
		if own := uris[spec.Source]; spec.Method == methodReadResource && live != nil && own != nil {
			stop, not := live.Follow(ctx, own, func(uri string) { e.hear(sourceURI(spec.Source, uri)) })
			e.follows, uris[spec.Source] = append(e.follows, stop), not
		}
	}
	for _, stop := range before {
		stop()
	}
	for source, left := range uris {
		for _, uri := range left {
			failed = append(failed, sourceURI(source, uri))
		}
	}
	return failed
}

// upstream returns the watched URIs of MCP servers, as the servers know them, by source.
func (e *ear) upstream() map[string][]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	uris := map[string][]string{}
	for uri := range e.uris {
		if source, own, ok := ofSource(uri); ok {
			uris[source] = append(uris[source], own)
		}
	}
	return uris
}

// unfollow ends all subscriptions at MCP servers.
func (e *ear) unfollow() {
	e.turn.Lock()
	defer e.turn.Unlock()
	for _, stop := range e.follows {
		stop()
	}
	e.follows = nil
}

// newEar returns an ear for some URIs. ok is false if they are too many.
func newEar(uris ...string) (e *ear, ok bool) {
	e = &ear{wake: make(chan struct{}, 1), uris: map[string]bool{}}
	for _, uri := range uris {
		if !e.add(uri) {
			return nil, false
		}
	}
	return e, true
}

// keep watches only these URIs.
func (e *ear) keep(uris []string) {
	for _, uri := range slices.Collect(maps.Keys(e.uris)) { // not shared yet
		if !slices.Contains(uris, uri) {
			e.drop(uri)
		}
	}
}

func (e *ear) heard() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var changed []string
	for _, uri := range slices.Sorted(maps.Keys(e.uris)) {
		if e.uris[uri] {
			changed, e.uris[uri] = append(changed, uri), false
		}
	}
	return changed
}

func (e *ear) hear(uri string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, wanted := e.uris[uri]; !wanted {
		return
	}
	e.uris[uri] = true
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// add watches a resource. It returns false if there are too many.
func (e *ear) add(uri string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, has := e.uris[uri]; !has {
		if len(e.uris) >= maxURIs || len(uri) > maxURI || e.size+len(uri) > maxHeard {
			return false
		}
		e.size += len(uri)
	}
	e.uris[uri] = false
	return true
}

func (e *ear) drop(uri string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, has := e.uris[uri]; has {
		delete(e.uris, uri)
		e.size -= len(uri)
	}
}

func tooManyURIs(where string) *jsonrpc.Error {
	return invalid("%d resources, with %d bytes of URIs, are the most for %s", maxURIs, maxHeard, where)
}

// ears are those of all connected clients, by caller: a client is not notified of what another caller's call changed.
type ears struct {
	mu   sync.Mutex
	all  map[string]map[*ear]int // the number of its streams
	once sync.Once
	salt maphash.Seed
}

func (e *ears) seed() maphash.Seed {
	e.once.Do(func() { e.salt = maphash.MakeSeed() })
	return e.salt
}

func (e *ears) join(caller string, one *ear) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil {
		e.all = map[string]map[*ear]int{}
	}
	if e.all[caller] == nil {
		e.all[caller] = map[*ear]int{}
	}
	e.all[caller][one]++
}

func (e *ears) leave(caller string, one *ear) {
	if e.left(caller, one) {
		one.unfollow()
	}
}

// left reports whether that was the last stream of an ear.
func (e *ears) left(caller string, one *ear) (last bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all[caller][one]--; e.all[caller][one] <= 0 {
		delete(e.all[caller], one)
		last = true
	}
	if len(e.all[caller]) == 0 {
		delete(e.all, caller)
	}
	return last
}

// open reports whether an ear's client has a stream.
func (e *ears) open(caller string, one *ear) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all[caller][one] > 0
}

func (e *ears) tell(caller, uri string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for one := range e.all[caller] {
		one.hear(uri)
	}
}

// subscribeResource is resources/subscribe: a legacy client is notified on the stream of its session.
func (s *server) subscribeResource(ctx context.Context, r *request, _ peer) (*strictjson.Writer, *jsonrpc.Error) {
	switch {
	case r.session == nil || r.uri == "" || len(r.uri) > maxURI:
		return nil, invalid("uri must be that of a resource")
	case !s.offers(ctx, r.caller)(r.uri):
		return nil, noResource(r)
	case !r.session.ear.add(r.uri):
		return nil, tooManyURIs("one session; unsubscribe from some")
	}
	if s.ears.open(r.caller.ID, r.session.ear) && slices.Contains(s.refollow(ctx, r.caller, r.session.ear), r.uri) {
		r.session.ear.drop(r.uri)
		return nil, invalid("nothing tells of changes of %s; read it again", jsonrpc.Clip(r.uri))
	}
	return strictjson.NewWriter(0), nil
}

func (s *server) unsubscribeResource(ctx context.Context, r *request, _ peer) (*strictjson.Writer, *jsonrpc.Error) {
	if r.session != nil {
		r.session.ear.drop(r.uri)
		if s.ears.open(r.caller.ID, r.session.ear) {
			_ = s.refollow(ctx, r.caller, r.session.ear)
		}
	}
	return strictjson.NewWriter(0), nil
}
