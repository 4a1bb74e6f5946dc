package bounded

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"toolpost/internal/kit"

	"github.com/google/go-cmp/cmp"
)

// readAll returns the lines of r and the error at their end.
func readAll(r io.Reader, limits LineLimits) (lines []string, err error) {
	l := NewLines(r, limits)
	for {
		line, err := l.Next()
		if err == nil || err == io.ErrUnexpectedEOF {
			lines = append(lines, string(line))
			if l.Number() != len(lines) {
				return lines, fmt.Errorf("line %d has the number %d", len(lines), l.Number())
			}
		}
		if err != nil {
			return lines, err
		}
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for _, test := range []struct {
		name, input string
		limits      LineLimits
		want        []string
		err         string
	}{
		{"nothing", "", LineLimits{}, nil, "EOF"},
		{"lines", "a\nb\n", LineLimits{}, []string{"a", "b"}, "EOF"},
		{"empty lines", "\n\n", LineLimits{}, []string{"", ""}, "EOF"},
		{"half a line", "a\nb", LineLimits{}, []string{"a", "b"}, "unexpected EOF"},
		{"carriage returns stay", "a\r\n", LineLimits{}, []string{"a\r"}, "EOF"},
		{"any byte", "\x00\xff\n", LineLimits{}, []string{"\x00\xff"}, "EOF"},
		{"a long line", long + "\nb\n" + long + "\n", LineLimits{}, []string{long, "b", long}, "EOF"},
		{"as long as allowed", "1234\n", LineLimits{Line: 4}, []string{"1234"}, "EOF"},
		{"too long", "a\n12345\n", LineLimits{Line: 4}, []string{"a"}, "line 2 is longer than 4 bytes"},
		{"too long and without an end", "a\n" + long, LineLimits{Line: 4}, []string{"a"}, "line 2 is longer than 4 bytes"},
		{"too long at the end", "12345", LineLimits{Line: 4}, nil, "line 1 is longer than 4 bytes"},
		{"as much as allowed", "ab\ncd\n", LineLimits{Total: 6}, []string{"ab", "cd"}, "EOF"},
		{"too much", "ab\ncd\n", LineLimits{Total: 5}, []string{"ab"}, "the output is longer than 5 bytes"},
		{"too much without an end", "ab\ncdef", LineLimits{Total: 5}, []string{"ab"}, "the output is longer than 5 bytes"},
		{"as much as allowed without an end", "ab\ncd", LineLimits{Total: 5}, []string{"ab", "cd"}, "unexpected EOF"},
		{"the line is too long first", "123456\n", LineLimits{Line: 4, Total: 5}, nil, "line 1 is longer than 4 bytes"},
		{"it is too much first", "123456\n", LineLimits{Line: 4, Total: 3}, nil, "the output is longer than 3 bytes"},
	} {
		for how, reader := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader,
			"by halves": iotest.HalfReader, "the end with the data": iotest.DataErrReader,
		} {
			t.Run(test.name+", "+how, func(t *testing.T) {
				got, err := readAll(reader(strings.NewReader(test.input)), test.limits)
				kit.Equal(t, cmp.Diff(test.want, got), "")
				kit.Equal(t, err.Error(), test.err, "the end is %q and not", err)
			})
		}
	}
}

func TestLinesRepeatsItsFinalError(t *testing.T) {
	broken := iotest.ErrReader(errors.New("the pipe broke"))
	for name, l := range map[string]*Lines{
		"EOF":                               NewLines(strings.NewReader("a\n"), LineLimits{}),
		"line 2 is longer than 4 bytes":     NewLines(strings.NewReader("a\n12345\nb\n"), LineLimits{Line: 4}),
		"the pipe broke":                    NewLines(io.MultiReader(strings.NewReader("a\nb"), broken), LineLimits{}),
		io.ErrNoProgress.Error():            NewLines(io.MultiReader(strings.NewReader("a\nb"), idle{}), LineLimits{}),
		"the output is longer than 3 bytes": NewLines(strings.NewReader("a\nb\nc\n"), LineLimits{Total: 3}),
	} {
		t.Run(name, func(t *testing.T) {
			if line, err := l.Next(); string(line) != "a" || err != nil {
				t.Fatalf("%q, %v", line, err)
			}
			for range 3 {
				if line, err := l.Next(); line != nil || err.Error() != name {
					t.Errorf("%q, %v", line, err)
				}
			}
		})
	}
}

// idle is a broken reader: it returns neither data nor an error.
type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

func TestALineWithoutEndTakesNoMoreThanItsLimit(t *testing.T) {
	const most = 1 << 40
	endless := &io.LimitedReader{R: zeros{}, N: most}
	l := NewLines(endless, LineLimits{Line: 1 << 20})
	if _, err := l.Next(); err == nil || most-endless.N > 1<<20+readSize {
		t.Errorf("%d bytes were read and kept, %v", most-endless.N, err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// FuzzLines compares Lines, fed in random chunks, with splitting the whole input.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbb\n\nccc"), uint8(3), 2, int64(0))
	f.Add([]byte("aaaa\n"), uint8(1), 3, int64(4))
	f.Add(bytes.Repeat([]byte("xy\n"), 50_000), uint8(200), 0, int64(100_000))
	f.Fuzz(func(t *testing.T, data []byte, chunk uint8, line int, total int64) {
		limits := LineLimits{Line: line, Total: max(total, 0)}
		want, wantErr := split(data, limits)
		got, err := readAll(&chunks{data, int(chunk)}, limits)
		kit.Equal(t, cmp.Diff(want, got), "")
		kit.Equal(t, err.Error(), wantErr, "the end is %q and not", err)
	})
}

// chunks reads pieces of changing sizes, some of them empty.
type chunks struct {
	data []byte
	size int
}

func (c *chunks) Read(b []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.data[:min(c.size, len(c.data))])
	c.data = c.data[n:]
	c.size = c.size*5%257 + 1
	return n, nil
}

// split does the same as Lines, with all data available.
func split(data []byte, limits LineLimits) (lines []string, end string) {
	if limits.Line <= 0 {
		limits.Line = MaxLine
	}
	if limits.Total == 0 {
		limits.Total = math.MaxInt64
	}
	for left := limits.Total; len(data) > 0; {
		line, rest, complete := bytes.Cut(data, []byte{'\n'})
		size := int64(len(data) - len(rest))
		switch {
		case len(line) > limits.Line && int64(limits.Line) <= left:
			return lines, (&LimitError{fmt.Sprintf("line %d", len(lines)+1), int64(limits.Line)}).Error()
		case size > left:
			return lines, (&LimitError{"the output", limits.Total}).Error()
		}
		lines = append(lines, string(line))
		if !complete {
			return lines, io.ErrUnexpectedEOF.Error()
		}
		data = rest
		left -= size
	}
	return lines, io.EOF.Error()
}

func TestReadDocument(t *testing.T) {
	for _, test := range []struct {
		input string
		max   int
		err   string
	}{
		{"", 0, ""},
		{"abc", 3, ""},
		{"abc", math.MaxInt, ""},
		{"abc", 2, "the document is longer than 2 bytes"},
		{"abc", 0, "the document is longer than 0 bytes"},
	} {
		got, err := ReadDocument(strings.NewReader(test.input), test.max)
		if test.err != "" {
			var limit *LimitError
			if !errors.As(err, &limit) || err.Error() != test.err {
				t.Errorf("%q with %d: %v", test.input, test.max, err)
			}
		} else if string(got) != test.input || err != nil {
			t.Errorf("%q with %d: %q, %v", test.input, test.max, got, err)
		}
	}
	kit.Fails(t, kit.Err(ReadDocument(iotest.ErrReader(errors.New("broken")), 10)), "", "a read error is lost")
}

func BenchmarkLines(b *testing.B) {
	const line = `{"version":"0","type":"log","level":"info","message":"one of very many"}` + "\n"
	data := bytes.Repeat([]byte(line), 10_000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	r := bytes.NewReader(data)
	for b.Loop() {
		r.Reset(data)
		for l := NewLines(r, LineLimits{}); ; {
			if _, err := l.Next(); err != nil {
				break
			}
		}
	}
	b.ReportMetric(float64(b.N)*10_000/b.Elapsed().Seconds(), "lines/s")
}
