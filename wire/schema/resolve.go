package schema

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"toolpost/wire/regex"
)

// baseURI is the base of references in a schema without $id.
const baseURI = "schema:///"

// A resource is a schema with its own identifier: a document, or a part of one that has an $id.
type resource struct {
	uri     *url.URL
	at      string // the pointer to its root
	draft   draft
	anchors map[string]*place
	dynamic map[string]*node // the $dynamicAnchors among them
}

// A place is the position of a schema in a document.
type place struct {
	at     string // a JSON pointer; in a metaschema, after its URI
	value  any
	res    *resource
	node   *node
	queued bool
}

type compiler struct {
	resources map[string]*resource // by URI
	places    map[string]*place    // by pointer
	order     []*place             // the same, in the order in which they were found
	queue     []*place             // those still to be compiled

	patterns    map[string]*pattern
	patternSize int
	unchecked   []string

	unused bool // the schema being compiled is unreachable; broken references do no harm there
}

// addDocument registers the schemas of a document, at the prefix, under the URI.
func (c *compiler) addDocument(uri, prefix string, doc any) error {
	u, err := url.Parse(uri)
	if err != nil {
		return err
	}
	c.resources[uri] = &resource{uri: u, at: prefix, draft: draft2020}
	return c.index(doc, prefix, c.resources[uri])
}

// index finds the subschemas of a schema, and their names, before any reference is followed.
func (c *compiler) index(v any, at string, in *resource) error {
	if len(c.order) == MaxSubschemas {
		return fmt.Errorf("%s: more than %d schemas in one", nameOf(at), MaxSubschemas)
	}
	obj, isObject := v.(map[string]any)
	if _, isBool := v.(bool); !isObject && !isBool {
		return fmt.Errorf("%s: a schema is an object or a boolean, not %s", nameOf(at), kindOf(v))
	}
	p := &place{at: at, value: v, res: in, node: &node{at: at, cost: 1}}
	c.places[at] = p
	c.order = append(c.order, p)
	s := source{c: c, place: p, obj: obj}
	if s.identify(); s.err != nil {
		return s.err
	}
	for _, keyword := range slices.Sorted(maps.Keys(obj)) {
		if err := c.indexKeyword(keyword, obj[keyword], at+"/"+escape(keyword), p.res); err != nil {
			return err
		}
	}
	return nil
}

// nameOf names a place in messages; the pointer of the root is empty.
func nameOf(at string) string {
	if at == "" {
		return "the schema"
	}
	return at
}

func (c *compiler) indexKeyword(keyword string, v any, at string, in *resource) error {
	shape := shapes[keyword]
	list, isList := v.([]any)
	members, isObject := v.(map[string]any)
	switch {
	case isList && shape&schemaList != 0:
		for i, v := range list {
			if err := c.index(v, at+"/"+strconv.Itoa(i), in); err != nil {
				return err
			}
		}
	case isObject && shape&schemaMap != 0:
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if _, isList := members[name].([]any); isList && shape&nameLists != 0 {
				continue
			}
			if err := c.index(members[name], at+"/"+escape(name), in); err != nil {
				return err
			}
		}
	case shape&oneSchema != 0:
		return c.index(v, at, in)
	case shape&schemaList != 0:
		return fmt.Errorf("%s: got %s, want array of schemas", at, kindOf(v))
	case shape&schemaMap != 0:
		return fmt.Errorf("%s: got %s, want object of schemas", at, kindOf(v))
	}
	return nil
}

// identify reads the identifiers that a schema declares.
func (s *source) identify() {
	p := s.place
	if p.at == p.res.at {
		p.res.draft = s.draft()
	}
	if s.has("$ref") && p.res.draft <= draft7 {
		return // other keywords beside a $ref were ignored then
	}
	keyword := "$id"
	if p.res.draft <= draft4 {
		keyword = "id"
	}
	if id, ok := read[string](s, keyword, "string"); ok {
		s.identifyBy(keyword, id)
	}
	s.nameAnchors()
}

func (s *source) identifyBy(keyword, id string) {
	p := s.place
	u, err := p.res.uri.Parse(id)
	if err != nil {
		s.fail(keyword, "%q is not a URI", id)
		return
	}
	anchor := u.Fragment
	u.Fragment, u.RawFragment = "", ""
	if anchor != "" && p.res.draft > draft7 {
		s.fail(keyword, "%q has a fragment; use $anchor", id)
	}
	if uri := u.String(); !strings.HasPrefix(id, "#") {
		if known := s.c.resources[uri]; known != nil && known.at != p.at {
			s.fail(keyword, "%q is the name of another schema too", id)
		}
		p.res = &resource{uri: u, at: p.at, draft: s.draft()}
		s.c.resources[uri] = p.res
	}
	if anchor != "" {
		s.addAnchor(keyword, anchor)
	}
}

var anchorName = regex.Lazy(`^[A-Za-z_][-A-Za-z0-9._]*$`)

// recursiveAnchor is the one anchor of 2019-09's $recursiveRef; a schema cannot declare this name.
const recursiveAnchor = "#"

func (s *source) nameAnchors() {
	p := s.place
	for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
		if !s.has(keyword) || p.res.draft <= draft7 {
			continue
		}
		name, _ := s.obj[keyword].(string)
		if !anchorName().MatchString(name) {
			s.fail(keyword, "want a name of letters, digits, '-', '_' and '.'")
		}
		s.addAnchor(keyword, name)
		if keyword == "$dynamicAnchor" {
			s.c.addDynamic(p, name)
		}
	}
	if s.obj["$recursiveAnchor"] == true && p.at == p.res.at {
		s.c.addDynamic(p, recursiveAnchor)
	}
}

func (s *source) addAnchor(keyword, name string) {
	res := s.place.res
	if known := res.anchors[name]; known != nil && known != s.place {
		s.fail(keyword, "the anchor %q is at %s too", name, nameOf(known.at))
	}
	put(&res.anchors, name, s.place)
}

// addDynamic registers an anchor that may be reached from anywhere.
func (c *compiler) addDynamic(p *place, name string) {
	put(&p.res.dynamic, name, c.use(p))
}

// use returns the node of a place, and queues it for compilation.
func (c *compiler) use(p *place) *node {
	if !p.queued {
		p.queued = true
		c.queue = append(c.queue, p)
	}
	return p.node
}

// resolve finds the target of a reference at a place.
func (c *compiler) resolve(ref string, from *place) (p *place, fragment string, err error) {
	u, err := url.Parse(ref)
	if err != nil {
		return nil, "", fmt.Errorf("%q is not a URI reference", ref)
	}
	res, fragment := from.res, u.Fragment
	if !strings.HasPrefix(ref, "#") {
		if res, err = c.resource(res.uri.ResolveReference(u), ref); err != nil {
			return nil, "", err
		}
	}
	switch {
	case fragment == "":
		p = c.places[res.at]
	case fragment[0] == '/':
		p, err = c.follow(res, fragment)
	default:
		p = res.anchors[fragment]
	}
	if p == nil && err == nil {
		err = fmt.Errorf("%q points at nothing in this schema", ref)
	}
	return p, fragment, err
}

func (c *compiler) resource(u *url.URL, ref string) (*resource, error) {
	whole := *u
	whole.Fragment, whole.RawFragment = "", ""
	uri := whole.String()
	if res := c.resources[uri]; res != nil {
		return res, nil
	}
	doc := metaschemas()[uri]
	if doc == nil {
		return nil, fmt.Errorf("a $ref to another document (%s) is not followed; put it under $defs", ref)
	}
	err := c.addDocument(uri, uri+"#", doc)
	return c.resources[uri], err
}

// follow walks a JSON pointer from the root of a resource. The target need not be below a known keyword; if it is not,
// it is indexed as a schema now.
func (c *compiler) follow(res *resource, pointer string) (*place, error) {
	near := c.places[res.at]
	at, v := near.at, near.value
	for token := range strings.SplitSeq(pointer[1:], "/") {
		name := unescape(token)
		next, ok := member(v, name)
		if !ok {
			return nil, nil
		}
		at, v = at+"/"+escape(name), next
		if p := c.places[at]; p != nil {
			near = p
		}
	}
	if near.at != at {
		if err := c.index(v, at, near.res); err != nil {
			return nil, err
		}
	}
	return c.places[at], nil
}

func member(v any, name string) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		next, ok := v[name]
		return next, ok
	case []any:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(v) && strconv.Itoa(i) == name {
			return v[i], true
		}
	}
	return nil, false
}

func escape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

func unescape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}
