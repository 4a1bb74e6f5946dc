package web

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// A deaf connection has a peer that takes nothing: writes block until it is closed, whatever their deadline.
type deaf struct {
	net.Conn
	closed chan struct{}
}

func (d *deaf) Write([]byte) (int, error) { <-d.closed; return 0, net.ErrClosed }

// The server admits one connection after the other, so admitting must wait neither for a refusal of another, nor for a
// look at all others.
func TestAdmittingAConnectionWaitsForNoOther(t *testing.T) {
	c := newCrowd(identity.Bounds{All: 1, Strangers: 1, Each: 1}, func(*tool.Error) []byte { return nil })
	closed := make(chan struct{})
	admitted := make(chan struct{})
	go func() {
		for range 3 {
			conn, _ := net.Pipe()
			c.admit(context.Background(), &deaf{conn, closed})
		}
		close(admitted)
	}()
	select {
	case <-admitted:
	case <-time.After(time.Minute):
		t.Error("a connection waits for the word to another that is sent away")
	}
	close(closed)
	c.sending.Wait()
}

// The cost of a connection does not depend on how many wait. With a look at each of them it would be 64 times as much.
func TestAdmittingAConnectionCostsTheSameAmongMany(t *testing.T) {
	cost := func(waiting int) time.Duration {
		c := newCrowd(identity.Bounds{All: waiting, Strangers: waiting, Each: 1}, nil)
		member := func() *member { conn, _ := net.Pipe(); return &member{conn: conn} }
		for range waiting {
			c.enter(member())
		}
		best := time.Duration(1<<63 - 1)
		for range 5 {
			began := time.Now()
			for range 500 {
				if c.enter(member()) == nil {
					t.Fatal("the crowd was not full")
				}
			}
			best = min(best, time.Since(began))
		}
		return best
	}
	if few, many := cost(256), cost(16384); many > 16*few {
		t.Errorf("500 connections among 256 took %v, among 16,384 %v", few, many)
	}
}

// The one that leaves is the stranger that has waited longest, then a caller between two requests, and never one with a
// request.
func TestFullCrowdDropsTheLongestWaitingStranger(t *testing.T) {
	c := newCrowd(identity.Bounds{All: 4, Strangers: 4, Each: 4}, nil)
	enter := func() (*member, *member) {
		conn, _ := net.Pipe()
		m := &member{conn: conn}
		return m, c.enter(m)
	}
	known, _ := enter()
	busy, _ := enter()
	first, _ := enter()
	second, _ := enter()
	for _, m := range []*member{known, busy} {
		c.watch(m.conn, http.StateActive)
		kit.OK(t, c.belongs(context.WithValue(t.Context(), memberKey{}, m), tool.Principal{ID: "ada"}))
	}
	c.watch(known.conn, http.StateIdle)
	c.watch(first.conn, http.StateActive)
	c.watch(first.conn, http.StateIdle) // now it has waited less than the second
	for i, want := range []*member{second, first} {
		m, away := enter()
		if c.watch(m.conn, http.StateActive); away != want {
			t.Errorf("connection %d: another one leaves", i)
		}
	}
	if m, away := enter(); away != known {
		t.Error("the caller between two requests stays")
	} else if c.watch(m.conn, http.StateActive); c.longest() != nil {
		t.Error("one with a request waits")
	}
	if m, away := enter(); away != m {
		t.Error("a full crowd takes one more")
	}
}
