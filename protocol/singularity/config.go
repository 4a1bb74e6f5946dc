package singularity

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"os"

	"toolpost/config/offlimits"
	"toolpost/identity"
	"toolpost/tool"
	"toolpost/web"
)

// DoorConfig is the door's part of a config. Without a url the NATS server is embedded.
type DoorConfig struct {
	Embedded bool      `yaml:"embedded" doc:"run a NATS server in this process, which tells callers apart; default: true unless url is set"`
	Listen   string    `yaml:"listen" kind:"listen" schema:"default=127.0.0.1:4222" doc:"address of the embedded server"`
	TLS      ServerTLS `yaml:"tls" doc:"certificates of the embedded server; default: no TLS"`
	Queue    string    `yaml:"queue" schema:"default=toolpost" doc:"queue group; doors in the same group share the requests"`
	Workers  int       `yaml:"workers" schema:"default=256" doc:"calls at the same time"`
	Caller   string    `yaml:"caller" schema:"default=nats" doc:"with url: the caller that all requests from that server count as"`
	identity.Anonymous
	Connect
}

// Check refuses options that contradict each other.
func (c DoorConfig) Check() error {
	if c.Listen != "" {
		if err := web.CheckListen(c.Listen); err != nil {
			return err
		}
	}
	switch {
	case c.URL != "" && c.Embedded:
		return tool.Errorf(tool.CodeInvalidInput, "the NATS door has a url and embedded: true; leave one of them out")
	case c.URL != "" && c.TLS != ServerTLS{}:
		return tool.Errorf(tool.CodeInvalidInput,
			"tls of the NATS door is for the embedded server; for the one at url there are tls_ca, tls_cert and "+
				"tls_key")
	case c.URL == "" && c.Caller != "":
		return tool.Errorf(tool.CodeInvalidInput,
			"caller of the NATS door goes with url; at the embedded server everybody says "+
				"who they are, and anonymous names those who do not")
	case c.URL != "" && c.Anonymous != identity.Anonymous{}:
		return tool.Errorf(tool.CodeInvalidInput,
			"anonymous of the NATS door is for the embedded server; at the one of url all "+
				"requests are of one caller: say `caller: %s` instead", cmp.Or(c.Anonymous.Name, "NAME"))
	case (c.TLS.Cert == "") != (c.TLS.Key == ""):
		return tool.Errorf(tool.CodeInvalidInput, "cert and key of the NATS door's tls go together: give both or none")
	case c.TLS.ClientCA != "" && c.TLS.Cert == "":
		return tool.Errorf(tool.CodeInvalidInput,
			"client_ca of the NATS door's tls needs cert and key too: without them there is no TLS")
	}
	return nil
}

// DefaultListen is the default address of the embedded server.
const DefaultListen = "127.0.0.1:4222"

// Door makes the configured door: at the server of its url, or at an embedded one, which lives for as long as the door
// serves. Relative paths are relative to dir.
func (c DoorConfig) Door(dir string, gate identity.Gate, o DoorOptions) tool.Door {
	o.Connect, o.Queue, o.Workers, o.Caller = c.Connect.Resolve(dir), c.Queue, c.Workers, c.Caller
	if c.URL == "" {
		o.Start = func() (*Server, error) {
			certificates, err := c.TLS.Load(dir)
			if err != nil {
				return nil, err
			}
			return StartServer(ServerOptions{
				Listen: c.Listen, Gate: gate, Anonymous: c.Anonymous, TLS: certificates, Log: o.Log,
			})
		}
	}
	return NewDoor(o)
}

// Claim returns the files that belong to the door. Changing its authorities would let a client in as any caller.
func (c DoorConfig) Claim(dir string) offlimits.Claim {
	claim := c.Connect.claim(dir)
	claim.Keeps = append(claim.Keeps, offlimits.Given(dir, c.TLS.Key)...)
	claim.Starts = append(claim.Starts, offlimits.Given(dir, c.TLS.Cert, c.TLS.ClientCA)...)
	return claim
}

// ServerTLS names the TLS files of the embedded server.
type ServerTLS struct {
	Cert     string `yaml:"cert" kind:"path" doc:"file with the certificate and its intermediates"`
	Key      string `yaml:"key" kind:"path" doc:"file with the certificate's private key"`
	ClientCA string `yaml:"client_ca" kind:"path" doc:"file with the authorities of client certificates; a caller with such a certificate needs no token"`
}

// Load reads the files; relative paths are relative to dir. It returns nil if no file is named.
func (t ServerTLS) Load(dir string) (*tls.Config, error) {
	if t.Cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(offlimits.Under(dir, t.Cert), offlimits.Under(dir, t.Key))
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the certificate of the NATS door cannot be used: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if t.ClientCA == "" {
		return c, nil
	}
	text, err := os.ReadFile(offlimits.Under(dir, t.ClientCA))
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "client_ca of the NATS door cannot be read: %w", err)
	}
	c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"client_ca of the NATS door, %s, holds no certificate: it is a file in PEM", t.ClientCA)
	}
	return c, nil
}
