package job

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// An outcome is how a job ended, as it is stored: one of the two.
type outcome struct {
	Result *tool.Stored `json:"result,omitzero"`
	Error  *tool.Error  `json:"error,omitzero"`
	// If the job asked: the number of the question, and the answers to it so far.
	Round int                        `json:"round,omitzero"`
	Said  map[string]json.RawMessage `json:"said,omitzero"`
}

// maxOutcome limits a stored outcome, in bytes.
const maxOutcome = 16 << 20

func (o outcome) encode() ([]byte, error) {
	b, err := strictjson.Marshal(o)
	switch {
	case err != nil:
		return nil, tool.Errorf(tool.CodeInternal, "it ran, but its outcome is not JSON: %w", err)
	case len(b) > maxOutcome && o.Result != nil && o.Result.Content != nil: // Output holds the same
		return outcome{Result: &tool.Stored{Result: o.Result.Result}, Round: o.Round}.encode()
	case len(b) > maxOutcome:
		return nil, tool.Errorf(tool.CodeQuotaExceeded,
			"it ran, but its outcome of %d bytes is not kept: %d is the most", len(b), maxOutcome).Because("too_large")
	}
	return b, nil
}

// because returns an outcome that is only an error.
func because(err error) []byte {
	b, failed := outcome{Error: tool.AsError(err)}.encode()
	if failed != nil { // details that are not JSON, or too long
		e := *tool.AsError(err)
		e.Details, e.Message = nil, "its error cannot be kept"
		b, _ = outcome{Error: &e}.encode()
	}
	return b
}

// A view is a job as its caller sees it.
type view struct {
	Job
	shown
}

// shown is an outcome as it was stored.
type shown struct {
	Result json.RawMessage `json:"result,omitzero"` // if there is one
	Error  json.RawMessage `json:"error,omitzero"`  // why there is no result
	Round  int             `json:"round,omitzero"`  // the number of the question
	Said   json.RawMessage `json:"said,omitzero"`   // the answers so far
}

func viewOf(j Job) (view, error) {
	j.Stop = j.Stop && j.State == Running
	v := view{Job: j}
	if j.Outcome == nil {
		return v, nil
	}
	if err := strictjson.UnmarshalClosed(j.Outcome, &v.shown); err != nil {
		return v, tool.Errorf(tool.CodeInternal, "the outcome of job %s cannot be read: %w", j.ID, err)
	}
	return v, nil
}

// dated sets when a job may be deleted, and what it waits for.
func (q *Queue) dated(j Job) Job {
	if _, name, _ := parseNeeds(j.Needs); j.State == Queued {
		if _, ok := q.o.Tools.Has(name); !ok {
			j.Waiting = "waiting for a program that has " + j.Tool
		}
	}
	if !j.Ended.IsZero() {
		j.Expires = j.Ended.Add(q.o.Keep)
	}
	return j
}

// show encodes a job for its caller, without the caller's name.
func show(j Job) (json.RawMessage, error) {
	j.Caller = ""
	v, err := viewOf(j)
	if err != nil {
		return nil, err
	}
	return strictjson.Marshal(v)
}

// Show returns a job of a caller, as JSON. The job of another caller is not found, like one that never existed.
func (q *Queue) Show(ctx context.Context, p tool.Principal, id string) (json.RawMessage, error) {
	j, _, err := q.o.Callers.Find(ctx, p.ID, id, 0, 0)
	if err != nil {
		return nil, err
	}
	return show(q.dated(j))
}

// The number of jobs in a list.
const (
	defaultList = 100
	maxList     = 1000
)

// List returns the jobs of a caller, as JSON, the newest first, without their outcomes.
func (q *Queue) List(ctx context.Context, p tool.Principal, state string, most int) (json.RawMessage, error) {
	return q.list(state, most, false, func(most int) ([]Job, error) { return q.o.Callers.List(ctx, p.ID, state, most) })
}

// All is List for the jobs of all callers, each with its caller.
func (q *Queue) All(ctx context.Context, state string, most int) (json.RawMessage, error) {
	return q.list(state, most, true, func(most int) ([]Job, error) { return q.o.Operators.All(ctx, state, most) })
}

// Of returns the caller of a job.
func (q *Queue) Of(ctx context.Context, id string) (caller string, err error) {
	return q.o.Operators.Of(ctx, id)
}

func (q *Queue) list(
	state string, most int, callers bool, read func(most int) ([]Job, error),
) (json.RawMessage, error) {
	switch {
	case state != "" && !slices.Contains(States(), state):
		return nil, tool.Errorf(tool.CodeInvalidInput, "a job is never %.40q; the states are %v", state, States())
	case most < 0 || most > maxList:
		return nil, tool.Errorf(tool.CodeInvalidInput, "a list has from 1 to %d jobs, not %d", maxList, most)
	case most == 0:
		most = defaultList
	}
	jobs, err := read(most)
	if err != nil {
		return nil, err
	}
	views := []view{}
	for _, j := range jobs {
		if !callers {
			j.Caller = ""
		}
		v, err := viewOf(q.dated(j))
		if err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	return strictjson.Marshal(map[string]any{"jobs": views})
}

// Cancel ends a job of a caller: a waiting job at once, a running job as soon as its process sees it.
func (q *Queue) Cancel(ctx context.Context, p tool.Principal, id string) (json.RawMessage, error) {
	j, err := q.o.Callers.Cancel(ctx, p.ID, id, because(errStopped))
	if err != nil {
		return nil, err
	}
	return show(q.dated(j))
}

// How often Watch looks: soon after an event, less often if nothing happens.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = 300 * time.Millisecond
	atOnce    = 256 // events that are read at once
)

// Watch passes the events of a caller's job after the first after ones to out, and returns the job once it has ended or
// asks. A caller that has seen the question sets asked, and gets the job once it goes on.
func (q *Queue) Watch(
	ctx context.Context, p tool.Principal, id string, after int64, asked bool, out tool.Sink,
) (json.RawMessage, error) {
	ended := q.ended
	pause := firstLook
	for {
		j, events, err := q.o.Callers.Find(ctx, p.ID, id, after, atOnce)
		if err != nil {
			return nil, err
		}
		if err := emit(events, out); err != nil {
			return nil, err
		}
		after += int64(len(events))
		switch {
		case len(events) == atOnce: // there may be more
			continue
		case j.over(asked):
			return show(q.dated(j))
		case ended == nil:
			return nil, tool.Errorf(tool.CodeUnavailable,
				"the server is shutting down, and job %s is %s; watch it again later, after event %d", id, j.State,
				after)
		case len(events) > 0:
			pause = firstLook
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, lastLook)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-ended:
			ended = nil // one more look
		}
	}
}

// over reports whether Watch returns the job; asked means that its question was seen before.
func (j *Job) over(asked bool) bool {
	switch j.State {
	case Queued, Running:
		return asked
	case Asked:
		return !asked
	}
	return true
}

func emit(events [][]byte, out tool.Sink) error {
	for _, b := range events {
		var ev tool.Event
		if err := strictjson.Unmarshal(b, &ev); err != nil {
			return tool.Errorf(tool.CodeInternal, "an event of the job cannot be read: %w", err)
		}
		if err := out.Emit(ev); err != nil {
			return err
		}
	}
	return nil
}
