// Command toolpost runs tools for AI agents and applications: it serves them, calls them, and is one.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run()) }

// run ends the work in good order at the first signal; a second one ends the program at once.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return newApp().run(ctx, os.Args[1:])
}
