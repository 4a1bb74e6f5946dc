package openapi

import (
	"fmt"
	"maps"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// An operation is a tool of the document.
type operation struct {
	method     string
	path       string   // as in the document, with {parameters}
	route      string   // path without the query that some documents include
	fixed      []string // the fixed parts of its query
	server     *url.URL
	parameters []*parameter
	body       *body
	auth       []credential
	spec       *tool.Spec
	in, out    *part // its schemas, until the spec has them
	doubtful   bool  // its schemas may not compile
	err        error // why it cannot be called
}

// label returns its name as in the document, for people and for patterns.
func (op *operation) label() string { return op.method + " " + op.path }

// operations returns those of the document that the config chooses, in the order of their paths. Webhooks and callbacks
// are requests that the API sends, not tools.
func (d *document) operations(o *Options, values map[string]string) ([]*operation, error) {
	paths, _ := d.root["paths"].(object)
	var list []*operation
	taken := map[string]bool{}
	matched := make([]bool, len(o.Operations))
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		part, lazily := paths[path].(*lazy)
		if strings.HasPrefix(path, "x-") || lazily && !o.chooses(path, part.raw) {
			continue
		}
		item, err := d.object(paths[path], "the path "+clip(path, 200))
		if err != nil {
			item = object{"get": err} // listed by its path, with the reason
		}
		for _, method := range methods() {
			v, there := item[method]
			if !there {
				continue
			}
			op := &operation{method: strings.ToUpper(method), path: path, err: err}
			about, _ := v.(object)
			id := text(about, "operationId")
			if !o.chosen(matched, id, op.label()) {
				continue
			}
			if len(list) == maxOperations {
				return nil, fmt.Errorf("it has more than %d operations: choose some with `operations`", maxOperations)
			}
			op.name(id, taken)
			if op.err == nil && about == nil {
				op.err = fmt.Errorf("it is not an object")
			}
			if op.err == nil {
				op.err = d.fill(op, item, about, o, values)
			}
			list = append(list, op)
		}
	}
	d.root, d.decoded = nil, nil // only the translated schemas are still needed
	d.defs.endTrial()
	if d.values > maxValues/100 {
		debug.FreeOSMemory() // or the tools' schemas would come on top of what reading a large document took
	}
	for _, op := range list {
		d.defs.complete(op)
	}
	return list, o.unmatched(matched)
}

// chooses reports whether the config may choose an operation of a path that is not decoded yet.
func (o *Options) chooses(path string, raw []byte) bool {
	found := len(o.Operations) == 0 || strictjson.KindOf(raw) != "object"
	if found {
		return true
	}
	matched := make([]bool, len(o.Operations))
	_ = strictjson.Walk(raw, func(method, about []byte) error { // never fails
		id := ""
		if strictjson.KindOf(about) == "object" {
			_ = strictjson.Walk(about, func(name, value []byte) error {
				if string(name) == "operationId" {
					id = strictjson.Text(value)
				}
				return nil
			})
		}
		found = found || string(method) == "$ref" || o.chosen(matched, id, strings.ToUpper(string(method))+" "+path)
		return nil
	})
	return found
}

// chosen reports whether the config chooses an operation, and marks the patterns that match.
func (o *Options) chosen(matched []bool, id, label string) bool {
	chosen := len(o.Operations) == 0
	for i, glob := range o.Operations {
		if id != "" && glob.Match(id) || glob.Match(label) {
			matched[i], chosen = true, true
		}
	}
	return chosen
}

func (o *Options) unmatched(matched []bool) error {
	for i, glob := range o.Operations {
		if !matched[i] {
			return fmt.Errorf("no operation matches %q of `operations`, which has ids of operations or METHOD /path", glob)
		}
	}
	return nil
}

var notInNames = regex.Lazy(`[^A-Za-z0-9_.-]+`)

// name names the tool after the operation's id, or after its method and path.
func (op *operation) name(id string, taken map[string]bool) {
	name := id
	if name == "" || len(name) > maxName || tool.VisibleName(name) != name || taken[name] {
		name = strings.ToLower(op.method) + "_" + strings.Trim(notInNames().ReplaceAllString(op.path, "_"), "_")
		name = strings.TrimRight(name[:min(len(name), maxName)], "_")
	}
	name = tool.Untaken(name, maxName, func(name string) bool { return taken[name] })
	taken[name] = true
	op.spec = &tool.Spec{Name: name, Description: op.label(), Effects: effectsOf(op.method)}
}

// fill reads an operation. If it fails, the tool is listed with the error and the parts read so far.
func (d *document) fill(op *operation, item, about object, o *Options, values map[string]string) (err error) {
	s := op.spec
	s.Title = clip(text(about, "summary"), 200)
	s.Description = describe(op, about)
	idempotent := s.Effects.Idempotent // only the method makes a call idempotent
	s.Effects = s.Effects.Add(o.Effects)
	s.Effects.Idempotent = idempotent
	s.Timeout = time.Duration(o.Timeout)
	s.Declare(o.Tier, tool.TierConfig)
	if err := d.readParameters(op, item, about); err != nil {
		return err
	}
	if op.method != "GET" && op.method != "HEAD" { // their bodies have no meaning, and are not sent
		if op.body, err = d.readBody(about["requestBody"]); err != nil {
			return err
		}
	}
	op.splitQuery()
	if err := op.checkPath(); err != nil {
		return err
	}
	if err := d.input(op); err != nil {
		return err
	}
	d.output(op, about)
	if op.server, err = d.serverOf(o, about, item, d.root); err != nil {
		return err
	}
	op.auth, err = d.security(about, values)
	switch {
	case err != nil && o.connected: // each call brings the key of its caller
		return nil
	case err == nil && len(op.auth) > 0:
		err = d.mayLearn(op.server, o)
	}
	return err
}

func describe(op *operation, about object) string {
	parts := []string{}
	for _, part := range []string{text(about, "summary"), text(about, "description")} {
		if part = strings.TrimSpace(part); part != "" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	if flag(about, "deprecated", false) {
		parts = append(parts, "Deprecated.")
	}
	if len(parts) == 0 {
		return op.label()
	}
	return clip(strings.Join(parts, "\n\n"), maxDescription)
}

// readParameters reads those of the path and of the operation; the operation's override equal ones of the path.
func (d *document) readParameters(op *operation, item, about object) error {
	places := map[[2]string]int{}
	for _, level := range []object{item, about} {
		list, ok := level["parameters"].([]any)
		if !ok && level["parameters"] != nil {
			return fmt.Errorf("its parameters are not a list")
		}
		for _, v := range list {
			p, err := d.readParameter(v)
			if err != nil {
				return err
			}
			if p == nil {
				continue
			}
			at, again := places[[2]string{p.in, p.name}]
			if again {
				op.parameters[at] = p
				continue
			}
			places[[2]string{p.in, p.name}] = len(op.parameters)
			op.parameters = append(op.parameters, p)
		}
	}
	return nil
}

// splitQuery takes the query that some documents append to a path as parameters: "/current?city={city}&units=m" has the
// parameter city in its query, and always sends units=m.
func (op *operation) splitQuery() {
	route, query, _ := strings.Cut(op.path, "?")
	op.route = route
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		moved := false
		for _, p := range op.parameters {
			switch {
			case p.in == inPath && value == "{"+p.name+"}":
				p.in, p.name, p.style, p.explode, moved = inQuery, name, styleForm, true, true
			case p.in == inQuery && p.name == name:
				moved = true
			}
		}
		if part != "" && !moved {
			op.fixed = append(op.fixed, escape(part, queryStays))
		}
	}
}

var inPathTemplate = regex.Lazy(`\{([^{}]+)\}`)

// checkPath compares the parameters of the path with its template.
func (op *operation) checkPath() error {
	if !strings.HasPrefix(op.path, "/") || strings.ContainsAny(op.path, "#\\") {
		return fmt.Errorf("its path does not begin with a slash, or has a fragment")
	}
	if slices.ContainsFunc(op.fixed, func(part string) bool { return strings.Contains(part, "%7B") }) {
		return fmt.Errorf("the query of its path has a {parameter} that it does not declare")
	}
	named := map[string]bool{}
	for _, m := range inPathTemplate().FindAllStringSubmatch(op.route, -1) {
		named[m[1]] = true
		if !slices.ContainsFunc(op.parameters, func(p *parameter) bool { return p.in == inPath && p.name == m[1] }) {
			return fmt.Errorf("its path has {%s}, and there is no such parameter", clip(m[1], 100))
		}
	}
	for _, p := range op.parameters {
		if p.in == inPath && !named[p.name] {
			return fmt.Errorf("the parameter %s is not in its path", clip(p.name, 100))
		}
	}
	for step := range strings.SplitSeq(op.route, "/") {
		if step == "." || step == ".." {
			return fmt.Errorf("its path has . or .. as a step")
		}
	}
	return nil
}

const argBody = "body"

// input makes the schema of the arguments: one property for each parameter, by its name, and one for the body.
func (d *document) input(op *operation) error {
	properties, required, uses := object{}, []any{}, []string{}
	put := func(name string, schema any, about string, must bool) error {
		raw, used, err := d.defs.translate(schema)
		if err != nil {
			return fmt.Errorf("%s: %w", clip(name, 100), err)
		}
		properties[name] = described(raw, about)
		uses = append(uses, used...)
		if must {
			required = append(required, name)
		}
		return nil
	}
	taken := func(name string) bool { return properties[name] != nil || name == argBody && op.body != nil }
	for _, p := range op.parameters {
		if p.arg = p.name; taken(p.arg) {
			p.arg = tool.Untaken(p.name+"_"+p.in, 2*maxName, taken)
		}
		if err := put(p.arg, p.schema, p.about, p.required); err != nil {
			return err
		}
		p.schema, p.about = nil, "" // they keep the document in memory
	}
	if op.body != nil {
		op.body.arg = argBody
		if err := put(argBody, op.body.argument(d), "", op.body.required); err != nil {
			return err
		}
		op.body.schema = nil
	}
	schema := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	var err error
	op.in, err = d.defs.part(op, schema, uses)
	return err
}

// output sets the output schema if the document has exactly one for the answer. A schema that cannot be read is left
// out: the answer is the API's responsibility.
func (d *document) output(op *operation, about object) {
	responses, _ := about["responses"].(object)
	var found any
	for _, status := range slices.Sorted(maps.Keys(responses)) {
		if !strings.HasPrefix(status, "2") {
			continue
		}
		response, err := d.object(responses[status], "a response")
		content, _ := response["content"].(object)
		for _, kind := range slices.Sorted(maps.Keys(content)) {
			media, bad := d.object(content[kind], "content")
			if err != nil || bad != nil || !isJSON(mediaOf(kind)) || found != nil {
				return
			}
			found = media["schema"]
		}
	}
	if found == nil {
		return
	}
	raw, uses, err := d.defs.translate(found)
	schema := decoded(raw)
	if err != nil || schema == nil {
		return
	}
	op.out, _ = d.defs.part(op, schema, uses)
}
