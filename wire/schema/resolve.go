package schema

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// baseURI is what references are relative to in a schema without $id.
const baseURI = "schema:///"

// A resource is a schema with a name of its own: a document, or a part of one that has an $id.
type resource struct {
	uri     *url.URL
	at      string // where its root stands
	draft   draft
	anchors map[string]*place
	dynamic map[string]*node // the $dynamicAnchors among them
}

// A place is where a schema stands in a document.
type place struct {
	at     string // a JSON pointer; in a metaschema, after its URI
	value  any
	res    *resource
	node   *node
	queued bool
}

type compiler struct {
	resources map[string]*resource // by URI
	places    map[string]*place    // by at
	order     []*place             // the same, as they were found
	queue     []*place             // those to compile

	patterns    map[string]*pattern
	patternSize int

	unused bool // what is compiled now cannot be reached; references that lead nowhere do no harm there
}

func newCompiler() *compiler {
	return &compiler{resources: map[string]*resource{}, places: map[string]*place{}, patterns: map[string]*pattern{}}
}

// addDocument makes the schemas of a document known, at the prefix, under the URI.
func (c *compiler) addDocument(uri, prefix string, doc any) error {
	u, err := url.Parse(uri)
	if err != nil {
		return err
	}
	res := &resource{uri: u, at: prefix, draft: draft2020}
	if obj, ok := doc.(map[string]any); ok {
		if res.draft, err = draftOf(obj, prefix, draft2020); err != nil {
			return err
		}
	}
	c.resources[uri] = res
	return c.index(doc, prefix, res)
}

// index finds the schemas in a schema, and their names, before any reference is followed.
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
	if err := c.identify(p, obj); err != nil {
		return err
	}
	for _, keyword := range slices.Sorted(maps.Keys(obj)) {
		if err := c.indexKeyword(keyword, obj[keyword], at+"/"+escape(keyword), p.res); err != nil {
			return err
		}
	}
	return nil
}

// nameOf names the root, whose pointer is empty.
func nameOf(at string) string {
	if at == "" {
		return "the schema"
	}
	return at
}

func (c *compiler) indexKeyword(keyword string, v any, at string, in *resource) error {
	shape := shapeOf(keyword)
	switch v := v.(type) {
	case []any:
		if shape&schemaList != 0 {
			return c.indexList(v, at, in)
		}
	case map[string]any:
		if shape&(schemaMap|schemaMapOrNames) != 0 {
			return c.indexNamed(v, at, in, shape == schemaMapOrNames)
		}
	}
	switch {
	case shape&oneSchema != 0:
		return c.index(v, at, in)
	case shape&schemaList != 0:
		return fmt.Errorf("%s: got %s, want array of schemas", at, kindOf(v))
	case shape != 0:
		return fmt.Errorf("%s: got %s, want object of schemas", at, kindOf(v))
	}
	return nil
}

func (c *compiler) indexList(list []any, at string, in *resource) error {
	for i, v := range list {
		if err := c.index(v, at+"/"+strconv.Itoa(i), in); err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) indexNamed(members map[string]any, at string, in *resource, namesToo bool) error {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if _, isList := members[name].([]any); isList && namesToo {
			continue
		}
		if err := c.index(members[name], at+"/"+escape(name), in); err != nil {
			return err
		}
	}
	return nil
}

// identify reads the names that a schema gives itself.
func (c *compiler) identify(p *place, obj map[string]any) error {
	if _, isRef := obj["$ref"]; isRef && p.res.draft <= draft7 {
		return nil // a $ref stood alone then
	}
	idWord := "$id"
	if p.res.draft <= draft4 {
		idWord = "id"
	}
	if v, ok := obj[idWord]; ok {
		id, ok := v.(string)
		if !ok {
			return fmt.Errorf("%s/%s: got %s, want string", p.at, idWord, kindOf(v))
		}
		if err := c.identifyBy(p, obj, id, idWord); err != nil {
			return err
		}
	}
	return c.nameAnchors(p, obj)
}

func (c *compiler) identifyBy(p *place, obj map[string]any, id, idWord string) error {
	u, err := p.res.uri.Parse(id)
	if err != nil {
		return fmt.Errorf("%s/%s: %q is not a URI", p.at, idWord, id)
	}
	anchor := u.Fragment
	u.Fragment, u.RawFragment = "", ""
	if anchor != "" && p.res.draft > draft7 {
		return fmt.Errorf("%s/%s: %q has a fragment; use $anchor", p.at, idWord, id)
	}
	if !strings.HasPrefix(id, "#") {
		if err := c.addResource(p, obj, u, id, idWord); err != nil {
			return err
		}
	}
	if anchor == "" {
		return nil
	}
	return addAnchor(p, anchor, idWord)
}

func (c *compiler) addResource(p *place, obj map[string]any, u *url.URL, id, idWord string) error {
	if known := c.resources[u.String()]; known != nil && known.at != p.at {
		return fmt.Errorf("%s/%s: %q is the name of another schema too", p.at, idWord, id)
	}
	d, err := draftOf(obj, p.at, p.res.draft)
	p.res = &resource{uri: u, at: p.at, draft: d}
	c.resources[u.String()] = p.res
	return err
}

// isAnchor reports whether a name begins with a letter or '_' and goes on with those, digits, '-' and '.'.
func isAnchor(name string) bool {
	for i, c := range name {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c != '-' && c != '.' && (c < '0' || c > '9')) {
			return false
		}
	}
	return name != ""
}

// recursiveAnchor is the one anchor of 2019-09's $recursiveRef; nobody can write this name.
const recursiveAnchor = "#"

func (c *compiler) nameAnchors(p *place, obj map[string]any) error {
	for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
		v, ok := obj[keyword]
		if !ok || p.res.draft <= draft7 {
			continue
		}
		name, ok := v.(string)
		if !ok || !isAnchor(name) {
			return fmt.Errorf("%s/%s: want a name of letters, digits, '-', '_' and '.'", p.at, keyword)
		}
		if err := addAnchor(p, name, keyword); err != nil {
			return err
		}
		if keyword == "$dynamicAnchor" {
			c.addDynamic(p, name)
		}
	}
	if obj["$recursiveAnchor"] == true && p.at == p.res.at {
		c.addDynamic(p, recursiveAnchor)
	}
	return nil
}

func addAnchor(p *place, name, keyword string) error {
	if known := p.res.anchors[name]; known != nil && known != p {
		return fmt.Errorf("%s/%s: the anchor %q is at %s too", p.at, keyword, name, nameOf(known.at))
	}
	if p.res.anchors == nil {
		p.res.anchors = map[string]*place{}
	}
	p.res.anchors[name] = p
	return nil
}

// addDynamic notes an anchor that may be reached from anywhere.
func (c *compiler) addDynamic(p *place, name string) {
	if p.res.dynamic == nil {
		p.res.dynamic = map[string]*node{}
	}
	p.res.dynamic[name] = c.use(p)
}

// use returns the node of a place, and has it compiled.
func (c *compiler) use(p *place) *node {
	if !p.queued {
		p.queued = true
		c.queue = append(c.queue, p)
	}
	return p.node
}

// resolve finds what a reference means at a place.
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

// follow walks a JSON pointer from the root of a resource. What it finds need not stand under a keyword that we
// know; then it becomes a schema now.
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
	if !strings.ContainsAny(token, "~/") {
		return token
	}
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

func unescape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}
