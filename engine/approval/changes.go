package approval

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"toolpost/tool"
	"toolpost/wire/strictjson"
	"toolpost/wire/textdiff"
)

// A Change is what a call would do to a file, for people: as far as its arguments tell, and as the file is now.
type Change struct {
	Path string `json:"path"`
	Kind string `json:"kind" schema:"enum=change|create|delete"`
	// Diff has lines that begin with +, - or a space, after one that begins with @@. A line without these says how many are
	// left out.
	Diff string `json:"diff,omitempty"`
}

// The limits of a difference.
const (
	maxFile = 256 << 10 // bytes of a file that is compared
	maxDiff = 200       // lines
	maxLine = 400       // bytes of one

	diffAround = 3 // lines that stay, before and after
)

// changes returns the changes of a call, without secrets. It knows the arguments that tools for files usually have. It reads
// a file only if the tool said that the call writes it.
func (s *Approvals) changes(c *tool.Call) []Change {
	var given arguments
	if strictjson.Unmarshal(c.Args, &given) != nil {
		return nil
	}
	t, one := c.Consent.Touches, Change{Path: given.Path, Kind: "change"}
	was, missing := "", fs.ErrNotExist
	if len(t.Writes) == 1 && len(t.Commands) == 0 {
		one.Path = t.Writes[0]
		was, missing = s.read(one.Path)
	}
	if missing != nil && !errors.Is(missing, fs.ErrNotExist) {
		return nil
	}
	now := was
	switch deletes := c.Spec != nil && c.Spec.Effects.Destructive; {
	case one.Path == "" || given.Encoding == "base64":
		return nil
	case given.Content != nil && given.Append:
		now += *given.Content
	case given.Content != nil:
		now = *given.Content
	case given.Old != "" && missing != nil: // the file is elsewhere
		was, now = given.Old, given.New
	case given.Old != "":
		now = strings.ReplaceAll(was, given.Old, given.New)
	case missing == nil && deletes:
		now, one.Kind = "", "delete"
	default:
		return nil
	}
	if missing != nil && len(t.Writes) == 1 {
		one.Kind = "create"
	}
	one.Diff = difference(was, now)
	doc, _ := strictjson.Marshal(one.Diff) // a text
	_ = strictjson.Unmarshal(s.o.Redact(doc), &one.Diff)
	return []Change{one}
}

// arguments are those that tell of a change.
type arguments struct {
	Path     string  `json:"path"`
	Content  *string `json:"content"`
	Append   bool    `json:"append"`
	Encoding string  `json:"encoding"`
	Old      string  `json:"old"`
	New      string  `json:"new"`
}

// read reads a small file of text that is not private. Of a new file, the place counts.
func (s *Approvals) read(path string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		dir, err = filepath.Dir(path), nil
	}
	if path = filepath.Join(dir, filepath.Base(path)); err != nil || s.o.Private(path) {
		return "", errors.New("a private file")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return "", errors.New("not a small file")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if strings.ContainsRune(string(b), 0) {
		err = errors.New("not text")
	}
	return string(b), err
}

// difference returns the lines around and between the first and the last that differ.
func difference(was, now string) string {
	from, runs := textdiff.Lines(was, now, diffAround)
	if len(runs) == 0 {
		return ""
	}
	left := 0
	lines := []string{fmt.Sprintf("@@ line %d @@", from+1)}
	for _, r := range runs {
		for _, line := range r.Pieces {
			if len(lines) > maxDiff {
				left++
				continue
			}
			if line = strings.TrimSuffix(line, "\n"); len(line) > maxLine {
				head, tail := line[:maxLine/2], line[len(line)-maxLine/2:] // neither end can hide
				line = strings.ToValidUTF8(fmt.Sprintf("%s [%d bytes] %s", head, len(line)-maxLine, tail), "")
			}
			lines = append(lines, string(r.Sign)+line)
		}
	}
	if left > 0 {
		lines = append(lines, fmt.Sprintf("... %d more lines", left))
	}
	return strings.Join(lines, "\n")
}
