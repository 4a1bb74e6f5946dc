package rest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/envelope"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

type object = map[string]any

// describe is GET /openapi.json: the routes of the door as an OpenAPI 3.1 document, and each tool that the caller may
// see as an operation of its own. Without a token there are only the routes.
func (s *server) describe(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
	paths := routePaths(s.routes())
	if p.ID != "" {
		s.addTools(r, p, paths)
	}
	body, err := strictjson.Marshal(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Toolpost", "version": cmp.Or(s.Version, "unknown"),
			"description": "The tools of this server, each with its own operation, and what else can be asked over HTTP.",
		},
		"servers":    []any{object{"url": "/"}},
		"security":   []any{object{"token": []any{}}},
		"paths":      paths,
		"components": components(),
	})
	if err == nil {
		web.Reply(w, http.StatusOK, body)
	}
	return err
}

// about describes each route.
func about() map[string]string {
	return map[string]string{
		"GET /healthz": "Whether the server lives", "GET /readyz": "Whether it takes calls",
		"GET /metrics": "What is counted, as Prometheus reads it", "GET /openapi.json": "This document",
		"GET /v1/tools": "Every tool, with its schemas and whether it is available", "GET /v1/tools/{name}": "One tool",
		"POST /v1/tools/{name}/call": "Call a tool; the body is its arguments", "DELETE /v1/calls/{id}": "Cancel a running call",
		"GET /v1/assets/{sha256}": "A file that a call brought", "GET /v1/jobs": "Your jobs", "GET /v1/jobs/{id}": "One job",
		"DELETE /v1/jobs/{id}": "Cancel a job", "GET /v1/jobs/{id}/events": "The events of a job, as they happen",
	}
}

var pathParameter = regex.Lazy(`\{(\w+)\}`)

// routePaths describes the routes with a method; the others only refuse requests.
func routePaths(routes []web.Route) object {
	paths := object{}
	for _, route := range routes {
		if route.Method == "" {
			continue
		}
		name := route.Method + " " + route.Path
		op := object{
			"operationId": tool.Slug(strings.ToLower(route.Method) + strings.NewReplacer("{", "", "}", "").Replace(route.Path)),
			"summary":     about()[name], "tags": []any{"server"},
		}
		var parameters []any
		for _, m := range pathParameter().FindAllStringSubmatch(route.Path, -1) {
			parameters = append(parameters, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
		}
		kind, schema := answerOf(name)
		op["responses"] = responses(kind, schema)
		if name == "POST /v1/tools/{name}/call" {
			op["requestBody"] = requestBody(json.RawMessage(`{"type":"object"}`))
			parameters = append(parameters, callHeaders()...)
		}
		if parameters != nil {
			op["parameters"] = parameters
		}
		if route.Open || route.Optional {
			op["security"] = []any{object{}}
		}
		item, _ := paths[route.Path].(object)
		if item == nil {
			item = object{}
			paths[route.Path] = item
		}
		item[strings.ToLower(route.Method)] = op
	}
	return paths
}

// answerOf returns the media type and the schema of a route's successful answer; the type is "" if it has no body.
func answerOf(route string) (kind string, schema any) {
	switch route {
	case "DELETE /v1/calls/{id}":
		return "", nil
	case "GET /metrics":
		return "text/plain", object{"type": "string"}
	case "GET /v1/assets/{sha256}":
		return "application/octet-stream", object{}
	case "GET /v1/jobs/{id}/events":
		return web.TypeStream, object{"type": "string"}
	case "POST /v1/tools/{name}/call", "GET /v1/jobs", "GET /v1/jobs/{id}", "DELETE /v1/jobs/{id}":
		return typeJSON, ref("schemas/Result")
	}
	return typeJSON, object{"type": "object"}
}

// addTools adds an operation for each tool to the routes. A concrete path takes precedence over one with a parameter.
func (s *server) addTools(r *http.Request, p tool.Principal, paths object) {
	var specs []*tool.Spec
	for spec, why := range s.catalog.Specs(r.Context(), p) {
		if spec.Name != "" && why == nil && !spec.Unlisted {
			specs = append(specs, spec)
		}
	}
	for slug, spec := range tool.Slugs(specs) {
		path := "/v1/tools/" + url.PathEscape(spec.Name)
		op := object{
			"operationId": "call_" + slug, "description": spec.Description, "tags": []any{spec.Source},
			"requestBody": requestBody(placed(spec.Input, path+"/input")), "parameters": callHeaders(),
			"responses": responses(typeJSON, resultOf(spec, path)),
		}
		if spec.Title != "" {
			op["summary"] = spec.Title
		}
		paths[path+"/call"] = object{"post": op}
	}
}

// placed gives a schema with references an $id of its own, so that they refer to its own parts and not to those of the
// document around it. Other schemas get none: many readers of such documents reject $id, ours among them.
func placed(raw json.RawMessage, id string) json.RawMessage {
	if strictjson.KindOf(raw) != "object" {
		return json.RawMessage(`{}`)
	}
	if !bytes.Contains(raw, []byte(`ef"`)) { // $ref and $dynamicRef
		return raw
	}
	if m, err := strictjson.ReadMembers(raw, "$id"); err != nil || m.Get("$id") != nil {
		return raw
	}
	w := strictjson.NewWriter(len(raw) + len(id) + 16)
	w.Text("$id", id)
	err := strictjson.Walk(raw, func(name, value []byte) error { w.Named(string(name), value); return nil })
	if err != nil {
		return raw
	}
	return w.Done()
}

func resultOf(spec *tool.Spec, path string) any {
	if len(spec.Output) == 0 {
		return ref("schemas/Result")
	}
	return object{"allOf": []any{
		ref("schemas/Result"),
		object{"properties": object{"output": placed(spec.Output, path+"/output")}},
	}}
}

func ref(to string) object { return object{"$ref": "#/components/" + to} }

func requestBody(schema json.RawMessage) object {
	return object{"content": object{typeJSON: object{"schema": schema}}}
}

// responses returns those of an operation. All errors have the same form.
func responses(kind string, schema any) object {
	all := object{"default": ref("responses/Refused")}
	if kind == "" {
		all["204"] = object{"description": "done"}
	} else {
		all["200"] = object{"description": "the answer", "content": object{kind: object{"schema": schema}}}
	}
	return all
}

// callHeaders returns the headers of a call.
func callHeaders() []any {
	var list []any
	for _, name := range envelope.Headers() {
		list = append(list, ref("parameters/"+tool.Slug(name)))
	}
	return list
}

func components() object {
	text, parameters := object{"type": "string"}, object{}
	for _, name := range envelope.Headers() {
		parameters[tool.Slug(name)] = object{"name": name, "in": "header", "schema": text}
	}
	failure := object{"code": object{"enum": tool.Codes()}, "reason": text, "details": object{}, "message": text}
	problem := object{"status": object{"type": "integer"}, "type": text, "title": text, "detail": text, "call": text}
	maps.Copy(problem, failure)
	delete(problem, "message") // its detail
	return object{
		"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		"parameters":      parameters,
		"responses": object{"Refused": object{
			"description": "there is no outcome; the body says why",
			"content": object{
				typeJSON:        object{"schema": ref("schemas/Refusal")},
				web.TypeProblem: object{"schema": ref("schemas/Problem")},
			},
		}},
		"schemas": object{
			"Error": object{"type": "object", "required": []any{"code", "message"}, "properties": failure},
			"Result": object{
				"type": "object", "required": []any{"ok", "call"}, "description": "ok is false if the tool itself said no",
				"properties": object{
					"ok": object{"type": "boolean"}, "call": text, "output": object{}, "summary": text, "error": ref("schemas/Error"),
					"ask": object{"type": "object"}, "trace": object{"type": "object"},
				},
			},
			"Refusal": object{
				"type": "object", "required": []any{"ok", "error"},
				"properties": object{"ok": object{"const": false}, "error": ref("schemas/Error"), "call": text},
			},
			"Problem": object{"type": "object", "required": []any{"type", "title", "status"}, "properties": problem},
		},
	}
}
