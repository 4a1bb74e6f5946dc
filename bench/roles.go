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

// What another bench starts this one for: to measure as somebody else, to call, or to be measured.
const (
	wordSpawns = "spawns"
	wordWarm   = "warm"
	wordCalls  = "calls"  // and a URL
	wordDoor   = "door"   // and a folder
	wordEcho   = "echo"   // and a folder
	wordAppend = "append" // and a file
	wordBare   = "bare"
	wordLoop   = "loop"
)

// role is what a bench does that another one started: it tells what it measured, or is measured itself.
func role(ctx context.Context, l *lab, words []string) {
	l.dir = os.TempDir()
	switch {
	case words[0] == wordSpawns:
		attempt.Check(json.NewEncoder(os.Stdout).Encode(measureSpawns(ctx, l)))
	case words[0] == wordWarm:
		attempt.Check(json.NewEncoder(os.Stdout).Encode(measureWarm(ctx, l)))
	case words[0] == wordDoor && len(words) == 2:
		attempt.Check(serveDoor(ctx, l, words[1]))
	case words[0] == wordCalls && len(words) == 2:
		attempt.Check(json.NewEncoder(os.Stdout).Encode(attempt.Must(callREST(ctx, words[1]))))
	case words[0] == wordEcho && len(words) == 2:
		attempt.Check(serveEcho(untilTold(ctx, l), l, words[1]))
	case words[0] == wordBare:
		attempt.Check(serveBare(untilTold(ctx, l), bareAnswer))
	case words[0] == wordAppend && len(words) == 2:
		attempt.Check(serveAppending(untilTold(ctx, l), words[1]))
	case words[0] == wordLoop:
		serveLoop()
	default:
		attempt.Check(fmt.Errorf("%q is no part of a bench", words))
	}
}

// untilTold gives a context that ends when the bench that started this one says so.
func untilTold(ctx context.Context, l *lab) context.Context {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	l.atEnd(func() error { stop(); return nil })
	return ctx
}
