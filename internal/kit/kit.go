// Package kit has what tests of all packages share: checks, waits for a condition, files, and peers in other languages. Of the
// program it imports package tool alone, so that the tests of every other package can use it.
package kit

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"toolpost/tool"
)

// A TB is a test, a benchmark, a fuzz test or a property of package rapid.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// words writes what a check is about: a value, or a format and its values.
func words(about []any) string {
	if len(about) == 0 {
		return ""
	}
	for i, v := range about {
		if b, ok := v.([]byte); ok {
			about[i] = string(b)
		}
	}
	if format, ok := about[0].(string); ok && len(about) > 1 && strings.Count(format, "%") >= len(about)-1 {
		return fmt.Sprintf(format, about[1:]...) + ": "
	}
	return strings.TrimSuffix(fmt.Sprintln(about...), "\n") + ": "
}

// show writes a value so that an empty string and white space can be seen; a text of several lines stays as it is.
func show(v any) string {
	if s := reflect.ValueOf(v); s.Kind() == reflect.String && !strings.Contains(s.String(), "\n") {
		return fmt.Sprintf("%q", s.String())
	}
	return fmt.Sprintf("%+v", v)
}

// OK ends the test if err is not nil.
func OK(t TB, err error, about ...any) {
	if err != nil {
		t.Helper()
		t.Fatalf("%s%v", words(about), err)
	}
}

// Check fails the test if err is not nil, and continues. Goroutines and clean-ups, which cannot end a test, use it.
func Check(t TB, err error, about ...any) {
	if err != nil {
		t.Helper()
		t.Errorf("%s%v", words(about), err)
	}
}

// Must returns v, and ends the test if err is not nil: kit.Must(os.ReadFile(name))(t). It takes the test afterwards because Go
// passes the results of a call only to a function that has no other arguments.
func Must[V any](v V, err error) func(TB) V {
	return func(t TB) V {
		t.Helper()
		OK(t, err)
		return v
	}
}

// Err returns the error of a call, if the test does not need its value.
func Err[V any](_ V, err error) error { return err }

// Equal fails the test if got is not want.
func Equal[V comparable](t TB, got, want V, about ...any) {
	if got != want {
		t.Helper()
		t.Errorf("%sgot %s, want %s", words(about), show(got), show(want))
	}
}

// MustEqual ends the test if got is not want.
func MustEqual[V comparable](t TB, got, want V, about ...any) {
	if got != want {
		t.Helper()
		t.Fatalf("%sgot %s, want %s", words(about), show(got), show(want))
	}
}

// EqualSlices fails the test if two slices differ; nil is an empty slice.
func EqualSlices[V comparable](t TB, got, want []V, about ...any) {
	if !slices.Equal(got, want) {
		t.Helper()
		t.Errorf("%sgot %+v, want %+v", words(about), got, want)
	}
}

// DeepEqual fails the test if got and want differ for reflect.DeepEqual.
func DeepEqual(t TB, got, want any, about ...any) {
	if !reflect.DeepEqual(got, want) {
		t.Helper()
		t.Errorf("%sgot %+v, want %+v", words(about), got, want)
	}
}

// Contains fails the test if part is not in text.
func Contains(t TB, text, part string, about ...any) {
	if !strings.Contains(text, part) {
		t.Helper()
		t.Errorf("%s%q is not in %q", words(about), part, text)
	}
}

// Fails fails the test if err is nil, or does not contain says.
func Fails(t TB, err error, says string, about ...any) {
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Helper()
		t.Errorf("%sgot the error %v, want one that says %q", words(about), err, says)
	}
}

// Refused fails the test if err does not have the code, or does not contain says.
func Refused(t TB, err error, code tool.Code, says string, about ...any) {
	if tool.CodeOf(err) != code || err != nil && !strings.Contains(err.Error(), says) {
		t.Helper()
		t.Errorf("%sgot %v, want %s %q", words(about), err, code, says)
	}
}

// Write writes a file, in a folder that it makes if it is missing, and returns its path.
func Write(t TB, path, text string) string {
	t.Helper()
	OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
	OK(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// Files writes files below a folder, and returns the folder.
func Files(t TB, dir string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		Write(t, filepath.Join(dir, name), text)
	}
	return dir
}

// Read returns the text of a file.
func Read(t TB, path string) string {
	t.Helper()
	return string(Must(os.ReadFile(path))(t))
}
