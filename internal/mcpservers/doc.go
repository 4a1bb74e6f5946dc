// Package mcpservers tries, in its test, well-known MCP servers from npm: directly, and through Toolpost as a user has them with
// `toolpost mcp add`. It installs hundreds of megabytes, so it only runs when it is told to, and then writes the table of
// docs/protocols/mcp-servers.md:
//
//	make servers
package mcpservers
