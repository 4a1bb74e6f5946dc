package store

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed migrations
var files embed.FS

var comments = regexp.MustCompile(`(?m)^--.*\n`)

// migrations lists the steps from an empty database to the tables of this version: a file each. A step that was ever
// released is not changed: another one follows it. The words are those of SQLite; a Dialect has others for some of
// them. Times are microseconds since 1970, in UTC. The tables of the log, and how they grew, follow from the list of
// its columns.
func migrations(log *layout) [][]string {
	steps := [][]string{log.tables()}
	all, _ := files.ReadDir("migrations") // it is in the program
	for n := 1; n <= len(all); n++ {
		text, err := files.ReadFile(fmt.Sprintf("migrations/%d.sql", n))
		if err != nil {
			panic(err) // a number is missing
		}
		if n > len(steps) {
			steps = append(steps, nil)
		}
		for statement := range strings.SplitSeq(comments.ReplaceAllString(string(text), ""), ";\n") {
			if statement = strings.TrimSpace(statement); statement != "" {
				steps[n-1] = append(steps[n-1], statement)
			}
		}
	}
	return log.grow(steps)
}
