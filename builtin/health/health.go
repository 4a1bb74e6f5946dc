// Package health has the tools that show operators the condition of the program: listSources, readMetrics and watchLoad.
// They cover all callers, so only operators may use them.
package health

import (
	"context"
	"io"
	"strings"
	"time"

	"toolpost/builtin/define"
	"toolpost/engine/calls"
	"toolpost/engine/follow"
	"toolpost/engine/telemetry"
	"toolpost/fleet"
	"toolpost/tool"
)

// A Source is a source of the config as operators see it.
type Source struct {
	Name     string    `json:"name"`
	Protocol string    `json:"protocol"`
	State    string    `json:"state"`          // StateOpen, StateOpening or StateFailed
	Since    time.Time `json:"since"`          // when it entered this state
	Tools    int       `json:"tools"`          // how many it has now
	Held     int       `json:"held,omitzero"`  // how many more are held back because they changed
	Error    string    `json:"error,omitzero"` // why it failed, kept its old tools when its files changed, or has one that cannot be called
	// Unavailable is how many more tools cannot be called.
	Unavailable int `json:"unavailable,omitzero"`
	// Workers are the programs that it keeps running; nil if it keeps none.
	Workers *tool.Workers `json:"workers,omitzero"`
}

// The states of a source. A failed source is retried.
const (
	StateOpen    = "open"
	StateOpening = "opening" // for the first time
	StateFailed  = "failed"
)

// Options of the tools.
type Options struct {
	// Sources describes all of them, in the order of the config, with the tools that p sees.
	Sources func(ctx context.Context, p tool.Principal) []Source
	Metrics func(io.Writer) error // as Prometheus reads them

	// For watchLoad.
	Started   time.Time // of the program
	Calls     *calls.Log
	Counts    func() telemetry.Counts
	Followers *follow.Followers
	Fleet     fleet.In
}

// New makes the tools.
func New(o Options) *define.Set {
	reads := tool.Effects{Reads: true}
	return define.NewSet(
		define.New(tool.Spec{
			Name: "listSources", Effects: reads,
			Description: "Lists every source with its state, how many tools it brings, and why it is not there. For operators.",
		}, define.ForOperators("use listSources", o.sources)),
		define.New(tool.Spec{
			Name: "readMetrics", Effects: reads,
			Description: "Returns the metrics of all calls, in Prometheus format. For operators.",
		}, define.ForOperators("use readMetrics", o.metrics)),
		define.New(tool.Spec{
			Name: "watchLoad", Effects: reads, Timeout: follow.Timeout,
			Description: "Reports the load as log events, every second unless interval_ms says otherwise: running calls, rates and " +
				"durations, and the state of workers and sources, all in the fields. It ends after an hour, or after count " +
				"reports. For operators.",
		}, define.ForOperators("use watchLoad", define.Following(o.Followers, o.load))),
	)
}

// Listed is the output of listSources.
type Listed struct {
	Sources []Source `json:"sources"`
}

func (o Options) sources(ctx context.Context, c *define.Call, _ struct{}) (Listed, error) {
	return Listed{o.Sources(ctx, c.Caller)}, nil
}

type metrics struct {
	Text string `json:"text"`
}

func (o Options) metrics(context.Context, *define.Call, struct{}) (metrics, error) {
	var text strings.Builder
	err := o.Metrics(&text)
	return metrics{text.String()}, err
}
