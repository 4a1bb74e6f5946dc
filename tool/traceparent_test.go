package tool_test

import (
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

const (
	parent     = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	parentUUID = "0af76519-16cd-43dd-8448-eb211c80319c"
	parentSpan = "b7ad6b7169203331"
)

func TestATraceparentIsReadAsW3CAsks(t *testing.T) {
	good := []string{
		parent, strings.TrimSuffix(parent, "1") + "0",
		"01" + parent[2:], "cc" + parent[2:] + "-and-more-to-come", // future versions
	}
	for _, text := range good {
		if trace, span := tool.TraceOf(text), tool.SpanOf(text); trace != parentUUID || span != parentSpan {
			t.Errorf("%s: trace %q, span %q", text, trace, span)
		}
	}
	bad := []string{
		"", "-", "00", parent[:54], parent + "-", parent + "-more", "ff" + parent[2:], "0" + parent, strings.ToUpper(parent),
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g", "00-0af7651916cd43dd8448eb211c80319-b7ad6b71692033310-01",
		" " + parent, strings.Repeat("00-", 100_000),
	}
	for _, text := range bad {
		if trace, span := tool.TraceOf(text), tool.SpanOf(text); trace != "" || span != "" {
			t.Errorf("%.80s: trace %q, span %q", text, trace, span)
		}
	}
}

func TestTraceparentRoundTrips(t *testing.T) {
	kit.Equal(t, tool.Traceparent(parentUUID, parentSpan), parent)
	seen := map[string]bool{}
	for range 1000 {
		text := tool.Traceparent(parentUUID, "")
		span := tool.SpanOf(text)
		if tool.TraceOf(text) != parentUUID || span == "" || seen[span] {
			t.Fatalf("%s is malformed, or its span is not new", text)
		}
		seen[span] = true
	}
	for _, trace := range []string{"", "my trace", "00000000-0000-0000-0000-000000000000"} {
		kit.Equal(t, tool.Traceparent(trace, parentSpan), "", trace)
	}
	if text := tool.Traceparent(parentUUID, "not a span\n"); tool.SpanOf(text) == "" {
		t.Errorf("%q", text)
	}
}

func TestAProgramGetsTheTraceparentOfItsCall(t *testing.T) {
	c := &tool.Call{Trace: parentUUID, Span: parentSpan}
	shared := make([]string, 1, 10)
	shared[0] = "PATH=/bin"
	first := c.TraceEnv(shared)
	second := (&tool.Call{Trace: parentUUID, Span: "00f067aa0ba902b7"}).TraceEnv(shared)
	if want := []string{"PATH=/bin", "TRACEPARENT=" + parent}; !slices.Equal(first, want) || slices.Equal(first, second) {
		t.Errorf("%q, and for another call %q", first, second)
	}
	own := []string{"TRACEPARENT=mine"}
	kit.EqualSlices(t, c.TraceEnv(own), own)
	if got := (&tool.Call{Trace: "my trace"}).TraceEnv(nil); got != nil {
		t.Errorf("%q", got)
	}
}
