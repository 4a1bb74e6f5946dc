package shell

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"

	"toolpost/host/workspace"
	"toolpost/tool"
)

// A redirect is where a command of a line reads from or writes to.
type redirect struct {
	fd     int    // 0, 1, 2
	same   int    // for 2>&1: the descriptor that it becomes; 0: it is a file or a text
	both   bool   // for &>: standard error goes there too
	path   string // absolute; empty: the text, or /dev/null
	text   string // what is read
	append bool
}

// maxRedirected is how much a command may write to a file: it is kept until the command has ended, and the file is
// then written as a whole.
const maxRedirected = 10 << 20

var errTooMuch = errors.New("more than 10 MiB were written to it")

// redirected runs a command with its redirections.
func (s *session) redirected(c *command, in io.Reader, out, errs io.Writer) int {
	writers := [3]io.Writer{nil, out, errs}
	var files []*target
	for _, r := range c.redirects {
		switch {
		case r.fd == 0 && r.path == "":
			in = strings.NewReader(r.text)
		case r.fd == 0:
			file, err := s.view.Open(r.path)
			if err != nil {
				return s.fail(err)
			}
			defer file.Close()
			in = file
		case r.same > 0:
			writers[r.fd] = writers[r.same]
		case r.path == "":
			writers[r.fd] = io.Discard
		default:
			file := &target{redirect: r}
			files = append(files, file)
			writers[r.fd] = file
		}
		if r.both {
			writers[2] = writers[1]
		}
	}
	code := s.run(c, in, writers[1], writers[2])
	for _, f := range files {
		if err := f.save(s.view); err != nil && s.ctx.Err() == nil {
			return s.fail(err)
		}
	}
	return code
}

// A target is a file that a command's output goes to.
type target struct {
	redirect
	mu      sync.Mutex // both streams may go to it
	content bytes.Buffer
	over    bool
}

// Write implements io.Writer.
func (t *target) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.content.Len()+len(p) > maxRedirected {
		t.over = true
		return 0, errTooMuch
	}
	return t.content.Write(p)
}

func (t *target) save(view *workspace.View) error {
	if t.over {
		return tool.Errorf(tool.CodeInvalidInput, "%s was not written: %w", t.path, errTooMuch)
	}
	if !t.append {
		return view.Write(t.path, t.content.Bytes(), workspace.WriteOptions{})
	}
	err := view.Edit(t.path, maxRedirected, func(old []byte) ([]byte, error) {
		return append(bytes.Clone(old), t.content.Bytes()...), nil
	})
	if tool.CodeOf(err) == tool.CodeNotFound {
		return view.Write(t.path, t.content.Bytes(), workspace.WriteOptions{})
	}
	return err
}
