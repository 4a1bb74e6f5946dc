// Command toolpost runs tools for AI agents and applications: it serves them, calls them, and is one.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"toolpost/cmd/toolpost/memory"
	"toolpost/host/sandbox"
	"toolpost/tool"
)

func main() {
	if sandbox.Main() { // this is the stage of another toolpost, which forks its confined children
		return
	}
	memory.DelayCollection()
	os.Exit(run())
}

// run ends in good order at the first signal; a second signal ends the program at once.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	defer sandbox.Leave()
	return newApp().run(ctx, argumentsOf(os.Args))
}

// argumentsOf returns the arguments. A program with the name of a toolhost acts as one.
func argumentsOf(argv []string) []string {
	if filepath.Base(argv[0]) == "machina_toolhost" {
		return append([]string{"as", "machina"}, argv[1:]...)
	}
	return argv[1:]
}

// An exit is an error that was already shown: only its code is left.
type exit int

// Error implements error.
func (e exit) Error() string { return "exit " + strconv.Itoa(int(e)) }

// The exit codes.
const (
	exitFailed    exit = 1
	exitUsage     exit = 2
	exitRefused   exit = 3
	exitNotFound  exit = 4
	exitTimeout   exit = 5
	exitAsks      exit = 6
	exitCancelled exit = 130
)

const exitHelp = `Exit codes:
  0    the tool succeeded
  1    the tool failed, crashed or is unavailable
  2    usage: bad flags, bad arguments, bad config
  3    refused: access, lease, quota, or a guarantee that cannot be kept here
  4    not found: no such tool, or the tool did not find what it was asked for
  5    timeout
  6    a question of the tool or an approval is open: see --resume
  130  cancelled (Ctrl-C)`

// An exitCoder is a protocol's error with its own exit code, for when we are its tool.
type exitCoder interface{ ExitCode() int }

// exitCode returns the code for an error. An error without a class comes from reading the command line.
func exitCode(err error) int {
	var own exitCoder
	if errors.As(err, &own) {
		return own.ExitCode()
	}
	var e *tool.Error
	if !errors.As(err, &e) {
		return int(exitUsage)
	}
	return int(exitOf(e.Code))
}

func exitOf(c tool.Code) exit {
	switch c {
	case tool.CodeInvalidInput:
		return exitUsage
	case tool.CodeAccessDenied, tool.CodeLeaseRequired, tool.CodeLeaseRejected, tool.CodeQuotaExceeded,
		tool.CodeUnsupported, tool.CodeConflict:
		return exitRefused
	case tool.CodeNotFound:
		return exitNotFound
	case tool.CodeTimeout:
		return exitTimeout
	case tool.CodeCancelled:
		return exitCancelled
	}
	return exitFailed
}
