package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// A taskState is a server's report on a task: a call that it continues after it has answered. In the modern era the
// server decides that, and we poll it until it is done; in the legacy era some tools can be called in no other way, and
// tasks/result waits.
type taskState struct {
	ID       string          `json:"taskId"`
	Status   string          `json:"status"`
	Message  string          `json:"statusMessage"`
	Poll     float64         `json:"pollIntervalMs"`
	Result   json.RawMessage `json:"result"`
	Error    json.RawMessage `json:"error"`
	Requests json.RawMessage `json:"inputRequests"`
}

// Bounds on polling a server.
const (
	firstPoll  = 100 * time.Millisecond // if the server names none; then twice as long each time
	lastPoll   = 5 * time.Second
	fewestPoll = 20 * time.Millisecond // whatever the server names
	mostPoll   = time.Minute
	cancelTime = 2 * time.Second // for cancelling a task
)

// asTask reports whether a legacy server requires this tool to be called as a task.
func (u *upstreamCall) asTask(info *serverInfo) bool {
	return !info.modern && u.tool.Execution.Task == "required" && info.capabilities.Tasks.Requests.Tools.Call != nil
}

// awaitTask waits for the result of a legacy task. Questions of the server meanwhile belong to this call too.
func (u *upstreamCall) awaitTask(raw json.RawMessage) (*tool.Result, error) {
	var t taskState
	if err := strictjson.Unmarshal(raw, &t); err != nil || t.ID == "" {
		return nil, tool.Errorf(tool.CodeProtocol, "the server makes a task of %s that cannot be read", u.call.Tool)
	}
	q := u.taskQuery(mcp.MethodTaskResult, t.ID, nil)
	q.owner = u
	raw, err := u.r.upstream.ask(u.ctx, q)
	if err != nil {
		u.cancelTask(t.ID)
		return u.unanswered(err)
	}
	a, err := readAnswer(raw)
	if err != nil {
		return nil, tool.Errorf(tool.CodeProtocol,
			"the result of the task of %s cannot be read: %s", u.call.Tool, jsonrpc.Misread(err))
	}
	return u.complete(a, q.server)
}

func (u *upstreamCall) taskQuery(method, id string, responses json.RawMessage) *query {
	return &query{method: method, name: id, call: u.call, params: func(_ *serverInfo, w *strictjson.Writer) {
		w.Text("taskId", id)
		w.Raw("inputResponses", responses)
	}}
}

// poll polls a modern task until it is done.
func (u *upstreamCall) poll(raw json.RawMessage) (*tool.Result, error) {
	lastMessage := ""
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		var t taskState
		if err := strictjson.Unmarshal(raw, &t); err != nil || t.ID == "" || u.task != "" && t.ID != u.task {
			return nil, tool.Errorf(tool.CodeProtocol, "what the server says of the task of %s cannot be read", u.call.Tool)
		}
		if u.task = t.ID; t.Message != "" && t.Message != lastMessage {
			lastMessage = t.Message
			u.emit(tool.LogEvent("info", t.Message))
		}
		switch {
		case mcp.TaskOver(t.Status):
			return u.taskOutcome(&t)
		case t.Status == mcp.TaskAsks:
			if res, again, err := u.taskAsks(&t); !again {
				return res, err
			}
		case t.Status != mcp.TaskWorking:
			return nil, tool.Errorf(tool.CodeProtocol,
				"the task of %s has the unknown status %q", u.call.Tool, jsonrpc.Clip(t.Status))
		}
		wait := pause
		if t.Poll > 0 {
			wait = min(max(time.Duration(t.Poll)*time.Millisecond, fewestPoll), mostPoll)
		}
		if !tool.Sleep(u.ctx, wait) {
			u.cancelTask(t.ID)
			return u.unanswered(u.ctx.Err())
		}
		var err error
		if raw, err = u.r.upstream.ask(u.ctx, u.taskQuery(mcp.MethodTaskGet, t.ID, nil)); err != nil {
			if u.ctx.Err() != nil {
				u.cancelTask(t.ID)
			}
			return u.unanswered(err)
		}
	}
}

// taskOutcome returns the outcome of a task that has ended.
func (u *upstreamCall) taskOutcome(t *taskState) (*tool.Result, error) {
	switch t.Status {
	case mcp.TaskCancelled:
		return nil, tool.Errorf(tool.CodeCancelled,
			"the server has cancelled the task of %s: %s", u.call.Tool, jsonrpc.Clip(t.Message))
	case mcp.TaskFailed:
		m := jsonrpc.Message{Err: t.Error}
		if t.Error == nil {
			return tool.Failed("task_failed", cmp.Or(jsonrpc.Clip(t.Message), "the task failed and did not say why")), nil
		}
		return u.errorOutcome(m.Failure())
	}
	a, err := readAnswer(t.Result)
	if err != nil {
		return nil, tool.Errorf(tool.CodeProtocol,
			"the result of the task of %s cannot be read: %s", u.call.Tool, jsonrpc.Misread(err))
	}
	return u.complete(a, &serverInfo{modern: true, version: mcp.ModernVersion})
}

// taskAsks ends the call with the task's questions. again is true if there is nothing to ask the
// caller, and polling goes on.
func (u *upstreamCall) taskAsks(t *taskState) (_ *tool.Result, again bool, _ error) {
	needs, known, err := u.readNeeds(t.Requests)
	if err != nil {
		return nil, false, err
	}
	if len(needs) == 0 && len(known) == 0 {
		return nil, true, nil // the server has not processed our answer yet
	}
	if len(needs) == 0 {
		_, err := u.r.upstream.ask(u.ctx, u.taskQuery(mcp.MethodTaskUpdate, t.ID, encodeAnswers(known)))
		if err != nil {
			res, err := u.unanswered(err)
			return res, false, err
		}
		return nil, true, nil
	}
	if u.responses != nil && u.answeredAlready(needs) {
		return nil, true, nil
	}
	id := t.ID
	res, err := u.r.questions.ask(u.call, needs, func(
		ctx context.Context, c *tool.Call, o *upstreamTool, out tool.Sink, answers map[string]json.RawMessage,
	) (*tool.Result, error) {
		maps.Copy(answers, known)
		next := u.r.newUpstreamCall(c, o)
		next.task, next.responses = id, encodeAnswers(answers)
		return next.run(ctx, out, (*upstreamCall).update)
	}, func() { u.cancelTask(id) })
	return res, false, err
}

// answeredAlready reports whether all of the needs were answered before: the server may take a while to notice.
func (u *upstreamCall) answeredAlready(needs []tool.Need) bool {
	var given map[string]json.RawMessage
	return strictjson.Unmarshal(u.responses, &given) == nil &&
		!slices.ContainsFunc(needs, func(n tool.Need) bool { return given[n.Key] == nil })
}

// update sends a task its answers, and waits for it again.
func (u *upstreamCall) update() (*tool.Result, error) {
	_, err := u.r.upstream.ask(u.ctx, u.taskQuery(mcp.MethodTaskUpdate, u.task, u.responses))
	if err != nil {
		return u.unanswered(err)
	}
	raw, err := u.r.upstream.ask(u.ctx, u.taskQuery(mcp.MethodTaskGet, u.task, nil))
	if err != nil {
		return u.unanswered(err)
	}
	return u.poll(raw)
}

// cancelTask tells the server that the result is no longer wanted. It is a courtesy, with a short timeout.
func (u *upstreamCall) cancelTask(id string) {
	ctx, cancel := context.WithTimeout(u.r.life, cancelTime)
	defer cancel()
	_, err := u.r.upstream.ask(ctx, u.taskQuery(mcp.MethodTaskCancel, id, nil))
	if err != nil && !errors.Is(err, jsonrpc.ErrAbandoned) {
		u.r.log.Debug("a task was not cancelled", "task", jsonrpc.Clip(id), "error", fmt.Sprint(err))
	}
}
