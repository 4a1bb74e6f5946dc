package main

import (
	"cmp"
	"context"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/format"
	"toolpost/cmd/toolpost/login"
	"toolpost/config"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// A server names the backend of a command; if it has no URL, the backend is this process. Before locate, it has the flags
// of the command line alone.
type server struct {
	url, token, ca string
	context        string // its name
	local          bool   // use this process

	located bool
	flags   string // as they were given
	byVar   bool   // TOOLPOST_URL names it
	found   bool   // it is the running server of this config, at its socket
}

// withServer adds the flags that name a server to a command.
func (a *app) withServer(c *cobra.Command) *cobra.Command {
	f := c.Flags()
	f.StringVar(&a.server.url, "server", "",
		"URL of a server (default: $TOOLPOST_URL, the context, or the config's running server)")
	f.StringVar(&a.server.token, "token", "",
		"token for --server (better: $TOOLPOST_TOKEN, which does not appear in process lists)")
	f.StringVar(&a.server.ca, "ca", "", "PEM file with the CA certificate for --server (default: the CAs of this machine)")
	f.StringVar(&a.server.context, "context", "", "use the server of this context (see toolpost context)")
	f.BoolVar(&a.server.local, "local", false, "run the config's tools in this process, without a server")
	c.MarkFlagsMutuallyExclusive("server", "context", "local")
	_ = c.RegisterFlagCompletionFunc("context", completeContext)
	return c
}

// locate decides, once, which server a command uses. Flags come before variables, and variables before the context in use;
// otherwise it is the running server of the config. A cassette is for this process alone.
func (a *app) locate(ctx context.Context) error {
	s := &a.server
	if s.located {
		return nil
	}
	s.located, s.flags = true, s.given()
	variable, token := os.Getenv("TOOLPOST_URL"), os.Getenv("TOOLPOST_TOKEN")
	alone := s.local || a.recorder != nil || a.played != nil
	here := alone || a.config != "" || a.state != ""
	switch {
	case s.url != "":
		s.token = cmp.Or(s.token, token)
		return nil
	case s.context != "":
		return s.use(s.context)
	case !here && variable != "":
		s.url, s.token, s.byVar = variable, cmp.Or(s.token, token), true
		return nil
	case !here && os.Getenv("TOOLPOST_CONFIG") == "":
		if err := s.use(""); err != nil || s.url != "" {
			return err
		}
	}
	if alone {
		return nil
	}
	return a.findRunning(ctx)
}

// away reports whether the server is another than that of this config.
func (a *app) away() bool { return a.server.url != "" && !a.server.found }

const (
	findWithin = 2 * time.Second  // to find the server of this config, and for it to notice that the config has just changed
	loadWithin = 15 * time.Second // to load that config, which opens sources
)

// findRunning finds the running server of this config by its socket. If the config has just changed, it waits for the server
// to load it.
func (a *app) findRunning(ctx context.Context) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	remote, running := answering(ctx, cfg)
	if remote == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadWithin)
	defer cancel()
	soon, enough := context.WithTimeout(ctx, findWithin)
	defer enough()
	file, err := os.Stat(cfg.Path)
	changed := err == nil && time.Since(file.ModTime()) < findWithin
	for changed && running != cfg.Digest() && (running == "" || soon.Err() == nil) && tool.Sleep(ctx, 50*time.Millisecond) {
		if now, err := remote.Running(ctx); err == nil {
			running = now
		}
	}
	if running != cfg.Digest() && running != "" {
		a.note("the running server has not loaded the current " + cfg.Path + "; `toolpost config show` says why, and --local " +
			"uses the file as it is")
	}
	a.server = server{url: socketOf(cfg), found: true, located: true, flags: a.server.flags}
	return nil
}

// socketOf returns the address at which the running server of a config answers commands.
func socketOf(cfg *config.Config) string { return "unix:" + cfg.Socket() }

// answering returns the server that answers at the socket of a config, with the digest of the config that it runs; nil if
// there is none. A socket of another user is not used, nor one without an answer: its server was killed, is shutting down,
// or hangs.
func answering(ctx context.Context, cfg *config.Config) (remote node.Remote, digest string) {
	var stat syscall.Stat_t
	if syscall.Lstat(cfg.Socket(), &stat) != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFSOCK || int(stat.Uid) != os.Getuid() {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(ctx, findWithin)
	defer cancel()
	remote, err := node.Dial(socketOf(cfg), "", "")
	if err != nil {
		return nil, ""
	}
	if digest, err = remote.Running(ctx); err != nil {
		return nil, ""
	}
	return remote, digest
}

// open opens the server, or the config's tools in this process with the options, on behalf of the user who runs it.
func (a *app) open(ctx context.Context, o node.Options) (*backend, error) {
	if err := a.locate(ctx); err != nil {
		return nil, err
	}
	if s := a.server; s.url != "" {
		if s.token == "" && !s.found {
			var err error
			if s.token, err = login.Credential(ctx, s.context, s.url); err != nil {
				return nil, err
			}
		}
		remote, err := node.Dial(s.url, s.token, s.ca)
		return &backend{Handler: remote, Catalog: remote, close: func() {}}, err
	}
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	return a.openAt(ctx, cfg, me().Door, o)
}

// ownCommand matches a command of ours in a message.
var ownCommand = regex.Lazy("`toolpost ([a-z][^`\n]*)`")

// here adds the flags of the server or the config in use to the commands that a message advises, so that a copied command
// asks the same server. It does not repeat a token, only that there was one. A header that the server asks for becomes a flag.
func (a *app) here(text string) string {
	if a.server.url != "" {
		text = strings.Replace(text, "send the header Authorization: Bearer TOKEN",
			"sign in with `toolpost login`, or give a token in $TOOLPOST_TOKEN or with --token", 1)
	}
	own, flags := a.given(), a.server.given()
	if own+flags == "" {
		return text
	}
	return ownCommand().ReplaceAllStringFunc(text, func(command string) string {
		words := strings.Fields(strings.Trim(command, "`"))[1:]
		c, _, err := (&app{in: a.in, out: a.out, err: a.err}).root(words).Find(words)
		switch {
		case err != nil || slices.Contains(words, "--help") || slices.Contains(words, "--config"):
			return command
		case flags == "" && c.Name() == "init": // it writes a config, and reads none
			return command
		case flags == "":
			return strings.TrimSuffix(command, "`") + own + "`"
		case c.Flags().Lookup("server") == nil:
			return command
		case slices.Contains(words, "--server"): // the server's own words for itself: this address reaches it, and that one may not
			before, _, ok := strings.Cut(command, " --server ")
			if ok && strings.HasSuffix(command, " --token TOKEN`") && c.Parent().Name() == "connections" {
				return before + flags + "`"
			}
			return command
		}
		return strings.TrimSuffix(command, "`") + flags + "`"
	})
}

// given returns the flags of the command line that name a config.
func (a *app) given() (flags string) {
	if a.config != "" {
		flags += " --config " + format.ShellWord(a.config)
	}
	if a.state != "" {
		flags += " --state " + format.ShellWord(a.state)
	}
	return flags
}

// given returns the flags of the command line that name a server.
func (s server) given() string {
	switch {
	case s.located:
		return s.flags
	case s.context != "":
		return " --context " + format.ShellWord(s.context)
	case s.local:
		return " --local"
	case s.url == "":
		return ""
	}
	flags := " --server " + format.ShellWord(withoutPassword(s.url))
	if s.token != "" {
		flags += " --token TOKEN"
	}
	if s.ca != "" {
		flags += " --ca " + format.ShellWord(s.ca)
	}
	return flags
}

// withoutPassword returns a URL that may be shown.
func withoutPassword(text string) string {
	if u, err := url.Parse(text); err == nil {
		return u.Redacted()
	}
	return "URL"
}
