package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// The build sets these: -ldflags "-X main.version=... -X main.commit=... -X main.date=...".
var (
	version = "dev"
	commit  string
	date    string
)

// A build describes a binary. The date is the commit's: the day of the compilation is unrelated to the content of the
// binary, and would make two builds of one commit differ.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return a.withJSON("print it as JSON", &cobra.Command{
		Use:   "version",
		Short: "Print the version, its commit and its date",
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			return a.tell(b, "toolpost %s%s %s %s", b.Version, b.origin(), b.Go, b.Platform)
		},
	})
}

// origin describes the origin of a build in brackets, as far as it is known.
func (b build) origin() string {
	if b.Commit == "" {
		return ""
	}
	return fmt.Sprintf(" (%.12s, %.10s)", b.Commit, b.Date)
}

func thisBuild() build {
	b := build{
		Version: version, Commit: commit, Date: date,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info, ok := debug.ReadBuildInfo(); ok && commit == "" {
		b.stamp(info.Settings)
	}
	return b
}

// stamp takes what the go command recorded about the tree, for builds without make.
func (b *build) stamp(settings []debug.BuildSetting) {
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		}
	}
}
