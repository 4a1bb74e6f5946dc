package rest

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/sandbox"
	"toolpost/tool"
)

// SourceOptions are the fields of a source with protocol rest: the tools of another Toolpost.
type SourceOptions struct {
	URL      string          `yaml:"url" doc:"address of the other server, such as http://10.0.0.7:8700"`
	TokenEnv string          `yaml:"token_env" doc:"name of the environment variable that holds its token"`
	Timeout  config.Duration `yaml:"timeout" doc:"of calls of tools that state none of their own"`
}

// Open binds a source. It asks the server for its tools, so that one that is not there is noticed now.
func Open(ctx context.Context, src config.Source, _ *slog.Logger) (tool.Runner, error) {
	var o SourceOptions
	if err := src.Decode(&o); err != nil {
		return nil, err
	}
	token := ""
	if o.TokenEnv != "" {
		if token = os.Getenv(o.TokenEnv); token == "" {
			return nil, tool.Errorf(tool.CodeUnavailable, "the environment variable %s, which should hold the token for %s, is not set", o.TokenEnv, o.URL)
		}
	}
	c, err := Dial(o.URL, token)
	if err != nil {
		return nil, err
	}
	if _, err := c.Tools(ctx); err != nil {
		_ = c.Close(ctx)
		return nil, err
	}
	return &runner{Client: c, timeout: time.Duration(o.Timeout)}, nil
}

// A runner is a client that knows how long its tools may take, and what the other side promised of them.
type runner struct {
	*Client
	timeout time.Duration

	mu       sync.Mutex
	promised map[string]tool.Guarantees // by the tool's name
}

// Invoke implements tool.Handler. A call that asks for more walls than the other side has promised is refused: we can
// build none there.
func (r *runner) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if c.Spec != nil {
		r.mu.Lock()
		own := r.promised[c.Spec.Name]
		r.mu.Unlock()
		if asked := c.Tightened(own); !asked.Equal(own) {
			return nil, sandbox.Elsewhere(c.Tool, asked)
		}
	}
	return r.Client.Invoke(ctx, c, out)
}

// Tools implements tool.Source.
func (r *runner) Tools(ctx context.Context) ([]*tool.Spec, error) {
	specs, err := r.Client.Tools(ctx)
	promised := map[string]tool.Guarantees{}
	for _, s := range specs {
		if s.Timeout == 0 {
			s.Timeout = r.timeout
		}
		promised[s.Name] = s.Guarantees
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.promised = promised
	return specs, err
}
