package door

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// The tools for jobs. The door knows their names and arguments.
const (
	startJob  = "startJob"
	showJob   = "showJob"
	answerJob = "answerJob"
	cancelJob = "cancelJob"
	watchJob  = "watchJob"
)

// Tasks decides which calls become tasks, for clients that support tasks: the protocol leaves that to the server. A
// tool's timeout is the best guess at how long it takes, since clients commonly give up on a request after a minute. A
// tool that runs as a task at its MCP server also does so here. A legacy client decides itself, by the tool's definition.
type Tasks struct {
	Tools    tool.Patterns `yaml:"tools" doc:"tools whose calls run as tasks; default: those with a timeout above one minute"`
	Required tool.Patterns `yaml:"required" doc:"tools that only run as tasks; clients without support for tasks are refused"`
	AskFirst tool.Patterns `yaml:"ask_first" doc:"task tools that ask before they start: their first question reaches the client before the task exists"`
}

// longTime is the timeout above which a tool counts as slow.
const longTime = time.Minute

// pollEvery is the suggested interval for polling a task.
const pollEvery = time.Second

// asTask reports whether a call should become a task.
func (t Tasks) asTask(spec *tool.Spec, answered bool) bool {
	switch {
	case matches(t.AskFirst, spec) && !answered:
		return false
	case matches(t.Required, spec) || matches(t.AskFirst, spec) || matches(t.Tools, spec):
		return true
	}
	return t.Tools == nil && (spec.Timeout > longTime || taskable(spec)) && !spec.Unlisted
}

// taskable reports whether the MCP server of a tool can run it as a task.
func taskable(spec *tool.Spec) bool {
	return spec.TaskSupport == "required" || spec.TaskSupport == "optional"
}

// matches reports whether a config names a tool. A missing list names no tool, although elsewhere it names all.
func matches(p tool.Patterns, spec *tool.Spec) bool { return p != nil && p.Match(spec.Ref()) }

// supportsTasks reports whether the client declares support for tasks, or speaks the legacy version that has them.
func (r *request) supportsTasks() bool {
	if !r.modern {
		return r.session != nil && r.session.Version == mcp.LegacyVersions()[0]
	}
	var capabilities struct {
		Extensions map[string]json.RawMessage `json:"extensions"`
	}
	return strictjson.Unmarshal(strictjson.OrEmpty(r.meta.capabilities), &capabilities) == nil && capabilities.Extensions[mcp.ExtensionTasks] != nil
}

// runsTasks reports whether this server keeps and runs jobs for a caller.
func (s *server) runsTasks(ctx context.Context, p tool.Principal) bool {
	return s.Jobs && s.spec(ctx, p, startJob) != nil
}

func tasksRequired(what string) *jsonrpc.Error {
	e := jsonrpc.Errorf(mcp.CodeMissingCapability, "Missing required client capability: %s is for clients that know tasks", what)
	e.Data = json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + mcp.ExtensionTasks + `":{}}}}`)
	return e
}

// asTask makes a task of a call that should become one. It returns nothing if the call is to run as it is.
func (s *server) asTask(ctx context.Context, r *request, c *tool.Call) (*strictjson.Writer, *jsonrpc.Error) {
	if r.spec == nil || !s.runsTasks(ctx, r.caller) {
		return nil, nil
	}
	wanted := r.supportsTasks() && (r.modern || strictjson.KindOf(r.asTask) == "object")
	switch {
	case !wanted && matches(s.Tasks.Required, r.spec):
		return nil, tasksRequired(r.name)
	case wanted && !r.modern && !taskable(r.spec) && !matches(s.Tasks.Required, r.spec):
		return nil, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound,
			"Method not found: %s does not run as a task; call it without `task`", jsonrpc.Clip(r.name))
	case !wanted || r.modern && !s.Tasks.asTask(r.spec, r.state != ""):
		return nil, nil
	}
	if asks, err := s.resume(r, c); err != nil || asks != nil {
		if bad := protocolError(err); bad != nil {
			return nil, bad
		}
		if err != nil {
			return failure(r, tool.AsError(err)), nil
		}
		return asks, nil
	}
	args := map[string]any{"tool": c.Tool, "arguments": c.Args, "session": c.Session, "lease": c.Lease}
	if c.Resume != "" {
		args["answers"], args["resume"] = c.Answers, c.Resume
	}
	call := *c
	call.Answers, call.Resume = nil, ""
	j, err := s.job(ctx, &call, startJob, args)
	if err != nil {
		if bad := protocolError(answerError(r, err)); bad != nil {
			return nil, bad
		}
		return failure(r, tool.AsError(err)), nil
	}
	w := strictjson.NewWriter(300)
	if r.modern {
		w.Text("resultType", mcp.ResultTask)
		j.write(w, true)
		return w, nil
	}
	task := strictjson.NewWriter(300)
	j.write(task, false)
	w.Raw("task", task.Done())
	return w, nil
}

// A job is a task, as returned by the tools for jobs.
type job struct {
	ID      string                     `json:"job"`
	Tool    string                     `json:"tool"`
	State   string                     `json:"state"`
	Made    time.Time                  `json:"made"`
	Began   time.Time                  `json:"began"`
	Ended   time.Time                  `json:"ended"`
	Expires time.Time                  `json:"expires"`
	Result  *tool.Stored               `json:"result"`
	Error   *tool.Error                `json:"error"`
	Round   int                        `json:"round"`
	Said    map[string]json.RawMessage `json:"said"`

	assets []json.RawMessage // content with its assets
}

// job calls a tool for jobs, as part of another call.
func (s *server) job(ctx context.Context, c *tool.Call, name string, args map[string]any) (j *job, err error) {
	one := *c
	one.ID, one.Tool, one.Session, one.Lease = "", name, "", ""
	if one.Args, err = strictjson.Marshal(args); err != nil {
		return nil, err
	}
	if name != startJob {
		one.Key = "" // a repeated query needs a fresh answer
	}
	made := &relay{request: &request{}, to: silentPeer{}}
	res, err := s.handler.Invoke(ctx, &one, made)
	if err != nil {
		return nil, err
	}
	if !res.OK || strictjson.Unmarshal(res.Output, &j) != nil || j == nil {
		return nil, tool.Errorf(tool.CodeProtocol, "%s did not show a job", name)
	}
	j.assets = made.assets // of watchJob, as events
	return j, nil
}

// status returns the task status of a job. A failure in the tool or the engine is a result, as it is without a task; a
// call without one, since its program died or broke its protocol, has failed.
func (j *job) status() string {
	switch {
	case j.State == "queued" || j.State == "running" || j.State == "asked" && j.awaits():
		return mcp.TaskWorking
	case j.State == "asked":
		return mcp.TaskAsks
	case j.State == "cancelled":
		return mcp.TaskCancelled
	case j.Error != nil && slices.Contains([]tool.Code{tool.CodeCrash, tool.CodeProtocol, tool.CodeInternal}, j.Error.Code):
		return mcp.TaskFailed
	}
	return mcp.TaskCompleted
}

// awaits reports whether the job's call must be approved. Its client is not asked, since an answer to a job would
// decide with the rights of the token that started it.
func (j *job) awaits() bool {
	return j.Result != nil && j.Result.Ask != nil && j.Result.Ask.Awaits != nil
}

// changed returns when the job last changed.
func (j *job) changed() time.Time {
	last := j.Made
	for _, t := range []time.Time{j.Began, j.Ended} {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// write writes the members that every task has. A task that has not ended does not expire. In the legacy era a task whose
// result is an error has failed, and the names of times have no unit.
func (j *job) write(w *strictjson.Writer, modern bool) {
	status, unit := j.status(), "Ms"
	if !modern {
		unit = ""
		if status == mcp.TaskCompleted && (j.Error != nil || j.Result != nil && !j.Result.OK) {
			status = mcp.TaskFailed
		}
	}
	w.Text("taskId", j.ID)
	w.Text("status", status)
	if j.Error != nil {
		w.Text("statusMessage", j.Error.Message)
	} else if j.awaits() {
		w.Text("statusMessage", j.Result.Ask.Message)
	}
	w.Text("createdAt", j.Made.UTC().Format(time.RFC3339Nano))
	w.Text("lastUpdatedAt", j.changed().UTC().Format(time.RFC3339Nano))
	ttl := "null"
	if !j.Expires.IsZero() {
		ttl = fmt.Sprint(j.Expires.Sub(j.Made).Milliseconds())
	}
	w.Raw("ttl"+unit, []byte(ttl))
	w.Raw("pollInterval"+unit, fmt.Append(nil, pollEvery.Milliseconds()))
}

// detail adds the members of a task's state: its questions, its result, or its error.
func (s *server) detail(ctx context.Context, r *request, w *strictjson.Writer, j *job) {
	j.write(w, true)
	switch j.status() {
	case mcp.TaskAsks:
		w.Raw("inputRequests", r.inputRequests(j.open(r), j.Result.Ask.ID))
	case mcp.TaskFailed:
		e := strictjson.NewWriter(100)
		e.Raw("code", fmt.Append(nil, jsonrpc.CodeInternal))
		e.Text("message", j.Error.Message)
		w.Raw("error", e.Done())
	case mcp.TaskCompleted:
		done := s.outcomeOf(ctx, r, j)
		if r.failed != nil || r.given != nil {
			of := &request{failed: r.failed, given: r.given}
			done.Raw("_meta", s.resultMeta(of))
			r.failed, r.given = nil, nil // they belong to the call, not to this request
		}
		w.Raw("result", done.Done())
	}
}

// outcomeOf returns the result of the call of a task that has ended.
func (s *server) outcomeOf(ctx context.Context, r *request, j *job) *strictjson.Writer {
	if j.Error != nil {
		return failure(r, j.Error)
	}
	r.spec = s.spec(ctx, r.caller, j.Tool)
	s.setSource(ctx, r)
	j.Result.Result.Content = j.Result.Content
	return outcome(r, &j.Result.Result, &relay{assets: j.assets})
}

// open returns the unanswered needs of a task. Each key is prefixed with the round, so that no key of a task repeats.
func (j *job) open(r *request) []tool.Need {
	var list []tool.Need
	for _, n := range needs(j.Result.Ask) {
		if j.Said[n.Key] == nil && (!n.Optional || r.askable(n.Kind)) {
			n.Key = fmt.Sprintf("%d-%s", j.Round, n.Key)
			list = append(list, n)
		}
	}
	return list
}

// task begins a request about a task and returns its job. Another caller's job is not found.
func (s *server) task(ctx context.Context, r *request, to peer) (c *tool.Call, j *job, end func(), bad *jsonrpc.Error) {
	switch {
	case r.supportsTasks() && (r.modern || s.runsTasks(ctx, r.caller)):
	case r.modern:
		return nil, nil, nil, tasksRequired(r.method)
	default:
		return nil, nil, nil, unknownMethod(r)
	}
	c = &tool.Call{Caller: r.caller, Tool: showJob}
	c.Name()
	ctx, end, refused := to.begin(ctx, c)
	if refused != nil {
		return nil, nil, nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "%s", refused.Message)
	}
	j, err := s.job(ctx, c, showJob, map[string]any{"job": r.task})
	if err != nil {
		end()
		return nil, nil, nil, taskError(r, err)
	}
	return c, j, end, nil
}

func taskError(r *request, err error) *jsonrpc.Error {
	switch e := tool.AsError(err); e.Code {
	case tool.CodeNotFound, tool.CodeInvalidInput:
		return mcp.Invalid("there is no task %q; tasks are forgotten some time after their end",
			jsonrpc.Clip(r.task))
	default:
		return jsonrpc.Errorf(jsonrpc.CodeInternal, "%s", e.Message)
	}
}

// getTask is tasks/get.
func (s *server) getTask(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	c, j, end, bad := s.task(ctx, r, to)
	if bad != nil {
		return nil, bad
	}
	defer end()
	w := newResult(r, 500)
	if !r.modern {
		j.write(w, false)
		return w, nil
	}
	if j, bad = s.withAssets(ctx, r, c, j); bad != nil {
		return nil, bad
	}
	s.detail(ctx, r, w, j)
	return w, nil
}

// taskResult is tasks/result of the legacy era: it asks the questions of a task, and returns its outcome when it has one.
func (s *server) taskResult(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	c, j, end, bad := s.task(ctx, r, to)
	if bad != nil {
		return nil, bad
	}
	defer end()
	r.name = j.Tool
	for asked := false; ; {
		j, err := s.job(ctx, c, watchJob, map[string]any{"job": r.task, "asked": asked})
		switch {
		case err != nil:
			return nil, taskError(r, err)
		case mcp.TaskOver(j.status()):
			return s.outcomeOf(ctx, r, j), nil
		}
		if asked = j.awaits(); j.status() == mcp.TaskWorking {
			continue
		}
		answers, _, err := s.askClient(ctx, r, j.Result.Ask, taskPeer{to, r})
		if err != nil {
			return nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "%s", tool.AsError(err).Message)
		}
		if _, bad := s.sendAnswers(ctx, r, c, j, answers); bad != nil {
			return nil, bad
		}
	}
}

// relatedTask returns the task that messages of a request belong to, for their _meta.
func (r *request) relatedTask() json.RawMessage {
	w := strictjson.NewWriter(100)
	w.Text("taskId", r.task)
	return w.Done()
}

// A taskPeer asks a legacy client the questions of a task.
type taskPeer struct {
	peer
	*request
}

func (p taskPeer) ask(ctx context.Context, method string, params []byte) (json.RawMessage, error) {
	w, meta := strictjson.NewWriter(100+len(params)), strictjson.NewWriter(100)
	_ = strictjson.Object(params, func(name, value []byte) error { // written by us
		if string(name) != "_meta" {
			w.Named(string(name), value)
		}
		return nil
	})
	meta.Raw(metaTask, p.relatedTask())
	w.Raw("_meta", meta.Done())
	return p.peer.ask(ctx, method, w.Done())
}

// withAssets returns a job with its assets, which come as events.
func (s *server) withAssets(ctx context.Context, r *request, c *tool.Call, j *job) (*job, *jsonrpc.Error) {
	if j.status() != mcp.TaskCompleted || j.Result == nil {
		return j, nil
	}
	j, err := s.job(ctx, c, watchJob, map[string]any{"job": j.ID})
	if err != nil {
		return nil, taskError(r, err)
	}
	return j, nil
}

// A silentPeer drops notifications: a task's messages do not belong to a query about its state.
type silentPeer struct{ peer }

func (silentPeer) notify(string, []byte) error { return nil }

// updateTask is tasks/update: answers to a task's questions. Other answers are ignored.
func (s *server) updateTask(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	c, j, end, bad := s.task(ctx, r, to)
	if bad != nil {
		return nil, bad
	}
	defer end()
	given := map[string]json.RawMessage{}
	if strictjson.KindOf(r.responses) != "object" || strictjson.Unmarshal(r.responses, &given) != nil {
		return nil, mcp.Invalid("inputResponses must be an object")
	}
	if j.status() != mcp.TaskAsks {
		return newResult(r, 0), nil
	}
	answers := map[string]json.RawMessage{}
	for _, n := range j.open(r) {
		_, key, _ := strings.Cut(n.Key, "-")
		switch one := given[n.Key]; {
		case one == nil:
		case strictjson.KindOf(one) != "object":
			return nil, mcp.Invalid("the answer to %q must be an object", jsonrpc.Clip(n.Key))
		default:
			answers[key] = one
		}
	}
	if len(answers) == 0 {
		return newResult(r, 0), nil
	}
	return s.sendAnswers(ctx, r, c, j, answers)
}

// sendAnswers hands answers to a job. A single question that was declined ends it.
func (s *server) sendAnswers(
	ctx context.Context, r *request, c *tool.Call, j *job, given map[string]json.RawMessage,
) (*strictjson.Writer, *jsonrpc.Error) {
	answers, declined := answersTo(j.ID, j.Result.Ask, maps.Clone(given))
	tellWith, args := answerJob, map[string]any{"job": j.ID, "answers": answers}
	if declined != nil {
		tellWith, args = cancelJob, map[string]any{"job": j.ID}
	}
	if _, err := s.job(ctx, c, tellWith, args); err != nil {
		e := tool.AsError(err)
		switch {
		case e.Code == tool.CodeConflict: // already answered by another request
		case e.Code == tool.CodeInvalidInput:
			return nil, mcp.Invalid("inputResponses: %s", e.Message)
		default:
			return nil, taskError(r, err)
		}
	}
	return newResult(r, 0), nil
}

// cancelTask is tasks/cancel. A task that has ended stays as it is.
func (s *server) cancelTask(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	c, j, end, bad := s.task(ctx, r, to)
	if bad != nil {
		return nil, bad
	}
	defer end()
	_, err := s.job(ctx, c, cancelJob, map[string]any{"job": j.ID})
	switch conflict := tool.CodeOf(err) == tool.CodeConflict; {
	case conflict && !r.modern:
		return nil, mcp.Invalid("the task %q has ended", jsonrpc.Clip(r.task))
	case err != nil && !conflict:
		return nil, taskError(r, err)
	case r.modern:
		return newResult(r, 0), nil
	}
	if j, err = s.job(ctx, c, watchJob, map[string]any{"job": j.ID}); err != nil { // it ends within a moment
		return nil, taskError(r, err)
	}
	w := newResult(r, 300)
	j.write(w, false)
	return w, nil
}

// watchTask notifies of each change in a task's status, until the task or ctx has ended.
func (s *server) watchTask(ctx context.Context, r *request, id string, tell func(method string, params *strictjson.Writer) error) {
	c := &tool.Call{Caller: r.caller}
	asked := false
	for ctx.Err() == nil {
		j, err := s.job(ctx, c, watchJob, map[string]any{"job": id, "asked": asked})
		if err != nil {
			return
		}
		w := strictjson.NewWriter(500)
		s.detail(ctx, r, w, j)
		if tell("notifications/tasks", w) != nil {
			return
		}
		if mcp.TaskOver(j.status()) {
			return
		}
		asked = j.status() == mcp.TaskAsks
	}
}

// maxTasks bounds the tasks of one subscription.
const maxTasks = 100

// ownTasks returns those of the tasks that belong to the caller.
func (s *server) ownTasks(ctx context.Context, r *request, ids []string) (own []string, _ *jsonrpc.Error) {
	switch {
	case len(ids) == 0:
		return nil, nil
	case !r.supportsTasks():
		return nil, tasksRequired("taskIds")
	case len(ids) > maxTasks:
		return nil, mcp.Invalid("%d tasks are the most for one subscription", maxTasks)
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		if _, err := s.job(ctx, &tool.Call{Caller: r.caller}, showJob, map[string]any{"job": id}); err == nil {
			own = append(own, id)
		}
	}
	return own, nil
}
