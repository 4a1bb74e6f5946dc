package all

import (
	"cmp"
	"net"
	"strings"

	"toolpost/config"
	"toolpost/config/offlimits"
	mcpdoor "toolpost/protocol/mcp/door"
	"toolpost/tool"
	"toolpost/web"
)

// MCPAddress returns the URL of a config's MCP door for clients on this machine, once it is served.
func MCPAddress(cfg *config.Config) (string, error) {
	var own mcpDoor
	home, there, err := homeOf(cfg)
	for _, d := range cfg.Doors {
		if d.Name == "mcp" && err == nil {
			there, err = true, d.Decode(&own)
		}
	}
	at := own.Config
	if at.Listen == "" {
		at.Listen, at.TLS = home.Listen, cmp.Or(at.TLS, home.TLS)
	}
	switch {
	case err != nil:
		return "", err
	case there && strings.HasPrefix(at.Listen, web.UnixPrefix):
		return "", tool.Errorf(tool.CodeInvalidInput, "the HTTP door listens on a Unix socket, where MCP clients do not "+
			"come in; let the door mcp listen on an address, or leave --http out")
	}
	url, err := nearby(at, there)
	return url + mcpdoor.Path, err
}

// HTTPAddress returns the address of a config's HTTP door for programs on this machine, once it is served.
func HTTPAddress(cfg *config.Config) (string, error) {
	home, there, err := homeOf(cfg)
	switch {
	case err != nil:
		return "", err
	case there && strings.HasPrefix(home.Listen, web.UnixPrefix):
		return web.UnixPrefix + offlimits.Under(cfg.Dir, strings.TrimPrefix(home.Listen, web.UnixPrefix)), nil
	}
	return nearby(home.Config, there)
}

// homeOf reads the door whose address is the default of the others.
func homeOf(cfg *config.Config) (home httpDoor, there bool, err error) {
	for _, d := range cfg.Doors {
		if d.Name == homeDoor {
			err = d.Decode(&home)
			return home, true, err
		}
	}
	return home, false, nil
}

// nearby returns the URL of a door for clients on this machine.
func nearby(at web.Config, there bool) (string, error) {
	host, port, err := net.SplitHostPort(cmp.Or(at.Listen, web.DefaultListen))
	switch {
	case !there:
		return "", tool.Errorf(tool.CodeInvalidInput, "the config opens no HTTP door; add `doors: {http: {}}`")
	case err != nil:
		return "", tool.Errorf(tool.CodeInvalidInput, "the HTTP door listens on %q: %w", at.Listen, err)
	case port == "0":
		return "", tool.Errorf(tool.CodeInvalidInput, "the HTTP door takes another port at each start; give it one that "+
			"stays, such as `listen: %q`", web.DefaultListen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	o := web.Options{Listen: at.Listen, TLS: at.TLS}
	return o.URL(net.JoinHostPort(host, port)), nil
}
