package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"toolpost/host/process"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// read reads a program's output to its end, and returns the result. Texts and lines are emitted as they come.
func (o Output) read(r io.Reader, most int64, emit func(string) error) (json.RawMessage, error) {
	switch o {
	case JSON:
		return readJSON(r, most)
	case Lines, JSONL:
		return o.readLines(r, most, emit)
	}
	return readText(r, most, emit)
}

// readText reads all of r as a string. Bytes that are not UTF-8 are replaced, as in logs: a file name in another encoding is
// no reason to lose the output.
func readText(r io.Reader, most int64, emit func(string) error) (json.RawMessage, error) {
	var all strings.Builder
	buf, left := make([]byte, 32<<10), 0 // left counts the bytes of an incomplete character
	pass := func(b []byte) error {
		if len(b) == 0 {
			return nil
		}
		text := strings.ToValidUTF8(string(b), "\uFFFD")
		all.WriteString(text)
		return emit(text)
	}
	for {
		n, err := r.Read(buf[left:])
		n += left
		if int64(all.Len()+n) > most {
			return nil, &bounded.LimitError{What: "its output", Max: most}
		}
		whole := process.WholeRunes(buf[:n])
		if err != nil {
			whole = n
		}
		if err := pass(buf[:whole]); err != nil {
			return nil, err
		}
		left = copy(buf, buf[whole:n])
		if err != nil {
			return strictjson.Quote(all.String()), unlessEOF(err)
		}
	}
}

func unlessEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func readJSON(r io.Reader, most int64) (json.RawMessage, error) {
	doc, err := bounded.ReadDocument(r, int(most))
	if err == nil {
		err = strictjson.Check(doc)
	}
	if err != nil {
		return nil, err
	}
	return doc, nil
}

// readLines returns a list of the lines, which are texts or JSON.
func (o Output) readLines(r io.Reader, most int64, emit func(string) error) (json.RawMessage, error) {
	lines := bounded.NewLines(r, bounded.LineLimits{Line: bounded.MaxLine, Total: most, Open: true})
	list := []byte{'['}
	for {
		line, err := lines.Next()
		if err != nil {
			return append(list, ']'), unlessEOF(err)
		}
		text := strings.ToValidUTF8(strings.TrimSuffix(string(line), "\r"), "\uFFFD")
		if o == JSONL && strings.TrimSpace(text) == "" {
			continue
		}
		if len(list) > 1 {
			list = append(list, ',')
		}
		if o == Lines {
			list = strictjson.AppendString(list, text)
		} else if err := strictjson.Check(line); err != nil {
			return nil, fmt.Errorf("line %d: %w: %.80q", lines.Number(), err, text)
		} else {
			list = append(list, text...)
		}
		if err := emit(text + "\n"); err != nil {
			return nil, err
		}
	}
}
