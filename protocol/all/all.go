// Package all is the one list of protocols: how a source of each is opened, which doors a config opens, and which
// protocols can be spoken on stdin and stdout. Adding a protocol is adding one entry here.
package all

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"toolpost/builtin"
	"toolpost/codesearch/toolfind"
	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/protocol/alphahuman"
	"toolpost/protocol/cassette"
	"toolpost/protocol/command"
	"toolpost/protocol/machina"
	mcpdoor "toolpost/protocol/mcp/door"
	mcprunner "toolpost/protocol/mcp/runner"
	"toolpost/protocol/namel3ss"
	"toolpost/protocol/namel3ss/pack"
	"toolpost/protocol/narratoria"
	"toolpost/protocol/openai"
	"toolpost/protocol/openapi"
	"toolpost/protocol/rest"
	"toolpost/protocol/singularity"
	"toolpost/tool"
	"toolpost/web"
)

// A Protocol is one way to speak to tools.
type Protocol struct {
	Name string
	Doc  string // one sentence about its sources
	// Open binds a configured source.
	Open func(context.Context, config.Source, *slog.Logger) (tool.Runner, error)
	// Claim returns the files that a configured source starts from, keeps for itself, and lets its tools change. nil
	// means none.
	Claim func(config.Source) (offlimits.Claim, error)
	// Upstream means that the tools of a source are whatever a foreign server lists, and not what files of this machine
	// define. They are pinned, unless the config disables it.
	Upstream bool
	// Local reports whether the tools of a source of such a protocol are defined by a file of this machine after all.
	// nil means that none are.
	Local func(config.Source) bool
	// Connects means that opening a source, or listing its tools, starts a program or sends a request to a server.
	Connects bool
	// Keys says how a source uses connections.
	Keys Keys
	// Opens returns how long opening a source may take if each of its programs has its own time to start. nil means the
	// usual time.
	Opens func(config.Source) time.Duration
	// Options is the zero value of what Open decodes, for the schema of the config.
	Options any
	// Stdio is the door for `toolpost as`, or nil if there is none.
	Stdio *StdioDoor
	// Doors are those on the network that a config can open.
	Doors []Door
}

// A StdioDoor is a door on the standard streams.
type StdioDoor struct {
	Doc    string      // what it does, as the help says it
	Usage  string      // the arguments after the protocol's name
	Flags  [][2]string // the names and help of its flags without a value; those given come first among the words
	Early  bool        // it answers before all sources are open, and tells its client when there are more
	Agents bool        // its clients are agents, which are callers of their own
	Least  int         // number of arguments
	Most   int
	// LeaseTier returns the tier from which this door requires leases, whatever the config sets. nil or 0 means the
	// config's.
	LeaseTier func(words []string) int
	Tiers     func(*tool.Spec) int // of the leases that tools need here; nil means their own
	Door      func(words []string, std Stdio) (tool.Door, error)
}

// Stdio is what a door on the standard streams gets. Nothing but the door writes to Out.
type Stdio struct {
	In     io.Reader
	Out    io.Writer
	Log    io.Writer
	Caller tool.Principal
	// Agent returns the caller by what the client calls itself, for a door whose clients are agents.
	Agent func(client string) (tool.Principal, error)
	// Version of this program, for clients.
	Version string
	// Sources are those of the config, for a door whose callers may name one in their own way.
	Sources []config.Source
	// Doors are those of the config, for a door that offers on the standard streams what it offers on the network.
	Doors []config.Door
}

type (
	// Packs manages packs of namel3ss tools.
	Packs = pack.Packs
	// Skills manages skill folders.
	Skills = alphahuman.Skills
	// A Skill is a parsed skill folder.
	Skill = alphahuman.Skill
	// A SkillFinding is a fault in one.
	SkillFinding = alphahuman.Finding
)

// Protocols lists them all.
func Protocols() []Protocol {
	return []Protocol{
		{
			Name: "builtin", Doc: "built-in tools for files, commands and code below the folders that you offer",
			Open: builtin.Open, Claim: builtin.Claim, Options: builtin.Options{},
		},
		{
			Name: "namel3ss", Doc: "Python and Node functions: one JSON document in, one out",
			Keys: KeysByCaller, Open: namel3ss.Open, Claim: namel3ss.Claim, Options: namel3ss.Options{},
			Stdio: &StdioDoor{
				Doc:   "Answer one request of the protocol namel3ss; NAME overrides the tool in the request",
				Usage: "[NAME]", Most: 1, Door: asNamel3ss,
			},
			Doors: []Door{{
				Name: "namel3ss",
				Doc: "the namel3ss service door: POST /tools and /capabilities/handshake; it listens on " +
					namel3ss.ServiceListen + " by default",
				Options: web.Config{}, Path: "/tools", Mount: mountNamel3ss,
			}},
		},
		{
			Name: "narratoria", Doc: "programs that report events, one JSON object per line",
			Keys: KeysByCaller, Open: narratoria.Open, Claim: narratoria.Claim, Options: narratoria.Options{},
			Stdio: &StdioDoor{
				Doc:   "Answer one request for the tool NAME, in the protocol narratoria",
				Usage: "NAME", Least: 1, Most: 1, Door: asNarratoria,
			},
		},
		{
			Name: "command", Doc: "any program: its command line is made of the arguments, its output is the result",
			Keys: KeysByCaller, Open: command.Open, Claim: command.Claim, Options: command.Options{},
		},
		{
			Name: "cassette", Doc: "recorded calls, played again: the tools of a cassette give what they gave, and nothing runs",
			Open: cassette.Open, Claim: cassette.Claim, Options: cassette.Options{},
		},
		{
			Name: "alphahuman",
			Doc:  "AlphaHuman skills: folders with a program that speaks JSON-RPC, or with instructions",
			Keys: KeysByCaller, Open: alphahuman.Open, Claim: alphahuman.Claim, Options: alphahuman.Options{}, Connects: true, Opens: alphahuman.Opens,
			Stdio: &StdioDoor{Doc: "Serve your tools as a skill, in the protocol alphahuman", Door: asAlphaHuman},
		},
		{
			Name: "machina", Doc: "tools of a Machina toolhost and its plugin",
			Keys: KeysByCaller, Open: machina.Open, Claim: machina.Claim, Options: machina.Options{}, Connects: true,
			Stdio: &StdioDoor{
				Doc:   "Serve your tools as a toolhost, in the protocol machina; --list prints the id of each tool (AID)",
				Usage: "--list SOURCE | --run SOURCE AID | --serve SOURCE", Flags: [][2]string{
					{"list", "list the tools of SOURCE"}, {"run", "answer the one request on stdin"},
					{"serve", "answer one request per line, until stdin ends or a line is empty"},
				},
				Most: 2, LeaseTier: machinaLeases, Tiers: machina.TierOf, Door: asMachina,
			},
		},
		{
			Name: "singularity", Doc: "tools of another Toolpost, or of any server that speaks the Singularity contract, over NATS",
			Open: singularity.Open, Claim: singularity.Claim, Options: singularity.Options{}, Upstream: true, Connects: true,
			Doors: []Door{{
				Name: "nats", Doc: "the NATS door: tools at tools.execute and the subjects of the Singularity contract",
				Options: singularity.DoorConfig{}, Open: openNATS, Claim: claimNATS,
			}},
		},
		{
			Name: "mcp",
			Doc:  "MCP servers: programs that Toolpost starts, or servers over HTTP",
			Keys: KeysByCaller, Open: mcprunner.Open, Claim: mcprunner.Claim, Options: mcprunner.SourceOptions{}, Upstream: true, Connects: true, Opens: mcprunner.Opens,
			Stdio: &StdioDoor{Doc: "Serve your tools, or one source, as an MCP server", Usage: "[SOURCE]", Most: 1, Door: asMCP, Early: true, Agents: true},
			Doors: []Door{{
				Name: "mcp", Doc: "the MCP door; it shares the HTTP door's address, and is open even if the config does not name it",
				Options: mcpDoor{}, Path: mcpdoor.Path, With: homeDoor, Mount: mountMCP,
			}},
		},
		{
			Name: "openapi", Doc: "operations of an HTTP API, as its OpenAPI document describes them",
			Keys: KeysByCall, Open: openapi.Open, Claim: openapi.Claim, Options: openapi.Options{}, Upstream: true, Connects: true,
			Local: openapi.Local,
		},
		{
			Name: "rest", Doc: "tools of another Toolpost, over HTTP",
			Open: rest.Open, Claim: rest.Claim, Options: rest.SourceOptions{}, Upstream: true, Connects: true,
			Doors: []Door{{
				Name: homeDoor, Doc: "the HTTP door; it listens on " + web.DefaultListen + " by default",
				Options: httpDoor{}, Mount: mountHTTP,
			}},
		},
	}
}

// doorsAlone lists the doors of protocols without sources.
func doorsAlone() []Door {
	return []Door{{
		Name: "openai",
		Doc: "the door for models: OpenAI's and Anthropic's APIs, with tools; it shares the HTTP door's address, and is open " +
			"even if the config does not name it",
		Options: openaiDoor{}, Path: openai.Path, With: homeDoor, Mount: mountOpenAI,
	}}
}

func asNamel3ss(words []string, s Stdio) (tool.Door, error) {
	return &namel3ss.Door{In: s.In, Out: s.Out, Log: s.Log, Tool: strings.Join(words, ""), Caller: s.Caller}, nil
}

func mountNamel3ss(d config.Door, env DoorEnv) (web.Config, web.Door, error) {
	c := web.Config{Listen: namel3ss.ServiceListen}
	err := d.Decode(&c)
	return c, namel3ss.NewServiceDoor(namel3ss.ServiceOptions{Version: env.Version, Log: env.Log}), err
}

func asNarratoria(words []string, s Stdio) (tool.Door, error) {
	return &narratoria.Door{In: s.In, Out: s.Out, Tool: words[0], Caller: s.Caller}, nil
}

func asAlphaHuman(_ []string, s Stdio) (tool.Door, error) {
	return &alphahuman.Door{In: s.In, Out: s.Out, Log: s.Log, Caller: s.Caller}, nil
}

// httpDoor is the config of the HTTP door.
type httpDoor struct {
	web.Config `yaml:",inline"`
	Console    *bool `yaml:"console" schema:"default=true" doc:"serve the console, a page for people, at /"`
}

func mountHTTP(d config.Door, env DoorEnv) (web.Config, web.Door, error) {
	var c httpDoor
	err := d.Decode(&c)
	door := rest.NewDoor(rest.Options{
		Log: env.Log, Metrics: env.Metrics, Opening: env.Opening, Usable: env.Usable, Version: env.Version,
	})
	if env.Console != nil && (c.Console == nil || *c.Console) {
		door = env.Console.On(door)
	}
	return c.Config, door, err
}

// mcpDoor is the config of the MCP door.
type mcpDoor struct {
	web.Config      `yaml:",inline"`
	mcpdoor.Offers  `yaml:",inline"`
	toolfind.Search `yaml:",inline"`
	URL             string `yaml:"url" doc:"public URL of the door, if a proxy stands in front; default: the URL that the client used"`
}

// asMCP returns the door on stdin and stdout. It offers what the one over HTTP does, or one source in place of all.
func asMCP(words []string, s Stdio) (tool.Door, error) {
	var c mcpDoor
	source := strings.Join(words, "")
	if source != "" && !slices.ContainsFunc(s.Sources, func(one config.Source) bool { return one.Name == source }) {
		return nil, tool.Errorf(tool.CodeNotFound, "there is no source %q; `toolpost mcp list` lists the MCP servers of the config", source)
	}
	for _, d := range s.Doors {
		if d.Name == "mcp" {
			if err := d.Decode(&c); err != nil {
				return nil, err
			}
			if err := d.Placed(c.Check()); err != nil {
				return nil, err
			}
		}
	}
	return &mcpdoor.Door{Options: mcpdoor.Options{Offers: c.Offers, Search: c.Search, Source: source, Version: s.Version, Jobs: true}, In: s.In, Out: s.Out, Caller: s.Caller, Agent: s.Agent}, nil
}

func mountMCP(d config.Door, env DoorEnv) (web.Config, web.Door, error) {
	var c mcpDoor
	err := d.Decode(&c)
	if err == nil {
		err = d.Placed(cmp.Or(c.Check(), mcpdoor.CheckURL(c.URL)))
	}
	return c.Config, mcpdoor.NewDoor(mcpdoor.Options{
		Offers: c.Offers, Search: c.Search, URL: c.URL, Issuers: env.Issuers, Keys: env.Keys, Version: env.Version, Log: env.Log, Jobs: true,
	}), err
}

// openaiDoor is the config of the door for models.
type openaiDoor struct {
	web.Config      `yaml:",inline"`
	openai.Limits   `yaml:",inline"`
	toolfind.Search `yaml:",inline"`
	Open            *bool `yaml:"open" schema:"default=true" doc:"whether the door is open; false: its routes are not there"`
}

func mountOpenAI(d config.Door, env DoorEnv) (web.Config, web.Door, error) {
	var c openaiDoor
	if err := d.Decode(&c); err != nil {
		return c.Config, web.Door{}, err
	}
	if c.Open != nil && !*c.Open {
		return c.Config, web.Door{}, nil
	}
	return c.Config, openai.NewDoor(env.Waiting, openai.Options{Limits: c.Limits, Search: c.Search, Models: env.Models, Log: env.Log}), nil
}

func asMachina(words []string, s Stdio) (tool.Door, error) {
	mode, source, aid, err := machina.ParseArgs(words)
	if err != nil {
		return nil, err
	}
	source = machina.SourceOf(source, s.Sources)
	return &machina.Door{Mode: mode, Source: source, AID: aid, In: s.In, Out: s.Out, Log: s.Log, Caller: s.Caller}, nil
}

func machinaLeases(words []string) int {
	mode, _, _, _ := machina.ParseArgs(words) // the door has refused invalid arguments
	return machina.LeaseTier(mode, os.Getenv)
}

func openNATS(d config.Door, env DoorEnv) (tool.Door, error) {
	var c singularity.DoorConfig
	if err := d.Decode(&c); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, d.Placed(err)
	}
	if c.URL == "" && env.Sockets.Replaces() { // it opens its socket itself, and cannot be given one
		return nil, tool.Errorf(tool.CodeConflict, "doors.nats has an embedded NATS server, and two programs cannot share its "+
			"address, so --replace cannot take over; stop the running server first, or give the door the `url` of a NATS server")
	}
	c.Listen = cmp.Or(c.Listen, singularity.DefaultListen)
	if err := env.Admits(d, c.Anonymous, c.Listen); err != nil {
		return nil, err
	}
	o := singularity.DoorOptions{
		Version: env.Version, Drain: env.Drain, Log: env.Log, Calls: env.Calls,
		Ready: func(url string) { env.Opened(Listening{Door: d.Name, URL: url, Anonymous: c.Anonymous}) },
	}
	if env.Named != nil {
		o.Named = func(id string) tool.Principal { return env.Named(id, d.Name) }
	}
	return c.Door(env.Dir, env.Gate, o), nil
}

func claimNATS(d config.Door, dir string) (offlimits.Claim, error) {
	var c singularity.DoorConfig
	err := d.Decode(&c)
	return c.Claim(dir), err
}
