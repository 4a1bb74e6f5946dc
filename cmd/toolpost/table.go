package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolpost/cmd/toolpost/format"
	"toolpost/wire/typeschema"
)

// cells are the columns of a table that are more than a member of the things in it.
type cells[T any] map[string]func(T) string

// A table shows things of one kind, a column for each of its names: that of a member, by its tag json, or of a cell. A name
// may be followed by = and the member's own name, and by | and what is shown if it is empty.
type table[T any] struct {
	head  []string
	cells []func(T) string
	csv   bool // durations are in milliseconds
}

func columns[T any](names string, special cells[T]) *table[T] {
	t := &table[T]{}
	fields := typeschema.Fields(reflect.TypeFor[T](), "json")
	for word := range strings.FieldsSeq(names) {
		word, empty, _ := strings.Cut(word, "|")
		head, name, _ := strings.Cut(word, "=")
		cell := special[head]
		if cell == nil {
			i := slices.IndexFunc(fields, func(f typeschema.Field) bool { return f.Name == cmp.Or(name, head) })
			cell = func(one T) string { return t.text(reflect.ValueOf(one).FieldByIndex(fields[i].Index).Interface()) }
		}
		t.head, t.cells = append(t.head, head), append(t.cells, func(one T) string { return cmp.Or(cell(one), empty) })
	}
	return t
}

// text writes a value of a member.
func (t *table[T]) text(v any) string {
	switch v := v.(type) {
	case time.Time:
		return format.When(v, time.Now())
	case time.Duration:
		return took(v, t.csv)
	case []string:
		return strings.Join(v, ", ")
	case bool:
		return map[bool]string{true: "yes", false: "no"}[v]
	}
	return fmt.Sprint(v)
}

// took writes a duration: with three digits for people, in milliseconds in CSV.
func took(d time.Duration, csv bool) string {
	if csv {
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 3, 64)
	}
	return format.Tidy(d)
}

func (t *table[T]) row(one T) (row []string) {
	for _, cell := range t.cells {
		row = append(row, cell(one))
	}
	return row
}

// lines lays out the table, each cell on one line. On a terminal it fits the width.
func (t *table[T]) lines(s *screen, all []T) []string {
	var head []string
	for _, name := range t.head {
		head = append(head, strings.ToUpper(strings.ReplaceAll(name, "_", " ")))
	}
	rows := [][]string{head}
	for _, one := range all {
		row := t.row(one)
		for i := range row {
			row[i] = clean(row[i])
		}
		rows = append(rows, row)
	}
	widths := format.Fit(rows, s.width())
	lines := []string{s.bold(s.row(widths, head))}
	for _, row := range rows[1:] {
		lines = append(lines, s.row(widths, row))
	}
	return lines
}

// print prints the table.
func (t *table[T]) print(a *app, kind string, all []T) {
	if len(all) == 0 {
		fmt.Fprintln(a.err, "no "+kind)
		return
	}
	for _, line := range t.lines(a.out, all) {
		fmt.Fprintln(a.out, line)
	}
}

// writeCSV prints the table as CSV.
func (t *table[T]) writeCSV(a *app, all []T) error {
	t.csv = true
	rows := [][]string{t.head}
	for _, one := range all {
		rows = append(rows, formulaSafe(t.row(one)))
	}
	return csv.NewWriter(a.out).WriteAll(rows)
}

// formulaSafe keeps a spreadsheet from treating text that a caller chose as a formula.
func formulaSafe(row []string) []string {
	for i, cell := range row {
		if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
			if _, err := strconv.ParseFloat(cell, 64); err != nil {
				row[i] = "'" + cell
			}
		}
	}
	return row
}

// list prints things of one kind as a table, or with --json as JSON.
func list[T any](a *app, kind string, all []T, t *table[T]) error {
	switch {
	case a.json && len(all) > 0:
		return printList(a, kind, all)
	case a.json:
		return a.printJSON(map[string]any{kind: all})
	}
	t.print(a, kind, all)
	return nil
}
