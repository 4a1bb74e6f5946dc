package main

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"toolpost/bench/attempt"
	"toolpost/engine/audit"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

// auditTop compares the query for the most used tools with a plain scan of all rows, over a million of them.
func auditTop(ctx context.Context, l *lab) row {
	path := l.filled(ctx, 1_000_000)
	db := openStore(path)
	l.atEnd(db.Close)
	plain := attempt.Must(sql.Open("sqlite", path))
	defer plain.Close()
	m, r := compare(3,
		clock(func() error { _, err := db.Audit().Uses(ctx, audit.Filter{}, audit.ByTool); return err }),
		clock(func() error {
			var groups int
			return plain.QueryRowContext(ctx,
				`SELECT COUNT(*) FROM (SELECT tool, COUNT(*), AVG(took), MAX(took) FROM calls `+
					`GROUP BY tool)`).Scan(&groups)
		}))
	ratio := float64(r) / float64(m)
	return row{
		measured: ms(m), reference: ms(r), ratio: fmt.Sprintf("%.0fx as fast", ratio), target: "< 1 s",
		note: "or at least 5 times as fast as the scan",
		pass: m < time.Second || ratio >= 5,
	}
}

// auditRows compares rows that 64 callers write at once, sharing commits, with those of a single writer.
func auditRows(ctx context.Context, l *lab) row {
	db := attempt.Must(sqlite.Open(filepath.Join(l.dir, "rows.db"), store.Options{}))
	l.atEnd(db.Close)
	const rows = 6400
	m, r := compare(7,
		clock(func() error { return fill(ctx, db.Audit(), 64, rows) }),
		clock(func() error { return fill(ctx, db.Audit(), 1, rows) }))
	return ofTheRate(rows, m, r, 2)
}

// fill makes a log of calls over thirty days, with the given number of writers at once.
func fill(ctx context.Context, log *store.AuditTable, writers, rows int) error {
	start := time.Now().AddDate(0, 0, -30)
	var g errgroup.Group
	for w := range writers {
		g.Go(func() error {
			for i := w; i < rows; i += writers {
				r := &tool.Record{
					Time: start.Add(time.Duration(i) * (30 * 24 * time.Hour / time.Duration(rows))), Call: tool.NewID(),
					Tool: fmt.Sprintf("tool%d", i%20), Source: "files", Protocol: "builtin", Door: "http",
					Caller: fmt.Sprintf("caller%d", i%7), Outcome: tool.Outcomes()[i%50%3],
					Touches:  tool.Touches{Reads: []string{fmt.Sprintf("/srv/files/%d.txt", i%1000)}},
					Duration: time.Duration(i%997) * time.Millisecond / 10, In: 20, Out: 300,
				}
				if err := log.Append(ctx, r, false); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}
