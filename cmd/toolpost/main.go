// Command toolpost runs tools for AI agents and applications: it serves them, calls them, and is one.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

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

// version is set by the build: -ldflags "-X main.version=...".
var version = "dev"

type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return a.withJSON("print it as JSON", &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(*cobra.Command, []string) error {
			b, commit := thisBuild(), ""
			if b.Commit != "" {
				commit = fmt.Sprintf(" (%.12s)", b.Commit)
			}
			return a.tell(b, "toolpost %s%s %s %s", b.Version, commit, b.Go, b.Platform)
		},
	})
}

func thisBuild() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Commit = s.Value
			}
		}
	}
	return b
}
