// Package mcpservers tries, in its test, well-known MCP servers from npm: directly, and through Toolpost as a user adds
// them with `toolpost mcp add`. It installs hundreds of megabytes, so it only runs on request, and then writes the table
// of docs/protocols/mcp-servers.md:
//
//	make servers
package mcpservers
