package schema

// evaluated remembers which parts of a value some schema has evaluated. Nil remembers nothing.
type evaluated struct {
	names map[string]bool
	upTo  int // the items before this index
	each  map[int]bool
}

func (e *evaluated) property(name string) {
	if e != nil {
		put(&e.names, name, true)
	}
}

func (e *evaluated) items(upTo int) {
	if e != nil {
		e.upTo = max(e.upTo, upTo)
	}
}

func (e *evaluated) item(i int) {
	if e != nil {
		put(&e.each, i, true)
	}
}

// put adds an entry to a map, which it creates on first use, since most are never needed.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

func (e *evaluated) merge(other *evaluated) {
	if e == nil {
		return
	}
	e.items(other.upTo)
	for i := range other.each {
		e.item(i)
	}
	for name := range other.names {
		e.property(name)
	}
}
