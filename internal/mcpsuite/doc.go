// Package mcpsuite runs, in its tests, the official conformance suite of the Model Context Protocol against a Toolpost
// whose tools know nothing of that protocol: they are Narratoria programs, namel3ss functions and AlphaHuman skills, in
// testdata. If they pass, nothing is lost between such a tool and a client. docs/conformance-mcp.md is written from the
// results:
//
//	go test ./internal/mcpsuite -update
package mcpsuite
