package strictjson

import "encoding/json"

// Members are those of an object that its reader knows, by name. One that is read again and again allocates nothing;
// it is not safe for use by several goroutines.
type Members struct {
	names  []string
	values []json.RawMessage
	few    [8]json.RawMessage // the values of most, in the same piece of memory
	scan   *Scanner
	keep   func(name, value []byte) error
}

// NewMembers makes a reader of members with these names.
func NewMembers(names ...string) *Members {
	m := known(names)
	m.scan = new(Scanner)
	return m
}

// ReadMembers reads the members of a single object that have these names.
func ReadMembers(b []byte, names ...string) (*Members, error) {
	m := known(names)
	return m, Object(b, m.keep)
}

func known(names []string) *Members {
	m := &Members{names: names}
	if m.values = m.few[:]; len(names) > len(m.few) {
		m.values = make([]json.RawMessage, len(names))
	}
	m.keep = func(name, value []byte) error {
		for i, known := range m.names {
			if known == string(name) {
				m.values[i] = value
				break
			}
		}
		return nil
	}
	return m
}

// Read is Scanner.Object for what is known of b. It forgets the object before.
func (m *Members) Read(b []byte) error {
	clear(m.values)
	return m.scan.Object(b, m.keep)
}

// Get returns the value of a member, which is a part of the object; nil: there is none, or its name is not known.
func (m *Members) Get(name string) json.RawMessage {
	for i, known := range m.names {
		if known == name {
			return m.values[i]
		}
	}
	return nil
}
