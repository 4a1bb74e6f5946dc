// Package store keeps what outlives a call: its record, the state of its session, leases, outcomes, assets, jobs and
// the tokens of callers. It is above the stages, whose ports it implements with their types. A DB keeps things in a SQL
// database that several programs may share; packages sqlite and postgres open one. Without a database things are kept
// in memory, for this program alone, and nothing is written.
package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"toolpost/engine/lease"
	"toolpost/kernel"
	"toolpost/store/database"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The limits of what is kept in memory, and of one session in any store.
const (
	MaxSessions  = 10_000
	MaxStateSize = 4 << 20 // bytes of JSON of one session
	maxLeases    = 10_000
	maxAssets    = 256
)

// Sessions keeps the state documents of sessions in memory. The zero value is ready to use.
type Sessions struct {
	mu     sync.Mutex
	states map[sessionKey]map[string]any
}

type sessionKey struct{ caller, session string }

// Patch merges the patches into the session's state, in order and all at once.
func (s *Sessions) Patch(_ context.Context, caller, session string, patches []map[string]any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sessionKey{caller, session}
	state, known := s.states[key]
	if !known && len(s.states) >= MaxSessions {
		return tool.Errorf(tool.CodeQuotaExceeded, "there are %d sessions already, the most this server keeps",
			MaxSessions)
	}
	for _, p := range patches {
		state = strictjson.Merge(state, p)
	}
	if b, err := strictjson.Marshal(state); err != nil {
		return err
	} else if len(b) > MaxStateSize {
		return tool.Errorf(tool.CodeQuotaExceeded, "it would be %d bytes long, and %d is the most", len(b),
			MaxStateSize)
	}
	if s.states == nil {
		s.states = map[sessionKey]map[string]any{}
	}
	s.states[key] = state
	return nil
}

// State returns the session's state document; an unchanged session is {}.
func (s *Sessions) State(_ context.Context, caller, session string) (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.states[sessionKey{caller, session}]
	if state == nil {
		return json.RawMessage(`{}`), nil
	}
	return strictjson.Marshal(state)
}

// Leases keeps leases in memory: they are valid in this program alone, and end with it. The zero value is ready to use.
type Leases struct {
	counted leaseCounts

	mu     sync.Mutex
	leases map[string]*lease.Lease // by the digests of their tokens
	swept  time.Time
}

// Issue works like LeaseTable.Issue.
func (l *Leases) Issue(_ context.Context, caller, name string, tier int, ttl time.Duration) (token string, err error) {
	ttl = cmp.Or(ttl, lease.DefaultTTL)
	if err := checkLease(caller, name, tier, ttl); err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.swept) >= sweepEvery || len(l.leases) >= maxLeases {
		l.sweep(now)
	}
	if len(l.leases) >= maxLeases {
		return "", tool.Errorf(tool.CodeQuotaExceeded,
			"there are %d leases already, the most that are kept without a store; try again later", maxLeases)
	}
	if l.leases == nil {
		l.leases = map[string]*lease.Lease{}
	}
	token = lease.TokenPrefix + rand.Text()
	l.leases[database.Digest(token)] = &lease.Lease{
		ID: lease.ID(token), Caller: caller, Tool: name, Tier: tier, Issued: now, Expires: now.Add(ttl), State: lease.Live,
	}
	l.counted.issued.Add(1)
	return token, nil
}

// sweep removes leases that ended a while ago, and returns the number of usable ones.
func (l *Leases) sweep(now time.Time) (active int) {
	l.swept = now
	maps.DeleteFunc(l.leases, func(_ string, x *lease.Lease) bool { return now.After(x.Expires.Add(remembrance)) })
	for _, x := range l.leases {
		active += flag(x.State == lease.Live && now.Before(x.Expires))
	}
	return active
}

// Consume works like LeaseTable.Consume.
func (l *Leases) Consume(_ context.Context, token, caller, name string, tier int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := cmp.Or(l.leases[database.Digest(token)], new(lease.Lease))
	if x.State == lease.Live && !time.Now().Before(x.Expires) {
		x.State = lease.Expired
	}
	err := whyNot(x, caller, name, tier)
	switch {
	case err == nil:
		x.State = lease.Used
	case tool.AsError(err).Reason == notFound:
		err = rejected(notFound, "there is no such lease; without a store one is good only in the program that "+
			"issued it")
	}
	return l.counted.count(err)
}

// GC works like LeaseTable.GC.
func (l *Leases) GC(context.Context) (lease.Counts, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counted.with(l.sweep(time.Now())), nil
}

// Assets keeps the files that tools made in memory, each content once. If there are too many the oldest are removed.
// The zero value is ready to use.
//
// They are files all the same, without a name and not on any disk: doors hand out files, and a peer that has the path
// of an asset can open it as long as this program keeps it. The path of a removed asset may lead to another file, so a
// peer that opens it late compares its digest. The alternative was bytes in the heap: then there would be no paths to
// hand out, which the Narratoria contract asks for.
type Assets struct {
	Max int64 // bytes of all assets; default 64 MiB

	mu   sync.Mutex
	kept []*memoryFile // the oldest first
}

func (s *Assets) most() int64 { return cmp.Or(s.Max, 64<<20) }

type memoryFile struct {
	*os.File
	sum    string
	size   int64
	owners map[string]tool.Asset // as the calls of each caller described it
}

// path returns the path at which permitted processes find the file.
func (f *memoryFile) path() string { return kernel.ForOthers(int(f.Fd())) }

// Add works like AssetTable.Add.
func (s *Assets) Add(ctx context.Context, caller string, a tool.Asset, file *os.File) (tool.Asset, error) {
	if s.has(a, file) {
		return a, nil
	}
	f, err := newMemoryFile(ctx, a.Path, file, s.most())
	if err != nil {
		return a, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if had := s.find(f.sum); had != nil {
		_ = f.Close()
		f = had
	} else {
		s.keep(f)
	}
	a.SHA256, a.Size, a.Path = f.sum, f.size, f.path()
	f.owners[caller] = a
	return a, nil
}

// has reports whether a file is one that Open returned.
func (s *Assets) has(a tool.Asset, file *os.File) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(a.SHA256)
	if f == nil {
		return false
	}
	given, err := file.Stat()
	kept, err2 := f.Stat()
	return err == nil && err2 == nil && os.SameFile(given, kept)
}

// newMemoryFile copies a file into memory, where it cannot be changed.
func newMemoryFile(ctx context.Context, path string, from *os.File, most int64) (*memoryFile, error) {
	f := &memoryFile{owners: map[string]tool.Asset{}}
	var err error
	f.File, err = kernel.Sealed("asset", func(w io.Writer) (err error) {
		f.sum, f.size, err = copyAsset(ctx, w, from, path, most)
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// keep adds a file and makes room for it.
func (s *Assets) keep(f *memoryFile) {
	s.kept = append(s.kept, f)
	size := int64(0)
	for _, f := range s.kept {
		size += f.size
	}
	for ; len(s.kept) > maxAssets || size > s.most(); s.kept = s.kept[1:] {
		size -= s.kept[0].size
		_ = s.kept[0].Close() // it stays open for those that have opened it
	}
}

func (s *Assets) find(sum string) *memoryFile {
	if i := slices.IndexFunc(s.kept, func(f *memoryFile) bool { return f.sum == sum }); i >= 0 {
		return s.kept[i]
	}
	return nil
}

// Open works like AssetTable.Open.
func (s *Assets) Open(_ context.Context, caller, sha256 string) (*os.File, tool.Asset, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(sha256)
	if f == nil {
		return nil, tool.Asset{}, noAsset(sha256)
	}
	a, ok := f.owners[caller]
	if !ok {
		return nil, tool.Asset{}, noAsset(sha256)
	}
	opened, err := os.Open(f.path()) // with a file offset of its own
	return opened, a, err
}
