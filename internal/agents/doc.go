// Package agents runs, in its tests, real agents from npm with a scripted model: Claude Code, Codex, Gemini CLI and
// opencode, each headless, with its own home and no network but this machine's. Toolpost is a proxy in front of their
// model, and they must behave as without it, or it serves them tools over MCP.
//
// `.ci/setup agents` installs them. With TOOLPOST_LONG=1 the tests try every agent in every way, otherwise each way with
// one. With TOOLPOST_AGENTS_WIRE=DIR they write the wire traffic to DIR, which shows what a new version of an agent does.
package agents
