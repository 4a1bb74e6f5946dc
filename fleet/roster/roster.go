// Package roster keeps the members of a fleet, and the shares of calls, as the store had them last: a hub goes on while the store is
// away.
package roster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"toolpost/engine/member"
	"toolpost/tool"
)

// A Roster is the members of one fleet.
type Roster struct {
	store   member.Store
	log     *slog.Logger
	changed func()     // the shares of calls are others
	looking sync.Mutex // one look at the store at a time

	mu      sync.Mutex
	members []member.Member
	shares  []member.Share
	evicted map[string]bool // that the store may not show yet: no membership begins again
	looked  time.Time       // when the last look at the members began
	unread  error           // why it read none
}

// New returns the roster of a store, which calls changed when the shares of calls have changed. Until it is first read, it has the
// given members.
func New(store member.Store, log *slog.Logger, changed func(), members ...member.Member) *Roster {
	return &Roster{store: store, log: log, changed: changed, members: members, evicted: map[string]bool{}}
}

// Refresh reads the members, and the shares of calls. Looks at the store follow one another, so that none brings back what a later
// one has seen.
func (r *Roster) Refresh(ctx context.Context) error {
	r.looking.Lock()
	defer r.looking.Unlock()
	if err := r.look(ctx); err != nil {
		return err
	}
	shares, err := r.store.Shares(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	same := slices.Equal(shares, r.shares)
	r.shares = shares
	r.mu.Unlock()
	if !same {
		r.changed()
	}
	return nil
}

// Shared reports whether a definition of a tool has a share of its calls.
func (r *Roster) Shared(source, name, digest string) bool {
	return slices.ContainsFunc(r.Shares(), func(s member.Share) bool { return s.Source == source && s.Tool == name && s.Digest == digest })
}

// Shares returns the shares of calls, ordered.
func (r *Roster) Shares() []member.Share {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shares
}

func (r *Roster) look(ctx context.Context) error {
	began := time.Now()
	all, err := r.store.Members(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looked, r.unread = began, err; err == nil {
		r.members = r.without(all)
	}
	return err
}

// Evict notes that a member was evicted.
func (r *Roster) Evict(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.evicted[id] = true
	r.members = r.without(slices.Clone(r.members))
}

func (r *Roster) without(all []member.Member) []member.Member {
	for i := range all {
		if r.evicted[all[i].ID] && all[i].Evicted.IsZero() {
			all[i].Evicted = time.Now()
		}
	}
	return all
}

// All returns the members, evicted ones too.
func (r *Roster) All() []member.Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members
}

// ByID returns the member with an id.
func (r *Roster) ByID(id string) (member.Member, bool) {
	return r.find(func(m member.Member) bool { return m.ID == id })
}

// find returns the first member that is wanted.
func (r *Roster) find(wanted func(member.Member) bool) (m member.Member, ok bool) {
	all := r.All()
	if i := slices.IndexFunc(all, wanted); i >= 0 {
		return all[i], true
	}
	return m, false
}

// ErrUnread means that a key may be that of a member which the store cannot show now: one that joined at another hub, or got a new
// key there.
var ErrUnread = errors.New("the members of the fleet cannot be read, and none of those that were read last has this key")

// ErrStranger means that a key is of no member: it is not any more, or never was.
var ErrStranger = errors.New("no member of the fleet has this key")

// Known returns the member with a key, or ErrStranger or ErrUnread. One that joined a moment ago is looked up in the store, for all
// that ask meanwhile at once: a stranger must not keep the store busy.
func (r *Roster) Known(key string) (member.Member, error) {
	has := func(m member.Member) bool { return m.Key == key && m.Evicted.IsZero() }
	if m, ok := r.find(has); ok {
		return m, nil
	}
	had := func(m member.Member) bool {
		return slices.ContainsFunc(m.Keys, func(k member.Key) bool { return k.Public == key })
	}
	if _, ok := r.find(had); ok { // no key is used again
		return member.Member{}, ErrStranger
	}
	asked := time.Now()
	r.looking.Lock()
	defer r.looking.Unlock()
	r.mu.Lock()
	looked, err := r.looked, r.unread
	r.mu.Unlock()
	if looked.Before(asked) {
		ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
		defer stop()
		tool.Sleep(ctx, lookEvery-time.Since(looked))
		if err = r.look(ctx); err != nil {
			r.log.Warn("the members of the fleet cannot be read", "error", err)
		}
	}
	switch m, ok := r.find(has); {
	case ok:
		return m, nil
	case err != nil:
		return m, ErrUnread
	}
	return member.Member{}, ErrStranger
}

// lookEvery is the least time between two looks at the store for an unknown key.
const lookEvery = 50 * time.Millisecond

// Named returns the member with a name or an id, which may have joined a moment ago.
func (r *Roster) Named(ctx context.Context, name string) (member.Member, error) {
	_ = r.Refresh(ctx) // else those that were read last count
	m, ok := r.find(func(m member.Member) bool { return m.Evicted.IsZero() && (m.Name == name || m.ID == name) })
	if !ok {
		return m, tool.Errorf(tool.CodeNotFound, "the fleet has no node %q; `toolpost fleet` lists them", name)
	}
	return m, nil
}
