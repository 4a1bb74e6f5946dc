package kills

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/engine/audit"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/internal/served"
	"toolpost/node/storage"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

// A queue of callers calls at one address all the time, each on a connection of its own.
type queue struct {
	url  string
	stop context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex
	done  map[string]string // the calls that were answered as having run -> their tools
	later int               // how often a caller was told to try again
}

const manyCallers = 64

// line starts the callers. A caller that is told to try again does; no other failure is allowed.
func line(t *testing.T, url string) *queue {
	q := &queue{url: url, done: map[string]string{}}
	ctx, stop := context.WithCancel(t.Context())
	q.stop = stop
	for w := range manyCallers {
		q.work.Go(func() {
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
			defer client.CloseIdleConnections()
			for n := 0; ctx.Err() == nil; n++ {
				id := tool.NewID()
				name, args := "writeFile", fmt.Sprintf(`{"path":"f%d","content":"%d"}`, w, n)
				if w%16 == 0 {
					name, args = "mark", fmt.Sprintf(`{"id":%q}`, id)
				}
				if !q.call(t, client, name, args, id) {
					return
				}
			}
		})
	}
	return q
}

// call makes a call until it is taken, and reports whether it ran.
func (q *queue) call(t *testing.T, client *http.Client, name, args, id string) bool {
	for end := time.Now().Add(served.Hang); time.Now().Before(end); {
		req := kit.Must(http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost,
			q.url+"/v1/tools/"+name+"/call", strings.NewReader(args)))(t)
		req.Header.Set("Authorization", "Bearer "+served.Token)
		req.Header.Set("Toolpost-Call", id)
		resp, err := client.Do(req)
		if err != nil {
			t.Errorf("%s got no answer: %v", name, err)
			return false
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		var o served.Outcome
		if err == nil {
			err = strictjson.Unmarshal(body, &o)
		}
		if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "1" {
			q.mu.Lock()
			q.later++
			q.mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err != nil || !o.OK {
			t.Errorf("%s: %d %s, %v", name, resp.StatusCode, body, err)
			return false
		}
		q.mu.Lock()
		q.done[id] = name
		q.mu.Unlock()
		return true
	}
	t.Errorf("%s was never taken", name)
	return false
}

// goOn waits until more calls have run.
func (q *queue) goOn(t *testing.T) {
	t.Helper()
	count := func() int {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.done)
	}
	before := count()
	kit.Eventually(t, "calls run", func() bool { return t.Failed() || count() >= before+2*manyCallers })
}

// end stops the callers, and checks that each call that was answered ran once and is on record once.
func (q *queue) end(t *testing.T, dir string) {
	t.Helper()
	q.stop()
	q.work.Wait()
	db, _, err := storage.Open(kit.Must(config.Load(filepath.Join(dir, "toolpost.yaml")))(t))
	kit.OK(t, err)
	defer db.Close()
	rows := map[string]int{}
	kit.OK(t, db.Audit().Log(t.Context(), audit.Filter{}, false, func(r *tool.Record) error {
		rows[r.Call]++
		return nil
	}))
	marks := marksOf(t, dir)
	for id, name := range q.done {
		if rows[id] != 1 || name == "mark" && marks[id] != 1 {
			t.Errorf("%s %s has %d records, and ran %d times", name, id, rows[id], marks[id])
		}
	}
	t.Logf("%d calls ran; callers were told to try again %d times", len(q.done), q.later)
}

// One server follows another under the load of 64 callers: no connection is refused, no answer is missing, and every
// call has one outcome.
func TestAServerFollowsAnotherAndNoCallIsLost(t *testing.T) {
	tooltest.NoLeaks(t)
	often, bin := rounds.Of(3, 50), served.Build(t)
	t.Run("with --replace", func(t *testing.T) {
		dir := newFolder(t)
		s := served.Start(t, bin, dir)
		q := line(t, s.URL())
		for range often {
			q.goOn(t)
			next := served.Replace(t, s, bin, dir)
			kit.MustEqual(t, next.URL(), s.URL(), "the address of the next server")
			s = next
		}
		q.goOn(t)
		q.end(t, dir)
		s.Stop(t)
	})
	t.Run("on a socket of systemd", func(t *testing.T) {
		dir := newFolder(t)
		socket := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer socket.Close()
		s := served.StartOn(t, socket, bin, dir)
		q := line(t, "http://"+socket.Addr().String())
		for range often {
			q.goOn(t)
			s.Stop(t)
			s = served.StartOn(t, socket, bin, dir)
		}
		q.goOn(t)
		q.end(t, dir)
		s.Stop(t)
	})
}

// A successor that does not come up changes nothing: the server goes on.
func TestASuccessorThatFailsReplacesNothing(t *testing.T) {
	tooltest.NoLeaks(t)
	bin, dir := served.Build(t), newFolder(t)
	s := served.Start(t, bin, dir)
	taken := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	next := exec.CommandContext(t.Context(), bin, "serve", "--replace", "--listen", taken.Addr().String())
	next.Dir, next.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TOOLPOST_TOKEN=" + served.Token}
	out, err := next.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "address already in use") {
		t.Errorf("a server on an address in use: %v, %s", err, out)
	}
	o, err := s.Call(t.Context(), "writeFile", `{"path":"f","content":"x"}`)
	if err != nil || !o.OK {
		t.Errorf("%+v, %v", o, err)
	}
	s.Stop(t)
}
