package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/envelope"
	"toolpost/wire/strictjson"
)

// The tools for jobs. The door knows their names and arguments.
const (
	startJob  = "startJob"
	showJob   = "showJob"
	listJobs  = "listJobs"
	cancelJob = "cancelJob"
	watchJob  = "watchJob"
)

// headerLast names the last event of a stream that a peer has received.
const headerLast = "Last-Event-ID"

// The parts of RFC 7240 that we support.
const (
	headerPrefer  = "Prefer"
	headerApplied = "Preference-Applied"
	respondAsync  = "respond-async"
)

// ask runs a call of a tool that implements a route.
func (s *server) ask(
	w http.ResponseWriter, r *http.Request, p tool.Principal, name string, args any, answer answering,
) error {
	c := &tool.Call{Tool: name, Caller: p}
	timeout, err := readCall(r.Header, c)
	if r.Method != http.MethodDelete {
		c.Key = "" // a repeated query needs a fresh answer
	}
	if err == nil {
		err = s.offers(r, p, name)
	}
	if err == nil {
		c.Args, err = strictjson.Marshal(args)
	}
	if err != nil {
		return err
	}
	return s.run(w, r, c, timeout, answer)
}

// offers returns an error if the tool behind a route does not exist, or not for this caller.
func (s *server) offers(r *http.Request, p tool.Principal, name string) error {
	_, err := s.catalog.Lookup(r.Context(), p, name)
	if tool.CodeOf(err) == tool.CodeNotFound {
		return tool.Errorf(tool.CodeUnsupported,
			"%s is not offered: it needs the tool %s, which is not here or not for you; "+
				"those for jobs come with a store", r.URL.Path, name).Because("tool_missing")
	}
	return err
}

// aboutJob is GET or DELETE /v1/jobs/{id}: a call of the tool with the job's id.
func (s *server) aboutJob(name string) handler {
	return func(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
		return s.ask(w, r, p, name, map[string]string{"job": r.PathValue("id")}, s.asked(w, r))
	}
}

// jobEvents is GET /v1/jobs/{id}/events: always a stream. A client that has received some of the events sends their
// number in the header with which browsers resume a stream.
func (s *server) jobEvents(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
	if r.Method == http.MethodHead { // a stream without a body would only wait
		web.NotAllowed(w, r, nil, http.MethodGet)
		return nil
	}
	before, err := readBefore(r.Header)
	if err != nil {
		return err
	}
	args := map[string]any{"job": r.PathValue("id")}
	if before > 0 {
		args["after"] = before
	}
	return s.ask(w, r, p, watchJob, args, func(ctx context.Context, c *tool.Call) { s.runStream(ctx, w, c, before) })
}

func readBefore(h http.Header) (uint64, error) {
	text, err := envelope.Single(h, headerLast)
	if err != nil || text == "" {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 53) // the integers that every JSON decoder can represent
	if err != nil {
		return 0, envelope.BadHeader(headerLast, "is not the id of an event of ours, which is a number")
	}
	return n, nil
}

// jobs is GET /v1/jobs; its query has the arguments of listJobs.
func (s *server) jobs(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
	args, err := readQuery(r)
	if err != nil {
		return err
	}
	return s.ask(w, r, p, listJobs, args, s.asked(w, r))
}

func readQuery(r *http.Request) (map[string]any, error) {
	args := map[string]any{}
	for name, values := range r.URL.Query() {
		if len(values) != 1 {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%q is in the query %d times", name, len(values))
		}
		switch name {
		case "state":
			args[name] = values[0]
		case "limit":
			n, err := strconv.Atoi(values[0])
			if err != nil {
				return nil, tool.Errorf(tool.CodeInvalidInput, "the limit %q is not a number", values[0])
			}
			args[name] = n
		default:
			return nil, tool.Errorf(tool.CodeInvalidInput, "%q in the query is not known; known are state and limit",
				name)
		}
	}
	return args, nil
}

// wantsJob reports whether the caller prefers to get its answer later.
func wantsJob(h http.Header) bool {
	for one := range listed(h, headerPrefer) {
		name, _, _ := strings.Cut(one, ";")
		if strings.EqualFold(strings.TrimSpace(name), respondAsync) {
			return true
		}
	}
	return false
}

// start makes a job of a call, and returns its location.
func (s *server) start(w http.ResponseWriter, r *http.Request, c *tool.Call, timeout time.Duration) error {
	job, err := asJob(c, timeout)
	if err == nil {
		err = s.offers(r, c.Caller, startJob)
	}
	if err != nil {
		return err
	}
	return s.run(w, r, job, 0, func(ctx context.Context, job *tool.Call) {
		res, err := s.handler.Invoke(ctx, job, tool.Discard)
		status := http.StatusOK
		if err == nil && res != nil && res.OK {
			status = http.StatusAccepted
			err = locate(w.Header(), res.Output)
		}
		s.answer(w, r, job, status, res, err)
	})
}

// locate sets the header with the job's URL.
func locate(h http.Header, output json.RawMessage) error {
	var started struct {
		Job string `json:"job"`
	}
	if err := strictjson.Unmarshal(output, &started); err != nil || !envelope.ValidID(started.Job) {
		return tool.Errorf(tool.CodeProtocol, "the tool %s has not said which job it started", startJob)
	}
	h.Set("Location", "/v1/jobs/"+started.Job)
	h.Set(headerApplied, respondAsync)
	return nil
}

// asJob converts a call to a call of startJob. The session and the lease are the job's; the key belongs to startJob, so
// that a job is started once.
func asJob(c *tool.Call, timeout time.Duration) (*tool.Call, error) {
	for name, given := range map[string]bool{
		envelope.HeaderTimeout: timeout > 0, envelope.HeaderDryRun: c.DryRun,
		envelope.HeaderResume: c.Resume != "", envelope.HeaderAnswers: len(c.Answers) > 0,
	} {
		if given {
			return nil, envelope.BadHeader(name, "cannot be given together with %s: %s", headerPrefer, respondAsync)
		}
	}
	args, err := strictjson.Marshal(struct {
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
		Session   string          `json:"session,omitempty"`
		Lease     string          `json:"lease,omitempty"`
	}{c.Tool, c.Args, c.Session, c.Lease})
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s: %w", c.Tool, err)
	}
	job := *c
	job.Tool, job.Args, job.Session, job.Lease = startJob, args, "", ""
	return &job, nil
}
