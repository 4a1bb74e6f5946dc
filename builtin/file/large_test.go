package file

import (
	"bytes"
	"strings"
	"testing"

	"toolpost/host/workspace"
	"toolpost/tool"
)

// However the blocks divide it, a large file is returned like a small one.
func TestLargeFileIsEncodedLikeASmallOne(t *testing.T) {
	text := strings.Repeat("aé€😀\n\"\t\\ <&>\u2028\x01", large/20)
	for name, content := range map[string]string{
		"text": text, "text, 1 on": "x" + text, "text, 2 on": "xy" + text, "text, 3 on": "xyz" + text,
		"a zero at its end": text + "\x00", "half a character at its end": text + "\xf0\x9f", "no UTF-8": "\xff" + text,
	} {
		w := newWorld(t)
		w.write("root/f", content)
		got, err := invoke(w.runner, named(readName), readArgs{fileArgs: fileArgs{"f"}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want, err := encode([]byte(content), "f", "")
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: another answer than that of a small file: %.80s, not %.80s, %v", name, got, want, err)
		}
		if strings.HasPrefix(name, "text") && cap(got) > len(got)+len(got)/8 {
			t.Errorf("%s: %d bytes in memory of %d", name, len(got), cap(got))
		}
	}
}

func TestALargeFileOverTheLimitIsRefused(t *testing.T) {
	w := newWorld(t)
	w.write("root/f", strings.Repeat("x", 3*large))
	w.open(Options{MaxFile: 2 * large}, workspace.RootOptions{Path: "root"})
	_, err := invoke(w.runner, named(readName), readArgs{fileArgs: fileArgs{"f"}})
	if e := tool.AsError(err); e == nil || e.Reason != "too_large" {
		t.Errorf("%v", err)
	}
}
