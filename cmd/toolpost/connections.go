package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	connectiontools "toolpost/builtin/connection"
	"toolpost/cmd/toolpost/browser"
	"toolpost/identity/oauth"
	"toolpost/tool"
	"toolpost/wire/bounded"
)

// The tools that `toolpost connections` calls.
var (
	startsConnection   = own{"connections.start", "connect accounts", store}
	finishesConnection = own{"connections.finish", "connect accounts", store}
	keepsKey           = own{"connections.key", "keep keys", store}
	listsConnections   = own{"connections.list", "list connections", store}
)

func (a *app) connectionsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "connections", Short: "Connect your accounts with providers, for tools that use them in your name",
		Long: "A source of tools may use an account of its caller, such as one at GitHub. The section `connections` of\n" +
			"the config says which there are. Each caller connects its own, once.",
		Example: "  toolpost connections add github\n  toolpost connections add api --key-stdin < key.txt\n" +
			"  toolpost connections list\n  toolpost connections remove github",
	}, a.connectionsAddCommand(), over[connectiontools.ListArgs](a, listsConnections, "--all --caller", &cobra.Command{
		Use: "list", Short: "List your connections",
		Long: "Lists the connections of the config, and whether you have connected each. Values are never shown.\n" +
			"Operators can list those of all callers, or of one.",
	}, func(l connectiontools.Listed) {
		columns[connectiontools.Status]("name caller state kind hosts expires|- used|-", nil).print(a, "connections", l.Connections)
	}), over[connectiontools.RemoveArgs](a, own{"connections.remove", "remove connections", store}, "name --caller", &cobra.Command{
		Use: "remove NAME", Short: "Forget a connection, and revoke it at the provider",
		Long: "Forgets what you have connected, and revokes it at the provider, if that can be done. Operators can remove\n" +
			"connections of other callers. Exit code 4: you have not connected it.",
		ValidArgsFunction: a.completeFrom(listsConnections, "name", "kind", "connected"),
	}, func(r connectiontools.Removed) {
		fmt.Fprintf(a.out, "%s  %s\n", a.out.green("removed"), clean(r.Name))
		if r.Stays != "" {
			fmt.Fprintf(a.err, "%s the provider may still accept it: %s\n", a.err.amber("toolpost:"), cleanLines(r.Stays))
		}
	}))
}

func (a *app) connectionsAddCommand() *cobra.Command {
	var fromStdin, device bool
	var caller string
	c := &cobra.Command{
		Use: "add NAME", Short: "Connect an account, or give a key",
		Long: "Opens the page of the provider in your browser, and keeps what you agree to there. Without a browser, it\n" +
			"shows a code that you type at another device. If the connection has a key that is pasted, it asks for\n" +
			"the key without showing it, or --key-stdin reads it from stdin. Connecting again replaces what was there.",
		Args:              words(1, 1),
		ValidArgsFunction: a.completeFrom(listsConnections, "name", "kind", ""),
		RunE: func(c *cobra.Command, words []string) error {
			if fromStdin {
				return a.pasteKey(c.Context(), words[0], caller)
			}
			args := connectiontools.StartArgs{Name: words[0], Caller: caller, Device: device || !hasBrowser()}
			err := a.connectAccount(c.Context(), args, device)
			if e := tool.AsError(err); e != nil && e.Reason == connectiontools.Pasted && a.keyboard() != nil {
				return a.pasteKey(c.Context(), words[0], caller)
			}
			return err
		},
	}
	c.Flags().BoolVar(&fromStdin, "key-stdin", false, "read the key from stdin, which a terminal does not show")
	c.Flags().BoolVar(&device, "device", false, "use a code that you type at another device")
	c.Flags().StringVar(&caller, "caller", "", "for operators: connect for this agent, such as agent/claude")
	return a.withServer(a.withJSON("print the result as JSON", c))
}

// maxKey bounds a key, in bytes.
const maxKey = 16 << 10

func (a *app) pasteKey(ctx context.Context, name, caller string) error {
	key, err := a.readKey(ctx, name)
	if err != nil {
		return err
	}
	done, err := ask[connectiontools.Finished](ctx, a, keepsKey, connectiontools.KeyArgs{Name: name, Caller: caller, Key: key})
	return a.connected(done, err)
}

// readKey reads a key from stdin. A terminal does not show it.
func (a *app) readKey(ctx context.Context, name string) (string, error) {
	if in := a.keyboard(); in != nil {
		fmt.Fprintf(a.err, "paste the key for %s; it is not shown\n", clean(name))
		return newPrompter(in, a.err).Secret(ctx)
	}
	text, err := bounded.ReadDocument(a.in, maxKey)
	if err != nil {
		return "", tool.Errorf(tool.CodeInvalidInput, "the key cannot be read from stdin: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// keyboard returns stdin if it is a terminal.
func (a *app) keyboard() *os.File {
	if in, ok := a.in.(*os.File); ok && newScreen(in).terminal {
		return in
	}
	return nil
}

func (a *app) connected(done connectiontools.Finished, err error) error {
	if err != nil {
		return err
	}
	return a.conclude(done, func() { fmt.Fprintf(a.out, "%s  %s\n", a.out.green("connected"), clean(done.Name)) }, false)
}

// connectAccount lets a person agree in a browser here, or at another device. If the provider has no codes for devices, and none was
// asked for, the link is shown.
func (a *app) connectAccount(ctx context.Context, args connectiontools.StartArgs, device bool) error {
	if args.Device {
		begun, err := ask[connectiontools.Started](ctx, a, startsConnection, args)
		if err == nil {
			return a.awaitDevice(ctx, begun)
		}
		if device || tool.CodeOf(err) != tool.CodeUnsupported {
			return err
		}
		args.Device = false
	}
	callback, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "no address for the browser to come back to: %w", err)
	}
	defer callback.Close()
	args.Redirect = "http://" + callback.Addr().String() + "/callback"
	begun, err := ask[connectiontools.Started](ctx, a, startsConnection, args)
	if err != nil {
		return err
	}
	answer, err := oauth.AwaitBrowser(ctx, callback, begun.URL, func(link string) {
		fmt.Fprintf(a.err, "agree in your browser, at\n%s\n", clean(link))
		if hasBrowser() {
			_ = browser.Open(ctx, link) // the link is shown, too
		}
	})
	if err != nil {
		return tool.Errorf(tool.CodeAccessDenied, "%s was not connected: %w", begun.Name, err)
	}
	done, err := ask[connectiontools.Finished](ctx, a, finishesConnection, connectiontools.FinishArgs{
		State: begun.State, Code: answer.Code, Issuer: answer.Issuer,
	})
	return a.connected(done, err)
}

// awaitDevice asks the provider, as often as it allows, whether the person has agreed.
func (a *app) awaitDevice(ctx context.Context, begun connectiontools.Started) error {
	fmt.Fprintf(a.err, "go to %s\nand type the code %s\n", clean(begun.URL), a.err.bold(clean(begun.Code)))
	every := max(time.Duration(begun.EveryMS)*time.Millisecond, time.Second)
	for tool.Sleep(ctx, every) {
		done, err := ask[connectiontools.Finished](ctx, a, finishesConnection, connectiontools.FinishArgs{State: begun.State})
		if err != nil || done.Connected {
			return a.connected(done, err)
		}
		every = min(every+time.Second, 15*time.Second) // whether the provider wants fewer questions, the answer does not say
	}
	return tool.Ended(ctx)
}

// hasBrowser reports whether a browser can be shown here.
func hasBrowser() bool {
	return runtime.GOOS == "darwin" || cmp.Or(os.Getenv("BROWSER"), os.Getenv("DISPLAY"), os.Getenv("WAYLAND_DISPLAY")) != ""
}
