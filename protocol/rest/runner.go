package rest

import (
	"context"
	"log/slog"
	"os"
	"time"

	"toolpost/config"
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
	return &runner{c, time.Duration(o.Timeout)}, nil
}

// A runner is a client that knows how long its tools may take.
type runner struct {
	*Client
	timeout time.Duration
}

// Tools implements tool.Source.
func (r *runner) Tools(ctx context.Context) ([]*tool.Spec, error) {
	specs, err := r.Client.Tools(ctx)
	for _, s := range specs {
		if s.Timeout == 0 {
			s.Timeout = r.timeout
		}
	}
	return specs, err
}
