package secret

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/tool"
	"toolpost/wire/bounded"
)

const (
	commandTime = 10 * time.Second      // for a command to write a value
	mostRead    = MaxSize + len("\r\n") // bytes of a value and the end of its line
)

// read returns the value of a secret. Its errors name the secret and its origin, and contain nothing of what was read
// there.
func (f From) read(ctx context.Context, dir, name string, off *offlimits.List) (string, error) {
	value, err := f.fetch(ctx, dir, off)
	if err == nil {
		err = check(value)
	}
	if !validName(name) {
		err = errors.New("its name is not a valid name of a variable; use letters, digits and _, no digit first")
	}
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "the secret %s, from %v: %w", name, f, err)
	}
	return value, nil
}

func (f From) fetch(ctx context.Context, dir string, off *offlimits.List) (string, error) {
	switch err := f.Validate(); {
	case err != nil:
		return "", err
	case f.Env != "":
		value, ok := os.LookupEnv(f.Env)
		if !ok {
			err = errors.New("the variable is not set; set it before toolpost is started")
		}
		return value, err
	case f.File != "":
		return fromFile(offlimits.Under(dir, f.File))
	}
	starts := offlimits.Argv(dir, f.Command, nil)
	if err := off.Guard(offlimits.Claim{Starts: starts, Bare: true, Gains: "without walls"}); err != nil {
		return "", err
	}
	return fromCommand(ctx, dir, f.Command)
}

// check refuses values that could not be redacted, or not be passed to a tool.
func check(value string) error {
	switch {
	case len(value) < MinSize:
		return fmt.Errorf("the value is shorter than %d bytes, so it could not be told from other text and be "+
			"redacted; choose a longer one", MinSize)
	case len(value) > MaxSize:
		return errTooLong
	case strings.IndexByte(value, 0) >= 0 || !utf8.ValidString(value):
		return errors.New("the value is not text; write it in base64, and let the tool decode it")
	}
	return nil
}

var errTooLong = fmt.Errorf("the value is longer than %d bytes", MaxSize)

// fromFile reads a file that only its owner may access. A file that would block, such as a pipe, is refused.
func fromFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return "", tool.WithoutPath(err)
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return "", tool.WithoutPath(err)
	case !info.Mode().IsRegular():
		return "", errors.New("it is not a regular file")
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("others than its owner may use the file (mode %04o); run `chmod 600 %s`",
			info.Mode().Perm(), path)
	}
	return valueOf(bounded.ReadDocument(f, mostRead))
}

// Links returns an error if the file of a secret has other names, under which its value can be read, too.
func (f From) Links(dir string) error {
	var own syscall.Stat_t // a missing file is reported when it is read
	if f.File != "" && syscall.Stat(offlimits.Under(dir, f.File), &own) == nil && own.Nlink > 1 {
		return tool.Errorf(tool.CodeConflict, "%v has %d hard links, so it can be read and changed under another name, by tools "+
			"too; find that with `find / -samefile %s`, or copy the file and delete the original", f, own.Nlink, f.File)
	}
	return nil
}

// valueOf returns the content of a file or the output of a command, without the end of its last line.
func valueOf(data []byte, err error) (string, error) {
	if _, ok := errors.AsType[*bounded.LimitError](err); ok {
		return "", errTooLong
	}
	if err != nil {
		return "", tool.WithoutPath(err)
	}
	if text, ok := strings.CutSuffix(string(data), "\r\n"); ok {
		return text, nil
	}
	return strings.TrimSuffix(string(data), "\n"), nil
}

// fromCommand runs a program. Its standard error is discarded: it may contain the secret.
func fromCommand(ctx context.Context, dir string, argv []string) (string, error) {
	late := fmt.Errorf("the command did not end within %v", commandTime)
	ctx, cancel := context.WithTimeoutCause(ctx, commandTime, late)
	defer cancel()
	cmd := process.Command{Argv: argv, Dir: dir, Env: process.Environment(nil, nil)}
	out, exit, _, err := process.Run(ctx, cmd, mostRead)
	if failure, ok := errors.AsType[*tool.Error](err); ok { // it did not start
		return "", errors.New(failure.Message)
	}
	if exit != (process.Exit{}) && err == nil {
		return "", fmt.Errorf("the command failed (%v); run it by hand to see why", exit)
	}
	return valueOf(out, err)
}
