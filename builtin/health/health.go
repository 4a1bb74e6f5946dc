// Package health has the tools that tell operators how the program is: listSources and readMetrics. They are about what
// all callers have in common, so nobody else may use them.
package health

import (
	"context"
	"io"
	"strings"
	"time"

	"toolpost/builtin/define"
	"toolpost/tool"
)

// The names of the tools.
const (
	sourcesName = "listSources"
	metricsName = "readMetrics"
)

// A Source is a source of the config as operators see it.
type Source struct {
	Name     string    `json:"name"`
	Protocol string    `json:"protocol"`
	State    string    `json:"state"` // StateOpen or StateFailed
	Since    time.Time `json:"since"` // when it came to be so
	Tools    int       `json:"tools"` // how many it brings now
	Error    string    `json:"error,omitzero"`
}

// The states of a source. One that failed is tried again.
const (
	StateOpen   = "open"
	StateFailed = "failed"
)

// Options of the tools.
type Options struct {
	// Sources tells about all of them, in the order of the config, with the tools that p sees.
	Sources func(ctx context.Context, p tool.Principal) []Source
	Metrics func(io.Writer) error // as Prometheus reads them
}

// New makes the tools.
func New(o Options) *define.Set {
	reads := tool.Effects{Reads: true}
	return define.NewSet(
		define.New(tool.Spec{
			Name: sourcesName, Effects: reads,
			Description: "Lists every source with its state, how many tools it brings, and why it is not there. For operators.",
		}, o.sources),
		define.New(tool.Spec{
			Name: metricsName, Effects: reads,
			Description: "Gives what was measured of all calls, as text that Prometheus reads. For operators.",
		}, o.metrics),
	)
}

// allow refuses who does not run the program.
func allow(c *define.Call) error {
	if c.Caller.Operator() {
		return nil
	}
	return tool.Errorf(tool.CodeAccessDenied, "%q may not use %s: "+
		"only the owner and who runs toolpost on its command line may", c.Caller.ID, c.Tool)
}

type listed struct {
	Sources []Source `json:"sources"`
}

func (o Options) sources(ctx context.Context, c *define.Call, _ struct{}) (listed, error) {
	if err := allow(c); err != nil {
		return listed{}, err
	}
	return listed{o.Sources(ctx, c.Caller)}, nil
}

type metrics struct {
	Text string `json:"text"`
}

func (o Options) metrics(_ context.Context, c *define.Call, _ struct{}) (metrics, error) {
	if err := allow(c); err != nil {
		return metrics{}, err
	}
	var text strings.Builder
	err := o.Metrics(&text)
	return metrics{text.String()}, err
}
