package matrix

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

const page = "../../docs/matrix.md"

// TestMatrixPageMatchesTheTables compares docs/matrix.md with the tables; -update writes it.
func TestMatrixPageMatchesTheTables(t *testing.T) {
	want := writePage()
	if *update {
		kit.OK(t, os.WriteFile(page, []byte(want), 0o644))
	}
	got, err := os.ReadFile(page)
	if err != nil || string(got) != want {
		t.Errorf("docs/matrix.md is not what the tables say (%v); `go test ./internal/matrix -run Page -update` writes it", err)
	}
}

const pageHead = `# Every door times every runner

<!-- Written by the tests of package internal/matrix from their tables: go test ./internal/matrix -run Page -update -->

Any tool can be called by any host. The tests of package internal/matrix prove it: one node has a source for every
runner below, all with the same set of tools, and each tool is called through every door as an outside caller
would do it. What both sides can carry arrives the same. What one of them cannot carry is in these tables,
with the reason; the tests hold that it arrives in the way that is written here, and in no other.

A fleet changes nothing of it: the same tests pass with the doors at a hub, and every runner at a worker on another machine.

| word | what arrives |
|---|---|
| same | what the tool gave |
| JSON text | a text that holds the JSON; a text stays as it is |
| in an object | ` + "`{\"value\": ...}`" + ` around what is not an object |
| log event | a log message in place of the event |
| log line | a line on stderr, or in the log of the server, beside the protocol |
| unnamed | the content of a file and its media type, without the tool's name for it |
| in words | text of the result, for the model; programs find the data beside it |
| wider class | an error of a class that says less |
| error | a clear error in place of the result |
| – | nothing |
`

// columns returns the features whose form depends on both sides.
func columns() []feature {
	return []feature{output, large, reason, progress, state, asset, choice, question}
}

func writePage() string {
	var b strings.Builder
	b.WriteString(pageHead)
	b.WriteString("\n## Doors\n\n")
	var abouts [][2]string
	for _, d := range doors() {
		abouts = append(abouts, [2]string{d.name, d.about})
	}
	listAbouts(&b, "door", abouts)
	for _, d := range doors() {
		listLosses(&b, d.name, d.carries)
	}
	b.WriteString("\n## Runners\n\n")
	abouts = nil
	for _, r := range runners() {
		abouts = append(abouts, [2]string{r.name, r.about})
	}
	listAbouts(&b, "runner", abouts)
	for _, r := range runners() {
		listLosses(&b, r.name, r.carries)
		if r.inSession {
			fmt.Fprintf(&b, "  - %s: *%s* at some doors. %s.\n", state, never, sentence(noSession))
		}
	}
	b.WriteString("\n## Together\n\nThe words of a failure, a timeout and a refusal arrive everywhere, each with the door's own name for its class. " +
		"A call whose caller cancels it, or goes away, ends at once, at every door and with every runner. The rest:\n")
	for _, f := range columns() {
		product(&b, f)
	}
	return b.String()
}

func listAbouts(b *strings.Builder, what string, rows [][2]string) {
	fmt.Fprintf(b, "| %s | what it is |\n|---|---|\n", what)
	for _, row := range rows {
		fmt.Fprintf(b, "| %s | %s |\n", row[0], row[1])
	}
	b.WriteString("\nWhat does not go through them the same, and why:\n\n")
}

func listLosses(b *strings.Builder, name string, c carries) {
	if len(c) == 0 {
		fmt.Fprintf(b, "- **%s**: everything goes through.\n", name)
		return
	}
	fmt.Fprintf(b, "- **%s**\n", name)
	for _, f := range features() {
		if lost, ok := c[f]; ok {
			fmt.Fprintf(b, "  - %s: *%s*. %s.\n", f, lost.way, sentence(lost.why))
		}
	}
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// product writes the table of one feature: a row for each runner, a column for each door.
func product(b *strings.Builder, f feature) {
	fmt.Fprintf(b, "\n### %s\n\n| from \\ to |", sentence(string(f)))
	for _, d := range doors() {
		fmt.Fprintf(b, " %s |", d.name)
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---|", len(doors())))
	for _, r := range runners() {
		fmt.Fprintf(b, "| %s |", r.name)
		for _, d := range doors() {
			fmt.Fprintf(b, " %s |", between(d, r, f))
		}
		b.WriteString("\n")
	}
}
