package door

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/modeltext"
	"toolpost/wire/strictjson"
)

// The resources of every door: files of calls, values of sessions, and skills.
const (
	assetPrefix   = "toolpost://assets/"
	sessionPrefix = "toolpost://sessions/"
	skillPrefix   = "skill://"
	skillFile     = "/SKILL.md"
	// sourcePrefix, a source's name and a slash precede the URIs of an MCP server, so that those of two servers never
	// collide. A server's template stays a template with the prefix.
	sourcePrefix = "toolpost://sources/"
)

func sourceURI(source, uri string) string { return sourcePrefix + source + "/" + uri }

// sourceURI returns the URI at this door of a source's resource.
func (s *server) sourceURI(source, uri string) string {
	if s.Source != "" {
		return uri
	}
	return sourceURI(source, uri)
}

// splitSourceURI undoes sourceURI.
func (s *server) splitSourceURI(uri string) (source, own string, ok bool) {
	if s.Source != "" {
		return s.Source, uri, true
	}
	rest, ok := strings.CutPrefix(uri, sourcePrefix)
	source, own, cut := strings.Cut(rest, "/")
	return source, own, ok && cut
}

func keyOf(one tool.Resource) string { return one.URI + one.Template }

func (s *server) listResources(ctx context.Context, r *request, _ peer) (*strictjson.Writer, *jsonrpc.Error) {
	return writePage(s, r, "resources", s.resources(ctx, r.caller, true), keyOf, encoded[tool.Resource])
}

func (s *server) listTemplates(ctx context.Context, r *request, _ peer) (*strictjson.Writer, *jsonrpc.Error) {
	return writePage(s, r, "resourceTemplates", s.resources(ctx, r.caller, false), keyOf,
		encoded[tool.Resource])
}

// resources lists what a caller may read, by URI: the fixed resources, including skills, or the templates.
func (s *server) resources(ctx context.Context, p tool.Principal, fixed bool) []tool.Resource {
	list := []tool.Resource{}
	for _, one := range s.templates {
		spec := s.spec(ctx, p, one.Tool)
		if spec == nil || one.fixed() != fixed {
			continue
		}
		e := tool.Resource{
			Name: cmp.Or(one.Name, one.URI), Description: cmp.Or(one.Description, spec.Description), MediaType: one.MediaType,
		}
		if fixed {
			e.URI = one.URI
		} else {
			e.Template = one.URI
		}
		list = append(list, e)
	}
	if fixed {
		for _, one := range s.prompts(ctx, p) {
			if one.skill != "" {
				list = append(list, tool.Resource{
					URI: skillURI(one.Name), Name: one.Name, Description: one.Description, MediaType: "text/markdown",
				})
			}
		}
	} else if s.Source == "" {
		list = append(list,
			tool.Resource{
				Template: assetPrefix + "{sha256}", Name: "assets", Description: "A file that a call of yours brought.",
			},
			tool.Resource{
				Template: sessionPrefix + "{session}", Name: "sessions", Description: "The state of a session of yours.",
				MediaType: "application/json",
			})
	}
	for spec := range tool.Offers(ctx, s.catalog, p) {
		for _, one := range spec.Resources {
			if (one.URI != "") != fixed {
				continue
			}
			if fixed {
				one.URI = s.sourceURI(spec.Source, one.URI)
			} else {
				one.Template = s.sourceURI(spec.Source, one.Template)
			}
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b tool.Resource) int { return strings.Compare(keyOf(a), keyOf(b)) })
	return list
}

// offers returns a function that reports whether a resource may exist for a caller. Resources of a template are not
// looked up, and skills are listed once: a client may ask about a thousand of them.
func (s *server) offers(ctx context.Context, p tool.Principal) func(uri string) bool {
	prompts := sync.OnceValue(func() []prompt { return s.prompts(ctx, p) })
	return func(uri string) bool {
		_, _, upstream := s.splitSourceURI(uri)
		switch {
		case upstream:
			return s.mayRead(ctx, p, uri)
		case strings.HasPrefix(uri, assetPrefix) || strings.HasPrefix(uri, sessionPrefix):
			return true
		case strings.HasPrefix(uri, skillPrefix) && skillAt(prompts(), uri) != nil:
			return true
		}
		return slices.ContainsFunc(s.templates, func(one resourceTemplate) bool {
			return one.at(uri) && s.spec(ctx, p, one.Tool) != nil
		})
	}
}

func skillURI(name string) string { return skillPrefix + url.PathEscape(name) + skillFile }

// skillAt returns the skill among prompts that has a URI, or nil.
func skillAt(prompts []prompt, uri string) *prompt {
	name, found := strings.CutPrefix(uri, skillPrefix)
	name, whole := strings.CutSuffix(name, skillFile)
	name, err := url.PathUnescape(name)
	if !found || !whole || err != nil {
		return nil
	}
	i := slices.IndexFunc(prompts, func(one prompt) bool { return one.Name == name && one.skill != "" })
	if i < 0 {
		return nil
	}
	return &prompts[i]
}

func sessionURI(id string) string { return sessionPrefix + url.PathEscape(id) }

// noResource is the answer for a resource that is missing or that the caller may not read.
func noResource(r *request) *jsonrpc.Error {
	code := jsonrpc.CodeInvalidParams
	if !r.modern {
		code = mcp.CodeNoResource
	}
	e := jsonrpc.Errorf(code, "Resource not found: %s", jsonrpc.Clip(r.uri))
	e.Data, _ = strictjson.Marshal(map[string]string{"uri": r.uri})
	return e
}

// readResource reads one resource.
func (s *server) readResource(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	if r.uri == "" {
		return nil, mcp.Invalid("uri must be a string that is not empty")
	}
	if _, _, upstream := s.splitSourceURI(r.uri); upstream {
		return s.readUpstream(ctx, r, to)
	}
	if sum, ok := strings.CutPrefix(r.uri, assetPrefix); ok {
		return s.readAsset(ctx, r, sum, to)
	}
	if id, ok := strings.CutPrefix(r.uri, sessionPrefix); ok {
		if plain, err := url.PathUnescape(id); err == nil {
			id = plain
		}
		return s.readTool(ctx, r, Resource{Tool: "state.get"}, map[string]string{"session": id}, to, true)
	}
	if strings.HasPrefix(r.uri, skillPrefix) {
		if skill := skillAt(s.prompts(ctx, r.caller), r.uri); skill != nil {
			return s.readSkill(ctx, r, skill, to)
		}
	}
	for _, one := range s.templates {
		if !one.at(r.uri) {
			continue
		}
		found, texts := one.Match(r.uri), map[string]string{}
		for _, name := range one.Varnames() {
			texts[name] = found.Get(name).String()
		}
		return s.readTool(ctx, r, one.Resource, texts, to, false)
	}
	return nil, noResource(r)
}

// readCall returns the call that reads a resource of an MCP server, or nil if the URI is not one of a server's.
func (s *server) readCall(p tool.Principal, uri string) *tool.Call {
	source, own, ok := s.splitSourceURI(uri)
	if !ok || mcp.CheckURI(own) != nil {
		return nil
	}
	return &tool.Call{
		Caller: p, Tool: s.toolOf(source, mcp.MethodReadResource), Args: json.RawMessage(`{"uri":` + string(strictjson.Quote(own)) + `}`),
	}
}

// mayRead asks policy whether a caller may read a resource of an MCP server.
func (s *server) mayRead(ctx context.Context, p tool.Principal, uri string) bool {
	var decision struct {
		Allowed bool `json:"allowed"`
	}
	c := s.readCall(p, uri)
	if c == nil {
		return false
	}
	c.DryRun = true
	res, err := s.handler.Invoke(ctx, c, tool.Discard)
	return err == nil && strictjson.Unmarshal(res.Output, &decision) == nil && decision.Allowed
}

// readUpstream reads a resource of an MCP server.
func (s *server) readUpstream(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	c := s.readCall(r.caller, r.uri)
	if c == nil {
		return nil, noResource(r)
	}
	res, _, asks, bad := s.fetch(ctx, r, c, to)
	if bad != nil || asks != nil {
		return asks, bad
	}
	var given struct {
		Contents []json.RawMessage `json:"contents"`
	}
	if err := strictjson.Unmarshal(res.Output, &given); err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "what the server gave cannot be read: %s", jsonrpc.Misread(err))
	}
	r.readOwn(res.Output)
	if source, _, _ := s.splitSourceURI(r.uri); s.Source == "" {
		given.Contents = rewriteURIs(source, given.Contents)
	}
	return s.readResult(r, list(given.Contents))
}

// rewriteURIs returns pieces of an MCP server's content with their URIs rewritten so that they can be read here.
func rewriteURIs(source string, pieces []json.RawMessage) []json.RawMessage {
	if source == "" {
		return pieces
	}
	out := make([]json.RawMessage, len(pieces))
	for i, piece := range pieces {
		out[i] = piece
		_ = strictjson.Object(piece, func(name, value []byte) error { // anything but an object has no URI
			switch key := string(name); {
			case key == "uri" && strictjson.KindOf(value) == "string":
				out[i] = strictjson.With(out[i], key, strictjson.Quote(sourceURI(source, jsonrpc.Text(value))))
			case (key == "resource" || key == "content") && strictjson.KindOf(value) == "object":
				out[i] = strictjson.With(out[i], key, rewriteURIs(source, []json.RawMessage{value})[0])
			}
			return nil
		})
	}
	return out
}

// readAsset reads a file that a call of the same caller produced. The tool hands it out with an event.
func (s *server) readAsset(ctx context.Context, r *request, sum string, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	args := json.RawMessage(`{"content":false,"sha256":` + string(strictjson.Quote(sum)) + `}`)
	r.file = new(file)
	_, _, _, bad := s.fetch(ctx, r, &tool.Call{Caller: r.caller, Tool: "readAsset", Args: args}, to)
	switch {
	case bad != nil:
		return nil, noResource(r)
	case r.file.content == nil:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternal,
			"the file is larger than %d bytes, or gone; over HTTP it is at /v1/assets/%s", maxFile, sum)
	}
	return s.readResult(r, list([]json.RawMessage{fileContents(r.uri, r.file.MediaType, r.file.content)}))
}

// fileContents encodes a file as contents: a text as such, anything else in Base64.
func fileContents(uri, kind string, content []byte) []byte {
	w := strictjson.NewWriter(200 + 2*len(content))
	w.Text("uri", uri)
	w.Text("mimeType", kind)
	if strings.HasPrefix(kind, "text/") && utf8.Valid(content) {
		w.Raw("text", strictjson.Quote(content))
	} else {
		w.Text("blob", base64.StdEncoding.EncodeToString(content))
	}
	return w.Done()
}

// readSkill reads the instructions of a skill.
func (s *server) readSkill(
	ctx context.Context, r *request, skill *prompt, to peer,
) (*strictjson.Writer, *jsonrpc.Error) {
	args := argumentsOf(skill.spec, map[string]string{"name": skill.skill})
	res, _, asks, bad := s.fetch(ctx, r, &tool.Call{Caller: r.caller, Tool: skill.spec.Name, Args: args}, to)
	if bad != nil || asks != nil {
		return asks, bad
	}
	return s.readResult(r, contents(r.uri, Resource{MediaType: "text/markdown"}, instructions(res.Output)))
}

// readTool reads a resource by calling its tool. If it is one of our own and the call fails, the caller gets "not
// found".
func (s *server) readTool(
	ctx context.Context, r *request, one Resource, texts map[string]string, to peer, own bool,
) (*strictjson.Writer, *jsonrpc.Error) {
	spec := s.spec(ctx, r.caller, one.Tool)
	if spec == nil {
		return nil, noResource(r)
	}
	res, _, asks, bad := s.fetch(ctx, r, &tool.Call{Caller: r.caller, Tool: one.Tool, Args: argumentsOf(spec, texts)}, to)
	switch {
	case bad != nil && own:
		return nil, noResource(r)
	case bad != nil || asks != nil:
		return asks, bad
	}
	return s.readResult(r, contents(r.uri, one, modeltext.Of(res)))
}

// readResult answers a request to read a resource.
func (s *server) readResult(r *request, contents []byte) (*strictjson.Writer, *jsonrpc.Error) {
	w := newResult(r, len(contents))
	w.Raw("contents", contents)
	s.writeCacheHints(r, w)
	return w, nil
}

// contents encodes a tool's output as contents: a text, a file with its media type and its content in Base64, or JSON.
func contents(uri string, one Resource, output json.RawMessage) []byte {
	var file struct {
		MediaType string  `json:"mediaType"`
		Content   *[]byte `json:"content"`
	}
	w := strictjson.NewWriter(200 + len(output))
	w.Text("uri", uri)
	switch {
	case strictjson.KindOf(output) == "object" && strictjson.Unmarshal(output, &file) == nil && file.Content != nil:
		return list([]json.RawMessage{fileContents(uri, cmp.Or(one.MediaType, file.MediaType), *file.Content)})
	case strictjson.KindOf(output) == "string":
		w.Text("mimeType", cmp.Or(one.MediaType, "text/plain"))
		w.Text("text", modeltext.Plain(output))
	default:
		w.Text("mimeType", cmp.Or(one.MediaType, "application/json"))
		w.Text("text", string(output))
	}
	return list([]json.RawMessage{w.Done()})
}
