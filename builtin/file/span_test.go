package file

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"toolpost/host/process"
	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

func (w *world) readPart(args map[string]any) (string, error) {
	out, err := invoke(w.runner, named(readName), args)
	if err != nil {
		return "", err
	}
	var s string
	if strictjson.Unmarshal(out, &s) != nil {
		return string(out), nil
	}
	return s, nil
}

func TestReadGivesBytesAndLinesThatAreAskedFor(t *testing.T) {
	w := newWorld(t)
	w.write("root/lines", "one\ntwo\nthree\nfour")
	for _, c := range []struct {
		args map[string]any
		want string
	}{
		{map[string]any{"offset": 4}, "two\nthree\nfour"},
		{map[string]any{"offset": 4, "length": 3}, "two"},
		{map[string]any{"length": 3}, "one"},
		{map[string]any{"offset": 100}, ""},
		{map[string]any{"offset": 2, "length": 0}, ""},
		{map[string]any{"offset": 16, "length": 1000}, "ur"},
		{map[string]any{"from_line": 2}, "two\nthree\nfour"},
		{map[string]any{"from_line": 2, "to_line": 3}, "two\nthree\n"},
		{map[string]any{"to_line": 1}, "one\n"},
		{map[string]any{"from_line": 4, "to_line": 9}, "four"},
		{map[string]any{"from_line": 5}, ""},
		{map[string]any{"from_line": int64(math.MaxInt64)}, ""},
		{map[string]any{"offset": int64(math.MaxInt64), "length": int64(math.MaxInt64)}, ""},
		{map[string]any{"offset": 0, "encoding": "base64", "length": 3}, `{"encoding":"base64","content":"b25l"}`},
	} {
		c.args["path"] = "lines"
		kit.Equal(t, kit.Must(w.readPart(c.args))(t), c.want, c.args)
	}
	for _, args := range []map[string]any{
		{"offset": -1}, {"length": -1}, {"from_line": 0}, {"from_line": 3, "to_line": 2}, {"to_line": 0}, {"offset": 1, "from_line": 1}, {"encoding": "latin1"},
		{"offset": 1.5}, {"offset": "1"}, {"from_line": -5},
	} {
		args["path"] = "lines"
		kit.Refused(t, kit.Err(w.readPart(args)), tool.CodeInvalidInput, "", args)
	}
}

func TestAPartOfAFileOverTheLimitCanBeRead(t *testing.T) {
	w := newWorld(t)
	w.open(Options{MaxFile: 8}, workspace.RootOptions{Path: "root"})
	w.write("root/large", strings.Repeat("line\n", 100))
	kit.Equal(t, kit.Must(w.readPart(map[string]any{"path": "large", "offset": 5, "length": 4}))(t), "line")
	kit.Equal(t, kit.Must(w.readPart(map[string]any{"path": "large", "from_line": 99, "to_line": 99}))(t), "line\n")
	for _, args := range []map[string]any{{"offset": 1}, {"length": 9}, {"from_line": 1, "to_line": 2}} {
		args["path"] = "large"
		if _, err := w.readPart(args); tool.CodeOf(err) != tool.CodeInvalidInput || tool.AsError(err).Reason != "too_large" {
			t.Errorf("%v: %v; want too_large", args, err)
		}
	}
}

func TestBinaryFileIsRefusedAsText(t *testing.T) {
	w := newWorld(t)
	w.write("root/binary", "a\x00b")
	kit.Refused(t, kit.Err(w.readPart(map[string]any{"path": "binary", "encoding": "text"})),
		tool.CodeInvalidInput, "", "err =")
}

// FuzzSpan compares the result with a simple implementation that holds everything in memory.
func FuzzSpan(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"), int64(2), int64(3), true, 1)
	f.Add([]byte("abc"), int64(1), int64(1), false, 2)
	f.Add([]byte("\n\n\n"), int64(-1), int64(math.MaxInt64), true, 1000)
	f.Fuzz(func(t *testing.T, content []byte, a, b int64, lines bool, limit int) {
		args := readArgs{Offset: &a, Length: &b}
		if lines {
			args = readArgs{FromLine: &a, ToLine: &b}
		}
		s, err := args.span()
		if err != nil {
			return
		}
		limit = limit & 0xffff
		got, err := io.ReadAll(iotest.OneByteReader(s.reader(context.Background(), bytes.NewReader(content), int64(limit))))
		whole, err2 := io.ReadAll(s.reader(context.Background(), bytes.NewReader(content), int64(limit)))
		want := plainSpan(content, a, b, lines)
		want = want[:min(len(want), limit)]
		if err != nil || err2 != nil || !bytes.Equal(got, want) || !bytes.Equal(whole, want) {
			t.Errorf("%q %d %d %v: %q, %q; want %q (%v, %v)", content, a, b, lines, got, whole, want, err, err2)
		}
	})
}

func plainSpan(content []byte, a, b int64, lines bool) []byte {
	if !lines {
		from := min(a, int64(len(content)))
		return content[from : from+min(b, int64(len(content))-from)]
	}
	all := bytes.SplitAfter(content, []byte("\n"))
	from := min(a-1, int64(len(all)))
	return bytes.Join(all[from:max(from, min(b, int64(len(all))))], nil)
}

// streamed makes a call with stream and joins the events.
func (w *world) streamed(args map[string]any) (content, result string, blocks int, err error) {
	var events tooltest.Collect
	args["stream"] = true
	out, err := invokeTo(w.runner, named(readName), args, &events)
	for _, e := range events.Events() {
		var o tool.Output
		kit.OK(w.t, strictjson.Unmarshal(e.Data, &o))
		content += o.Text
	}
	return content, string(out), len(events.Events()), err
}

func TestLargeFilesAreStreamedAsOutputEvents(t *testing.T) {
	w := newWorld(t)
	w.open(Options{MaxFile: 100}, workspace.RootOptions{Path: "root"})
	text := strings.Repeat("grüße, 世界 🙂\n", 20_000)
	binary := strings.Repeat("\x00\xff\x10", 50_000) + "x"
	w.write("root/text", text)
	w.write("root/binary", binary)
	w.write("root/empty", "")
	got, result, blocks, err := w.streamed(map[string]any{"path": "text"})
	if err != nil || got != text || blocks < 5 || result != `{"streamed":true,"bytes":420000,"encoding":"text"}` {
		t.Errorf("text: %d bytes, %d blocks, %s, %v", len(got), blocks, result, err)
	}
	got, _, _, err = w.streamed(map[string]any{"path": "binary"})
	if b, decodeErr := base64.StdEncoding.DecodeString(got); err != nil || decodeErr != nil || string(b) != binary {
		t.Errorf("binary: %d bytes, %v, %v", len(b), err, decodeErr)
	}
	if got, result, blocks, err := w.streamed(map[string]any{"path": "empty"}); err != nil || got != "" || blocks != 0 || result != `{"streamed":true,"bytes":0,"encoding":"text"}` {
		t.Errorf("empty: %q, %s, %d, %v", got, result, blocks, err)
	}
	if got, _, _, err := w.streamed(map[string]any{"path": "text", "from_line": 2, "to_line": 3}); err != nil || got != strings.Repeat("grüße, 世界 🙂\n", 2) {
		t.Errorf("lines: %q, %v", got, err)
	}
	if _, _, _, err := w.streamed(map[string]any{"path": "binary", "encoding": "text"}); tool.CodeOf(err) != tool.CodeInvalidInput {
		t.Errorf("binary as text: %v", err)
	}
}

func TestStreamIgnoresGrowthOfTheFile(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(w.root, "log")
	w.write("root/log", strings.Repeat("x", 3*block))
	w.open(Options{MaxFile: 10}, workspace.RootOptions{Path: "root"})
	grow := tool.SinkFunc(func(tool.Event) error {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(strings.Repeat("y", 2*block)) // it grows faster than it is read
		return err
	})
	out, err := invokeTo(w.runner, named(readName), map[string]any{"path": "log", "stream": true}, grow)
	if err != nil || string(out) != `{"streamed":true,"bytes":147456,"encoding":"text"}` {
		t.Errorf("%s, %v", out, err)
	}
}

func TestStreamStopsWhenItsSinkFails(t *testing.T) {
	w := newWorld(t)
	w.write("root/large", strings.Repeat("x", 10*block))
	gone := tool.Errorf(tool.CodeCancelled, "nobody listens")
	n := 0
	_, err := invokeTo(w.runner, named(readName), map[string]any{"path": "large", "stream": true}, tool.SinkFunc(func(tool.Event) error { n++; return gone }))
	if tool.CodeOf(err) != tool.CodeCancelled || n != 1 {
		t.Errorf("%v after %d events", err, n)
	}
}

func TestACharacterIsNeverCutByABlock(t *testing.T) {
	for in, want := range map[string]int{"": 0, "a": 1, "aé": 3, "a\xc3": 1, "a\xe4\xb8": 1, "世": 3, "\xf0\x9f\x99": 0, "\xff": 1, "a\x80\x80\x80\x80": 5} {
		kit.Equal(t, process.WholeRunes([]byte(in)), want, in)
	}
}
