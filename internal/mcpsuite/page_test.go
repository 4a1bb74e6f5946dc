package mcpsuite

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

const page = "../../docs/conformance-mcp.md"

// A verdict is the result of a scenario, in words for the page.
type verdict struct {
	words string
	notes []string // checks that the suite did not make, and why
}

// A row is a scenario of the page.
type row struct {
	scenario string
	asked    map[string]string // by revision: "required", or why it does not count
	verdicts map[string]verdict
}

func revisions() []string { return []string{"2026-07-28", "2025-11-25"} }

// nothing is the verdict on a scenario in which no check passes or fails.
const nothing = "judges nothing"

// write makes the page. Rows are in the order of the suite.
func write(server, client []*row) []byte {
	var b bytes.Buffer
	b.WriteString(`# The official suite of MCP

Package ` + "`internal/mcpsuite`" + ` runs the conformance suite of the protocol's authors in ` + "`make test`" + `, each scenario once (on a machine that is
busy with other tests one that fails is looked at again, with more patience: the suite gives some calls half a second): against a server whose tools
know nothing of MCP (they are Narratoria programs, namel3ss functions and AlphaHuman skills), and against the runner that uses MCP servers as sources. Clients
of both eras are served at one URL. A scenario passes when none of its checks fails or warns; it judges nothing if it has no check that passes or fails here, and
the list at the end has what the suite says about that. Every message on the wire is held against the schema of its revision, too.
`)
	var notes []string
	for _, leg := range []struct {
		title string
		rows  []*row
	}{{"As a server", server}, {"As a client", client}} {
		fmt.Fprintf(&b, "\n## %s\n\n| scenario | %s |\n|---|%s\n", leg.title, strings.Join(revisions(), " | "),
			strings.Repeat("---|", len(revisions())))
		for _, r := range leg.rows {
			line, more := r.line()
			b.WriteString(line)
			notes = append(notes, more...)
		}
	}
	b.WriteString("\nAn empty cell: the revision has no such scenario. What the suite runs and does not count says why: an extension, one that came " +
		"after the\nrevision, one that its own reference server does not pass yet (pending).\n\n" +
		"Beside the suite: servers of 2025-11-25 and earlier get the roots of the config, never those of a client. " +
		"Such a server asks at any time and keeps the\n" +
		"answer for all callers, so the roots of one client would be " +
		"[wrong for the others](protocols/mcp-servers.md#questions).\n")
	if len(notes) > 0 {
		b.WriteString("\n## What the suite did not look at\n\n" + strings.Join(slices.Compact(notes), ""))
	}
	return b.Bytes()
}

// line returns the row for the page, with notes for the end of the page.
func (r *row) line() (line string, notes []string) {
	line = "| " + r.scenario + " |"
	for _, revision := range revisions() {
		v, ok := r.verdicts[revision]
		if !ok {
			line += " |"
			continue
		}
		line += " " + v.words
		if r.asked[revision] != required {
			line += " (" + r.asked[revision] + ")"
		}
		line += " |"
		for _, n := range v.notes {
			notes = append(notes, fmt.Sprintf("- %s, %s: %s\n", r.scenario, revision, n))
		}
	}
	return line + "\n", notes
}

// hold compares the page with the results, or writes it.
func hold(t *testing.T, server, client []*row) {
	t.Helper()
	text := write(server, client)
	if *update {
		kit.OK(t, os.WriteFile(page, text, 0o644))
	}
	if have, err := os.ReadFile(page); err != nil || !bytes.Equal(have, text) {
		t.Errorf("%s is stale: run go test ./internal/mcpsuite -update", filepath.Base(page))
	}
}
