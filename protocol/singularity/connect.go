package singularity

import (
	"errors"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/tool"
)

// Connect describes how to reach a NATS server, and our credentials there. Only URL is needed.
type Connect struct {
	URL         string `yaml:"url" doc:"address of the NATS server, such as nats://127.0.0.1:4222; separate several with commas"`
	User        string `yaml:"user" doc:"user name"`
	Password    string `yaml:"password" doc:"password; use password_env to keep it out of the file"`
	PasswordEnv string `yaml:"password_env" doc:"environment variable with the password"`
	TokenEnv    string `yaml:"token_env" doc:"environment variable with the token"`
	NKey        string `yaml:"nkey" kind:"path" doc:"file with an nkey seed"`
	Creds       string `yaml:"creds" kind:"path" doc:"credentials file with a JWT and a seed"`
	CA          string `yaml:"tls_ca" kind:"path" doc:"file with the authorities to trust for the server"`
	Cert        string `yaml:"tls_cert" kind:"path" doc:"file with our own certificate"`
	Key         string `yaml:"tls_key" kind:"path" doc:"file with our certificate's private key"`
}

const (
	connectWithin = 5 * time.Second
	maxPause      = 2 * time.Second // between two attempts to connect again
)

// Resolve makes relative paths relative to dir, the folder of the config.
func (c Connect) Resolve(dir string) Connect {
	for _, path := range []*string{&c.NKey, &c.Creds, &c.CA, &c.Cert, &c.Key} {
		if *path != "" {
			*path = offlimits.Under(dir, *path)
		}
	}
	return c
}

func (c Connect) claim(dir string) offlimits.Claim {
	return offlimits.Claim{
		Keeps: offlimits.Given(dir, c.NKey, c.Creds, c.Key), Starts: offlimits.Given(dir, c.CA, c.Cert),
	}
}

// shown returns the address without any part that may be secret.
func (c Connect) shown() string {
	var list []string
	for one := range strings.SplitSeq(c.URL, ",") {
		one = strings.TrimSpace(one)
		if at := strings.LastIndex(one, "@"); at >= 0 {
			scheme, _, _ := strings.Cut(one, "://")
			one = scheme + "://" + one[at+1:]
		}
		list = append(list, one)
	}
	return strings.Join(list, ",")
}

func (c Connect) check() error {
	if c.URL == "" {
		return tool.Errorf(tool.CodeInvalidInput, "which NATS server? Give its url, such as nats://127.0.0.1:4222")
	}
	for one := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return tool.Errorf(tool.CodeInvalidInput,
				"%s is not the address of a NATS server: write it like nats://127.0.0.1:4222", c.shown())
		}
	}
	switch {
	case c.Password != "" && c.PasswordEnv != "":
		return tool.Errorf(tool.CodeInvalidInput, "password and password_env are both there: give one of them")
	case c.Password+c.PasswordEnv != "" && c.User == "":
		return tool.Errorf(tool.CodeInvalidInput,
			"a password for %s without a user: give user, or token_env for a token", c.shown())
	case (c.Cert == "") != (c.Key == ""):
		return tool.Errorf(tool.CodeInvalidInput, "tls_cert and tls_key go together: give both or none")
	}
	for _, path := range []string{c.NKey, c.Creds, c.CA, c.Cert, c.Key} {
		if _, err := os.Stat(path); path != "" && err != nil {
			return tool.Errorf(tool.CodeUnavailable, "a file that is needed to reach %s cannot be read: %w", c.shown(),
				err)
		}
	}
	return nil
}

// options returns our options for nats.Connect.
func (c Connect) options() ([]nats.Option, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	password, err := config.FromEnv(c.PasswordEnv, "password", c.shown())
	if err != nil {
		return nil, err
	}
	token, err := config.FromEnv(c.TokenEnv, "token", c.shown())
	if err != nil {
		return nil, err
	}
	var list []nats.Option
	if c.User != "" {
		list = append(list, nats.UserInfo(c.User, c.Password+password))
	}
	if token != "" {
		list = append(list, nats.Token(token))
	}
	if c.NKey != "" {
		o, err := nats.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s does not hold an nkey seed: %w", c.NKey, err)
		}
		list = append(list, o)
	}
	if c.Creds != "" {
		list = append(list, nats.UserCredentials(c.Creds))
	}
	if c.CA != "" {
		list = append(list, nats.RootCAs(c.CA))
	}
	if c.Cert != "" {
		list = append(list, nats.ClientCert(c.Cert, c.Key))
	}
	return list, nil
}

// dial connects, and reconnects without limit whenever the connection is lost.
func dial(address, shown string, log *slog.Logger, more ...nats.Option) (*nats.Conn, error) {
	nc, err := nats.Connect(address, append([]nats.Option{
		nats.Name("toolpost"),
		nats.Timeout(connectWithin),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.CustomReconnectDelay(pause),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("connected to NATS again", "server", shown) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { reportAsync(log, sub, err) }),
	}, more...)...)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "cannot connect to NATS at %s: %w", shown, err)
	}
	return nc, nil
}

// pause grows from 50 ms, so that a short break stays short and a long one costs little.
func pause(attempts int) time.Duration {
	return min(maxPause, 50*time.Millisecond<<min(max(attempts-1, 0), 6))
}

func reportAsync(log *slog.Logger, sub *nats.Subscription, err error) {
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	if errors.Is(err, nats.ErrSlowConsumer) {
		log.Error("requests came faster than they could even be refused, and some were lost", "subject", subject)
		return
	}
	log.Warn("NATS reports an error", "subject", subject, "error", err)
}
