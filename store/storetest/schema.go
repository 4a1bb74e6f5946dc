package storetest

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"toolpost/engine/audit"
	"toolpost/engine/session"
	"toolpost/store"
	"toolpost/tool"
)

// version5 is a store as a program of its fifth version left it: part of its log had been cut off, and a call was
// running when the program ended.
//
//go:embed testdata/v5.sql
var version5 string

const headOfVersion5 = "24:517891d649bbfe6dce01f63035aed77fc0b8343aa1bf79952c60d2ca54deb7a1"

func (k Kind) version5(t *testing.T) (address string) {
	t.Helper()
	address = k.New(t)
	dump := version5
	if k.Dump != nil {
		dump = k.Dump(dump)
	}
	if _, err := k.Raw(t, address).ExecContext(t.Context(), dump); err != nil {
		t.Fatal(err)
	}
	return address
}

func earlierLog(t *testing.T, k Kind) {
	db := k.open(t, k.version5(t))
	head := must[audit.Point](t)(audit.ParsePoint(headOfVersion5))
	if r := sound(t, db, head); r.Rows != 16 || r.Cut.Seq != 8 || r.Head != head || !r.Signed {
		t.Errorf("%+v", r)
	}
	records := logOf(t, db, audit.Filter{Outcome: tool.OutcomeFailed})
	if len(records) != 1 {
		t.Fatalf("%d records", len(records))
	}
	r := records[0]
	got := fmt.Sprintln(r.Seq, r.Asked, string(r.Args), len(r.Touches.Reads), r.Omitted, r.Lease, r.Key, r.Replay,
		r.Cached, r.DryRun, r.Walls,
		r.Code, r.Reason, r.Lost, r.Duration, r.Time.Format("15:04:05.000000"), strings.Count(r.Digest, "ab"))
	if want := `21 file.read {"path":"it's \\ \"a\"\n"} 32 12 l1 k1 true true true no_network tool_error ValueError 5 579.182ms 13:02:03.000004 32` + "\n"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	k.until(t, func() bool { return must[int](t)(db.Audit().Recover(t.Context())) > 0 })
	lost := logOf(t, db, audit.Filter{Outcome: tool.OutcomeLost})
	if len(lost) != 1 || lost[0].Call != "open" || lost[0].Caller != "ada" || !lost[0].DryRun ||
		len(lost[0].Touches.Writes) != 1 {
		t.Errorf("the call that was running: %+v", lost)
	}
	add(t, db, full(), full())
	if r := sound(t, db, head); r.Rows != 19 {
		t.Errorf("%+v", r)
	}
	if got := must[session.State](t)(db.Sessions().Get(t.Context(), "ada",
		"s")); string(got.State) != `{"a":{"b":1,"c":"x"}}` || got.Version != 2 {
		t.Errorf("%+v", got)
	}
}

// later are the columns of a log that has grown twice. What they say is told by other columns, too, so that a record
// has room for it.
func later() audit.Table {
	return append(audit.Columns(),
		audit.Column{
			Name: "region", Part: audit.Shared, Since: 6, Value: func(r *tool.Record) any { return &r.Reason },
		},
		audit.Column{Name: "cost", Part: audit.Row, Since: 6, Value: func(r *tool.Record) any { return &r.Lost }},
		audit.Column{
			Name: "zone", Stored: "place", Part: audit.Row, Since: 7, Value: func(r *tool.Record) any { return &r.Run },
		},
		audit.Column{Name: "hint", Since: 8, Value: func(r *tool.Record) any { return &r.Asked }})
}

func moreColumns(t *testing.T, k Kind) {
	for name, address := range map[string]string{"grown": k.version5(t), "new": k.New(t)} {
		o := options()
		o.Columns = later()
		db := must[*store.DB](t)(k.Open(address, o))
		defer db.Close()
		var points []audit.Point
		if name == "grown" {
			points = append(points, must[audit.Point](t)(audit.ParsePoint(headOfVersion5)))
		}
		sound(t, db, points...)
		bare := full()
		bare.Reason, bare.Lost, bare.Run, bare.Asked = "", 0, "", ""
		add(t, db, full(), bare)
		sound(t, db, points...)
		raw := k.Raw(t, address)
		for _, change := range []string{
			`UPDATE audit_kind SET region = 'x' WHERE region = ''`,
			`UPDATE audit_kind SET region = '' WHERE region <> ''`,
			`UPDATE audit SET cost = cost + 1 WHERE cost = 0`, `UPDATE audit SET cost = 0 WHERE cost <> 0`,
			`UPDATE audit SET place = 'x' WHERE place = ''`, `UPDATE audit SET place = '' WHERE place <> ''`,
			`UPDATE audit SET detail = REPLACE(detail, 'hint', 'hind')`,
		} {
			tables := []*table{readTable(t, raw, "audit"), readTable(t, raw, "audit_kind")}
			if _, err := raw.ExecContext(t.Context(), change); err != nil {
				t.Fatal(err)
			}
			if r := must[*audit.Report](t)(db.Audit().Verify(t.Context())); len(r.Findings) == 0 {
				t.Errorf("%s: not found: %s", name, change)
			}
			for _, tab := range tables {
				if err := tab.write(t, raw, tab.rows); err != nil {
					t.Fatal(err)
				}
			}
		}
		sound(t, db, points...)
		var told string
		if err := raw.QueryRowContext(t.Context(),
			`SELECT region || cost || place FROM calls WHERE cost <> 0`).Scan(&told); err != nil ||
			told != "ValueError5r1" {
			t.Errorf("%s: the view says %q, %v", name, told, err)
		}
		if _, err := k.open(t, address).Audit().Verify(t.Context()); tool.AsError(err) == nil ||
			tool.AsError(err).Reason != "store_newer" {
			t.Errorf("%s: a program that knows no such columns: %v", name, err)
		}
	}
}

// A program must not work on tables that it does not know, nor say that they are damaged.
func laterStore(t *testing.T, k Kind) {
	address := k.New(t)
	add(t, k.open(t, address), full())
	raw := k.Raw(t, address)
	if _, err := raw.ExecContext(t.Context(), `INSERT INTO toolpost_schema (version) VALUES (1000)`); err != nil {
		t.Fatal(err)
	}
	db := k.open(t, address)
	_, unread := db.Sessions().Get(t.Context(), "ada", "s")
	_, unverified := db.Audit().Verify(t.Context())
	for what, err := range map[string]error{
		"read": unread, "verify": unverified, "write": db.Audit().Append(t.Context(), full(), false),
		"note": db.Audit().Begin(t.Context(), full()),
	} {
		if e := tool.AsError(err); e == nil || e.Code != tool.CodeUnavailable || e.Reason != "store_newer" ||
			!strings.Contains(e.Message, "version 1000") || !strings.Contains(e.Message, "update this program") {
			t.Errorf("%s: %v", what, err)
		}
	}
	var versions int
	if err := raw.QueryRowContext(t.Context(),
		`SELECT COUNT(*) FROM toolpost_schema WHERE version > 1000`).Scan(&versions); err != nil || versions > 0 {
		t.Errorf("%d steps were taken, %v", versions, err)
	}
}
