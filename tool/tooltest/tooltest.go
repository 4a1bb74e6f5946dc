// Package tooltest tests implementations of tool.Handler: a runner, a stage, an engine, or a door with its client. It
// knows no protocol. The implementation under test offers a few standard tools, in its own protocol and by these names,
// and its test calls Run.
//
//	echo    returns its arguments, an object, as its output
//	fail    fails, in the tool's own words, with the message args.message
//	hang    logs "hanging", if events can be carried, and runs until it is ended
//	events  logs "event 1", "event 2" ... up to args.count, then succeeds
//	flood   logs without end; each message is at least 1 KiB long
//	spawn   starts args.children processes "sleep args.sleep", each in a session of its own if
//	        args.setsid is true; then hangs if args.hang is true, else returns
//	        {"started": args.children} at once and leaves them running
//	crash   dies without an answer
//
// To log is to emit an event of kind log. Arguments that a check does not need are absent. The sleep argument is a
// string by which the suite recognises the processes: pass it on unchanged.
//
// Reference has these tools in this process, to test a door in front of it.
package tooltest

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"toolpost/tool"
)

// Features are things that not every protocol can carry.
type Features uint

// The features.
const (
	Events Features = 1 << iota // log events while a call runs
	Cancel                      // ending a call early, by its caller or by its deadline
	Crash                       // distinguishing a tool that died from one that failed
	Spawn                       // tools that start processes
	Names                       // many tools by name, so that a name can be unknown
	Digits                      // numbers as they were written; without it 1.50 may come back as 1.5
)

// A Subject is an implementation under test.
type Subject struct {
	// New makes the handler for one check and registers its clean-up with t.Cleanup. If the handler is a tool.Source
	// too, its specs go into the calls; else those of Specs do.
	New func(t testing.TB) tool.Handler
	// Without lists what this protocol cannot carry. The zero value tests everything.
	Without Features
	// Died is the code of a call whose tool dies without an answer; empty means crash.
	Died tool.Code
	// Grace is how long a call may take to return, and its processes to be gone, once its context has ended or the
	// handler is closed; 0 means 10 s.
	Grace time.Duration
	// Ignore names goroutines that may stay; see NoLeaks.
	Ignore []goleak.Option
}

// Run runs every check as a subtest. Beside what its name says, each checks the handler against the contract of
// tool.Handler: exactly one of result and error, well-formed events and none after the return, the call unchanged, no
// goroutine and no process left once the handler is closed.
//
// The leak checks look at the whole test process: do not run it in parallel with other tests.
func Run(t *testing.T, s Subject) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			if s.Without&c.needs != 0 {
				t.Skip("the subject is without what this needs")
			}
			s.verify(t, c)
		})
	}
}

// verify runs one check. It reports to a testing.TB, so that the suite's own tests can watch it fail.
func (s Subject) verify(t testing.TB, c check) {
	t.Helper()
	if s.Grace == 0 {
		s.Grace = 10 * time.Second
	}
	p := &probe{without: s.Without, died: s.Died, grace: s.Grace}
	t.Cleanup(func() { // runs last: a goroutine that emits too late has done it by now, or has leaked
		for _, err := range p.faults() {
			t.Error(err)
		}
	})
	noLeaks(t, s.Grace, s.Ignore)
	if err := p.open(s.New(t)); err != nil {
		t.Error(err)
		return
	}
	if err := c.run(p); err != nil {
		t.Error(err)
	}
}

// Specs returns the specs of the standard tools, sorted by name.
func Specs() []*tool.Spec {
	object := func(properties string) []byte {
		return []byte(`{"type":"object","properties":{` + properties + `}}`)
	}
	specs := []*tool.Spec{
		{Name: "crash", Description: "Dies without an answer.", Input: object("")},
		{Name: "echo", Description: "Returns its arguments.", Input: object(""), Output: object("")},
		{Name: "events", Description: "Logs count events.", Input: object(`"count":{"type":"integer"}`)},
		{Name: "fail", Description: "Fails with a message.", Input: object(`"message":{"type":"string"}`)},
		{Name: "flood", Description: "Logs without end.", Input: object("")},
		{Name: "hang", Description: "Runs until it is ended.", Input: object("")},
		{Name: "spawn", Description: "Starts processes and leaves them running.", Input: object(
			`"children":{"type":"integer"},"sleep":{"type":"string"},"setsid":{"type":"boolean"},"hang":{"type":"boolean"}`)},
	}
	for _, s := range specs {
		s.Source, s.Protocol = "tooltest", "tooltest"
	}
	return specs
}
