package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	nodetools "toolpost/builtin/nodes"
	"toolpost/cmd/toolpost/memory"
	"toolpost/cmd/toolpost/tryout"
	"toolpost/engine/member"
	"toolpost/fleet"
	"toolpost/host/sandbox"
	"toolpost/node"
)

func (a *app) fleetCommand() *cobra.Command {
	nodes := own{"listNodes", "list the nodes of the fleet", 0}
	c := over[struct{}](a, nodes, "", &cobra.Command{
		Use: "fleet", Short: "Show the nodes of the fleet, or manage it",
		Long: "A fleet is several machines that are one Toolpost: hubs take calls, workers run them. Without a further\n" +
			"command it lists the nodes, as the running server of this config sees them.",
		Example: "  toolpost fleet init\n  toolpost fleet token --role worker --uses 3\n  toolpost fleet drain gpu-2",
	}, func(l nodetools.Listed) {
		columns("name role state version|- labels|- tools running since|- drift|-", cells[fleet.Status]{
			"state": func(s fleet.Status) string { return strings.TrimSpace(s.State + " " + s.Refused) },
		}).print(a, "nodes", l.Nodes)
	})
	c.AddCommand(a.fleetInitCommand(), a.fleetTryCommand(), a.fleetShareCommand(), over[nodetools.InviteArgs](a, own{"inviteNodes", "invite nodes", 0},
		"--role --label=labels --uses:1 --ttl=ttl_ms:1h", &cobra.Command{
			Use: "token", Short: "Print a line with which nodes join",
			Long: "Prints a line for `toolpost worker --join` or `toolpost serve --join`, once: only a digest of its token is\n" +
				"kept. Put the line in quotes: to some shells the # means something.",
		}, func(i nodetools.Invited) { fmt.Fprintln(a.out, i.Line) }),
		over[nodetools.NameArgs](a, own{"drainNode", "drain nodes", 0}, "node", &cobra.Command{
			Use: "drain NODE", Short: "Let a node finish its calls and end",
		}, func(d nodetools.Done) {
			fmt.Fprintf(a.out, "%s  %s: it takes no more calls, and ends after its last one\n", a.out.green("draining"), clean(d.Node))
		}),
		over[nodetools.NameArgs](a, own{"evictNode", "evict nodes", 0}, "node", &cobra.Command{
			Use: "evict NODE", Short: "End the membership of a node",
			Long: "Cuts a node off within a second, and refuses its key from then on; a hub that cannot be reached learns of it\n" +
				"from the store within 5 seconds. To come back, the node needs a new token. Evict a node whose key was copied.",
		}, func(d nodetools.Done) { fmt.Fprintf(a.out, "%s  %s\n", a.out.green("evicted"), clean(d.Node)) }),
		over[struct{}](a, own{"rotateNodes", "rotate the keys of nodes", 0}, "", &cobra.Command{
			Use: "rotate", Short: "Replace the keys of all connected nodes",
			Long: "Lets every connected node make itself another key, and refuses the old ones. Exit code 1: a node kept its key.",
		}, func(r nodetools.Rotated) {
			fmt.Fprintln(a.out, a.out.green("the nodes have new keys"))
			for _, name := range r.Failed {
				fmt.Fprintf(a.out, "%s  %s kept its key\n", a.out.red("failed"), clean(name))
			}
		}, func(r nodetools.Rotated) bool { return len(r.Failed) > 0 }))
	return c
}

func (a *app) fleetShareCommand() *cobra.Command {
	return takes[nodetools.ShareArgs](a, "tool shares...", "print JSON", &cobra.Command{
		Use: "share TOOL [DIGEST=N%... | off]", Short: "Share the calls of a tool between two versions of it",
		Long: "Without shares it lists the definitions that nodes have of a tool: the one of most nodes counts, and gets all calls.\n" +
			"DIGEST=N% gives another one N of a hundred, at all hubs, until changed: each call is judged and recorded by the\n" +
			"definition that runs it. Shares replace all earlier ones of the tool; off ends them. Six digits of DIGEST are enough.",
		Example: "  toolpost fleet share hello\n  toolpost fleet share hello 3f9a1c=10%\n  toolpost fleet share hello off",
	}, func(ctx context.Context, args map[string]any) error {
		o := own{"shareCalls", "share the calls of tools", 0}
		switch shares, _ := args["shares"].([]string); {
		case len(shares) == 0:
			o = own{"listVersions", "list the versions of tools", 0}
		case slices.Equal(shares, []string{"off"}):
			delete(args, "shares")
		}
		doc, err := ask[json.RawMessage](ctx, a, o, args)
		if err != nil {
			return err
		}
		return conclude(a, o, doc, func(v nodetools.Versions) {
			columns("digest share nodes|none effects|- tier", cells[fleet.Version]{"share": func(v fleet.Version) string {
				return strconv.Itoa(v.Percent) + "%" + map[bool]string{true: " counts"}[v.Counts]
			}}).print(a, "versions", v.Versions)
		})
	})
}

func (a *app) callsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "calls", Short: "Ask what became of a call that was lost",
		Example: "  toolpost audit log --code unavailable --json\n  toolpost calls outcome 01a1f246-68ee-7131-9f8c-06e848f7a7ee",
	}, over[nodetools.OutcomeArgs](a, own{"showOutcome", "ask what became of calls", 0}, "call", &cobra.Command{
		Use: "outcome CALL", Short: "Ask the nodes of the fleet what became of a call",
		Long: "A hub loses sight of a call if its node is cut off or dies, or if it dies itself. Nodes remember for a day what\n" +
			"became of each call that may have changed something. Exit code 1: it failed, or still runs.",
	}, func(o nodetools.Outcome) {
		head, text := a.out.green("ran"), string(o.Output)
		switch {
		case o.Runs:
			head, text = "runs", "it has not ended yet"
		case o.Error != nil:
			head, text = a.out.red("failed"), o.Error.Message
		}
		fmt.Fprintf(a.out, "%s  %s: %s\n", head, clean(o.Node), clean(text))
	}, func(o nodetools.Outcome) bool { return !o.OK }))
}

func (a *app) fleetInitCommand() *cobra.Command {
	var name, listen string
	c := &cobra.Command{
		Use: "init", Short: "Make a fleet, with the server of this config as its first hub",
		Long: "Makes the keys of a fleet in the state folder, and writes the section `fleet` into the config. The server is\n" +
			"a hub from its next start on. Further hubs share its store, which then has to be a PostgreSQL.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err == nil {
				err = node.InitFleet(c.Context(), cfg, name, listen, c.Flags().Changed("listen"))
			}
			if err == nil {
				fmt.Fprintf(a.out, "%s  start it with `toolpost serve`; `toolpost fleet token --role worker` invites the first worker\n", a.out.green("this is a hub now"))
			}
			return err
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of this node (default: that of the machine)")
	c.Flags().StringVar(&listen, "listen", fleet.DefaultListen, "address for other nodes")
	return c
}

func (a *app) fleetTryCommand() *cobra.Command {
	return &cobra.Command{
		Use: "try", Short: "Run a small fleet on this machine, to look at",
		Long: "Starts two hubs and three workers with a sample tool, on a PostgreSQL of their own, and shows which worker runs\n" +
			"each call. If no PostgreSQL is installed, there is one hub, with SQLite. Ctrl-C leaves nothing behind.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return err
			}
			return tryout.Run(c.Context(), tryout.Options{Program: program, Out: a.out})
		},
	}
}

func (a *app) workerCommand() *cobra.Command {
	var join, name string
	c := &cobra.Command{
		Use: "worker", Short: "Run the tools of this config for the hubs of a fleet",
		Long: "Runs calls that come from hubs, until SIGINT or SIGTERM or `toolpost fleet drain`; running calls may end first.\n" +
			"A worker has the sources and the walls of its config, and no door, no store and no model. It connects to\n" +
			"every hub, so it may be behind a NAT. --join is needed once: the state folder keeps the membership and the\n" +
			"name. From then on a line only says where the hubs are now. The config is read only at the start.",
		Example: "  toolpost worker --config sources.yaml --join 'tp://hub-1:7422#TOKEN'",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.join(c.Context(), join, name, member.Worker); err != nil {
				return err
			}
			return a.work(c.Context())
		},
	}
	joins(c, &join, &name)
	c.Flags().BoolVar(&a.logJSON, "log-json", false, "write the log as lines of JSON")
	return c
}

// joins adds the flags of a command whose program joins a fleet.
func joins(c *cobra.Command, line, name *string) {
	c.Flags().StringVar(line, "join", "", "join a fleet, by a `LINE` of toolpost fleet token (default: $TOOLPOST_JOIN)")
	c.Flags().StringVar(name, "name", "", "name of this node in its fleet (default: that of the machine)")
}

// join makes this machine a member of a fleet, if a line says so.
func (a *app) join(ctx context.Context, line, name string, role member.Role) error {
	if line = cmp.Or(line, os.Getenv("TOOLPOST_JOIN")); line == "" && name == "" {
		return nil
	}
	cfg, err := a.load()
	if err != nil {
		return err
	}
	return node.JoinFleet(ctx, cfg, line, name, role)
}

func (a *app) work(ctx context.Context) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	a.noteDefault()
	defer sandbox.Keep()()
	n, end, err := a.openNode(ctx, cfg, slog.LevelInfo, node.Options{Worker: true, Early: true, Watch: true, Version: version})
	if err != nil {
		return err
	}
	defer end()
	defer memory.Settle()()
	return n.Work(ctx)
}
