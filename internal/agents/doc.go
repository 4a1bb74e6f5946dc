// Package agents runs, in its tests, real agents from npm with a scripted model: Claude Code, Codex, Gemini CLI and
// opencode, each headless, with a home of its own and with no network but this machine's. Toolpost stands in front of
// their model, where they must behave as without it, or serves them tools over MCP.
//
// `.ci/setup agents` installs them. With TOOLPOST_LONG=1 every agent is tried in every way, otherwise each way with one.
// With TOOLPOST_AGENTS_WIRE=DIR what went over the wire is written there, which tells what a new version of an agent does.
package agents
