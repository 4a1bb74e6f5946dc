package all

import (
	"cmp"
	"net"
	"strings"

	"toolpost/config"
	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/web"
)

// MCPAddress is where clients on this machine find the MCP door of a config, once it is served.
func MCPAddress(cfg *config.Config) (string, error) {
	var own mcpDoor
	var home web.Config
	there := false
	for _, d := range cfg.Doors {
		var err error
		switch d.Name {
		case "mcp":
			there, err = true, d.Decode(&own)
		case homeDoor:
			there, err = true, d.Decode(&home)
		}
		if err != nil {
			return "", err
		}
	}
	at := own.Config
	if at.Listen == "" {
		at.Listen, at.TLS = home.Listen, cmp.Or(at.TLS, home.TLS)
	}
	host, port, err := net.SplitHostPort(cmp.Or(at.Listen, web.DefaultListen))
	switch {
	case !there:
		return "", tool.Errorf(tool.CodeInvalidInput, "the config opens no HTTP door; add `doors: {http: {}}`")
	case strings.HasPrefix(at.Listen, web.UnixPrefix):
		return "", tool.Errorf(tool.CodeInvalidInput, "the HTTP door listens on a Unix socket, where MCP clients do not "+
			"come in; let the door mcp listen on an address, or leave --http out")
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
	return o.URL(net.JoinHostPort(host, port)) + mcp.Path, nil
}
