package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/engine/approval"
	"toolpost/engine/job"
	"toolpost/store/database"
	"toolpost/tool"
)

// A JobTable keeps jobs. It represents one program among those that share the store: jobs that it has begun are its
// own.
type JobTable struct {
	db    *DB
	owner string

	mu   sync.Mutex
	late []job.Job // begun by a Claim that returned with an unclear outcome; for the next one
}

// Jobs returns a table of jobs, for a dispatcher that begins some of them.
func (db *DB) Jobs() *JobTable { return &JobTable{db: db, owner: db.Owner + "#" + tool.NewID()} }

// Add stores a waiting job, durably, unless too many are waiting: of its caller, or in all.
func (j *JobTable) Add(_ context.Context, x job.Job, perCaller, most int) error {
	if database.Plain(x.Caller, database.MaxName) != x.Caller || database.Plain(x.Tool, 1024) != x.Tool ||
		database.Plain(x.Needs, 2048) != x.Needs || database.Plain(x.Lease, database.MaxName) != x.Lease {
		return tool.Errorf(tool.CodeInvalidInput, "the caller, tool or lease of a job is too long, or not text")
	}
	// the number of all jobs is that of a moment before
	return j.db.Submit(&database.Write{
		Batch: j.db.adds, Item: &newJob{x, perCaller, most}, Durable: true, Keys: []string{"jobs of " + x.Caller},
	})
}

// A newJob is a job to be added, with the limits of Add.
type newJob struct {
	job.Job
	perCaller, most int
}

// addJobs adds the jobs of a group, in one statement if possible.
func addJobs(t *database.Tx, group []*database.Write) error {
	all, own := 0, map[string]int{}
	err := t.Each(func(rows *sql.Rows) error {
		var caller string
		var n int
		err := rows.Scan(&caller, &n)
		all, own[caller] = all+n, n
		return err
	}, `SELECT caller, COUNT(*) FROM job WHERE state = '`+job.Queued+`' GROUP BY caller`)
	if err != nil {
		return err
	}
	var rows []any
	insert := func() error {
		err := t.Insert(`INSERT INTO job (id, caller, tool, state, owner, made_at, attempts, again, stop, lease, call, needs) VALUES `,
			12, "", rows)
		rows = nil
		return err
	}
	bytes := 0
	for _, one := range group {
		x := one.Item.(*newJob)
		if bytes += len(x.Call); bytes > mostAdded {
			if err := insert(); err != nil {
				return err
			}
			bytes = len(x.Call)
		}
		switch {
		case own[x.Caller] >= x.perCaller:
			one.Err = tool.Errorf(tool.CodeQuotaExceeded,
				"%d jobs of %q wait already, and %d is the most; try again when some have begun, or cancel some", own[x.Caller],
				x.Caller, x.perCaller).Because("jobs")
		case all >= x.most:
			one.Err = tool.Errorf(tool.CodeQuotaExceeded,
				"%d jobs wait already, and %d is the most; try again when some have begun", all, x.most).Because("jobs")
		default:
			all, own[x.Caller] = all+1, own[x.Caller]+1
			rows = append(rows, x.ID, x.Caller, x.Tool, job.Queued, "", database.Micros(x.Made), 0, flag(x.Again), 0, x.Lease,
				string(x.Call), x.Needs)
		}
	}
	return insert()
}

// mostAdded is how many bytes the calls of jobs may have that are added with one statement.
const mostAdded = 1 << 20

// The keys of writes. A write that changes waiting jobs has that of the queue: programs take turns to begin jobs.
const queueKey = "queue"

func jobKey(id string) string { return "job " + id }

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The columns read of jobs: all to begin one; to show one, without its call, which may be long, and its lease; to list
// many, also without the outcome.
const (
	wholeJob  = jobState + `, lease, call, result`
	seenJob   = jobState + `, '', '', result`
	listedJob = jobState + `, '', '', NULL`
	jobState  = `id, caller, tool, state, made_at, began_at, ended_at, attempts, again, stop, needs`
)

// scanJob reads a row of these columns.
func scanJob(rows *sql.Rows) (x job.Job, err error) {
	err = rows.Scan(&x.ID, &x.Caller, &x.Tool, &x.State, (*database.MicroTime)(&x.Made), (*database.MicroTime)(&x.Began),
		(*database.MicroTime)(&x.Ended), &x.Attempts, &x.Again, &x.Stop, &x.Needs, &x.Lease, &x.Call, &x.Outcome)
	return x, err
}

// Claim begins the oldest waiting jobs that this program can run, at most most: they are this program's alone from then on.
// It removes their leases from the table. has decides by what a job needs; nil means that the program can run all.
func (j *JobTable) Claim(ctx context.Context, most int, has func(needs string) bool) ([]job.Job, error) {
	if late := j.takeLate(); len(late) > 0 {
		return late, nil
	}
	// The needs of waiting jobs are read, not the tools of programs written: a program may have thousands of tools.
	needs, err := database.List(j.db.Query(ctx), database.Value[any], // usually there is nothing to write
		`SELECT DISTINCT needs FROM job WHERE state = '`+job.Queued+`'`)
	needs = slices.DeleteFunc(needs, func(one any) bool { return has != nil && !has(one.(string)) })
	if err != nil || len(needs) == 0 || most <= 0 {
		return nil, err
	}
	var mine []job.Job
	begin := func(t *database.Tx) (err error) {
		in, args := among(needs)
		mine, err = database.List(t, scanJob, `SELECT `+wholeJob+` FROM job WHERE state = '`+job.Queued+`' AND needs`+in+
			` ORDER BY made_at, id LIMIT ?`, append(args, most)...)
		if err != nil || len(mine) == 0 {
			return err
		}
		return j.begin(t, mine)
	}
	late := func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.late = append(j.late, mine...)
	}
	if err := j.db.Submit(&database.Write{Do: begin, Durable: true, Keys: []string{queueKey}, Late: late}); err != nil {
		return nil, err
	}
	return mine, nil
}

func (j *JobTable) takeLate() (jobs []job.Job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	jobs, j.late = j.late, nil
	return jobs
}

// begin makes waiting jobs this program's.
func (j *JobTable) begin(t *database.Tx, mine []job.Job) error {
	now := time.Now()
	var ids []any
	for i := range mine {
		ids = append(ids, mine[i].ID)
	}
	in, args := among(ids)
	err := t.Exec(`UPDATE job SET state = ?, owner = ?, began_at = ?, attempts = attempts + 1, lease = '' WHERE id`+in,
		append([]any{job.Running, j.owner, database.Micros(now)}, args...)...)
	for i := range mine {
		x := &mine[i]
		first := x.Began.IsZero()
		x.State, x.Began, x.Attempts = job.Running, now.UTC(), x.Attempts+1
		if err == nil && !first { // else it has no events
			_, err = database.Row(t, `SELECT COUNT(*), COALESCE(SUM(LENGTH(event)), 0) FROM job_event WHERE job = ?`, []any{x.ID},
				&x.Events, &x.Bytes)
		}
	}
	return err
}

// among returns the condition that a column has one of some values, and its arguments. Values are repeated, so that there are
// few statements, which can be kept prepared.
func among(values []any) (in string, args []any) {
	args = slices.Clone(values)
	for n := len(args); n&(n-1) != 0; n++ {
		args = append(args, args[0])
	}
	return ` IN (?` + strings.Repeat(", ?", len(args)-1) + `)`, args
}

// Stops returns the jobs of this program that are to be stopped.
func (j *JobTable) Stops(ctx context.Context) (ids []string, err error) {
	return database.List(j.db.Query(ctx), database.Value[string],
		`SELECT id FROM job WHERE state = ? AND owner = ? AND stop <> 0`, job.Running, j.owner)
}

// Append adds events to a job that this program has begun, after its first after events. Events that already exist, as
// after an unclear write, stay.
func (j *JobTable) Append(_ context.Context, x *job.Job, after int, events [][]byte) error {
	return j.db.Do(false, func(t *database.Tx) error {
		if err := j.holds(t, x); err != nil {
			return err
		}
		for i, e := range events {
			if err := t.Exec(`INSERT INTO job_event (job, seq, event) VALUES (?, ?, ?) `+
				`ON CONFLICT (job, seq) DO NOTHING`, x.ID, after+i+1, string(e)); err != nil {
				return err
			}
		}
		return nil
	}, jobKey(x.ID))
}

// holds returns an error of code conflict if a job is not this program's.
func (j *JobTable) holds(t *database.Tx, x *job.Job) error {
	_, err := database.Only(t, taken(x.ID), database.Value[int], `SELECT 1 FROM job WHERE `+held("?", "?", "?"), hold(x, j.owner)...)
	return err
}

// held is the condition that a program still has a job since it began it; hold has its arguments. The time tells its
// beginnings apart: attempts are counted anew after an answer or an approval.
func held(id, owner, began string) string {
	return `id = ` + id + ` AND state = '` + job.Running + `' AND owner = ` + owner + ` AND began_at = ` + began
}

func hold(x *job.Job, owner string) []any { return []any{x.ID, owner, database.Micros(x.Began)} }

func taken(id string) error {
	return tool.Errorf(tool.CodeConflict, "job %s no longer belongs to this program", id).Because(job.Taken)
}

// Settle ends a job that this program has begun, with its outcome. The state queued puts it back instead, as if it had
// not begun. The record of its call, if there is one, is added to the log at the same time: if that is refused, the job has not
// ended. A job that is not this program's any more does not keep the record from being added.
func (j *JobTable) Settle(
	_ context.Context, x *job.Job, state string, outcome []byte, record *tool.Record,
) error {
	name := endName(x.ID, database.Micros(x.Began))
	one := &database.Write{
		Batch: j.db.ends, Item: &end{x, j.owner, state, outcome}, Durable: true, Keys: []string{jobKey(x.ID)}, Name: name,
	}
	if record == nil {
		return j.db.Submit(one)
	}
	return j.db.audit.AppendThen(record, one)
}

// An end is that of a run of a job.
type end struct {
	*job.Job
	owner, state string
	outcome      []byte
}

func endName(id string, began int64) string { return fmt.Sprint(jobKey(id), " ", began) }

// endJobs ends the jobs of a group, or puts them back, in one statement: for each that is not held any more, it sets the error.
func endJobs(t *database.Tx, group []*database.Write) error {
	var rows []any
	left := map[string]*database.Write{}
	for _, one := range group {
		e := one.Item.(*end)
		one.Err, left[one.Name] = taken(e.ID), one
		rows = append(append(rows, hold(e.Job, e.owner)...), e.state)
		if e.state == job.Queued {
			rows = append(rows, nil, nil)
		} else {
			rows = append(rows, database.Micros(time.Now()), string(e.outcome))
		}
	}
	const back = `CASE WHEN column4 = '` + job.Queued + `' THEN `
	return t.EachOf(func(rows *sql.Rows) error {
		var id string
		var began int64
		err := rows.Scan(&id, &began)
		if one := left[endName(id, began)]; one != nil {
			one.Err = nil
		}
		return err
	}, `UPDATE job SET state = column4, ended_at = column5, result = column6, lease = '', owner = `+back+`'' ELSE owner END, `+
		`attempts = attempts - `+back+`1 ELSE 0 END, call = CASE WHEN column4 IN ('`+job.Asked+`', '`+job.Queued+`') `+
		`THEN call ELSE '' END FROM (VALUES `,
		`(CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT))`, rows,
		`) AS ends WHERE `+held("column1", "column2", "column3")+` RETURNING id, began_at`)
}

// endJob ends a job, of any program. It removes the job's call, unless that is to be made again with answers.
func endJob(t *database.Tx, id, state string, outcome []byte) error {
	call := `''`
	if state == job.Asked {
		call = `call`
	}
	return t.Exec(`UPDATE job SET state = ?, ended_at = ?, result = ?, call = `+call+`, lease = '' WHERE id = ?`, state,
		database.Micros(time.Now()), string(outcome), id)
}

// Asked returns a caller's job that waits for answers, with its call.
func (j *JobTable) Asked(ctx context.Context, caller, id string) (job.Job, error) {
	return askedJob(j.db.Query(ctx), caller, id)
}

func askedJob(a database.Querier, caller, id string) (job.Job, error) {
	x, err := database.Only(a, noJob(id), scanJob, `SELECT `+wholeJob+` FROM job WHERE id = ? AND caller = ?`, database.Plain(id, database.MaxName),
		named(caller))
	if err == nil && x.State != job.Asked {
		err = tool.Errorf(tool.CodeConflict, "job %s does not wait for an answer: it is %s", id, x.State).Because(x.State)
	}
	return x, err
}

// Answer puts a caller's job that waits for answers back into the queue, with its new call; or, without a call, stores
// another outcome. If several answer the same question, one succeeds.
func (j *JobTable) Answer(
	_ context.Context, caller, id string, seen, call, outcome []byte, lease string,
) (job.Job, error) {
	if database.Plain(lease, database.MaxName) != lease {
		return job.Job{}, tool.Errorf(tool.CodeInvalidInput, "the lease of a job is too long, or not text")
	}
	return database.Writing(j.db.DB, func(t *database.Tx) (job.Job, error) {
		x, err := askedJob(t, caller, id)
		switch {
		case err != nil:
			return x, err
		case string(x.Outcome) != string(seen):
			return x, tool.Errorf(tool.CodeConflict, "the question of job %s has already been answered", id).Because("answered")
		case call == nil:
			err = t.Exec(`UPDATE job SET result = ? WHERE id = ?`, string(outcome), id)
		default:
			err = t.Exec(`UPDATE job SET state = ?, owner = '', began_at = ?, ended_at = NULL, result = NULL, attempts = 0, `+
				`call = ?, lease = ? WHERE id = ?`, job.Queued, database.Micros(time.Now()), string(call), lease, id)
		}
		if err != nil {
			return x, err
		}
		return findJob(t, caller, id)
	}, queueKey, jobKey(id))
}

// Recover looks for jobs whose program is gone. For each, decide returns its outcome, with its final state, or queued,
// for another attempt. If several programs find one, one decides. It returns their number.
func (j *JobTable) Recover(
	ctx context.Context, decide func(job.Job) (state string, outcome []byte),
	resume func(call []byte, approval string) ([]byte, error),
) (n int, err error) {
	var orphans []orphan
	err = j.db.Orphans(ctx, `id, tool, began_at, attempts, again`, `job WHERE state = '`+job.Running+`'`,
		func(owner string, rows *sql.Rows) error {
			o := orphan{owner: owner}
			err := rows.Scan(&o.ID, &o.Tool, (*database.MicroTime)(&o.Began), &o.Attempts, &o.Again)
			orphans = append(orphans, o)
			return err
		})
	for _, o := range orphans {
		mine, err := database.Writing(j.db.DB, func(t *database.Tx) (bool, error) { return o.adopt(t, decide, resume) })
		if err != nil {
			return n, err
		}
		n += flag(mine)
	}
	return n, err
}

// adopt decides about an orphan, unless another program has. An orphan that asked for an approval and has not used it
// continues with that approval: without its id, a denied call would ask a second time.
func (o orphan) adopt(
	t *database.Tx, decide func(job.Job) (string, []byte), resume func(call []byte, approval string) ([]byte, error),
) (mine bool, err error) {
	mine, err = database.Row(t, `SELECT stop, call FROM job WHERE `+held("?", "?", "?"), hold(&o.Job, o.owner), &o.Stop, &o.Call)
	if err != nil || !mine {
		return false, err
	}
	var id, last string
	asked, err := database.Row(t, `SELECT id, state FROM approval WHERE job = ? ORDER BY made_at DESC, id LIMIT 1`,
		[]any{o.ID}, &id, &last)
	if err != nil {
		return false, err
	}
	if asked && last != approval.Used && !o.Stop {
		if call, err := resume(o.Call, id); err == nil {
			return true, t.Exec(`UPDATE job SET state = ?, owner = '', attempts = attempts - 1, call = ? WHERE id = ?`,
				job.Queued, string(call), o.ID)
		}
	}
	state, outcome := decide(o.Job)
	if state == job.Queued {
		return true, t.Exec(`UPDATE job SET state = ?, owner = '' WHERE id = ?`, job.Queued, o.ID)
	}
	return true, endJob(t, o.ID, state, outcome)
}

// Wake puts back the jobs whose approval was decided or has expired, with the calls that resume returns. It returns
// their number.
func (j *JobTable) Wake(
	ctx context.Context, resume func(call []byte, approval string) ([]byte, error),
) (n int, err error) {
	due, err := sleepers(j.db.Query(ctx), atOnce)
	if err != nil || len(due) == 0 {
		return 0, err
	}
	return database.Writing(j.db.DB, func(t *database.Tx) (n int, err error) {
		if due, err = sleepers(t, atOnce); err != nil { // another program may have been faster
			return 0, err
		}
		for _, s := range due {
			call, err := resume(s.call, s.approval)
			if err != nil {
				continue // it cannot be read, and stays until it is cancelled
			}
			if err := t.Exec(`UPDATE job SET state = ?, owner = '', began_at = ?, ended_at = NULL, result = NULL, `+
				`attempts = 0, call = ? WHERE id = ?`, job.Queued, database.Micros(time.Now()), string(call), s.id); err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}, queueKey)
}

// A sleeper is a job that has waited for an approval.
type sleeper struct {
	id, approval string
	call         []byte
}

// sleepers finds the jobs that asked and whose approval no longer waits: the approval that their outcome names, since a
// job may have had another before, and a tool may have asked something in an approved call.
func sleepers(a database.Querier, most int) ([]sleeper, error) {
	return database.List(a, func(rows *sql.Rows) (s sleeper, err error) {
		err = rows.Scan(&s.id, &s.approval, &s.call)
		return s, err
	}, `SELECT job.id, approval.id, job.call FROM approval JOIN job ON job.id = approval.job `+
		`AND job.caller = approval.caller WHERE approval.job <> '' AND job.state = ? AND approval.state <> ? AND `+
		`(approval.state <> ? OR approval.until_at <= ?) AND job.result LIKE '%' || approval.id || '%' LIMIT ?`,
		job.Asked, approval.Used, approval.Waiting, database.Micros(time.Now()), most)
}

// An orphan is a job whose program is gone.
type orphan struct {
	job.Job
	owner string
}

// Cancel ends a caller's waiting job, with an outcome, and asks a running one to stop. It returns the job as it is
// then. A job that has ended otherwise stays as it is: the error has the code conflict.
func (j *JobTable) Cancel(ctx context.Context, caller, id string, outcome []byte) (job.Job, error) {
	x, err := database.Writing(j.db.DB, func(t *database.Tx) (job.Job, error) {
		x, err := findJob(t, caller, id)
		switch {
		case err != nil:
			return x, err
		case x.State == job.Queued || x.State == job.Asked:
			err = endJob(t, id, job.Cancelled, outcome)
		case x.State == job.Running:
			err = t.Exec(`UPDATE job SET stop = 1 WHERE id = ?`, id)
		case x.State != job.Cancelled:
			return x, tool.Errorf(tool.CodeConflict, "job %s cannot be cancelled: it has ended (%s)", id,
				x.State).Because(x.State)
		}
		if err != nil {
			return x, err
		}
		return findJob(t, caller, id)
	}, queueKey, jobKey(id))
	if err == nil && x.Stop {
		j.db.Ring(ctx)
	}
	return x, err
}

func findJob(a database.Querier, caller, id string) (job.Job, error) {
	return database.Only(a, noJob(id), scanJob, `SELECT `+seenJob+` FROM job WHERE id = ? AND caller = ?`, database.Plain(id, database.MaxName),
		named(caller))
}

// named returns a caller as Add accepts it. A name that Add refuses has no jobs, and must not match another caller.
func named(caller string) any {
	if database.Plain(caller, database.MaxName) != caller {
		return nil
	}
	return caller
}

func noJob(id string) error {
	return tool.Errorf(tool.CodeNotFound, "there is no job %.64q; jobs are forgotten some time after their end", id)
}

// Find returns a caller's job, and at most most of its events after the given number, as they are at one moment.
func (j *JobTable) Find(
	ctx context.Context, caller, id string, after int64, most int,
) (x job.Job, events [][]byte, err error) {
	err = j.db.Read(ctx, func(r *database.Reader) error {
		if x, err = findJob(r, caller, id); err != nil || most <= 0 {
			return err
		}
		events, err = database.List(r, database.Value[[]byte],
			`SELECT event FROM job_event WHERE job = ? AND seq > ? ORDER BY seq LIMIT ?`, id, after, most)
		return err
	})
	return x, events, err
}

// Of returns the caller of a job, for operators.
func (j *JobTable) Of(ctx context.Context, id string) (caller string, err error) {
	return database.Only(j.db.Query(ctx), noJob(id), database.Value[string], `SELECT caller FROM job WHERE id = ?`,
		database.Plain(id, database.MaxName))
}

// List returns the jobs of a caller, the newest first, in one state or, with "", in any. They come without their calls
// and outcomes.
func (j *JobTable) List(ctx context.Context, caller, state string, most int) ([]job.Job, error) {
	return j.list(ctx, most, ` WHERE caller = ? AND (state = ? OR ? = '')`, named(caller), database.Plain(state, 64),
		database.Plain(state, 64))
}

// All is List for operators, who see all jobs.
func (j *JobTable) All(ctx context.Context, state string, most int) ([]job.Job, error) {
	return j.list(ctx, most, ` WHERE (state = ? OR ? = '')`, database.Plain(state, 64), database.Plain(state, 64))
}

func (j *JobTable) list(ctx context.Context, most int, where string, args ...any) ([]job.Job, error) {
	return database.List(j.db.Query(ctx), scanJob, `SELECT `+listedJob+` FROM job`+where+` ORDER BY made_at DESC, id DESC LIMIT ?`,
		append(args, database.AtMost(most))...)
}

// Expire removes the jobs that ended before a time, with their events, and returns their number.
func (j *JobTable) Expire(ctx context.Context, before time.Time) (n int, err error) {
	return expire(ctx, j.db.DB, "job", "job_event", before)
}

// atOnce is how many rows are removed in one transaction, so that others can write in between.
const atOnce = 200

// expire removes the rows of a table that ended before a time, and their parts from another table, which refers to them
// by the table's name.
func expire(ctx context.Context, db *database.DB, table, parts string, before time.Time) (n int, err error) {
	old := ` IN (SELECT id FROM ` + table + ` WHERE ended_at < ? ORDER BY ended_at, id LIMIT ?)`
	for more := true; more && ctx.Err() == nil; {
		found, err := database.Row(db.Query(ctx), `SELECT 1 FROM `+table+` WHERE ended_at < ? LIMIT 1`,
			[]any{database.Micros(before)}, new(int))
		if err != nil || !found { // usually there is nothing to write
			return n, err
		}
		var removed int64
		err = db.Do(false, func(t *database.Tx) (err error) {
			if err := t.Exec(`DELETE FROM `+parts+` WHERE `+table+old, database.Micros(before), atOnce); err != nil {
				return err
			}
			removed, err = t.Count(`DELETE FROM `+table+` WHERE id`+old, database.Micros(before), atOnce)
			return err
		})
		if err != nil {
			return n, err
		}
		n, more = n+int(removed), removed == atOnce
	}
	return n, nil
}
