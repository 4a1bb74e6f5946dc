package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"toolpost/bench/attempt"
	"toolpost/internal/kit"
)

func TestTableFits(t *testing.T) {
	rep := newReport()
	long := strings.Repeat("µ", 200)
	rep.add(measurement{part: long, name: long}, row{measured: long, reference: long, ratio: long, target: long}, nil, 0)
	for _, m := range measurements() {
		rep.add(m, row{pass: true, note: "said below"}, nil, time.Second)
	}
	var out bytes.Buffer
	rep.table(&out)
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

// A name that is cut could be mistaken for another one, and could not be selected.
func TestNamesOfRowsFitAndAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range measurements() {
		if seen[m.id()] {
			t.Errorf("two rows are called %q", m.id())
		}
		seen[m.id()] = true
		if n := utf8.RuneCountInString(m.part); n > columns()[0] {
			t.Errorf("the name of the part %q has %d columns", m.part, n)
		}
		if n := utf8.RuneCountInString(m.name); n > columns()[1] {
			t.Errorf("the name of the row %q has %d columns", m.name, n)
		}
	}
}

func TestDocsHaveEveryPart(t *testing.T) {
	page := kit.Must(os.ReadFile("../docs/benchmarks.md"))(t)
	for _, p := range parts() {
		if !bytes.Contains(page, []byte("\n| "+p.name+" | ")) {
			t.Errorf("docs/benchmarks.md has no row of the part %s", p.name)
		}
	}
}

func TestReportIsReadAsItWasSaved(t *testing.T) {
	rep := newReport()
	m := measurement{part: "http", name: "1 caller"}
	rep.add(m, row{measured: "1", reference: "2", ratio: "0.50 of the rate", target: ">= 0.6"}, nil, time.Second)
	rep.add(m, row{pass: true}, errors.New("no server"), time.Second)
	path := filepath.Join(t.TempDir(), "new", "bench.json")
	kit.OK(t, rep.save(path))
	got, err := read(path)
	if err != nil || !slices.Equal(got.Rows, rep.Rows) {
		t.Fatalf("read %+v, %v", got, err)
	}
	if got.Rows[0].Verdict != missed || got.Rows[1].Verdict != broken || got.Rows[1].Note != "no server" {
		t.Errorf("the verdicts are %+v", got.Rows)
	}
	if got.met() {
		t.Error("a report with a row that was missed and one that failed is met")
	}
}

func TestSkippedRowIsNotCountedAsPass(t *testing.T) {
	rep := newReport()
	m := measurement{part: "console", name: "click"}
	rep.add(m, row{skipped: true, pass: true, note: "no browser"}, nil, 0)
	rep.add(m, row{target: noTarget, pass: true}, nil, 0)
	rep.add(m, row{target: "< 1 ms", pass: true}, nil, 0)
	kit.Equal(t, rep.summary(), "1 pass, 1 shown, 1 skip")
	if !rep.met() {
		t.Error("rows without a target count as missed")
	}
}

func TestInterruptedRunCleansUp(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	l, ended := new(lab), false
	row1 := func(context.Context, *lab) row { return row{pass: true} }
	row2 := func(ctx context.Context, l *lab) row {
		l.atEnd(func() error { ended = true; return nil })
		interrupt()
		attempt.Check(ctx.Err())
		return row{}
	}
	row3 := func(context.Context, *lab) row { t.Error("a row was begun after the interrupt"); return row{} }
	var progress bytes.Buffer
	rep, err := run(ctx, l, []measurement{{run: row1}, {run: row2}, {run: row3}}, &progress)
	if err != nil || len(rep.Rows) != 1 || !ended {
		t.Errorf("%d rows, %v, ended: %v", len(rep.Rows), err, ended)
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if !strings.HasSuffix(progress.String(), "interrupted\n") {
		t.Errorf("it said %q", progress.String())
	}
}

func TestChosenRows(t *testing.T) {
	for _, c := range []struct {
		only string
		rows int
	}{
		{"", len(measurements())}, {"machina", 4}, {"machina: pipelined / bare loop", 1}, {"mach", 0}, {"nothing", 0},
	} {
		rows, err := chosen(c.only)
		if len(rows) != c.rows || (err == nil) != (c.rows > 0) {
			t.Errorf("%q: %d rows, %v; expected %d", c.only, len(rows), err, c.rows)
		}
		if err != nil && !strings.Contains(err.Error(), "machina, ") {
			t.Errorf("%q: the parts are not listed: %v", c.only, err)
		}
	}
	_, err := chosen("machina: pipelined")
	kit.Fails(t, err, "  machina: pipelined / bare loop\n", "the rows of the part are not listed")
}
