package model

import (
	"encoding/json"
	"maps"
	"slices"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Reserved lists the parameters that a request has fields for, and that settings cannot contain.
func Reserved() []string {
	return []string{"model", "messages", "system", "tools", "tool_choice", "parallel_tool_calls", "stream",
		"stream_options"}
}

// in returns the settings in the form of an API. If that has no equivalent for one that matters, the request is refused:
// an answer that disregards it would not be the requested one.
func (s Settings) in(api API, m *Model, of API) (object, error) {
	doc := object{}
	for _, name := range slices.Sorted(maps.Keys(s.Values)) {
		value := s.Values[name]
		if slices.Contains(Reserved(), name) || strictjson.KindOf(value) == "null" {
			continue
		}
		if m.API == Responses && slices.Contains([]string{"stop", "stop_sequences", "logit_bias", "frequency_penalty",
			"presence_penalty"}, name) {
			return nil, unknown(name, m, of)
		}
		if s.API == api {
			doc[name] = value
			continue
		}
		say, known := translations(api)[name]
		if !known {
			return nil, unknown(name, m, of)
		}
		if say != nil {
			if err := say(doc, value); err != nil {
				return nil, about(name, tool.Errorf(tool.CodeInvalidInput, "%s: %w", name, err).Because("invalid_value"))
			}
		}
	}
	return doc, nil
}

// unknown returns the error of a request with a parameter that only servers of its own API know.
func unknown(parameter string, m *Model, of API) *tool.Error {
	return Misses(parameter, "model %s speaks the API %s, which does not know %.60q; leave it out, or use a model with api: %s",
		m.Name, m.API, parameter, of)
}

// Misses returns the error of a request with a parameter that is not supported.
func Misses(parameter, format string, args ...any) *tool.Error {
	return about(parameter, tool.Errorf(tool.CodeUnsupported, format, args...).Because("unsupported_parameter"))
}

// about records which parameter of a request an error is about, for programs.
func about(parameter string, e *tool.Error) *tool.Error {
	if len(parameter) <= 100 {
		e.Details, _ = strictjson.Marshal(map[string]string{"param": parameter}) // strings
	}
	return e
}

// A saying translates a setting.
type saying func(to object, value json.RawMessage) error

func as(name string) saying {
	return func(to object, value json.RawMessage) error {
		to[name] = value
		return nil
	}
}

// translations are from the other API to this one. A nil entry concerns the server, or is a hint, and can be left out.
func translations(to API) map[string]saying {
	if to == Anthropic {
		return map[string]saying{
			"max_tokens": as("max_tokens"), "max_completion_tokens": as("max_tokens"), "temperature": as("temperature"),
			"top_p": as("top_p"), "stop": stops, "response_format": structured,
			"user": nil, "metadata": nil, "store": nil, "service_tier": nil, "seed": nil, "prompt_cache_key": nil,
			"safety_identifier": nil, "reasoning_effort": nil, "verbosity": nil, "prompt_cache_retention": nil,
		}
	}
	return map[string]saying{
		"max_tokens": as("max_completion_tokens"), "temperature": as("temperature"), "top_p": as("top_p"),
		"stop_sequences": as("stop"),
		"top_k":          nil, "metadata": nil, "service_tier": nil, "thinking": nil, "cache_control": nil,
		"output_config": format,
		"inference_geo": nil, "context_management": nil,
	}
}

// structured translates the format of an answer to Anthropic's form.
func structured(to object, value json.RawMessage) error {
	var f struct {
		Type   string `json:"type"`
		Schema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	err := strictjson.Unmarshal(value, &f)
	switch {
	case err != nil || f.Type == "text":
		return err
	case f.Type != "json_schema":
		return tool.Errorf(tool.CodeInvalidInput, "the type %.60q is only for a model with api: openai or responses; others "+
			"take json_schema", f.Type)
	}
	to["output_config"] = object{"format": object{"type": "json_schema", "schema": f.Schema.Schema}}
	return nil
}

// format translates it to OpenAI's form.
func format(to object, value json.RawMessage) error {
	var c struct {
		Format struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
		Effort json.RawMessage `json:"effort"`
	}
	err := strictjson.Unmarshal(value, &c)
	if len(c.Format.Schema) > 0 {
		schema, _ := strictjson.Marshal(object{"name": "answer", "schema": c.Format.Schema, "strict": true}) // JSON that was parsed before
		whole, _ := strictjson.Marshal(object{"type": "json_schema", "json_schema": json.RawMessage(schema)})
		to["response_format"] = json.RawMessage(whole)
	}
	if string(c.Effort) != `"max"` && len(c.Effort) > 0 {
		to["reasoning_effort"] = c.Effort
	}
	return err
}

// stops encodes one text, or a list of them, as a list.
func stops(to object, value json.RawMessage) error {
	if strictjson.KindOf(value) == "string" {
		value = json.RawMessage("[" + string(value) + "]")
	}
	to["stop_sequences"] = value
	return nil
}
