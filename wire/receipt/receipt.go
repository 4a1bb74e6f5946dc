// Package receipt says what a node of a fleet signs about a call that it ran for a hub, so that the record of the hub proves which
// machine did what.
package receipt

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nkeys"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Version is that of the receipts that this program writes and reads. A hub asks for a version that it can read.
const Version = 1

// domain begins what is signed: a node signs other things with the same key.
const domain = "toolpost receipt v1\n"

// Most bounds the bytes of a signed receipt.
const (
	Most        = 8 << 10
	mostStopped = 16 // kinds
)

// A Receipt says what a node ran. It has digests of what was asked and answered, and no values: it may be read by whoever may read
// the record.
type Receipt struct {
	Version    int          `json:"version"`
	Node       string       `json:"node"`
	Call       string       `json:"call"`
	Attempt    int          `json:"attempt"`
	Source     string       `json:"source"`
	Tool       string       `json:"tool"`       // its name at the source
	Definition string       `json:"definition"` // the digest of the tool's definition, as the hub and the node know it
	Arguments  string       `json:"arguments"`  // the salted digest of the bytes that came
	Answer     string       `json:"answer"`     // that of the bytes that went back
	Outcome    tool.Outcome `json:"outcome"`
	Code       tool.Code    `json:"code,omitempty"`
	Walls      []string     `json:"walls"` // the guarantees in force, and what was built
	Stopped    []Stopped    `json:"stopped"`
	Begin      time.Time    `json:"begin"` // by the clock of the node, like the end
	End        time.Time    `json:"end"`
}

// Stopped counts the attempts of one kind that the walls stopped. What they were after could be a secret.
type Stopped struct {
	What  string `json:"what"` // the capability
	By    string `json:"by"`   // the origin of the wall
	Times int    `json:"times"`
}

// Stops counts attempts by kind.
type Stops struct {
	mu  sync.Mutex
	all []Stopped
}

// Add counts an attempt; nil is none.
func (s *Stops) Add(b *tool.Blocked) {
	if b == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.all, func(one Stopped) bool { return one.What == b.Capability && one.By == b.By })
	if i < 0 && len(s.all) < mostStopped {
		i, s.all = len(s.all), append(s.all, Stopped{What: b.Capability, By: b.By})
	}
	if i >= 0 {
		s.all[i].Times++
	}
}

// List returns what was counted.
func (s *Stops) List() []Stopped {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// Signed is a receipt with what it takes to check it. Wrong is the hub's note about one that is not right, or did not come.
//
// The digests of a receipt are salted, as few arguments are hard to guess. The node sends the salt; the hub keeps it in the record
// only if that has the arguments.
type Signed struct {
	Document  string `json:"document,omitempty"` // the receipt as JSON, byte for byte as it was signed
	Signature []byte `json:"signature,omitempty"`
	Key       string `json:"key,omitempty"` // the public nkey of the node
	Salt      []byte `json:"salt,omitempty"`
	Wrong     string `json:"wrong,omitempty"`
}

// digest is the salted digest of bytes, in parts.
func digest(salt []byte, parts ...[]byte) string {
	sum := sha256.New()
	_, _ = sum.Write(salt)
	for _, part := range parts {
		_, _ = sum.Write(part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Sign completes a receipt with its version and the digests of the arguments and of the answer, and signs it.
func Sign(r *Receipt, args []byte, answer [][]byte, sign func([]byte) (key string, signature []byte, err error)) ([]byte, error) {
	s := Signed{Salt: make([]byte, 16)}
	_, _ = rand.Read(s.Salt) // never fails: it ends the program instead
	r.Version, r.Arguments, r.Answer, r.Begin, r.End = Version, digest(s.Salt, args), digest(s.Salt, answer...), r.Begin.UTC(), r.End.UTC()
	doc, err := strictjson.Marshal(r)
	if err != nil {
		return nil, err
	}
	s.Document = string(doc)
	if s.Key, s.Signature, err = sign([]byte(domain + s.Document)); err != nil {
		return nil, err
	}
	return strictjson.Marshal(&s)
}

// Read reads a signed receipt.
func Read(b []byte) (s Signed, err error) {
	if len(b) > Most {
		return s, fmt.Errorf("it has more than %d bytes", Most)
	}
	return s, strictjson.Unmarshal(b, &s)
}

// Open checks the signature, and returns what was signed. Whose the key is, it does not say.
func (s *Signed) Open() (*Receipt, error) {
	pair, err := nkeys.FromPublicKey(s.Key)
	if err != nil || pair.Verify([]byte(domain+s.Document), s.Signature) != nil {
		return nil, errors.New("its signature is not that of its key")
	}
	var r Receipt
	if err := strictjson.UnmarshalClosed([]byte(s.Document), &r); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	if r.Version != Version {
		return nil, fmt.Errorf("its version is %d, and this program reads version %d", r.Version, Version)
	}
	return &r, nil
}

// Fits compares a receipt with what is known of its call: the fields of want that are not empty. The walls are those that the node
// built, in words of its own.
func (r *Receipt) Fits(want *Receipt) error {
	for _, f := range []struct{ what, is, want string }{
		{"call", r.Call, want.Call}, {"node", r.Node, want.Node}, {"source", r.Source, want.Source}, {"tool", r.Tool, want.Tool},
		{"definition", r.Definition, want.Definition}, {"arguments", r.Arguments, want.Arguments}, {"answer", r.Answer, want.Answer},
		{"outcome", string(r.Outcome), string(want.Outcome)}, {"code", string(r.Code), string(want.Code)},
	} {
		if f.want != "" && f.is != f.want {
			return fmt.Errorf("it says %s %.64q, and it should say %.64q", f.what, f.is, f.want)
		}
	}
	if want.Attempt != 0 && r.Attempt != want.Attempt {
		return fmt.Errorf("it is of attempt %d, and it should be of attempt %d", r.Attempt, want.Attempt)
	}
	return nil
}

// A Claim is what a hub knows of a call whose receipt it judges.
type Claim struct {
	Receipt
	Args   [][]byte              // the one element are the arguments; empty: they are not known
	Answer [][]byte              // in parts; nil: it is not known
	Held   func(key string) bool // whether the node had a key then
}

// Judge returns the receipt that came from a node for the record of the call, with what is wrong about it. The salt is kept if the
// record has the arguments: otherwise it would only help to guess them.
func (c *Claim) Judge(came, args []byte) (json.RawMessage, error) {
	s, r, wrong := c.read(came)
	if s.Wrong = ""; wrong != nil {
		s.Wrong = wrong.Error()
	}
	if r == nil || len(args) == 0 || r.Arguments != digest(s.Salt, args) {
		s.Salt = nil
	}
	b, err := strictjson.Marshal(&s)
	return b, cmp.Or(wrong, err)
}

func (c *Claim) read(came []byte) (s Signed, r *Receipt, err error) {
	if len(came) == 0 {
		return s, nil, errors.New("its node has sent none")
	}
	if s, err = Read(came); err != nil {
		return Signed{}, nil, err
	}
	if r, err = s.Open(); err != nil {
		return s, nil, err
	}
	want := c.Receipt
	if len(c.Args) > 0 {
		want.Arguments = digest(s.Salt, c.Args[0])
	}
	if c.Answer != nil {
		want.Answer = digest(s.Salt, c.Answer...)
	}
	if !c.Held(s.Key) {
		return s, r, errors.New("its key is not that of its node")
	}
	return s, r, r.Fits(&want)
}

// Unsalted returns a signed receipt without its salt.
func Unsalted(b []byte) []byte {
	s, err := Read(b)
	if s.Salt = nil; err == nil {
		b, _ = strictjson.Marshal(&s)
	}
	return b
}

// Check compares the receipt in a record with the record. Of the arguments the digest counts alone, unless the record has the salt.
func (s *Signed) Check(of *tool.Record) error {
	if s.Wrong != "" {
		return errors.New("its hub noted that " + s.Wrong)
	}
	r, err := s.Open()
	if err != nil {
		return err
	}
	want := Receipt{Call: of.Call, Node: of.Node, Source: of.Source, Tool: of.Tool, Definition: of.Definition}
	if of.Kind == tool.LateOutcome {
		want.Call = of.Parent
	}
	if want.Call == "" || want.Node == "" || want.Source == "" || want.Tool == "" {
		return errors.New("its record does not say which node ran which call of which tool")
	}
	if name := tool.VisibleName(r.Tool); named(of.Tool, name) || named(of.Tool, of.Source+"."+name) {
		want.Tool = ""
	}
	if of.Outcome == tool.OutcomeOK || of.Outcome == tool.OutcomeRefused && r.Outcome == tool.OutcomeOK {
		want.Outcome = of.Outcome // else a hub may have failed a call that its node ended well
	}
	if len(s.Salt) > 0 {
		want.Arguments = digest(s.Salt, of.Args)
	}
	return r.Fits(&want)
}

// leastCut is the fewest bytes that a store leaves of a name that is too long for it.
const leastCut = 128

// named reports whether a record has a name, of which the store may have cut off the end.
func named(has, name string) bool {
	begin, cut := strings.CutSuffix(has, "…")
	return has == name || cut && len(begin) >= leastCut && strings.HasPrefix(name, begin)
}
