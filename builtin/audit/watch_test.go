package audit_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"toolpost/builtin/audit"
	record "toolpost/engine/audit"
	"toolpost/engine/follow"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

// rows collects the calls of the records received.
type rows chan string

func (r rows) Emit(ev tool.Event) error {
	var log tool.Log
	var rec tool.Record
	if err := errors.Join(strictjson.Unmarshal(ev.Data, &log), record.Columns().Unmarshal(log.Fields, &rec)); err != nil {
		return err
	}
	r <- rec.Call
	return nil
}

func TestTheLogIsFollowedAcrossPrograms(t *testing.T) {
	tooltest.NoLeaks(t)
	file := filepath.Join(t.TempDir(), "store.db")
	var dbs []*store.DB
	for range 2 {
		db, err := sqlite.Open(file, store.Options{Key: func() ([]byte, error) { return make([]byte, 32), nil }})
		kit.OK(t, err)
		defer db.Close()
		dbs = append(dbs, db)
	}
	n := 0
	add := func(db *store.DB, caller string, outcome tool.Outcome) string {
		t.Helper()
		n++
		r := &tool.Record{Time: time.Now(), Call: fmt.Sprint(n), Tool: "read", Caller: caller, Door: "http", Run: "r1", Outcome: outcome}
		kit.OK(t, db.Audit().Append(t.Context(), r, false))
		return r.Call
	}
	var want []string
	for range 3 {
		want = append(want, add(dbs[0], "ada", tool.OutcomeOK))
		add(dbs[0], "bob", tool.OutcomeOK)
	}
	want = want[1:] // the call asks for two
	followers := follow.New()
	tools := audit.New(dbs[0].Audit(), dbs[0].Audit(), followers)
	received, done := make(rows), make(chan audit.Watched)
	args := `{"caller":"ada","outcome":"ok","run":"r1","limit":2}`
	watch := func(args string) {
		r, err := tools.Invoke(t.Context(), &tool.Call{Tool: "audit.watch", Args: []byte(args), Caller: local}, received)
		var w audit.Watched
		if err = errors.Join(err, strictjson.Unmarshal(r.Output, &w)); err != nil {
			t.Error(err)
		}
		done <- w
	}
	go watch(args)
	var got []string
	for i := range 8 {
		if len(got) == 0 {
			got = append(got, <-received, <-received)
		}
		add(dbs[i%2], "bob", tool.OutcomeOK)
		add(dbs[i%2], "ada", tool.OutcomeRefused)
		want = append(want, add(dbs[i%2], "ada", tool.OutcomeOK))
		got = append(got, <-received)
	}
	followers.Close()
	w := <-done
	if !slices.Equal(got, want) || w.Next != int64(n) {
		t.Errorf("%v, want %v; %+v of %d", got, want, w, n)
	}
	// A later call that continues misses nothing in between.
	followers = follow.New()
	tools = audit.New(dbs[0].Audit(), dbs[0].Audit(), followers)
	between := add(dbs[1], "eve", tool.OutcomeOK)
	go watch(fmt.Sprintf(`{"after":%d}`, w.Next))
	kit.Equal(t, <-received, between)
	followers.Close()
	<-done
}

func TestOnlyOperatorsFollowAndOnlySoMany(t *testing.T) {
	s := tools(t, 1, 1)
	call := tool.Call{Tool: "audit.watch", Caller: tool.Principal{ID: "ada"}}
	kit.Refused(t, kit.Err(s.Invoke(t.Context(), &call, tool.Discard)), tool.CodeAccessDenied, "")
	call.Caller, call.Args = local, []byte(`{"limit":1}`)
	began, hold := make(chan struct{}), make(chan struct{})
	wait := tool.SinkFunc(func(tool.Event) error { began <- struct{}{}; <-hold; return errors.New("over") })
	for range follow.MostOfCaller {
		go func() { _, _ = s.Invoke(t.Context(), &call, wait); began <- struct{}{} }()
		<-began
	}
	kit.Refused(t, kit.Err(s.Invoke(t.Context(), &call, tool.Discard)), tool.CodeQuotaExceeded, "")
	close(hold)
	for range follow.MostOfCaller {
		<-began
	}
}

func TestVerifyReportsProgress(t *testing.T) {
	s := tools(t, 1100, 0)
	var told []tool.Progress
	out := tool.SinkFunc(func(ev tool.Event) error {
		var p tool.Progress
		err := strictjson.Unmarshal(ev.Data, &p)
		told = append(told, p)
		return err
	})
	call := &tool.Call{Tool: "audit.verify", Caller: local}
	if _, err := s.Invoke(t.Context(), call, out); err != nil || len(told) != 1 || told[0].Progress != 1000 || told[0].Total != 1100 {
		t.Errorf("%+v, %v", told, err)
	}
	page := ask[audit.Page](t, s, "audit.log", audit.LogArgs{Oldest: true})
	if page.Head != 1100 || page.Next != 1000 {
		t.Errorf("head %d, next %d", page.Head, page.Next)
	}
}
