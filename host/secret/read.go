package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"toolpost/host/offlimits"
	"toolpost/host/process"
	"toolpost/tool"
)

// commandTime is how long a command has to write a value.
const commandTime = 10 * time.Second

// read returns the value of a secret. Its errors name the secret and where it comes from, and have nothing of what was
// read there.
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
	if path := off.Exposed(offlimits.Argv(dir, f.Command, nil)); path != "" {
		return "", offlimits.Bare("its command", path)
	}
	return fromCommand(ctx, dir, f.Command)
}

// check refuses what could not be redacted, or not be handed to a tool.
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

// fromFile reads a file that nobody but its owner may touch. One that would block, such as a pipe, is refused.
func fromFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return "", offlimits.Plain(err)
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return "", offlimits.Plain(err)
	case !info.Mode().IsRegular():
		return "", errors.New("it is not a regular file")
	case info.Mode().Perm()&0o077 != 0:
		return "", fmt.Errorf("others than its owner may use the file (mode %04o); run `chmod 600 %s`",
			info.Mode().Perm(), path)
	}
	return readValue(f)
}

func readValue(r io.Reader) (string, error) {
	data, err := process.ReadDocument(r, MaxSize+len("\r\n"))
	if _, ok := errors.AsType[*process.LimitError](err); ok {
		return "", errTooLong
	}
	if err != nil {
		return "", offlimits.Plain(err)
	}
	if text, ok := strings.CutSuffix(string(data), "\r\n"); ok {
		return text, nil
	}
	return strings.TrimSuffix(string(data), "\n"), nil
}

// fromCommand runs a program. What it writes to standard error is told to nobody: it may be the secret.
func fromCommand(ctx context.Context, dir string, argv []string) (string, error) {
	late := fmt.Errorf("the command did not end within %v", commandTime)
	ctx, cancel := context.WithTimeoutCause(ctx, commandTime, late)
	defer cancel()
	child, err := process.Start(process.Command{Argv: argv, Dir: dir, Env: process.Environment(nil, nil)})
	if err != nil {
		return "", errors.New(tool.AsError(err).Message)
	}
	defer child.Close()
	child.CloseStdin()
	killed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(killed); child.Kill() })
	defer func() {
		if !stop() {
			<-killed
		}
	}()
	value, err := readValue(child.Stdout)
	if err != nil && ctx.Err() == nil {
		return "", err
	}
	exit := child.Wait()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case exit != process.Exit{}:
		return "", fmt.Errorf("the command failed (%v); run it by hand to see why", exit)
	}
	return value, nil
}
