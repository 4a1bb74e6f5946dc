package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"toolpost/bench/attempt"
)

// The roles in which another bench starts this one: to measure as another user, to call, or to be measured.
const (
	wordSpawns  = "spawns"
	wordWarm    = "warm"
	wordCalls   = "calls"  // and a URL
	wordDoor    = "door"   // and a folder
	wordEcho    = "echo"   // and a folder
	wordAppend  = "append" // and a file
	wordBare    = "bare"
	wordBareMCP = "mcp"
	wordSDK     = "sdk"
	wordMCPGo   = "mcp-go"
	wordPipe    = "pipe"
	wordProxy   = "proxy"
	wordLoop    = "loop"
	wordWorker  = "worker"  // and a name, and a line to join
	wordRespond = "respond" // and a URL
	wordKeys    = "keys"    // and an address
)

// role plays the role for which another bench started this one: it prints its measurement, or is measured itself.
func role(ctx context.Context, l *lab, words []string) {
	l.dir = os.TempDir()
	tell := func(v any) { attempt.Check(json.NewEncoder(os.Stdout).Encode(v)) }
	where := words[len(words)-1]
	switch words[0] {
	case wordSpawns:
		tell(measureSpawns(ctx, l))
	case wordWarm:
		tell(measureWarm(ctx, l))
	case wordKeys:
		tell(measureKeys(ctx, l, where))
	case wordCalls:
		tell(attempt.Must(callREST(ctx, l, where)))
	case wordDoor:
		attempt.Check(serveDoor(ctx, l, where))
	case wordEcho:
		attempt.Check(serveEcho(untilTold(ctx, l), l, where))
	case wordAppend:
		attempt.Check(serveAppending(untilTold(ctx, l), where))
	case wordBare:
		attempt.Check(serveBare(untilTold(ctx, l), bareAnswer))
	case wordBareMCP:
		attempt.Check(serveBare(untilTold(ctx, l), bareMCP))
	case wordSDK:
		attempt.Check(serveSDK(untilTold(ctx, l)))
	case wordMCPGo:
		attempt.Check(serveMCPGo(untilTold(ctx, l)))
	case wordPipe:
		servePipe()
	case wordProxy:
		attempt.Check(serveProxy(untilTold(ctx, l)))
	case wordWorker:
		attempt.Check(serveWorker(untilTold(ctx, l), l, words[1], where))
	case wordRespond:
		attempt.Check(serveResponder(untilTold(ctx, l), where))
	case wordLoop:
		serveLoop()
	default:
		attempt.Check(fmt.Errorf("%q is no part of a bench", words))
	}
}

// untilTold returns a context that ends when the bench that started this one sends a signal.
func untilTold(ctx context.Context, l *lab) context.Context {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	l.atEnd(func() error { stop(); return nil })
	return ctx
}
