// Command toolpost runs tools for AI agents and applications: it serves them, calls them, and is one.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"toolpost/host/sandbox"
)

func main() {
	if sandbox.Main() { // this is the stage of another toolpost, which forks its confined children
		return
	}
	os.Exit(run())
}

// run ends the work in good order at the first signal; a second one ends the program at once.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	defer sandbox.Leave()
	return newApp().run(ctx, argumentsOf(os.Args))
}

// argumentsOf gives what follows the program's name. By the name of a toolhost it is one.
func argumentsOf(argv []string) []string {
	if filepath.Base(argv[0]) == "machina_toolhost" {
		return append([]string{"as", "machina"}, argv[1:]...)
	}
	return argv[1:]
}
