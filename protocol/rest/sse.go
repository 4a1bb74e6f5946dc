package rest

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/sse"
	"toolpost/wire/strictjson"
)

// maxMessage bounds one message of a stream: a line of it, and all its data together.
const maxMessage = 32 << 20

// decodeEvent reads the data of every message but the last.
func decodeEvent(m sse.Event) (tool.Event, error) {
	var e tool.Event
	if err := strictjson.Unmarshal(m.Data, &e); err != nil {
		return e, err
	}
	if e.Kind == "" || string(e.Kind) != m.Name {
		return e, errors.New("an event has no kind, or another than its message")
	}
	if kind := strictjson.KindOf(e.Data); kind != "object" {
		return e, errors.New("the data of an event is not an object but " + kind)
	}
	return e, nil
}

func decodeResult(data []byte) (*tool.Result, error) {
	var a struct {
		tool.Result
		OK *bool `json:"ok"`
	}
	if err := strictjson.Unmarshal(data, &a); err != nil {
		return nil, err
	}
	if a.OK == nil {
		return nil, errors.New("a result does not say whether it is ok")
	}
	a.Result.OK = *a.OK
	return &a.Result, nil
}

// decodeProblem is the inverse of web.Problem. An unknown code becomes internal.
func decodeProblem(data []byte) (*tool.Error, error) {
	var p struct {
		Error *tool.Error `json:"error"`
	}
	if err := strictjson.Unmarshal(data, &p); err != nil {
		return nil, err
	}
	if p.Error == nil || p.Error.Code == "" {
		return nil, errors.New("an error has no code")
	}
	if !slices.Contains(tool.Codes(), p.Error.Code) {
		p.Error.Code = tool.CodeInternal
	}
	return p.Error, nil
}

// A stream sends the events of one call as server-sent events.
type stream struct {
	*web.Stream
	before uint64 // the number of events that the peer received in an earlier stream
}

// Emit implements tool.Sink.
func (s *stream) Emit(e tool.Event) error {
	e.Seq += s.before
	data, err := strictjson.Marshal(e)
	if err != nil {
		return tool.Errorf(tool.CodeProtocol, "an event cannot be written as JSON: %w", err)
	}
	if strings.ContainsAny(string(e.Kind), "\r\n") {
		return tool.Errorf(tool.CodeProtocol, "an event has the kind %q, which is none", e.Kind)
	}
	return s.Send(strconv.FormatUint(e.Seq, 10), string(e.Kind), data)
}
