package auditlog

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"toolpost/store/database"
	"toolpost/tool"
)

// sums are what some rows add to the sums of their days.
type sums struct {
	days  map[sumKey]daySum
	tooks map[sumKey]int64
	paths map[sumKey]int64
}

// A sumKey identifies the calls of a kind on a day, or some of them.
type sumKey struct {
	day, kind  int64
	bucket     int64  // of tooks: the bucket of their duration
	mode, path string // of paths: what they did to which
}

type daySum struct{ n, took, longest, in, out, first, last int64 }

// The ways in which a call accesses a path.
const (
	modeRead  = "read"
	modeWrite = "write"
)

func newSums() *sums {
	return &sums{days: map[sumKey]daySum{}, tooks: map[sumKey]int64{}, paths: map[sumKey]int64{}}
}

func (s *sums) add(kind int64, r *tool.Record) {
	day, took := dayOf(database.Micros(r.Time)), r.Duration.Microseconds()
	key := sumKey{day: day, kind: kind}
	d, known := s.days[key]
	if !known {
		d.first = r.Seq
	}
	d.n, d.took, d.in, d.out = d.n+1, d.took+took, d.in+r.In, d.out+r.Out
	d.longest, d.first, d.last = max(d.longest, took), min(d.first, r.Seq), max(d.last, r.Seq)
	s.days[key] = d
	s.tooks[sumKey{day: day, kind: kind, bucket: bucketOf(took)}]++
	for _, path := range r.Touches.Reads {
		s.paths[sumKey{day: day, kind: kind, mode: modeRead, path: path}]++
	}
	for _, path := range r.Touches.Writes {
		s.paths[sumKey{day: day, kind: kind, mode: modeWrite, path: path}]++
	}
}

// A tally is a table of sums, with how its rows are read and added up.
type tally[V any] struct {
	table      string
	keys, sums string // columns after the day
	by         string // further columns to group by
	touches    bool   // they are derived from what calls touch
	of         func(*sums) map[sumKey]V
	into       func(*sumKey, *V) []any // returns the scan destinations of the columns
}

func dayTally() tally[daySum] {
	return tally[daySum]{
		table: "audit_day", keys: `kind`,
		sums: `CAST(SUM(n) AS BIGINT), CAST(SUM(took) AS BIGINT), MAX(longest), CAST(SUM(bytes_in) AS BIGINT), ` +
			`CAST(SUM(bytes_out) AS BIGINT), MIN(first_seq), MAX(last_seq)`,
		of: func(s *sums) map[sumKey]daySum { return s.days },
		into: func(k *sumKey, d *daySum) []any {
			return []any{&k.day, &k.kind, &d.n, &d.took, &d.longest, &d.in, &d.out, &d.first, &d.last}
		},
	}
}

const sumN = `CAST(SUM(n) AS BIGINT)`

func tookTally() tally[int64] {
	return tally[int64]{
		table: "audit_took", keys: `kind, bucket`, sums: sumN,
		of:   func(s *sums) map[sumKey]int64 { return s.tooks },
		into: func(k *sumKey, n *int64) []any { return []any{&k.day, &k.kind, &k.bucket, n} },
	}
}

func pathTally() tally[int64] {
	return tally[int64]{
		table: "audit_path", keys: `kind, mode, path`, sums: sumN, touches: true,
		of:   func(s *sums) map[sumKey]int64 { return s.paths },
		into: func(k *sumKey, n *int64) []any { return []any{&k.day, &k.kind, &k.mode, &k.path, n} },
	}
}

// save adds the sums to those in the database.
func (s *sums) save(t *database.Tx) error {
	var days, tooks, paths []any
	for k, d := range s.days {
		days = append(days, k.day, k.kind, d.n, d.took, d.longest, d.in, d.out, d.first, d.last)
	}
	for k, n := range s.tooks {
		tooks = append(tooks, k.day, k.kind, k.bucket, n)
	}
	for k, n := range s.paths {
		paths = append(paths, k.day, k.kind, k.mode, k.path, n)
	}
	err := t.Insert(`INSERT INTO audit_day (day, kind, n, took, longest, bytes_in, bytes_out, first_seq, last_seq) `+
		`VALUES `, 9,
		` ON CONFLICT (day, kind) DO UPDATE SET n = audit_day.n + excluded.n, took = audit_day.took + excluded.took,
		longest = CASE WHEN excluded.longest > audit_day.longest THEN excluded.longest ELSE audit_day.longest END,
		bytes_in = audit_day.bytes_in + excluded.bytes_in, bytes_out = audit_day.bytes_out + excluded.bytes_out,
		last_seq = excluded.last_seq`, days)
	if err != nil {
		return err
	}
	err = t.Insert(`INSERT INTO audit_took (day, kind, bucket, n) VALUES `, 4,
		` ON CONFLICT (day, kind, bucket) DO UPDATE SET n = audit_took.n + excluded.n`, tooks)
	if err != nil {
		return err
	}
	return t.Insert(`INSERT INTO audit_path (day, kind, mode, path, n) VALUES `, 5,
		` ON CONFLICT (day, kind, mode, path) DO UPDATE SET n = audit_path.n + excluded.n`, paths)
}

const dayLength = int64(24 * time.Hour / time.Microsecond)

// dayOf numbers the days in UTC; 1 January 1970 is 0.
func dayOf(at int64) int64 {
	if at < 0 {
		return (at+1)/dayLength - 1
	}
	return at / dayLength
}

// bucketOf returns the bucket of a duration. A bucket holds similar durations: four buckets for each doubling.
func bucketOf(took int64) int64 {
	if took < 8 {
		return max(took, 0)
	}
	e := bits.Len64(uint64(took)) - 3
	return int64(e)*4 + took>>e
}

// bucketSQL is bucketOf of the column took, in SQL. Durations end with the 63rd bit.
func bucketSQL() string {
	var b strings.Builder
	b.WriteString(`CASE WHEN took < 0 THEN 0 WHEN took < 8 THEN took`)
	for e := 1; e <= 59; e++ {
		fmt.Fprintf(&b, ` WHEN took < %d THEN %d + (took >> %d)`, int64(8)<<e, e*4, e)
	}
	b.WriteString(` ELSE 240 + (took >> 60) END`)
	return b.String()
}

// middleOf returns a duration that represents those of a bucket.
func middleOf(bucket int64) time.Duration {
	low, high := edgeOf(bucket), edgeOf(bucket+1)
	return time.Duration((low+high-1)/2) * time.Microsecond
}

// edgeOf returns the smallest duration of a bucket, in microseconds.
func edgeOf(bucket int64) int64 {
	if bucket < 8 {
		return bucket
	}
	e := bucket/4 - 1
	return (bucket - e*4) << e
}

// A histogram counts durations by bucket.
type histogram map[int64]int64

// quantile returns the duration that a share q of all durations do not exceed, to within an eighth.
func (h histogram) quantile(q float64) time.Duration {
	var total int64
	for _, n := range h {
		total += n
	}
	rest := int64(q * float64(total))
	for _, b := range slices.Sorted(maps.Keys(h)) {
		if rest -= h[b]; rest < 0 {
			return middleOf(b)
		}
	}
	return 0 // there are none
}
