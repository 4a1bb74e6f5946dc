package storage

import (
	"context"
	"errors"
	"sync"
	"time"

	plantools "toolpost/builtin/plan"
	"toolpost/config"
	"toolpost/engine/job"
	"toolpost/plan"
	"toolpost/tool"
)

// Callers are the callers of the current config.
type Callers interface {
	// Known returns the rights that the config lists for a caller.
	Known(id string) (*tool.Rights, bool)
	// StillAdmitted refuses a caller that may no longer call.
	StillAdmitted(ctx context.Context, p tool.Principal) error
}

// An Engine runs calls, and knows which tools it has.
type Engine interface {
	config.Engine
	job.Tools
}

// Bind gives approvals, jobs and plans the engine, which is opened after the storage, and which receives their calls without
// a door. Plans that continue from before the start wait for missing tools until settling has passed. With a client, which
// this program ends with, its own jobs are run.
func (s *Storage) Bind(e Engine, c tool.Catalog, callers Callers, settling time.Duration, client bool) {
	s.engine = e
	s.Plans.Handler, s.Plans.Catalog = s.Approvals.Waiting(e), c
	if s.DB == nil {
		return
	}
	s.Plans.Store, s.Plans.Settled = s.DB.Plans(), time.Now().Add(settling)
	s.Plans.Again = func(call *tool.Call, id string) ([]byte, error) {
		on := *call
		on.Tool, on.Args, on.Lease = plantools.Run, plantools.Args(id), ""
		return s.Jobs.Request(&on)
	}
	process, patience := "", time.Duration(0)
	if client {
		process, patience = tool.NewID(), serverTime
	}
	s.Jobs = job.New(job.Options{
		Process:   process,
		Patience:  patience,
		Callers:   s.DB.Jobs(),
		Operators: s.DB.Jobs(),
		Ledger:    s.DB.Jobs(),
		Bell:      s.DB,
		Handler:   e,
		Lookup:    c.Lookup,
		Own:       func(spec *tool.Spec) bool { return spec.Source == config.OwnSource && !resumes(spec) },
		Resumes:   resumes,
		Known:     callers.Known,
		Admit:     callers.StillAdmitted,
		Tools:     e,
		Drain:     time.Duration(s.cfg.Limits.Drain),
		Keep:      time.Duration(s.o.Jobs),
		Log:       s.log,
		Faults:    s.Faults,
	})
}

// resumes reports whether a tool of ours may take a long time, and continues after an interruption.
func resumes(s *tool.Spec) bool { return s.Source == config.OwnSource && s.Name == plantools.Run }

// PastPlans returns the last plans of a session in full, the newest first.
func (s *Storage) PastPlans(ctx context.Context, caller, session string, most int) ([]plan.Record, error) {
	plans := s.DB.Plans()
	list, err := plans.List(ctx, caller, session, "", most)
	for i := range list {
		if err == nil {
			list[i], _, err = plans.Find(ctx, caller, list[i].ID)
		}
	}
	return list, err
}

// serverTime is how long a server may take to begin a job of a program that ends with its client.
const serverTime = 500 * time.Millisecond

// RunJobs runs jobs until ctx ends.
func (s *Storage) RunJobs(ctx context.Context) {
	if s.DB != nil {
		s.Jobs.Run(ctx)
	}
}

// Run runs jobs and housekeeping until ctx ends.
func (s *Storage) Run(ctx context.Context) {
	if s.DB == nil {
		return
	}
	var jobs sync.WaitGroup
	jobs.Go(func() { s.RunJobs(ctx) })
	s.housekeeping(ctx)
	jobs.Wait()
}

// recoverPlans continues the plans of ended programs, as jobs.
func (s *Storage) recoverPlans(ctx context.Context) error {
	found, err := s.Plans.Recover(ctx, func(ctx context.Context, r plan.Record) error {
		return s.Jobs.Later(ctx, r.Call, r.Caller, plantools.Run, r.Request)
	})
	if found > 0 {
		s.log.Warn("a program ended while it ran plans; they go on as jobs", "plans", found)
	}
	return err
}

// How often a serving program looks for calls of ended programs, and for expired data; and how often it repeats an error.
const (
	lookAfter   = time.Second
	expireAfter = time.Hour
	sayAgain    = time.Minute
	keepCounts  = 48 * time.Hour // the time of the slowest quota is a day
)

// housekeeping records the calls of ended programs and the records that wait in memory, and removes expired data, until ctx
// ends.
func (s *Storage) housekeeping(ctx context.Context) {
	var expired, said time.Time
	complain := func(what string, err error) {
		if err != nil && ctx.Err() == nil && !s.Faults.Report(err) && time.Since(said) >= sayAgain {
			said = time.Now()
			s.log.Error(what, "error", tool.AsError(err).Message)
		}
	}
	for {
		lost, err := s.DB.Audit().Recover(ctx)
		complain("calls that were interrupted cannot be recorded", err)
		if len(lost) > 0 {
			s.log.Warn("calls were interrupted when a program ended; their outcome is unknown", "calls", len(lost))
			s.Lost(lost)
		}
		complain("plans that were interrupted cannot be gone on with", s.recoverPlans(ctx))
		s.Trail.Flush(ctx)
		if time.Since(expired) >= expireAfter {
			expired = time.Now()
			complain("what is too old cannot be removed from the store", s.expire(ctx))
		}
		if !tool.Sleep(ctx, lookAfter) {
			return
		}
	}
}

func (s *Storage) expire(ctx context.Context) error {
	errs := []error{s.DB.Tidy(ctx), s.DB.Quotas().Expire(ctx, time.Now().Add(-keepCounts))}
	drop := func(keep config.Duration, expire func(before time.Time) error) {
		if keep > 0 {
			errs = append(errs, expire(time.Now().Add(-time.Duration(keep))))
		}
	}
	drop(s.o.Retention, func(before time.Time) error {
		removed, err := s.DB.Audit().Prune(ctx, before)
		if removed > 0 {
			s.log.Info("old records were removed", "calls", removed)
		}
		return err
	})
	drop(s.o.Sessions, func(before time.Time) error { _, err := s.DB.Sessions().Expire(ctx, before); return err })
	drop(s.o.Plans, func(before time.Time) error { _, err := s.DB.Plans().Expire(ctx, before); return err })
	drop(s.o.Assets, func(before time.Time) error { _, err := s.files().Expire(ctx, before); return err })
	return errors.Join(errs...)
}
