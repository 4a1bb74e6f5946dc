package narratoria_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/protocol/narratoria"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// memoryBound is how far a call may grow this process.
const memoryBound = 64 << 20

// bounded watches the memory of this process until the test ends: the heap, and the memory that the kernel gives us.
func bounded(t *testing.T) {
	t.Helper()
	runtime.GC()
	heap, resident := memory(t)
	stop := make(chan struct{})
	var watching sync.WaitGroup
	var mostHeap, mostResident int64
	watching.Go(func() {
		for {
			h, r := memory(t)
			mostHeap, mostResident = max(mostHeap, h), max(mostResident, r)
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		watching.Wait()
		if grown := mostHeap - heap; grown > memoryBound {
			t.Errorf("the heap grew by %d MiB", grown>>20)
		}
		if grown := mostResident - resident; grown > memoryBound && !raceEnabled { // the race detector's shadow is not ours
			t.Errorf("resident memory grew by %d MiB", grown>>20)
		}
	})
}

func memory(t *testing.T) (heap, resident int64) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Error(err)
		return 0, 0
	}
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	kit.Check(t, err)
	return int64(m.HeapAlloc), pages * int64(os.Getpagesize())
}

// hostile runs one of the hostile tools and watches its effects on us.
func hostile(t *testing.T, o narratoria.Options, word, args string, timeout time.Duration) outcome {
	t.Helper()
	tooltest.NoLeaks(t)
	bounded(t)
	o.Tool, o.Command = "torch", python("hostile.py", word).Command
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var events int
	var last tool.Event
	start := time.Now()
	r, err := newRunner(t, o).Invoke(ctx, &tool.Call{ID: "r", Tool: "torch", Args: json.RawMessage(args)}, tool.SinkFunc(func(e tool.Event) error {
		events, last = events+1, e
		return nil
	}))
	if took := time.Since(start); took > timeout+time.Minute || timeout == hangGuard && ctx.Err() != nil {
		t.Errorf("took %v with a timeout of %v", took, timeout)
	}
	if events == 0 {
		return outcome{r, err, nil}
	}
	return outcome{r, err, []tool.Event{last}}
}

func TestHostileFloodOfValidEvents(t *testing.T) {
	o, limit := narratoria.Options{}, 256<<20
	if raceEnabled { // slow, and a smaller flood is enough
		o.MaxOutput, limit = 64<<20, 64<<20
	}
	wantError(t, hostile(t, o, "flood_events", `{}`, hangGuard), tool.CodeProtocol, "output", strconv.Itoa(limit))
}

func TestHostileFloodOfGarbage(t *testing.T) {
	wantError(t, hostile(t, narratoria.Options{}, "flood_garbage", `{}`, hangGuard), tool.CodeProtocol, "line 1")
}

func TestHostileFloodOfGarbageToALenientReader(t *testing.T) {
	wantError(t, hostile(t, narratoria.Options{Lenient: true, MaxOutput: 8 << 20}, "flood_garbage", `{}`, hangGuard), tool.CodeProtocol)
}

func TestHostileMillionEmptyLines(t *testing.T) {
	for _, lenient := range []bool{false, true} {
		wantError(t, hostile(t, narratoria.Options{Lenient: lenient}, "million_lines", `{}`, hangGuard), tool.CodeProtocol, "without a done event")
	}
	wantError(t, hostile(t, narratoria.Options{MaxOutput: 1 << 16}, "million_lines", `{}`, hangGuard), tool.CodeProtocol, "65536")
}

func TestHostileLineWithoutEnd(t *testing.T) {
	wantError(t, hostile(t, narratoria.Options{}, "endless_line", `{}`, hangGuard), tool.CodeProtocol, "line 1", strconv.Itoa(4<<20))
}

func TestHostileInvalidUTF8(t *testing.T) {
	patient := narratoria.Options{Grace: config.Duration(time.Hour)} // it is killed for its fault, not ended for staying
	wantError(t, hostile(t, patient, "invalid_utf8", `{}`, hangGuard), tool.CodeProtocol, "line 1", "UTF-8")
}

func TestHostileForkBomb(t *testing.T) {
	wantError(t, hostile(t, narratoria.Options{}, "fork_bomb", `{}`, 3*time.Second), tool.CodeTimeout, "torch was ended")
}

func TestHostileForkBombThatSaysDone(t *testing.T) {
	wantOK(t, hostile(t, narratoria.Options{}, "fork_bomb_then_done", `{}`, hangGuard))
}

func TestHostileIgnoresSIGTERM(t *testing.T) {
	wantError(t, hostile(t, narratoria.Options{}, "ignores_sigterm", `{}`, time.Second), tool.CodeTimeout)
}

func TestHostileNeverReadsStdin(t *testing.T) {
	args := `{"big":"` + strings.Repeat("x", 1<<20) + `"}`
	wantOK(t, hostile(t, narratoria.Options{}, "never_reads_stdin", args, hangGuard))
	wantError(t, hostile(t, narratoria.Options{}, "never_reads_stdin_and_stays", args, time.Second), tool.CodeTimeout)
}

func TestHostileClosesStdoutAndGoesOn(t *testing.T) {
	o := narratoria.Options{Grace: config.Duration(100 * time.Millisecond)}
	wantError(t, hostile(t, o, "closes_stdout", `{}`, hangGuard), tool.CodeProtocol, "closed its output without a done event")
}

func TestHostileWritesAfterDone(t *testing.T) {
	got := hostile(t, narratoria.Options{}, "writes_after_done", `{}`, hangGuard)
	wantOK(t, got)
	if n := got.result.Trace.Details["events_after_done"]; n != 5 || len(got.events) != 0 {
		t.Errorf("events_after_done is %v; events: %v", n, got.events)
	}
}

func TestHostileFloodsAfterDone(t *testing.T) {
	got := hostile(t, narratoria.Options{MaxOutput: 32 << 20}, "floods_after_done", `{}`, hangGuard)
	wantOK(t, got)
	if got.result.Trace.Details["killed_after_done"] != true {
		t.Errorf("trace: %v", got.result.Trace.Details)
	}
}

func TestHostileStaysAfterDone(t *testing.T) {
	got := hostile(t, narratoria.Options{Grace: config.Duration(100 * time.Millisecond)}, "stays_after_done", `{}`, hangGuard)
	wantOK(t, got)
	if got.result.Trace.Details["killed_after_done"] != true {
		t.Errorf("trace: %v", got.result.Trace.Details)
	}
}

func TestHostileCrashesInTheMiddleOfALine(t *testing.T) {
	wantError(t, hostile(t, narratoria.Options{}, "crashes_mid_line", `{}`, hangGuard), tool.CodeProtocol,
		"middle of line 1", "SIGABRT", "about to fall over")
}

func TestHostileFloodsStderr(t *testing.T) {
	wantOK(t, hostile(t, narratoria.Options{}, "floods_stderr", `{}`, hangGuard))
}

// A tool can hand its standard output to a process that we cannot end. That must not keep the call open.
func TestHostileGivesItsStdoutAway(t *testing.T) {
	tooltest.NoLeaks(t)
	path := filepath.Join(t.TempDir(), "socket")
	l := kit.Must(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	defer l.Close()
	var holder sync.WaitGroup
	hold := make(chan struct{})
	holder.Go(func() {
		conn, err := l.AcceptUnix()
		if err != nil {
			t.Error("the tool did not come: ", err)
			return
		}
		defer conn.Close() // until then the sent descriptor stays open in the socket
		<-hold
	})
	o := python("hostile.py", "gives_stdout_away", path)
	o.Walls, o.Grace = walls.Options{Unix: true, Read: []string{filepath.Dir(path)}}, config.Duration(200*time.Millisecond)
	got := invoke(t, o, `{}`)
	l.Close() // even if the tool never connected
	close(hold)
	holder.Wait()
	wantOK(t, got)
}

// A slow reader loses nothing that a tool wrote before it exited.
func TestSlowSinkGetsEveryEventOfAnExitedTool(t *testing.T) {
	tooltest.NoLeaks(t)
	grace := 500 * time.Millisecond
	r := newRunner(t, narratoria.Options{Tool: "events", Command: python("standard.py").Command, Grace: config.Duration(grace)})
	var got int
	_, err := r.Invoke(t.Context(), &tool.Call{Tool: "events", Args: json.RawMessage(`{"count":800}`)}, tool.SinkFunc(func(tool.Event) error {
		if got++; got == 1 {
			time.Sleep(grace + grace/2) // longer than the wait for a dead tool's output
		}
		return nil
	}))
	if err != nil || got != 800 {
		t.Errorf("got %d events, %v", got, err)
	}
}
