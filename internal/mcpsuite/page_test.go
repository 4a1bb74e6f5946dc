package mcpsuite

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const page = "../../docs/conformance-mcp.md"

// A verdict is how a scenario ended, in words for the page.
type verdict struct {
	words string
	notes []string // what the suite did not look at, and why
}

// A row is a scenario of the page.
type row struct {
	scenario string
	asked    map[string]string // by revision: "required", or why it does not count
	verdicts map[string]verdict
}

func revisions() []string { return []string{"2026-07-28", "2025-11-25"} }

// write makes the page. Rows stand in the order of the suite.
func write(rows []*row) []byte {
	var b bytes.Buffer
	b.WriteString(`# The official suite of MCP

Package ` + "`internal/mcpsuite`" + ` runs the conformance suite of the protocol's authors against a server, in ` + "`make test`" + `. Its tools
know nothing of MCP: they are Narratoria programs, namel3ss functions and AlphaHuman skills. Clients of both eras are served at one URL.
A scenario passes when none of its checks fails or warns. Every message on the wire is held against the schema of its revision, too.

| scenario | ` + strings.Join(revisions(), " | ") + " |\n|---|" + strings.Repeat("---|", len(revisions())) + "\n")
	var notes []string
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s |", r.scenario)
		for _, revision := range revisions() {
			v, ok := r.verdicts[revision]
			if !ok {
				b.WriteString(" |")
				continue
			}
			about := ""
			if r.asked[revision] != required {
				about = " (" + r.asked[revision] + ")"
			}
			fmt.Fprintf(&b, " %s%s |", v.words, about)
			for _, n := range v.notes {
				notes = append(notes, fmt.Sprintf("- %s, %s: %s\n", r.scenario, revision, n))
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\nAn empty cell: the revision has no such scenario. What the suite runs and does not count says why: an extension, one that came " +
		"after the\nrevision, one that its own reference server does not pass yet (pending).\n")
	if len(notes) > 0 {
		b.WriteString("\nWhat the suite did not look at, and what it says about that:\n\n" + strings.Join(slices.Compact(notes), ""))
	}
	return b.Bytes()
}

// hold compares the page with what was found, or writes it.
func hold(t *testing.T, rows []*row) {
	t.Helper()
	text := write(rows)
	if *update {
		if err := os.WriteFile(page, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(page); err != nil || !bytes.Equal(have, text) {
		t.Errorf("%s is stale: run go test ./internal/mcpsuite -update", filepath.Base(page))
	}
}
