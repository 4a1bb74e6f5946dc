package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

func BenchmarkAppend64Callers(b *testing.B) {
	db, err := sqlite.Open(filepath.Join(b.TempDir(), "t.db"), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	log := db.Audit()
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := &tool.Record{
				Time: time.Now(), Call: tool.NewID(), Tool: "readFile", Source: "files", Protocol: "builtin", Door: "http", Caller: "local",
				Shape: []byte(`{"path":"string"}`), Digest: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
				Touches: tool.Touches{Reads: []string{"/srv/files/sample.py"}}, Outcome: tool.OutcomeOK, Duration: 30 * time.Microsecond, In: 20, Out: 300,
			}
			if err := log.Append(b.Context(), r, false); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
