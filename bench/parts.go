package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A measurement compares one promise with a reference: a row of the table.
type measurement struct {
	part string
	name string
	run  func(context.Context, *lab) row
}

// id selects a single row on the command line.
func (m measurement) id() string { return m.part + ": " + m.name }

// A part is a group of rows that can be measured without the others. docs/benchmarks.md explains what each row compares.
type part struct {
	name string
	rows []measurement
}

func parts() []part {
	return []part{
		{"http", []measurement{
			{name: "1 caller / bare", run: rateOf(againstBare, 1, 0.6)},
			{name: "8 callers / bare", run: rateOf(againstBare, 8, 0.6)},
			{name: "64 callers / bare", run: rateOf(againstBare, 64, 0.6)},
			{name: "1 caller, median / bare", run: latencyOf(againstBare, 60*time.Microsecond)},
		}},
		{"record", []measurement{
			{name: "1 caller / no store", run: rateOf(recordedReads, 1, 0.85)},
			{name: "8 callers / no store", run: rateOf(recordedReads, 8, 0.85)},
			{name: "64 callers / no store", run: rateOf(recordedReads, 64, 0.85)},
			{name: "1 caller, median / no store", run: latencyOf(recordedReads, 25*time.Microsecond)},
			{name: "64 callers, changing / fsync", run: rateOf(recordedChanges, 64, 0.5)},
		}},
		{"postgres", []measurement{
			{name: "64 callers / no store", run: rateOf(recordedInPostgres, 64, 0.6)},
			{name: "3 programs, 20 ms disk / one", run: rateOf(programsChange, 64, 2.2)},
			{name: "jobs / bare loop", run: jobsAgainst(bareJobs, 0.5)},
			{name: "jobs / River", run: jobsAgainst(riverJobs, 0.3)},
			{name: "job begins elsewhere / NOTIFY", run: jobBegins},
		}},
		{"engine", []measurement{
			{name: "overhead of a built-in call", run: overhead},
			{name: "readFile / os.ReadFile", run: readThrough},
		}},
		{"mcp", mcpRows()},
		{"nats", []measurement{{name: "64 callers / bare responder", run: natsDoor}}},
		{"fleet", fleetRows()},
		{"scale", scaleRows()},
		{"machina", []measurement{
			{name: "one at a time / bare loop", run: machinaTurns},
			{name: "pipelined / bare loop", run: machinaPipelined},
			{name: "toolhost / direct", run: lockstep(machinaHost, 3)},
			{name: "toolhost, pipelined / direct", run: pipelined(machinaHost, 3)},
		}},
		{"namel3ss", []measurement{
			{name: "warm call / new python3", run: warmCall},
			{name: "warm call / bare fork", run: warmAlone},
			{name: "64 warm callers / bare forks", run: warmCrowd},
			{name: "service / bare HTTP", run: serviceCall},
		}},
		{"skills", []measurement{
			{name: "warm call / bare pipe", run: lockstep(skill, 1.7)},
			{name: "pipelined / bare pipe", run: pipelined(skill, 3)},
		}},
		{"events", []measurement{{name: "narratoria / bare loop", run: events}}},
		{"walls", []measurement{
			{name: "spawn / bwrap", run: confinedSpawn},
			{name: "spawn / bwrap, as a user", run: confinedSpawnAsNobody},
			{name: "warm call / no walls", run: walledCall},
			{name: "warm call / none, as a user", run: walledCallAsNobody},
			{name: "injected key / given key", run: injectedCall},
		}},
		{"search", []measurement{
			{name: "grep / ripgrep", run: grepCold},
			{name: "grep with index / ripgrep", run: grepWarm},
			{name: "indexing 50,000 files", run: indexing},
			{name: "meaning, 100,000 chunks", run: searching},
			{name: "10,000 tools", run: findingTools},
		}},
		{"audit", []measurement{
			{name: "rows, 64 writers / one", run: auditRows},
			{name: "top of 1,000,000 / scan", run: auditTop},
		}},
		{"plans", []measurement{
			{name: "1,000 tools over HTTP / direct", run: planned(plansOverHTTP, 0.8)},
			{name: "1,000 tools inside / direct", run: planned(plansInside, 0)},
		}},
		{"code", []measurement{
			{name: "1,000 calls of Python / HTTP", run: codeCalls("python")},
			{name: "1,000 calls of Node / HTTP", run: codeCalls("javascript")},
		}},
		{"console", []measurement{
			{name: "usable page / bare page", run: consolePage},
			{name: "click, 100 calls/s / none", run: consoleClick},
		}},
		{"start", []measurement{
			{name: "version / hello world", run: start},
			{name: "call / hello world", run: startCall},
			{name: "call among sources / alone", run: startCallAmong},
			{name: "serve / hello world", run: startListening},
		}},
		{"memory", []measurement{
			{name: "server with the examples", run: memoryOfExamples},
			{name: "server with 1,000 tools", run: memoryOfMany},
		}},
		{"growth", []measurement{
			{name: "1,000 tools / 10", run: grownTools(1_000)},
			{name: "10,000 tools / 10", run: grownTools(10_000)},
			{name: "100 sessions / 1", run: grownSessions(100)},
			{name: "10,000 sessions / 1", run: grownSessions(10_000)},
			{name: "1,000,000 rows / 10,000", run: grownRecord(1_000_000)},
			{name: "10,000,000 rows / 10,000", run: grownRecord(10_000_000)},
			{name: "output of 1 KiB", run: grownOutput(1 << 10)},
			{name: "output of 1 MiB", run: grownOutput(1 << 20)},
			{name: "output of 64 MiB", run: grownOutput(64 << 20)},
		}},
	}
}

// measurements returns the rows of all parts.
func measurements() (all []measurement) {
	for _, p := range parts() {
		for _, m := range p.rows {
			m.part = p.name
			all = append(all, m)
		}
	}
	return all
}

// chosen returns the rows of a part, or the row of that id; "" selects all of them.
func chosen(only string) ([]measurement, error) {
	rows := slices.DeleteFunc(measurements(), func(m measurement) bool {
		return only != "" && only != m.part && only != m.id()
	})
	if len(rows) > 0 {
		return rows, nil
	}
	return nil, unknown(only)
}

// unknown returns an error that lists the alternatives: the rows of a part that exists, or the parts.
func unknown(only string) error {
	of, name, _ := strings.Cut(only, ":")
	var names []string
	for _, p := range parts() {
		if p.name != of {
			names = append(names, p.name)
			continue
		}
		var ids []string
		for _, m := range p.rows {
			ids = append(ids, fmt.Sprintf("  %s: %s\n", p.name, m.name))
		}
		return fmt.Errorf("the part %s has no row %q; it has\n%s", of, strings.TrimSpace(name), strings.Join(ids, ""))
	}
	return fmt.Errorf("there is no part %q; there are %s.\nOne part, or one row of it, is measured at a time: "+
		"ONLY=http, or ONLY='%s'", of, strings.Join(names, ", "), measurements()[0].id())
}

func mcpRows() []measurement {
	return []measurement{
		{name: "server over HTTP / direct", run: mcpOverHTTP},
		{name: "server over stdio / direct", run: mcpOverStdio},
		{name: "1 caller / SDK server", run: mcpCalls(1, "none", wordSDK, 5)},
		{name: "8 callers / SDK server", run: mcpCalls(8, "none", wordSDK, 5)},
		{name: "64 callers / SDK server", run: mcpCalls(64, "none", wordSDK, 5)},
		{name: "1 caller / bare", run: mcpCalls(1, "none", wordBareMCP, 0.5)},
		{name: "8 callers / bare", run: mcpCalls(8, "none", wordBareMCP, 0.5)},
		{name: "64 callers / bare", run: mcpCalls(64, "none", wordBareMCP, 0.5)},
		{name: "1 caller, recorded / bare", run: mcpCalls(1, recorded, wordBareMCP, 0)},
		{name: "8 callers, recorded / bare", run: mcpCalls(8, recorded, wordBareMCP, 0)},
		{name: "64 callers, recorded / bare", run: mcpCalls(64, recorded, wordBareMCP, 0)},
		{name: "1 caller, recorded / mcp-go", run: mcpCalls(1, recorded, wordMCPGo, 0.75)},
		{name: "8 callers, recorded / mcp-go", run: mcpCalls(8, recorded, wordMCPGo, 1)},
		{name: "64 callers, recorded / mcp-go", run: mcpCalls(64, recorded, wordMCPGo, 1)},
		{name: "1 caller, pipe / bare proxy", run: proxied(1, 1/1.6)},
		{name: "64 callers, pipe / bare proxy", run: proxied(64, 1/1.2)},
		{name: "list of 10,000 tools", run: mcpList},
	}
}
