package terminal

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// WithoutReaders keeps this program alive after the reader of its output is gone, until done is called: writes fail instead
// of ending the program before it has recorded what it did. SIGPIPE is caught and not ignored, since tools would inherit
// that.
func WithoutReaders() (done func()) {
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, syscall.SIGPIPE)
	return func() { signal.Stop(unread) }
}

// UntilHangup is for commands that make calls themselves. They also end in good order when the reader of their output
// is gone and when their terminal is closed. The latter does not affect a command started with nohup.
func UntilHangup(ctx context.Context) (_ context.Context, done func()) {
	readers := WithoutReaders()
	if signal.Ignored(syscall.SIGHUP) {
		return ctx, readers
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	return ctx, func() { stop(); readers() }
}

// ReloadSignals returns the signals that ask for a reload, and a context that ends when the terminal is closed. SIGHUP means
// both: from a terminal it means that the user has left, and for a program without one, such as a service, it has always
// meant to reread the config. A program started with nohup does neither.
func ReloadSignals(ctx context.Context) (_ context.Context, reload chan os.Signal, stop func()) {
	reload = make(chan os.Signal, 1)
	rest := func() {}
	switch {
	case signal.Ignored(syscall.SIGHUP):
	case hasTerminal():
		ctx, rest = signal.NotifyContext(ctx, syscall.SIGHUP)
	default:
		signal.Notify(reload, syscall.SIGHUP)
	}
	signal.Notify(reload, syscall.SIGUSR1)
	return ctx, reload, func() { rest(); signal.Stop(reload) }
}

// hasTerminal reports whether there is a terminal whose end would end this program, wherever its output goes.
func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err == nil {
		tty.Close()
	}
	return err == nil
}

// InFront reports whether this program may read from its terminal: in the background, reading would stop it.
func InFront(tty *os.File) bool {
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
