package auditlog

import (
	"testing"

	"toolpost/engine/audit"
	"toolpost/store/database"
	"toolpost/tool"
)

func FuzzPlain(f *testing.F) {
	for _, seed := range []string{"", "a", "a\x00b", "\xff", "äöü", "…", string(make([]byte, 600))} {
		f.Add(seed, 64)
	}
	f.Fuzz(func(t *testing.T, s string, most int) {
		if most < 16 || most > 1<<16 {
			return
		}
		got := database.Plain(s, most)
		if database.Plain(got, most*3) != got {
			t.Errorf("%q became %q, which is not plain", s, got)
		}
		if len(s) <= most && len(got) > 3*len(s) || len(s) > most && len(got) > 3*most {
			t.Errorf("%d bytes became %d", len(s), len(got))
		}
		l := newLayout(audit.Columns())
		text := l.detailOf(&tool.Record{Call: got, Touches: tool.Touches{Reads: []string{got}}})
		var back tool.Record
		if err := l.all.Unmarshal([]byte(text), &back); err != nil || back.Call != got || back.Touches.Reads[0] != got {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func TestBucketsGroupSimilarDurations(t *testing.T) {
	last := int64(-1)
	for took := int64(0); took < 1<<40; took += 1 + took/100 {
		b := bucketOf(took)
		if b < last || edgeOf(b) > took || edgeOf(b+1) <= took {
			t.Fatalf("%d is in bucket %d, which holds %d to %d", took, b, edgeOf(b), edgeOf(b+1))
		}
		if middle := int64(middleOf(b) / 1000); took >= 8 && (middle-took)*8 > took+8 || (took-middle)*8 > took+8 {
			t.Fatalf("%d is told as %d", took, middle)
		}
		last = b
	}
}
