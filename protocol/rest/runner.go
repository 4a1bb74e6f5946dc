package rest

import (
	"context"
	"crypto/tls"
	"log/slog"
	"strings"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/sandbox"
	"toolpost/tool"
	"toolpost/web"
)

// SourceOptions are the fields of a source with protocol rest: the tools of another Toolpost.
type SourceOptions struct {
	URL      string          `yaml:"url" doc:"address of the other server: http://10.0.0.7:8700, https://tools.example.org or unix:PATH"`
	TokenEnv string          `yaml:"token_env" doc:"environment variable with the server's token"`
	CA       string          `yaml:"ca" kind:"path" doc:"PEM file with the authorities to trust for the server; default: this machine's"`
	Cert     string          `yaml:"cert" kind:"path" doc:"PEM file with the client certificate to show to the server; default: none"`
	Key      string          `yaml:"key" kind:"path" doc:"PEM file with that certificate's private key"`
	Timeout  config.Duration `yaml:"timeout" doc:"time limit of calls whose tool sets none"`
}

// Open binds a source. It asks the server for its tools, so that a missing server is noticed now.
func Open(ctx context.Context, src config.Source, _ *slog.Logger) (tool.Runner, error) {
	var o SourceOptions
	if err := src.Decode(&o); err != nil {
		return nil, err
	}
	token, err := config.FromEnv(o.TokenEnv, "token", o.URL)
	if err != nil {
		return nil, err
	}
	believed, err := o.tls(src.Dir)
	if err != nil {
		return nil, err
	}
	if path, ok := strings.CutPrefix(o.URL, web.UnixPrefix); ok && path != "" {
		o.URL = web.UnixPrefix + offlimits.Under(src.Dir, path)
	}
	c, err := dial(o.URL, token, believed)
	if err != nil {
		return nil, err
	}
	if _, err := c.Tools(ctx); err != nil {
		_ = c.Close(ctx)
		return nil, err
	}
	return &runner{Client: c, timeout: time.Duration(o.Timeout)}, nil
}

// Claim returns the files of a configured source.
func Claim(src config.Source) (offlimits.Claim, error) {
	var o SourceOptions
	err := src.Decode(&o)
	if err == nil && !strings.HasPrefix(o.URL, web.UnixPrefix) {
		_, err = parseAddress(o.URL)
	}
	return offlimits.Claim{Keeps: offlimits.Given(src.Dir, o.Key), Starts: offlimits.Given(src.Dir, o.CA, o.Cert)}, err
}

// tls reads the authorities and the client certificate, or returns nil if none are configured.
func (o SourceOptions) tls(dir string) (*tls.Config, error) {
	if o.CA == "" && o.Cert == "" && o.Key == "" {
		return nil, nil
	}
	if !strings.HasPrefix(o.URL, "https://") {
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"ca, cert and key are for a server at an https:// address, not for %q", o.URL)
	}
	believed := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		roots, err := web.ReadCertificates(offlimits.Under(dir, o.CA))
		if err != nil {
			return nil, err
		}
		believed.RootCAs = web.PoolOf(roots)
	}
	if o.Cert != "" || o.Key != "" {
		pair, err := tls.LoadX509KeyPair(offlimits.Under(dir, o.Cert), offlimits.Under(dir, o.Key))
		if err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "the certificate to show to %s cannot be used: %w", o.URL,
				err)
		}
		believed.Certificates = []tls.Certificate{pair}
	}
	return believed, nil
}

// A runner is a client with a timeout for its tools, and with the guarantees that the server declares for them.
type runner struct {
	*Client
	timeout time.Duration

	mu       sync.Mutex
	promised map[string]tool.Guarantees // by the tool's name
}

// Invoke implements tool.Handler. A call that asks for more walls than the server has declared is refused: we cannot
// build any there.
func (r *runner) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if c.Spec != nil {
		r.mu.Lock()
		own := r.promised[c.Spec.Name]
		r.mu.Unlock()
		if asked := c.Tightened(own); !own.Covers(asked) {
			return nil, sandbox.Elsewhere(c.Tool, asked)
		}
	}
	return r.Client.Invoke(ctx, c.Forwarded(), out)
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
