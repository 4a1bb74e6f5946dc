package auditlog

import (
	"cmp"
	"context"
	"database/sql"
	"time"

	"toolpost/engine/audit"
	"toolpost/store/database"
	"toolpost/tool"
)

// Series returns how the calls of a filter went over time, in at most most steps. A filter without a start begins with
// the first such call, or with its day if steps are days; one without an end goes on until now.
//
// The database groups the calls of a step by kind and approximate duration, so that the data read and held depends on
// the number of steps and not on that of the calls. Neither database computes percentiles without sorting all rows;
// these are accurate to within an eighth, as everywhere. Steps of whole days use the sums that the log has anyway.
func (a *Table) Series(ctx context.Context, f audit.Filter, now time.Time, most int) (*audit.Series, error) {
	f.Counts = true
	since, until, err := f.Since, f.Until, error(nil)
	if until.IsZero() {
		until = now
	}
	if since.IsZero() {
		since, err = a.first(ctx, f, until, most)
	}
	if err = cmp.Or(err, audit.CheckSpan(since, until)); err != nil {
		return nil, err
	}
	s := newSketches(since, until, most)
	switch {
	case s.step%audit.Day == 0:
		err = s.ofDays(ctx, a, f)
	case f.Run != "":
		err = s.ofRows(ctx, a, f)
	default:
		err = s.ofGroups(ctx, a, f)
	}
	return s.series(), err
}

// first returns the start of a series over all calls of the filter: a log that is minutes old is shown in minutes.
func (a *Table) first(ctx context.Context, f audit.Filter, until time.Time, most int) (time.Time, error) {
	day, err := a.firstDay(ctx, f, until)
	if err != nil {
		return day, err
	}
	if _, step, _ := audit.Divide(day, until, most); step%audit.Day == 0 {
		return day, nil
	}
	at := database.Micros(day)
	err = a.span(ctx, f, func(q *query) error {
		lo, hi, err := q.reach()
		if err != nil || hi == 0 {
			return err
		}
		where, args := q.where(lo, hi, q.since, q.until)
		_, err = database.Row(q, `SELECT COALESCE(MIN(at), ?) FROM audit`+where, append([]any{at}, args...), &at)
		return err
	})
	return time.UnixMicro(min(at, database.Micros(until))).UTC(), err
}

// firstDay returns the start of the first day that has a call of the filter, or the day of its end if none has.
func (a *Table) firstDay(ctx context.Context, f audit.Filter, until time.Time) (time.Time, error) {
	first := dayOf(database.Micros(until))
	err := a.span(ctx, f, func(q *query) error {
		_, err := database.Row(q, `SELECT COALESCE(MIN(day), ?) FROM audit_day WHERE day <= ?`+q.in, q.with(first, first), &first)
		return err
	})
	return startOfDay(first), err
}

// sketches count the calls of each step.
type sketches struct {
	from  time.Time
	step  time.Duration
	steps []sketch
	all   sketch
}

// A sketch summarises a number of calls.
type sketch struct {
	audit.Counts
	tooks   histogram
	longest int64 // microseconds
}

func newSketches(since, until time.Time, most int) *sketches {
	s := &sketches{all: sketch{tooks: histogram{}}}
	var n int
	s.from, s.step, n = audit.Divide(since, until, most)
	s.steps = make([]sketch, n)
	for i := range s.steps {
		s.steps[i].tooks = histogram{}
	}
	return s
}

// at returns the sketches that count a call which began at a time, in microseconds. A call in the future, by a wrong
// clock, belongs to the last step.
func (s *sketches) at(at int64) [2]*sketch {
	return s.number((at - database.Micros(s.from)) / s.step.Microseconds())
}

func (s *sketches) number(i int64) [2]*sketch {
	return [2]*sketch{&s.steps[min(max(i, 0), int64(len(s.steps)-1))], &s.all}
}

// add counts calls of a step that have the same outcome and took about as long.
func (s *sketches) add(to [2]*sketch, o tool.Outcome, bucket int64, d daySum) {
	for _, one := range to {
		one.Add(o, d.n, d.in, d.out)
		one.tooks[bucket] += d.n
		one.longest = max(one.longest, d.longest)
	}
}

// ofGroups counts the rows of the log, grouped by the database.
func (s *sketches) ofGroups(ctx context.Context, a *Table, f audit.Filter) error {
	return a.span(ctx, f, func(q *query) error {
		lo, hi, err := q.reach()
		if err != nil || hi == 0 {
			return err
		}
		where, args := q.where(lo, hi, q.since, q.until)
		return q.Each(func(rows *sql.Rows) error {
			var step, kind, bucket int64
			var d daySum
			err := rows.Scan(&step, &kind, &bucket, &d.n, &d.in, &d.out, &d.longest)
			if k := q.kinds[kind]; k != nil && err == nil {
				s.add(s.number(step), k.Outcome, bucket, d)
			}
			return err
		}, `SELECT (at - ?) / ?, kind, `+bucketSQL()+`, COUNT(*), CAST(SUM(bytes_in) AS BIGINT), `+
			`CAST(SUM(bytes_out) AS BIGINT), MAX(took) FROM audit`+where+` GROUP BY 1, 2, 3`,
			append([]any{database.Micros(s.from), s.step.Microseconds()}, args...)...)
	})
}

// ofRows counts the rows of the log one by one: only their documents tell which run they belong to.
func (s *sketches) ofRows(ctx context.Context, a *Table, f audit.Filter) error {
	return a.span(ctx, f, func(q *query) error {
		lo, hi, err := q.reach()
		if err != nil || hi == 0 {
			return err
		}
		return q.rows(lo, hi, q.since, q.until, "", func(kind int64, r *tool.Record, _ string) error {
			took := r.Duration.Microseconds()
			s.add(s.at(database.Micros(r.Time)), q.kinds[kind].Outcome, bucketOf(took), daySum{n: 1, in: r.In, out: r.Out, longest: took})
			return nil
		})
	})
}

// ofDays adds up the sums of days.
func (s *sketches) ofDays(ctx context.Context, a *Table, f audit.Filter) error {
	perDay, tooks := dayTally(), tookTally()
	perDay.by, tooks.by = `, day`, `, day`
	err := addUp(ctx, a, f, perDay, func(k *tool.Record, key sumKey, sum daySum) {
		for _, one := range s.at(key.day * dayLength) {
			one.Add(k.Outcome, sum.n, sum.in, sum.out)
			one.longest = max(one.longest, sum.longest)
		}
	})
	if err != nil {
		return err
	}
	return addUp(ctx, a, f, tooks, func(_ *tool.Record, key sumKey, n int64) {
		for _, one := range s.at(key.day * dayLength) {
			one.tooks[key.bucket] += n
		}
	})
}

// counts returns the counts of a sketch with its quantiles.
func (s *sketch) counts() audit.Counts {
	quantile := func(q float64) float64 {
		took := min(s.tooks.quantile(q), time.Duration(s.longest)*time.Microsecond)
		return float64(took) / float64(time.Millisecond)
	}
	c := s.Counts
	c.P50, c.P95, c.P99 = quantile(0.5), quantile(0.95), quantile(0.99)
	return c
}

func (s *sketches) series() *audit.Series {
	out := &audit.Series{
		From: s.from, To: s.from.Add(s.step * time.Duration(len(s.steps))), Step: s.step.Milliseconds(),
		Buckets: make([]audit.Bucket, len(s.steps)), Totals: s.all.counts(),
	}
	for i := range s.steps {
		out.Buckets[i] = audit.Bucket{Start: s.from.Add(s.step * time.Duration(i)), Counts: s.steps[i].counts()}
	}
	return out
}
