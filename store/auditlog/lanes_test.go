package auditlog_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"toolpost/engine/audit"
	"toolpost/internal/kit"
	"toolpost/store"
)

func verified(t *testing.T, db *store.DB) *audit.Report {
	return kit.Must(db.Audit().Verify(t.Context()))(t)
}

// Rows are computed in parallel, some hundreds at a time.
func TestChangedRowsOfManyLanesAreFoundInTheirOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var lanes []*store.DB
	for _, key := range []string{"a", "b", "c", "d"} {
		lanes = append(lanes, open(t, path, key))
	}
	for i := range 1200 {
		kit.OK(t, lanes[i%4].Audit().Append(t.Context(), call(), false))
	}
	raw := kit.Must(sql.Open("sqlite", path))(t)
	defer func() { kit.OK(t, raw.Close()) }()
	kit.Must(raw.ExecContext(t.Context(), `UPDATE audit SET session = 'x' WHERE seq IN (512, 513, 514, 1023, 1024, 1025)`))(t)
	r := verified(t, lanes[0])
	var found []int64
	for _, f := range r.Findings {
		kit.Contains(t, f.What, fmt.Sprintf("row %d, its kind or the row before it in lane %d was changed", f.Seq, (f.Seq-1)%4))
		found = append(found, f.Seq)
	}
	kit.EqualSlices(t, found, []int64{512, 513, 514, 1023, 1024, 1025})
	kit.Equal(t, r.Rows, 1200)
	for _, db := range lanes {
		kit.OK(t, db.Close())
	}
}
