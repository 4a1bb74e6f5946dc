package sqlite_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"toolpost/store"
	"toolpost/store/sqlite"
)

// A session that was changed is read as it is now, by whichever connection: none of them stays at an earlier state.
func TestASessionIsReadAsItIsNow(t *testing.T) {
	db, err := sqlite.Open(filepath.Join(t.TempDir(), "s.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := db.Sessions()
	var wg sync.WaitGroup
	for w := range 12 {
		wg.Go(func() {
			name := fmt.Sprint("s", w)
			for n := range 200 {
				if err := s.Patch(t.Context(), "me", name, []map[string]any{{"n": n}}); err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					got, err := s.State(t.Context(), "me", name)
					if want := fmt.Sprintf(`{"n":%d}`, n); err != nil || string(got) != want {
						t.Errorf("%s %v, not %s", got, err, want)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}
