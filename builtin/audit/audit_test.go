package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/builtin/audit"
	"toolpost/builtin/define"
	record "toolpost/engine/audit"
	"toolpost/engine/follow"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

var local = tool.Principal{ID: "local", Door: "cli", Operates: true}

// tools returns the tools over a log with this many calls, each with a text of this length.
func tools(t *testing.T, calls, long int) *define.Set {
	t.Helper()
	log := table(t, calls, long)
	return audit.New(log, log, follow.New())
}

func table(t *testing.T, calls, long int) *store.AuditTable {
	t.Helper()
	db, err := sqlite.Open(filepath.Join(t.TempDir(), "store.db"), store.Options{Key: func() ([]byte, error) { return make([]byte, 32), nil }})
	kit.OK(t, err)
	t.Cleanup(func() {
		kit.Check(t, db.Close())
	})
	fill(t, db.Audit(), calls, long)
	return db.Audit()
}

func fill(t *testing.T, log *store.AuditTable, calls, long int) {
	t.Helper()
	for i := range calls {
		r := &tool.Record{
			Time: time.Now(), Call: fmt.Sprint(i), Tool: "read", Caller: "ada", Door: "http", Outcome: tool.OutcomeOK,
			Args: json.RawMessage(`"` + strings.Repeat("x", long) + `"`), Touches: tool.Touches{Reads: []string{"/a"}},
		}
		if i%5 == 0 {
			r.Outcome, r.Code = tool.OutcomeError, tool.CodeTimeout
		}
		kit.OK(t, log.Append(t.Context(), r, false))
	}
}

func ask[T any](t *testing.T, s *define.Set, name string, args any) (out T) {
	t.Helper()
	raw := kit.Must(json.Marshal(args))(t)
	r := kit.Must(s.Invoke(t.Context(), &tool.Call{Tool: name, Args: raw, Caller: local}, tool.Discard))(t)
	kit.OK(t, json.Unmarshal(r.Output, &out))
	return out
}

// pages reads a whole log, and returns the numbers of its rows and the number of its pages.
func pages(t *testing.T, s *define.Set, a audit.LogArgs) (rows []int64, n int) {
	t.Helper()
	for {
		p := ask[audit.Page](t, s, "audit.log", a)
		n++
		for _, doc := range p.Calls {
			var r struct {
				Seq int64 `json:"seq"`
			}
			kit.OK(t, json.Unmarshal(doc, &r))
			rows = append(rows, r.Seq)
		}
		if a.After = p.Next; p.Next == 0 {
			return rows, n
		}
	}
}

func TestTheLogComesInPagesWithoutGapsEitherWay(t *testing.T) {
	s := tools(t, 7, 0)
	for name, c := range map[string]struct {
		args  audit.LogArgs
		limit int
		want  string
		pages int
	}{
		"newest first": {audit.LogArgs{}, 3, "[7 6 5 4 3 2 1]", 3},
		"oldest first": {audit.LogArgs{Oldest: true}, 3, "[1 2 3 4 5 6 7]", 3},
		"to the row":   {audit.LogArgs{Oldest: true}, 7, "[1 2 3 4 5 6 7]", 1},
		"no limit":     {audit.LogArgs{}, 0, "[7 6 5 4 3 2 1]", 1},
	} {
		c.args.Limit = c.limit
		if rows, n := pages(t, s, c.args); fmt.Sprint(rows) != c.want || n != c.pages {
			t.Errorf("%s: %v in %d pages", name, rows, n)
		}
	}
}

// A busy log gets another row as soon as its head is read.
type busy struct {
	*store.AuditTable
	add func()
}

func (b busy) Head(ctx context.Context) (int64, error) {
	defer b.add()
	return b.AuditTable.Head(ctx)
}

// A client that reads a page and then follows the log after its head sees each row once, even one that was added meanwhile.
func TestHeadOfAPageIsItsLastRow(t *testing.T) {
	log := table(t, 3, 0)
	s := audit.New(busy{log, func() { fill(t, log, 1, 0) }}, log, follow.New())
	for _, oldest := range []bool{false, true} {
		p := ask[audit.Page](t, s, "audit.log", audit.LogArgs{Oldest: oldest})
		kit.Equal(t, p.Head, int64(len(p.Calls)), "the last row")
	}
}

func TestAPageOfLongRowsIsShort(t *testing.T) {
	if rows, n := pages(t, tools(t, 5, 600<<10), audit.LogArgs{}); len(rows) != 5 || n != 3 {
		t.Errorf("%d rows in %d pages", len(rows), n)
	}
}

func TestAuditToolsAnswer(t *testing.T) {
	s := tools(t, 10, 0)
	top := ask[audit.Top](t, s, "audit.top", map[string]any{"by": "caller"})
	if len(top.Uses) != 1 || top.Uses[0].Name != "ada" || top.Uses[0].Calls != 10 || len(top.Days) == 0 || top.By != "caller" {
		t.Errorf("%+v", top)
	}
	if top := ask[audit.Top](t, s, "audit.top", map[string]any{"tool": "nosuch"}); top.Days == nil || top.Uses == nil || top.By != "tool" {
		t.Errorf("of nothing: %+v", top)
	}
	if p := ask[audit.Paths](t, s, "audit.paths", struct{}{}).Paths; len(p) != 1 || p[0].Reads != 10 {
		t.Errorf("%+v", p)
	}
	if f := ask[audit.Failures](t, s, "audit.errors", struct{}{}).Errors; len(f) != 1 || f[0].Calls != 2 || f[0].Code != tool.CodeTimeout {
		t.Errorf("%+v", f)
	}
	if l := ask[audit.Latencies](t, s, "audit.latency", map[string]any{"until": "2000-01-01T00:00:00Z"}).Tools; len(l) != 0 {
		t.Errorf("long ago: %+v", l)
	}
	r := ask[record.Report](t, s, "audit.verify", struct{}{})
	if r.Rows != 10 || len(r.Findings) != 0 {
		t.Errorf("%+v", r)
	}
	r.Head.Hash = strings.Repeat("0", 64)
	if r := ask[record.Report](t, s, "audit.verify", audit.VerifyArgs{Expect: []string{r.Head.String()}}); len(r.Findings) == 0 {
		t.Errorf("another head: %+v", r)
	}
}

// The log covers every caller: a caller that is not an operator learns nothing from it.
func TestOnlyOperatorsReadTheAuditLog(t *testing.T) {
	s := tools(t, 1, 0)
	specs, err := s.Tools(t.Context())
	if err != nil || len(specs) != 8 {
		t.Fatal(specs, err)
	}
	for _, spec := range specs {
		for _, who := range []tool.Principal{{ID: "ada", Door: "http"}, {ID: "local", Door: "http"}, {ID: "owner", Door: "nats", Rights: &tool.Rights{}}} {
			if _, err := s.Invoke(t.Context(), &tool.Call{Tool: spec.Name, Caller: who}, tool.Discard); tool.CodeOf(err) != tool.CodeAccessDenied {
				t.Errorf("%s of %s: %v", spec.Name, who.ID, err)
			}
		}
	}
	for _, args := range []string{`{"expect":["6:abc"]}`, `{"expect":7}`, `{"tool":"x"}`} {
		kit.Refused(t, kit.Err(s.Invoke(t.Context(), &tool.Call{Tool: "audit.verify", Args: json.RawMessage(args), Caller: local}, tool.Discard)), tool.CodeInvalidInput, "", args)
	}
}

func TestSeriesCountsLoggedOutcomes(t *testing.T) {
	s := tools(t, 20, 10)
	since := time.Now().Add(-time.Hour)
	got := ask[record.Series](t, s, "audit.series", audit.SeriesArgs{Filter: record.Filter{Since: since}, Buckets: 60})
	if got.Totals.OK != 16 || got.Totals.Error != 4 || len(got.Buckets) > 60 || got.From.After(since) || got.Step != 120_000 {
		t.Errorf("%+v", got)
	}
	got = ask[record.Series](t, s, "audit.series", map[string]any{"outcome": "error", "code": "timeout"})
	if got.Totals.Calls() != 4 || len(got.Buckets) > 120 {
		t.Errorf("%+v", got)
	}
	for _, args := range []string{
		`{"buckets":501}`, `{"buckets":-1}`, `{"limit":5}`, `{"since":"2026-01-02T00:00:00Z","until":"2026-01-01T00:00:00Z"}`,
		`{"since":"1801-01-01T00:00:00Z"}`,
	} {
		_, err := s.Invoke(t.Context(), &tool.Call{Tool: "audit.series", Args: json.RawMessage(args), Caller: local}, tool.Discard)
		kit.Refused(t, err, tool.CodeInvalidInput, "", args)
	}
	kit.Refused(t, kit.Err(s.Invoke(t.Context(), &tool.Call{Tool: "audit.series", Caller: tool.Principal{ID: "ada"}}, tool.Discard)), tool.CodeAccessDenied, "")
}
