package job_test

import (
	"encoding/json"
	"testing"

	"toolpost/engine/job"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func severalThings(string) *tool.Ask {
	schema := json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)
	return &tool.Ask{ID: "both", Needs: []tool.Need{
		{Key: "one", Kind: tool.NeedForm, Schema: schema}, {Key: "two", Kind: tool.NeedForm, Schema: schema},
		{Key: "three", Kind: tool.NeedRoots, Optional: true},
	}}
}

// A question is what is shown of a job that asked.
type question struct {
	State   string
	Result  struct{ Ask *tool.Ask }
	Round   int
	Said    map[string]json.RawMessage
	Expires string
}

func (p *program) question(id string) (q question) {
	p.t.Helper()
	p.until(id, job.Asked)
	_, text, err := p.tool(ada, "showJob", `{"job":"`+id+`"}`)
	if err != nil || json.Unmarshal([]byte(text), &q) != nil || q.Result.Ask == nil || q.Expires == "" {
		p.t.Fatalf("%s, %v", text, err)
	}
	return q
}

// answer answers a job, and returns its state or why the answer was refused.
func (p *program) answer(who tool.Principal, id, answers string) (seen, error) {
	s, _, err := p.tool(who, "answerJob", `{"job":"`+id+`","answers":`+answers+`}`)
	return s, err
}

func TestAJobThatAskedGoesOnWhenItIsAnswered(t *testing.T) {
	s := fresh()
	p := open(t, file(t), s, job.Options{}).run()
	id := p.start("asks", "a")
	if q := p.question(id); q.Round != 1 || q.Result.Ask.Message != "sure?" {
		t.Errorf("%+v", q)
	}
	if _, err := p.answer(tool.Principal{ID: "eve", Door: "http"}, id, `true`); tool.CodeOf(err) != tool.CodeNotFound {
		t.Errorf("somebody else's job: %v", err)
	}
	kit.Refused(t, kit.Err(p.answer(ada, id, `"perhaps"`)), tool.CodeInvalidInput, "boolean", "an answer that was not asked for")
	if q := p.question(id); q.State != job.Asked || s.times("a") != 1 {
		t.Errorf("%+v, and it ran %d times", q, s.times("a"))
	}
	kit.Must(p.answer(ada, id, `true`))(t)
	done := p.until(id, job.Done)
	if string(done.Result.Output) != `{"answers":true,"resume":"again"}` || s.times("a") != 2 {
		t.Errorf("%+v, and it ran %d times", done.Result, s.times("a"))
	}
	kit.Refused(t, kit.Err(p.answer(ada, id, `true`)), tool.CodeConflict, "", "a job that has ended")
}

func TestQuestionsCanBeAnsweredOneByOne(t *testing.T) {
	p := open(t, file(t), fresh(), job.Options{}).run()
	id := p.start("asks", "several")
	p.question(id)
	kit.MustEqual(t, kit.Must(p.answer(ada, id, `{"one":{"action":"accept","content":{"name":"Ada"}},"never":{}}`))(t).State, job.Asked)
	if q := p.question(id); len(q.Said) != 1 || q.Said["one"] == nil {
		t.Errorf("%+v", q)
	}
	// An answer stays given.
	kit.Check(t, kit.Err(p.answer(ada, id, `{"one":{"action":"decline"}}`)))
	kit.Must(p.answer(ada, id, `{"two":{"action":"accept","content":{"name":"Eve"}}}`))(t)
	done := p.until(id, job.Done)
	want := `{"answers":{"one":{"action":"accept","content":{"name":"Ada"}},"two":{"action":"accept","content":{"name":"Eve"}}},"resume":"both"}`
	kit.Equal(t, string(done.Result.Output), want)
}

func TestTheQuestionsOfAJobAreNumbered(t *testing.T) {
	p := open(t, file(t), fresh(), job.Options{}).run()
	id := p.start("asks", "twice")
	p.question(id)
	kit.Must(p.answer(ada, id, `{"one":{"action":"cancel"},"two":{"action":"cancel"}}`))(t)
	for q := p.question(id); q.Round != 2; q = p.question(id) {
		kit.MustEqual(t, q.Round, 1, q) // it has not been started yet
	}
	kit.Must(p.answer(ada, id, `true`))(t)
	p.until(id, job.Done)
}

// The process that asked is gone, with its memory: another one takes the answer, and runs the job.
func TestAQuestionOutlivesTheProgramThatAsked(t *testing.T) {
	path, s := file(t), fresh()
	first := open(t, path, s, job.Options{}).run()
	id := first.start("asks", "a")
	first.question(id)
	first.stop()
	second := open(t, path, s, job.Options{}).run()
	kit.Must(second.answer(ada, id, `false`))(t)
	if done := second.until(id, job.Done); string(done.Result.Output) != `{"answers":false,"resume":"again"}` {
		t.Errorf("%+v", done.Result)
	}
}

func TestAJobThatAskedCanBeCancelled(t *testing.T) {
	p := open(t, file(t), fresh(), job.Options{}).run()
	id := p.start("asks", "a")
	p.question(id)
	if s, _, err := p.tool(ada, "cancelJob", `{"job":"`+id+`"}`); err != nil || s.State != job.Cancelled {
		t.Errorf("%+v, %v", s, err)
	}
	kit.Refused(t, kit.Err(p.answer(ada, id, `true`)), tool.CodeConflict, "")
}

func TestAJobMayBeginWithAnAnswer(t *testing.T) {
	p := open(t, file(t), fresh(), job.Options{}).run()
	r, err := p.Invoke(t.Context(), &tool.Call{Tool: "asks", Args: json.RawMessage(`{"n":"a"}`), Caller: ada}, tool.Discard)
	if err != nil || r.Ask == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	begin := func(args string) (seen, error) {
		s, _, err := p.tool(ada, "startJob", `{"tool":"asks","arguments":{"n":"a"},"resume":"`+r.Ask.ID+`","answers":`+args+`}`)
		return s, err
	}
	kit.Refused(t, kit.Err(begin(`7`)), tool.CodeInvalidInput, "")
	s := kit.Must(begin(`true`))(t)
	if done := p.until(s.Job, job.Done); string(done.Result.Output) != `{"answers":true,"resume":"again"}` {
		t.Errorf("%+v", done.Result)
	}
}
