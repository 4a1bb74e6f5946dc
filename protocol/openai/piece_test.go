package openai

import (
	"runtime"
	"testing"

	"toolpost/model"
)

// The cost of a million words is linear in their length, not quadratic.
func TestStreamedTextIsAccumulatedInLinearTime(t *testing.T) {
	const bits = 100_000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var all []*piece
	for range bits {
		all = appendPiece(all, model.Part{Kind: model.Text, Text: "word "})
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 100*bits*5 {
		t.Errorf("%d bytes take %d", bits*5, n)
	}
	all = appendPiece(all, model.Part{Kind: model.Thinking, Text: "hm", Seal: "s"})
	all = appendPiece(all, model.Part{Kind: model.Thinking, Text: "so"})
	if len(all) != 3 || len(all[0].whole().Text) != bits*5 || all[1].whole().Seal != "s" || all[2].whole().Text != "so" {
		t.Errorf("%d pieces", len(all))
	}
}
