package nearest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/wire/nearest"
)

func TestOf(t *testing.T) {
	known := []string{"readFile", "listFiles", "greet", "torch", "write_file"}
	for word, want := range map[string][]string{
		"redFile":                {"readFile"},
		"READFILE":               {"readFile"},
		"raedFile":               {"readFile"},
		"list":                   {"listFiles"},
		"greeting":               {"greet"},
		"g":                      nil,
		"":                       nil,
		"zebra":                  nil,
		strings.Repeat("a", 1e6): nil,
	} {
		kit.Equal(t, cmp.Diff(want, nearest.Of(word, known)), "", word)
	}
}

func TestAtMostThree(t *testing.T) {
	if got := nearest.Of("tool1", []string{"tool2", "tool3", "tool4", "tool5"}); len(got) != 3 {
		t.Error(got)
	}
}
