package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/wire/packed"
)

// An Offer is a tool that a node runs for others.
type Offer struct {
	Spec     *tool.Spec
	Why      error // why it cannot be called now, or nil
	Upstream bool  // a third party describes it
	Touches  bool  // its runner knows what a call will touch
}

// An offerHead is an offer without its schemas, which follow it unchanged.
type offerHead struct {
	Spec         *tool.Spec      `json:"spec"`
	Held         tool.Guarantees `json:"held,omitzero"`
	Resources    []tool.Resource `json:"resources,omitempty"`
	TitleHint    bool            `json:"title_hint,omitempty"`
	TaskSupport  string          `json:"task_support,omitempty"`
	HintsIgnored bool            `json:"hints_ignored,omitempty"`
	Upstream     bool            `json:"upstream,omitempty"`
	Touches      bool            `json:"touches,omitempty"`
	Connections  []string        `json:"connections,omitempty"`
}

// encode writes the definition of a tool, whose digest identifies it.
func (o *Offer) encode() ([]byte, error) {
	s := *o.Spec
	s.Name, s.Own, s.Slug, s.Aliases = ownName(o.Spec), "", "", nil // published names are the hub's business
	head := offerHead{
		Spec: &s, Held: s.Held, Resources: s.Resources, TitleHint: s.TitleHint, TaskSupport: s.TaskSupport,
		HintsIgnored: s.HintsIgnored, Upstream: o.Upstream, Touches: o.Touches, Connections: s.Connections,
	}
	s.Input, s.Output = nil, nil
	return packed.Write(&head, o.Spec.Input, o.Spec.Output, o.Spec.Extra)
}

func decodeOffer(b []byte) (*offered, error) {
	var head offerHead
	raw, err := packed.Read(b, &head)
	if err != nil {
		return nil, err
	}
	s := head.Spec
	switch {
	case s == nil || s.Name == "" || len(s.Name) > maxName || strings.ContainsRune(s.Name, 0):
		return nil, fmt.Errorf("a tool has no name, or one of more than %d bytes", maxName)
	case !config.IsSourceName(s.Source) || len(s.Source) > maxName || s.Source == tool.OwnSource:
		return nil, fmt.Errorf("the tool %.100q has the source %.100q, which no config can have", s.Name, s.Source)
	}
	if err := checkJSON(raw...); err != nil {
		return nil, fmt.Errorf("a schema of the tool %.100q is not JSON: %w", s.Name, err)
	}
	s.Own, s.Slug, s.Aliases = "", "", nil // a node chooses no names but the tool's own
	s.Input, s.Output, s.Extra = at(raw, 0), at(raw, 1), at(raw, 2)
	s.Held, s.Resources, s.Connections = head.Held, head.Resources, head.Connections
	s.TitleHint, s.TaskSupport, s.HintsIgnored = head.TitleHint, head.TaskSupport, head.HintsIgnored
	o := Offer{Spec: s, Upstream: head.Upstream, Touches: head.Touches}
	digest, err := o.digest()
	return &offered{o, digest}, err
}

// digest identifies the definition of a tool. The walls around it, whose words have paths of the machine, are not part of it.
func (o Offer) digest() (string, error) {
	s := *o.Spec
	s.Walls, s.Held = "", tool.Guarantees{}
	o.Spec = &s
	b, err := o.encode()
	return digestBytes(b), err
}

func digestBytes(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}

// An offered is an offer as a hub got it.
type offered struct {
	Offer
	digest string
}

// A list is what a node offers.
type list struct {
	packed []byte
	digest string            // of packed
	tools  map[string]string // the digests of the tools, by source and name
	once   map[string]bool   // the tools whose calls are not repeated, likewise
}

// A listHead is the beginning of a list. The definitions follow.
type listHead struct {
	Why map[int]json.RawMessage `json:"why,omitempty"` // why tools cannot be called, by their positions
}

// newList writes what a node offers. A tool that cannot be written is left out: it must not hide the others.
func newList(offers []Offer) (*list, error) {
	l := &list{tools: map[string]string{}, once: map[string]bool{}}
	head := listHead{Why: map[int]json.RawMessage{}}
	var raw [][]byte
	for _, o := range offers {
		b, err := o.encode()
		digest, bad := o.digest()
		if err != nil || bad != nil {
			continue
		}
		if o.Why != nil {
			head.Why[len(raw)] = encodeError(o.Why)
		}
		key := toolKey(o.Spec.Source, ownName(o.Spec))
		l.tools[key], l.once[key] = digest, !o.Spec.Effects.Repeatable()
		raw = append(raw, b)
	}
	var err error
	l.packed, err = packed.Write(&head, raw...)
	l.digest = digestBytes(l.packed)
	return l, err
}

// The bounds of what a node offers.
const (
	mostTools = 20_000
	mostList  = 16 << 20 // bytes
	maxName   = 1 << 10  // bytes of the name of a tool
)

func decodeList(b []byte) (all []*offered, err error) {
	if len(b) > mostList {
		return nil, fmt.Errorf("it has %d bytes, and may have %d", len(b), mostList)
	}
	var head listHead
	raw, err := packed.Read(b, &head)
	if err == nil && len(raw) > mostTools {
		err = fmt.Errorf("it has %d tools, and may have %d", len(raw), mostTools)
	}
	if err != nil {
		return nil, err
	}
	for i, r := range raw {
		o, err := decodeOffer(r)
		if err != nil {
			return nil, err
		}
		if why := head.Why[i]; why != nil {
			o.Why = ended(why)
		}
		all = append(all, o)
	}
	return all, nil
}

// toolKey identifies a tool in a fleet.
func toolKey(source, name string) string { return source + "\x00" + name }

// sorted orders offers, so that equal catalogues have equal digests.
func sorted(offers []Offer) []Offer {
	key := func(o Offer) string { return toolKey(o.Spec.Source, ownName(o.Spec)) }
	slices.SortFunc(offers, func(a, b Offer) int { return strings.Compare(key(a), key(b)) })
	return offers
}
