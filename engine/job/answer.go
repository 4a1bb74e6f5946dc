package job

import (
	"context"
	"encoding/json"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Answer answers the question of a job, which is then queued to run again. If the job needs several answers, they may
// come one after the other; the job runs after the last. Invalid answers are refused at once, and the job waits for
// better ones. The lease is for a tool that needs one at each run.
func (q *Queue) Answer(
	ctx context.Context, p tool.Principal, id string, answers json.RawMessage, lease string,
) (json.RawMessage, error) {
	j, err := q.o.Callers.Asked(ctx, p.ID, id)
	if err != nil {
		return nil, err
	}
	var o outcome
	if err := strictjson.Unmarshal(j.Outcome, &o); err != nil || o.Result == nil || o.Result.Ask == nil {
		return nil, tool.Errorf(tool.CodeInternal, "the question of job %s cannot be read", id)
	}
	if ask := o.Result.Ask; ask.Kind == tool.AskApproval { // it would be decided with the rights of the job's caller
		return nil, tool.Errorf(tool.CodeConflict, "job %s waits for an approval: decide with approvals.decide, or "+
			"`toolpost approve %s`; it then goes on by itself", id, ask.ID).Because(tool.AskApproval)
	}
	seen := j.Outcome
	if answers, err = o.add(answers); err != nil {
		return nil, err
	}
	var call, kept []byte
	if answers == nil {
		kept, err = o.encode()
	} else {
		call, err = q.resumed(ctx, &j, o.Result.Ask.ID, answers)
	}
	if err != nil {
		return nil, err
	}
	if j, err = q.o.Callers.Answer(ctx, p.ID, id, seen, call, kept, lease); err != nil {
		return nil, err
	}
	q.made(ctx)
	return show(q.dated(j))
}

// add adds answers, and returns all of them once there are enough, or nil if some are missing. It ignores answers that
// were not asked for or were given before.
func (o *outcome) add(answers json.RawMessage) (json.RawMessage, error) {
	needs := o.Result.Ask.Needs
	if len(needs) == 0 {
		return answers, nil
	}
	var given map[string]json.RawMessage
	if err := strictjson.Unmarshal(answers, &given); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the answers must be an object with a member for each thing that was asked")
	}
	if o.Said == nil {
		o.Said = map[string]json.RawMessage{}
	}
	complete := true
	for _, n := range needs {
		if one := given[n.Key]; one != nil && o.Said[n.Key] == nil {
			o.Said[n.Key] = one
		}
		complete = complete && (n.Optional || o.Said[n.Key] != nil)
	}
	if !complete {
		return nil, nil
	}
	return strictjson.Marshal(o.Said)
}

// resumed returns the call of a job with the answers to its question, if it would pass with them.
func (q *Queue) resumed(ctx context.Context, j *Job, question string, answers json.RawMessage) ([]byte, error) {
	c, _, err := decode(j)
	if err != nil {
		return nil, err
	}
	c.Answers, c.Resume = answers, question
	if err := q.wouldPass(ctx, c); err != nil {
		return nil, err
	}
	var r request
	if err := strictjson.Unmarshal(j.Call, &r); err != nil {
		return nil, err
	}
	r.Answers, r.Resume, r.Rounds = answers, question, r.Rounds+1
	return strictjson.Marshal(r)
}

// approved returns the call of a job that waits for an approval, to be made again once that is decided.
func approved(call []byte, approval string) ([]byte, error) {
	var r request
	if err := strictjson.Unmarshal(call, &r); err != nil {
		return nil, err
	}
	r.Answers, r.Resume, r.Rounds = nil, approval, r.Rounds+1
	return strictjson.Marshal(r)
}

// rounds returns how often a question of a job was answered.
func rounds(j *Job) int {
	var r struct {
		Rounds int `json:"rounds"`
	}
	_ = strictjson.Unmarshal(j.Call, &r) // an unreadable call was not run
	return r.Rounds
}
