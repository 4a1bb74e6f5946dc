package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The bounds of a lease.
const (
	MinLeaseTTL     = time.Second
	MaxLeaseTTL     = 300 * time.Second
	DefaultLeaseTTL = 10 * time.Second
	MaxTier         = 3
	maxLeaseName    = 1024 // bytes of the name of its tool, and of its caller
)

// LeaseCounts tells how many leases can be used now, and what this process has done with leases so far.
type LeaseCounts = struct {
	Active   int `json:"active"`
	Issued   int `json:"issued"`
	Consumed int `json:"consumed"`
	Rejected int `json:"rejected"`
}

// Leases keeps leases in a folder, one file for each, so that every process of an installation shares
// them. A file is named by the digest of its token: who can read the folder still has no token. It is
// consumed by renaming it, which the kernel lets exactly one process do.
type Leases struct {
	Dir string // made when the first lease is issued

	issued, consumed, rejected atomic.Int64

	mu    sync.Mutex
	swept time.Time // when files of the past were last removed
}

// The two states of a lease's file, and how long it stays beyond the lease's end: long enough to tell
// who comes late that the lease has expired, and not that it never was.
const (
	unused      = ".lease"
	used        = ".used"
	remembrance = MaxLeaseTTL
	sweepEvery  = time.Minute
)

// lease is the content of a file.
type lease struct {
	Caller  string `json:"caller,omitempty"` // "": whoever has it
	Tool    string `json:"tool"`             // "*": any
	Tier    int    `json:"tier"`
	Expires int64  `json:"expires_ms"` // Unix time
}

// Issue makes a lease for one call of a tool, or of any with "*", up to a tier, by a caller, or by whoever has it
// with "". A ttl of 0 is DefaultLeaseTTL. The token is in nobody's hands but those of who asked for it.
func (l *Leases) Issue(_ context.Context, caller, name string, tier int, ttl time.Duration) (token string, err error) {
	if ttl == 0 {
		ttl = DefaultLeaseTTL
	}
	if err := checkLease(caller, name, tier, ttl); err != nil {
		return "", err
	}
	l.sweepSometimes()
	doc, err := strictjson.Marshal(lease{caller, name, tier, time.Now().Add(ttl).UnixMilli()})
	if err != nil {
		return "", tool.Errorf(tool.CodeInvalidInput, "a lease for %q: %w", name, err)
	}
	token = tokenPrefix + rand.Text()
	if err := l.write(token, doc); err != nil {
		return "", tool.Errorf(tool.CodeInternal, "the lease was not issued: %w", err)
	}
	l.issued.Add(1)
	return token, nil
}

// checkLease refuses a lease that nobody could use, or that would last too long.
func checkLease(caller, name string, tier int, ttl time.Duration) error {
	switch {
	case name == "" || plain(name, maxLeaseName) != name:
		return tool.Errorf(tool.CodeInvalidInput, `a lease needs the name of a tool, or "*" for any`)
	case plain(caller, maxLeaseName) != caller:
		return tool.Errorf(tool.CodeInvalidInput, "a lease is for a caller, whose name is text of at most %d bytes, not %.40q", maxLeaseName, caller)
	case tier < 0 || tier > MaxTier:
		return tool.Errorf(tool.CodeInvalidInput, "a lease has a tier from 0 to %d, not %d", MaxTier, tier)
	case ttl < MinLeaseTTL || ttl > MaxLeaseTTL:
		return tool.Errorf(tool.CodeInvalidInput, "a lease lasts from %v to %v, not %v", MinLeaseTTL, MaxLeaseTTL, ttl)
	}
	return nil
}

func (l *Leases) write(token string, doc []byte) error {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path(token, unused), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(doc)
	return errors.Join(err, f.Close())
}

func (l *Leases) path(token, state string) string {
	sum := sha256.Sum256([]byte(token))
	return filepath.Join(l.Dir, hex.EncodeToString(sum[:])+state)
}

// Consume uses a lease up for one call of a tool of that tier by a caller. Of several who try, here or in other
// processes, one succeeds. A lease that does not fit is left as it is, and that of another caller is not_found.
func (l *Leases) Consume(_ context.Context, token, caller, name string, tier int) error {
	err := l.consume(token, caller, name, tier)
	switch {
	case err == nil:
		l.consumed.Add(1)
	case tool.CodeOf(err) == tool.CodeLeaseRejected:
		l.rejected.Add(1)
	}
	return err
}

func (l *Leases) consume(token, caller, name string, tier int) error {
	have, err := l.read(l.path(token, unused))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l.missing(token, caller)
	case err != nil:
		return tool.Errorf(tool.CodeInternal, "the lease cannot be read: %w", err)
	case have.Caller != "" && have.Caller != caller:
		return unknownLease()
	case time.Now().UnixMilli() >= have.Expires:
		return rejected("expired", "the lease has expired; issue another")
	case have.Tool != "*" && have.Tool != name:
		return rejected("tool_mismatch", "the lease is for "+have.Tool+" and not for "+name)
	case have.Tier < tier:
		return rejected("tier_too_low", "the lease is for a lower tier than that of "+name+"; issue one of its tier")
	}
	err = os.Rename(l.path(token, unused), l.path(token, used))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l.missing(token, caller)
	case err != nil:
		return tool.Errorf(tool.CodeInternal, "the lease cannot be consumed: %w", err)
	}
	return nil
}

func (l *Leases) read(path string) (have lease, err error) {
	doc, err := os.ReadFile(path)
	if err != nil {
		return have, err
	}
	return have, strictjson.UnmarshalClosed(doc, &have)
}

// missing tells a lease that was used from one that never was, or that is another caller's.
func (l *Leases) missing(token, caller string) error {
	have, err := l.read(l.path(token, used))
	if err == nil && (have.Caller == "" || have.Caller == caller) {
		return rejected("already_consumed", "the lease has been used; issue another")
	}
	return unknownLease()
}

func unknownLease() error { return rejected("not_found", "there is no such lease") }

func rejected(reason, message string) error {
	return (&tool.Error{Code: tool.CodeLeaseRejected, Message: message}).Because(reason)
}

// GC removes the files of leases that ended a while ago, and counts.
func (l *Leases) GC(context.Context) (LeaseCounts, error) {
	active, err := l.sweep()
	return LeaseCounts{
		Active: active, Issued: int(l.issued.Load()), Consumed: int(l.consumed.Load()), Rejected: int(l.rejected.Load()),
	}, err
}

// sweepSometimes keeps the folder small where nobody calls GC.
func (l *Leases) sweepSometimes() {
	l.mu.Lock()
	due := time.Since(l.swept) > sweepEvery
	if due {
		l.swept = time.Now()
	}
	l.mu.Unlock()
	if due {
		_, _ = l.sweep() // the next one may do better; the lease itself is not harmed
	}
}

func (l *Leases) sweep() (active int, err error) {
	entries, err := os.ReadDir(l.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, tool.Errorf(tool.CodeInternal, "the leases cannot be listed: %w", err)
	}
	now := time.Now()
	for _, e := range entries {
		path := filepath.Join(l.Dir, e.Name())
		free := strings.HasSuffix(path, unused)
		if !free && !strings.HasSuffix(path, used) {
			continue
		}
		switch end, known := l.endOf(path); {
		case !known:
		case now.After(end.Add(remembrance)):
			_ = os.Remove(path)
		case free && now.Before(end):
			active++
		}
	}
	return active, nil
}

// endOf tells when a lease ends. A file that is no lease, as a crash may leave one, counts from when it
// was written.
func (l *Leases) endOf(path string) (end time.Time, known bool) {
	have, err := l.read(path)
	if err == nil {
		return time.UnixMilli(have.Expires), true
	}
	info, err := os.Lstat(path)
	if err != nil { // another process was faster
		return end, false
	}
	return info.ModTime(), true
}
