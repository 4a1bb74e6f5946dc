package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"
)

// A row is the result of one promise.
type row struct {
	measured  string
	reference string
	ratio     string
	target    string
	note      string // other observations, printed below the table
	pass      bool
	skipped   bool // not to be measured here; the note gives the reason
}

// A report is the result of a run: as a table, and as JSON.
type report struct {
	Go    string     `json:"go"`
	OS    string     `json:"os"`
	CPUs  int        `json:"cpus"`
	Began time.Time  `json:"began"`
	Rows  []reported `json:"rows"`
}

// reported is a row with its name and its verdict.
type reported struct {
	Part      string  `json:"part"`
	Name      string  `json:"name"`
	Measured  string  `json:"measured"`
	Reference string  `json:"reference"`
	Ratio     string  `json:"ratio"`
	Target    string  `json:"target"`
	Verdict   string  `json:"verdict"`
	Note      string  `json:"note,omitempty"`
	Seconds   float64 `json:"seconds"` // time spent measuring
}

// The verdicts: a promise is kept, missed or could not be measured; or nothing was promised, or nothing was to be
// measured.
const (
	passed  = "pass"
	missed  = "MISSED"
	broken  = "FAILED"
	seen    = "shown"
	skipped = "skip"
)

func newReport() *report {
	return &report{
		Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Began: time.Now().UTC(),
	}
}

// add adds the result of a measurement.
func (r *report) add(m measurement, result row, failed error, took time.Duration) {
	verdict := missed
	switch {
	case failed != nil:
		result, verdict = row{note: failed.Error()}, broken
	case result.skipped:
		verdict = skipped
	case result.target == noTarget:
		verdict = seen
	case result.pass:
		verdict = passed
	}
	r.Rows = append(r.Rows, reported{
		m.part, m.name, result.measured, result.reference, result.ratio, result.target, verdict, result.note,
		took.Round(10 * time.Millisecond).Seconds(),
	})
}

// met reports whether no promise was missed and no measurement failed.
func (r *report) met() bool { return r.count(missed)+r.count(broken) == 0 }

// count returns the number of rows with a verdict.
func (r *report) count(verdict string) (n int) {
	for _, one := range r.Rows {
		if one.Verdict == verdict {
			n++
		}
	}
	return n
}

// whole reports whether every row of a part was measured, whatever its verdict.
func (r *report) whole(part string) bool {
	left := 0
	for _, m := range measurements() {
		if m.part == part {
			left++
		}
	}
	for _, one := range r.Rows {
		if one.Part == part && one.Verdict != broken {
			left--
		}
	}
	return left == 0
}

// save writes the report as JSON.
func (r *report) save(path string) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // targets contain < and >
	enc.SetIndent("", "  ")
	if err := errors.Join(enc.Encode(r), os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}

// read reads a report that was saved.
func read(path string) (r *report, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return r, json.Unmarshal(text, &r)
}

// width is the maximum width of the table: a terminal, or a page of docs.
const width = 120

// columns returns the widths of the cells of a row; with two spaces between them, they add up to width.
func columns() []int { return []int{8, 30, 19, 19, 18, 8, 6} }

func (r reported) cells() []string {
	return []string{r.Part, r.Name, r.Measured, r.Reference, r.Ratio, r.Target, r.Verdict}
}

// table writes the rows, the notes below them, and the number of rows of each verdict.
func (r *report) table(out io.Writer) {
	fmt.Fprintf(out, "%s %s, %d CPUs; medians of interleaved runs\n\n", r.Go, r.OS, r.CPUs)
	writeCells(out, []string{"PART", "ROW", "MEASURED", "REFERENCE", "RATIO", "TARGET", ""})
	for _, one := range r.Rows {
		writeCells(out, one.cells())
	}
	fmt.Fprintln(out)
	for _, one := range r.Rows {
		if one.Note != "" {
			fmt.Fprintf(out, "%s: %s: %s\n", one.Part, one.Name, one.Note)
		}
	}
	fmt.Fprintln(out, r.summary())
}

// summary reports the number of rows of each verdict.
func (r *report) summary() string {
	var each []string
	for _, verdict := range []string{passed, missed, broken, seen, skipped} {
		if n := r.count(verdict); n > 0 {
			each = append(each, fmt.Sprintf("%d %s", n, verdict))
		}
	}
	return strings.Join(each, ", ")
}

// writeCells writes a line of the table. It cuts text that does not fit; the JSON has all of it.
func writeCells(out io.Writer, cells []string) {
	var line strings.Builder
	for i, wide := range columns() {
		fmt.Fprintf(&line, "%-*s  ", wide, cut(cells[i], wide))
	}
	fmt.Fprintln(out, strings.TrimRight(line.String(), " "))
}

func cut(text string, wide int) string {
	if utf8.RuneCountInString(text) <= wide {
		return text
	}
	return string([]rune(text)[:wide-1]) + "…"
}
