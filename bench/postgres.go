package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"toolpost/bench/attempt"
	"toolpost/internal/pg"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// postgres starts a PostgreSQL server, which ends with the measurement.
func (l *lab) postgres(ctx context.Context, settings ...string) *pg.Server {
	s := attempt.Must(pg.Open(ctx, settings...))
	l.atEnd(func() error { s.Close(); return nil })
	return s
}

// recordedInPostgres is recordedReads with PostgreSQL.
func recordedInPostgres(ctx context.Context, l *lab, callers int) (m, r *pace) {
	return readsWith(ctx, l, "postgres", attempt.Must(l.postgres(ctx).Create(ctx)), callers)
}

// slowDisk makes every commit take as long as with a slow disk. It takes no processor, of which three programs would need
// more than one has. Transactions that end in the meantime share the wait, as with a disk.
const slowDisk = 20 * time.Millisecond

// programsChange compares three programs on one store, each with its callers of a tool that may change something, with one
// such program.
func programsChange(ctx context.Context, l *lab, callers int) (m, r *pace) {
	s := l.postgres(ctx, fmt.Sprint("commit_delay=", slowDisk.Microseconds()), "commit_siblings=0")
	return race(rounds, l.changers(ctx, s, 3, callers), l.changers(ctx, s, 1, callers))
}

// changers returns callers of a tool that may change something, at programs that share a database.
func (l *lab) changers(ctx context.Context, s *pg.Server, programs, callers int) *crowd {
	url, all := attempt.Must(s.Create(ctx)), new(crowd)
	for i := range programs {
		at := l.echoOn(ctx, url, fmt.Sprint("changes-", programs, "-", i))
		all.callers = append(all.callers, l.crowd(ctx, at, callers, request{tool: "echo", args: fileArgs}).callers...)
	}
	return all
}

// echoOn starts a program with the tools of echo and a store.
func (l *lab) echoOn(ctx context.Context, url, name string) *served {
	dir := filepath.Join(l.dir, name)
	writeFiles(dir, map[string]string{"toolpost.yaml": fmt.Sprintf(lookConfig, url)})
	return l.benchServe(ctx, dir, wordEcho, dir)
}

// A turn of jobs: so many callers make so many jobs each, fewer in all than may wait. As many jobs run at once as in
// Toolpost.
const (
	jobCallers = 64
	jobsEach   = 5
	jobWorkers = 8
)

// jobsAgainst compares empty jobs, from the first request until the last one has ended, with a reference, which does as many
// of them in a database of the same server.
func jobsAgainst(
	reference func(ctx context.Context, l *lab, url string) timed, least float64,
) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		s := l.postgres(ctx)
		other := reference(ctx, l, attempt.Must(s.Create(ctx)))
		url := attempt.Must(s.Create(ctx))
		at := l.echoOn(ctx, url, "jobs")
		job := request{tool: "echo", args: fileArgs, headers: "Prefer: respond-async\r\n"}
		callers := l.crowd(ctx, at, jobCallers, slices.Repeat([]request{job}, jobsEach)...)
		db := l.raw(url)
		m, r := compare(5, clock(func() error {
			if err := callers.once(); err != nil {
				return err
			}
			return until(ctx, db, `SELECT NOT EXISTS (SELECT 1 FROM job WHERE state IN ('queued', 'running'))`)
		}), other)
		return ofTheRate(jobCallers*jobsEach, m, r, least)
	}
}

// raw opens a database behind Toolpost's back.
func (l *lab) raw(url string) *sql.DB {
	db := attempt.Must(sql.Open("pgx", url))
	db.SetMaxOpenConns(jobCallers + jobWorkers)
	db.SetMaxIdleConns(jobCallers + jobWorkers)
	l.atEnd(db.Close)
	return db
}

// until waits until a query says so.
func until(ctx context.Context, db *sql.DB, query string, args ...any) error {
	for end := time.Now().Add(5 * patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		var so bool
		if err := db.QueryRowContext(ctx, query, args...).Scan(&so); err != nil || so {
			return err
		}
	}
	return fmt.Errorf("it did not happen within %v: %s", 5*patience, query)
}

// bareTables are what a loop needs that does with every job what Toolpost promises: it is accepted, begun by one program, noted
// before it runs, recorded and ended, and each of these survives a crash before the next one.
const bareTables = `CREATE TABLE bare_job (id BIGSERIAL PRIMARY KEY, state TEXT NOT NULL, call TEXT NOT NULL, result TEXT);
CREATE INDEX bare_queue ON bare_job (id) WHERE state = 'queued';
CREATE TABLE bare_note (id BIGINT PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE bare_record (id BIGINT PRIMARY KEY, record TEXT NOT NULL)`

// bareJobs is the obvious loop: a commit for each of the five steps of a job.
func bareJobs(ctx context.Context, l *lab, url string) timed {
	db := l.raw(url)
	attempt.Must(db.ExecContext(ctx, bareTables))
	return clock(func() error {
		var g errgroup.Group
		g.Go(storm(jobCallers, jobsEach, func() error {
			_, err := db.ExecContext(ctx, `INSERT INTO bare_job (state, call) VALUES ('queued', $1)`, fileArgs)
			return err
		}))
		var left atomic.Int64
		left.Store(jobCallers * jobsEach)
		for range jobWorkers {
			g.Go(func() error {
				for left.Load() > 0 {
					id, err := bareClaim(ctx, db)
					if errors.Is(err, sql.ErrNoRows) {
						time.Sleep(time.Millisecond)
						continue
					}
					if err = errors.Join(err, bareRun(ctx, db, id)); err != nil {
						return err
					}
					left.Add(-1)
				}
				return nil
			})
		}
		return g.Wait()
	})
}

// bareClaim begins the oldest job, in a transaction.
func bareClaim(ctx context.Context, db *sql.DB) (id int64, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	err = tx.QueryRowContext(ctx,
		`SELECT id FROM bare_job WHERE state = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED`).Scan(&id)
	if err == nil {
		_, err = tx.ExecContext(ctx, `UPDATE bare_job SET state = 'running' WHERE id = $1`, id)
	}
	if err != nil {
		return 0, err
	}
	return id, tx.Commit()
}

// bareRun notes, records and ends a job: a statement each, so a transaction each.
func bareRun(ctx context.Context, db *sql.DB, id int64) error {
	record := string(lineOf([]byte(fileArgs)))
	if _, err := db.ExecContext(ctx, `INSERT INTO bare_note VALUES ($1, $2)`, id, record); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, `WITH gone AS (DELETE FROM bare_note WHERE id = $1 RETURNING id)
		INSERT INTO bare_record SELECT id, $2 FROM gone`, id, record); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, `UPDATE bare_job SET state = 'done', result = $2 WHERE id = $1`, id, fileArgs)
	return err
}

// riverJobs makes jobs of River, with a program that is a module of its own.
func riverJobs(ctx context.Context, l *lab, url string) timed {
	program := l.once("river", func(binary string) {
		cmd := exec.CommandContext(ctx, "go", "build", "-C", "bench/river", "-trimpath", "-o", binary, ".")
		if out, err := cmd.CombinedOutput(); err != nil {
			attempt.Check(fmt.Errorf("River cannot be built; its modules have to be fetched once: %w\n%s", err, out))
		}
	})
	cmd := exec.CommandContext(ctx, program, url, strconv.Itoa(jobCallers))
	in, out := attempt.Must(cmd.StdinPipe()), bufio.NewScanner(attempt.Must(cmd.StdoutPipe()))
	cmd.Stderr = os.Stderr
	attempt.Check(cmd.Start())
	l.atEnd(func() error { return errors.Join(in.Close(), cmd.Wait()) })
	return func() (time.Duration, error) {
		if _, err := fmt.Fprintln(in, jobCallers*jobsEach); err != nil {
			return 0, err
		}
		if !out.Scan() {
			return 0, errors.Join(errors.New("River's program has ended"), out.Err())
		}
		took, err := strconv.ParseInt(out.Text(), 10, 64)
		return time.Duration(took), err
	}
}

// jobBegins measures how long it takes until a job is running that one program makes and another one, which is idle, runs:
// until the call of its tool begins, which is after the job was begun durably. The reference is a program that stores a row and
// notifies one that listens, which then claims it; these are the same two commits.
func jobBegins(ctx context.Context, l *lab) row {
	s := l.postgres(ctx)
	url := attempt.Must(s.Create(ctx))
	l.echoOn(ctx, url, "idle")
	db := l.raw(url)
	maker := l.openNode(ctx, filepath.Join(l.dir, "maker"), map[string]string{
		"toolpost.yaml": fmt.Sprintf(lookConfig, url),
	}, node.Options{}).Handler() // it serves no door, so it runs no jobs
	m, r := compare(41, func() (time.Duration, error) {
		time.Sleep(idle)
		output, err := invoke(ctx, maker, &tool.Call{
			Tool: "startJob", Args: []byte(`{"tool":"look"}`), Caller: tool.Principal{ID: "local", Door: "cli"},
		})
		if err != nil {
			return 0, err
		}
		made, err := strictjson.ReadMembers(output, "job")
		if err != nil {
			return 0, err
		}
		id := string(bytes.Trim(made.Get("job"), `"`))
		if err := until(ctx, db, `SELECT EXISTS (SELECT 1 FROM calls WHERE `+thatCall+`)`, id); err != nil {
			return 0, err
		}
		var took int64
		err = db.QueryRowContext(ctx, `SELECT calls.at - job.made_at FROM job, calls WHERE job.id = $1 AND calls.`+thatCall,
			id).Scan(&took)
		return time.Duration(took) * time.Microsecond, err
	}, l.bareNotify(ctx, attempt.Must(s.Create(ctx))))
	return within(m, 25*time.Millisecond, longer(m, r, ms))
}

// thatCall selects the record of a job's call, whose id is among its details.
const thatCall = `tool = 'look' AND detail LIKE '%' || $1::text || '%'`

// idle is the pause before a job, so that the programs have nothing left to do for the one before.
const idle = 50 * time.Millisecond

// bareNotify returns how long it takes until a row that one connection stores, and tells of, was claimed by another.
func (l *lab) bareNotify(ctx context.Context, url string) timed {
	db := l.raw(url)
	attempt.Must(db.ExecContext(ctx, bareTables))
	ctx, cancel := context.WithCancel(ctx)
	listener := attempt.Must(pgx.Connect(ctx, url))
	attempt.Must(listener.Exec(ctx, "LISTEN bare"))
	claimed := make(chan error)
	var listening sync.WaitGroup
	listening.Go(func() {
		for {
			if _, err := listener.WaitForNotification(ctx); err != nil {
				return
			}
			_, err := bareClaim(ctx, db)
			claimed <- err
		}
	})
	l.atEnd(func() error { cancel(); listening.Wait(); return listener.Close(context.Background()) })
	return func() (time.Duration, error) {
		time.Sleep(idle)
		return clock(func() error {
			_, err := db.ExecContext(ctx, `INSERT INTO bare_job (state, call) VALUES ('queued', $1)`, fileArgs)
			if err == nil {
				_, err = db.ExecContext(ctx, "NOTIFY bare")
			}
			if err != nil {
				return err
			}
			select {
			case err = <-claimed:
			case <-time.After(patience):
				err = fmt.Errorf("no notification came within %v", patience)
			}
			return err
		})()
	}
}
