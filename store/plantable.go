package store

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"toolpost/engine/job"
	"toolpost/plan"
	"toolpost/store/database"
	"toolpost/tool"
)

// A PlanTable keeps plans. It represents one program among those that share the store: plans that it has begun are its
// own.
type PlanTable struct{ db *database.DB }

// Plans returns the table of plans.
func (db *DB) Plans() *PlanTable { return &PlanTable{db.DB} }

// maxPrompt is the maximum length of a stored prompt, in bytes.
const maxPrompt = 64 << 10

// Begin implements plan.Store. Like everything written of a plan it survives the end of the program at once, and that
// of the machine with the next record of a call that may change something, which is written after it.
func (p *PlanTable) Begin(_ context.Context, r plan.Record) error {
	if named(r.Caller) == nil || database.Plain(r.Session, maxNamed) != r.Session {
		return tool.Errorf(tool.CodeInvalidInput, "the caller or the session of a plan is too long, or not text")
	}
	return p.db.Do(false, func(t *database.Tx) error {
		return t.Exec(`INSERT INTO plan (id, caller, session, state, owner, call, planner, prompt, made_at, tools, request, `+
			`document, patches) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			r.ID, r.Caller, r.Session, plan.Running, p.db.Owner, database.Plain(r.Call, database.MaxName), database.Plain(r.Planner, database.MaxName),
			database.Plain(r.Prompt, maxPrompt), database.Micros(r.Made), r.Counts.Tools, string(r.Request), string(r.Plan), string(r.Before))
	})
}

// maxNamed is the maximum length of the name of a session.
const maxNamed = 1024

// Note implements plan.Store.
func (p *PlanTable) Note(_ context.Context, id string, notes []plan.Note) error {
	return p.db.Do(false, func(t *database.Tx) error {
		if err := p.holds(t, id); err != nil {
			return err
		}
		return writeNotes(t, id, notes)
	})
}

// holds returns an error of code conflict if a plan is not this program's.
func (p *PlanTable) holds(t *database.Tx, id string) error {
	taken := tool.Errorf(tool.CodeConflict, "plan %s no longer belongs to this program", id).Because("plan_taken")
	_, err := database.Only(t, taken, database.Value[int], `SELECT 1 FROM plan WHERE id = ? AND state = ? AND owner = ?`, id, plan.Running,
		p.db.Owner)
	return err
}

// writeNotes stores the last note of each tool.
func writeNotes(t *database.Tx, id string, notes []plan.Note) error {
	last := map[int]int{}
	for i, n := range notes {
		last[n.Place] = i
	}
	var args []any
	for i, n := range notes {
		if last[n.Place] == i { // a statement cannot write a row twice
			args = append(args, id, n.Place, n.State, string(n.Doc))
		}
	}
	return t.Insert(`INSERT INTO plan_tool (plan, place, state, document) VALUES `, 4,
		` ON CONFLICT (plan, place) DO UPDATE SET state = excluded.state, document = excluded.document`, args)
}

// End implements plan.Store.
func (p *PlanTable) End(_ context.Context, id, state string, result []byte, notes []plan.Note) error {
	end := func(t *database.Tx) error {
		if err := p.holds(t, id); err != nil {
			return err
		}
		if err := writeNotes(t, id, notes); err != nil {
			return err
		}
		if state == plan.Running {
			return t.Exec(`UPDATE plan SET owner = '' WHERE id = ?`, id)
		}
		return endPlan(t, id, state, result)
	}
	return p.db.Submit(&database.Write{Do: end, Name: "plan " + id})
}

func endPlan(t *database.Tx, id, state string, result []byte) error {
	return t.Exec(`UPDATE plan SET state = ?, ended_at = ?, result = ?, request = '' WHERE id = ?`, state,
		database.Micros(time.Now()), sql.NullString{String: string(result), Valid: result != nil}, id)
}

// The columns read of plans: all; to show one, without what is needed to continue it; to list many, only the beginning
// of the document, which names it.
const (
	wholePlan  = planState + `, document, result, request, patches`
	seenPlan   = planState + `, document, result, '', ''`
	listedPlan = planState + `, substr(document, 1, 1000), NULL, '', ''`
	planState  = `id, caller, session, state, call, planner, prompt, made_at, ended_at, tools`
)

// scanPlan reads a row of these columns.
func scanPlan(rows *sql.Rows) (r plan.Record, err error) {
	var document, request, patches string
	var result sql.NullString
	err = rows.Scan(&r.ID, &r.Caller, &r.Session, &r.State, &r.Call, &r.Planner, &r.Prompt, (*database.MicroTime)(&r.Made),
		(*database.MicroTime)(&r.Ended), &r.Counts.Tools, &document, &result, &request, &patches)
	r.Request, r.Before = []byte(request), []byte(patches)
	if document != "" {
		r.Plan = []byte(document)
		r.Head(document)
	}
	if result.Valid {
		r.Result = []byte(result.String)
	}
	return r, err
}

func notesOf(a database.Querier, id string) ([]plan.Note, error) {
	return database.List(a, func(rows *sql.Rows) (n plan.Note, err error) {
		err = rows.Scan(&n.Place, &n.State, &n.Doc)
		return n, err
	}, `SELECT place, state, document FROM plan_tool WHERE plan = ? ORDER BY place`, id)
}

func noPlan(id string) error {
	return tool.Errorf(tool.CodeNotFound, "there is no plan %.64q; plans are forgotten some time after their end", id)
}

// Adopt implements plan.Store.
func (p *PlanTable) Adopt(_ context.Context, caller, id, call string) (r plan.Record, notes []plan.Note, err error) {
	err = p.db.Do(true, func(t *database.Tx) error {
		var owner string
		r, err = database.Only(t, noPlan(id), scanPlan, `SELECT `+wholePlan+` FROM plan WHERE id = ? AND caller = ?`,
			database.Plain(id, database.MaxName), named(caller))
		if err != nil {
			return err
		}
		if _, err := database.Row(t, `SELECT owner FROM plan WHERE id = ?`, []any{r.ID}, &owner); err != nil {
			return err
		}
		gone, _, err := t.Gone(owner)
		switch {
		case err != nil:
			return err
		case r.State != plan.Running:
			return tool.Errorf(tool.CodeConflict, "plan %s has ended: it is %s", r.ID, r.State).Because(r.State)
		case !gone:
			return tool.Errorf(tool.CodeConflict, "plan %s is running, in a program that is there", r.ID).Because(r.State)
		}
		if notes, err = notesOf(t, r.ID); err != nil {
			return err
		}
		r.Call = call
		return t.Exec(`UPDATE plan SET owner = ?, call = ? WHERE id = ?`, p.db.Owner, database.Plain(call, database.MaxName), r.ID)
	})
	return r, notes, err
}

// Of implements plan.Store.
func (p *PlanTable) Of(ctx context.Context, caller, call string) (r plan.Record, notes []plan.Note, err error) {
	return p.find(ctx, noPlan(call), wholePlan+` FROM plan WHERE call = ? AND caller = ? ORDER BY made_at DESC, id DESC LIMIT 1`,
		database.Plain(call, database.MaxName), named(caller))
}

// Find returns a plan of a caller, or with "" of any, and the notes of its tools.
func (p *PlanTable) Find(ctx context.Context, caller, id string) (r plan.Record, notes []plan.Note, err error) {
	return p.find(ctx, noPlan(id), seenPlan+` FROM plan WHERE id = ? AND (caller = ? OR ? = '')`,
		database.Plain(id, database.MaxName), named(caller), named(caller))
}

func (p *PlanTable) find(
	ctx context.Context, missing error, what string, args ...any,
) (r plan.Record, notes []plan.Note, err error) {
	err = p.db.Read(ctx, func(q *database.Reader) error {
		if r, err = database.Only(q, missing, scanPlan, `SELECT `+what, args...); err == nil {
			notes, err = notesOf(q, r.ID)
		}
		return err
	})
	return r, notes, err
}

// List returns plans, the newest first, without their documents: of a caller, of a session, of a state, or with "" of
// any.
func (p *PlanTable) List(ctx context.Context, caller, session, state string, most int) ([]plan.Record, error) {
	where, args := []string{"1 = 1"}, []any{}
	for column, want := range map[string]string{"caller": caller, "session": session, "state": state} {
		if want != "" {
			where, args = append(where, column+` = ?`), append(args, database.Plain(want, maxNamed))
		}
	}
	return database.Reading(ctx, p.db, func(r *database.Reader) ([]plan.Record, error) {
		found, err := database.List(r, scanPlan, `SELECT `+listedPlan+` FROM plan WHERE `+strings.Join(where, ` AND `)+
			` ORDER BY made_at DESC, id DESC LIMIT ?`, append(args, database.AtMost(most))...)
		for i := range found {
			found[i].Plan = nil
			if err == nil {
				err = count(r, &found[i])
			}
		}
		return found, err
	})
}

// count counts the tools of a plan by state.
func count(r *database.Reader, of *plan.Record) error {
	defer of.Counted()
	return r.Each(func(rows *sql.Rows) error {
		var state string
		var n int
		err := rows.Scan(&state, &n)
		of.Count(state, n)
		return err
	}, `SELECT state, COUNT(*) FROM plan_tool WHERE plan = ? GROUP BY state`, of.ID)
}

// Recover implements plan.Store.
func (p *PlanTable) Recover(ctx context.Context, next func() string) (again []plan.Record, err error) {
	type orphan struct{ id, owner string }
	var found []orphan
	err = p.db.Orphans(ctx, `id`, `plan WHERE state = '`+plan.Running+`'`, func(owner string, rows *sql.Rows) error {
		o := orphan{owner: owner}
		err := rows.Scan(&o.id)
		found = append(found, o)
		return err
	})
	for _, o := range found {
		if err != nil {
			break
		}
		var r plan.Record
		var mine bool
		err = p.db.Do(true, func(t *database.Tx) (err error) {
			r, mine, err = recoverPlan(t, o.id, o.owner, next)
			return err
		})
		if mine && err == nil {
			again = append(again, r)
		}
	}
	return again, err
}

// recoverPlan decides about a plan whose program is gone, unless another program has. The plan has no owner afterwards;
// a call of its own continues it.
func recoverPlan(t *database.Tx, id, owner string, next func() string) (r plan.Record, mine bool, err error) {
	found, err := database.List(t, scanPlan, `SELECT `+wholePlan+` FROM plan WHERE id = ? AND state = ? AND owner = ?`, id,
		plan.Running, owner)
	if err != nil || len(found) == 0 {
		return r, false, err
	}
	r = found[0]
	var state string
	asJob, err := database.Row(t, `SELECT state FROM job WHERE id = ?`, []any{r.Call}, &state)
	switch {
	case err != nil:
		return r, false, err
	case asJob && slices.Contains([]string{job.Queued, job.Running}, state):
		return r, false, nil // the job is run again, and continues it
	case asJob && state == job.Cancelled:
		return r, false, endPlan(t, id, plan.Cancelled, nil)
	case asJob || len(r.Request) == 0:
		return r, false, endPlan(t, id, plan.Lost, nil)
	}
	r.Call = next()
	return r, true, t.Exec(`UPDATE plan SET call = ?, owner = '' WHERE id = ?`, r.Call, id)
}

// Expire removes the plans that ended before a time, and returns their number.
func (p *PlanTable) Expire(ctx context.Context, before time.Time) (n int, err error) {
	return expire(ctx, p.db, "plan", "plan_tool", before)
}
