package tool

import (
	"encoding/json"
	"math"
	"strings"
	"time"
)

// Durations are milliseconds in JSON, with a fraction if there is one: the unit of the contracts and of people.
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// fromMillis clamps values that do not fit, so that a timeout of 1e300 becomes a long one, not a negative one.
func fromMillis(ms float64) time.Duration {
	switch ns := math.Round(ms * float64(time.Millisecond)); {
	case ns >= math.MaxInt64:
		return math.MaxInt64
	case ns <= math.MinInt64:
		return math.MinInt64
	default:
		return time.Duration(ns)
	}
}

type specJSON Spec

// MarshalJSON implements json.Marshaler.
func (s Spec) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		specJSON
		TimeoutMS float64 `json:"timeout_ms,omitempty"`
	}{specJSON(s), millis(s.Timeout)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Spec) UnmarshalJSON(b []byte) error {
	v := struct {
		*specJSON
		TimeoutMS float64 `json:"timeout_ms"`
	}{specJSON: (*specJSON)(s)}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	s.Timeout = fromMillis(v.TimeoutMS)
	return nil
}

type traceJSON Trace

// MarshalJSON implements json.Marshaler.
func (t Trace) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		traceJSON
		DurationMS float64 `json:"duration_ms"`
	}{traceJSON(t), millis(t.Duration)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Trace) UnmarshalJSON(b []byte) error {
	v := struct {
		*traceJSON
		DurationMS float64 `json:"duration_ms"`
	}{traceJSON: (*traceJSON)(t)}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	t.Duration = fromMillis(v.DurationMS)
	return nil
}

// Retry returns the wait that RetryAfter set, or 0 if the error has none.
func (e *Error) Retry() time.Duration {
	var said struct {
		MS int64 `json:"retry_after_ms"`
	}
	if e == nil || json.Unmarshal(e.Details, &said) != nil {
		return 0
	}
	return time.Duration(min(max(said.MS, 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// UnmarshalJSON implements json.Unmarshaler: a list of patterns, or a single one. Without it a type that reads itself
// from text could be decoded only from a JSON string, and not from the list that it is encoded as.
func (p *Patterns) UnmarshalJSON(b []byte) error {
	if strings.HasPrefix(string(b), `"`) {
		*p = make(Patterns, 1)
		return json.Unmarshal(b, &(*p)[0])
	}
	return json.Unmarshal(b, (*[]Pattern)(p))
}
