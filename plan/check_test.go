package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/plan"
	"toolpost/tool"
)

func TestInvalidPlanErrorNamesThePlace(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":              {`{`, "is not JSON"},
		"nothing":              {``, "is not JSON"},
		"half":                 {`{'requestId':'r','tools':[{'toolId'`, "is not JSON"},
		"a list":               {`[]`, "object"},
		"two documents":        {`{'requestId':'r','tools':[]} {}`, "is not JSON"},
		"invalid UTF-8":        {"{'requestId':'\xff','tools':[]}", "is not JSON"},
		"duplicate key":        {`{'requestId':'r','requestId':'q','tools':[]}`, "requestId"},
		"duplicate deep":       {`{'requestId':'r','tools':[{'toolId':'a','tool':'do','input':{'x':1,'x':2}}]}`, "/tools/0/input"},
		"no requestId":         {`{'tools':[]}`, "requestId"},
		"empty requestId":      {`{'requestId':'','tools':[]}`, "/requestId"},
		"no tools":             {`{'requestId':'r'}`, "tools"},
		"tools null":           {`{'requestId':'r','tools':null}`, "/tools"},
		"tools an object":      {`{'requestId':'r','tools':{}}`, "/tools"},
		"a tool a string":      {`{'requestId':'r','tools':['a']}`, "/tools/0"},
		"no toolId":            {`{'requestId':'r','tools':[{'tool':'do'}]}`, "/tools/0"},
		"toolId a number":      {`{'requestId':'r','tools':[{'toolId':1}]}`, "/tools/0/toolId"},
		"input a list":         {`{'requestId':'r','tools':[{'toolId':'a','tool':'do','input':[]}]}`, "/tools/0/input"},
		"dependencies a word":  {`{'requestId':'r','tools':[{'toolId':'a','tool':'do','dependencies':'b'}]}`, "/tools/0/dependencies"},
		"async a string":       {`{'requestId':'r','tools':[{'toolId':'a','tool':'do','async':'true'}]}`, "/tools/0/async"},
		"required a number":    {`{'requestId':'r','tools':[{'toolId':'a','tool':'do','required':1}]}`, "/tools/0/required"},
		"parallel a number":    {`{'requestId':'r','tools':[],'parallel':1}`, "/parallel"},
		"11 retries":           {`{'requestId':'r','tools':[{'toolId':'a','tool':'do','retryPolicy':{'maxRetries':11}}]}`, "/tools/0/retryPolicy/maxRetries"},
		"-1 retries":           {`{'requestId':'r','tools':[{'toolId':'a','tool':'do','retryPolicy':{'maxRetries':-1}}]}`, "/tools/0/retryPolicy/maxRetries"},
		"half a retry":         {`{'requestId':'r','tools':[{'toolId':'a','tool':'do','retryPolicy':{'maxRetries':1.5}}]}`, "/tools/0/retryPolicy/maxRetries"},
		"negative backoff":     {`{'requestId':'r','tools':[{'toolId':'a','tool':'do','retryPolicy':{'backoffMs':-1}}]}`, "/tools/0/retryPolicy/backoffMs"},
		"disabled a word":      {`{'requestId':'r','tools':[],'disabledSkills':'do'}`, "/disabledSkills"},
		"attempt 0":            {`{'requestId':'r','tools':[],'metadata':{'generationAttempt':0}}`, "/metadata/generationAttempt"},
		"nested without bound": {`{'requestId':'r','tools':[],'x':` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`, "nested"},
		"too long":             {`{'requestId':'` + strings.Repeat("a", plan.MaxBytes) + `'}`, "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plan.Read([]byte(strings.ReplaceAll(c.text, "'", `"`)))
			var e *plan.Error
			if !errors.As(err, &e) || e.Category != plan.InvalidJSON || !strings.Contains(e.Message, c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestUnknownMembersOfAPlanAreIgnored(t *testing.T) {
	p := parse(t, `{'requestId':'r','mood':'dark','tools':[{'toolId':'a','tool':'do','colour':{'x':[1]}}],'metadata':{'by':'me'}}`)
	if p.RequestID != "r" || len(p.Tools) != 1 {
		t.Errorf("%+v", p)
	}
}

// one is a plan with some tools.
func one(tools string) string { return `{'requestId':'r','tools':[` + tools + `]}` }

func TestAPlanIsCheckedBeforeAnythingRuns(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct{ tools, category, want string }{
		"right":                  {`{'toolId':'a','tool':'do'},{'toolId':'b','tool':'get','dependencies':['a']}`, "", ""},
		"none":                   {``, "", ""},
		"itself":                 {`{'toolId':'a','tool':'do','dependencies':['a']}`, plan.CircularDependency, "a -> a"},
		"two":                    {`{'toolId':'a','tool':'do','dependencies':['b']},{'toolId':'b','tool':'do','dependencies':['a']}`, plan.CircularDependency, "-> a"},
		"a circle behind a way":  {`{'toolId':'x','tool':'do'},{'toolId':'a','tool':'do','dependencies':['x','c']},{'toolId':'b','tool':'do','dependencies':['a']},{'toolId':'c','tool':'do','dependencies':['b']},{'toolId':'y','tool':'do','dependencies':['c']}`, plan.CircularDependency, "a -> b -> c -> a"},
		"a circle of references": {`{'toolId':'a','tool':'do','input':{'as':'${b.output}'}},{'toolId':'b','tool':'do','dependencies':['a']}`, plan.CircularDependency, "a -> b -> a"},
		"a reference to itself":  {`{'toolId':'a','tool':'do','input':{'as':'${a.output.x}'}}`, plan.CircularDependency, "a -> a"},
		"unknown dependency":     {`{'toolId':'a','tool':'do','dependencies':['b']}`, plan.InvalidJSON, `/tools/0/dependencies/0 names "b"`},
		"unknown reference":      {`{'toolId':'a','tool':'do','input':{'as':'x${nosuch.output.y}'}}`, plan.InvalidJSON, `${nosuch.output.y}`},
		"an id twice":            {`{'toolId':'a','tool':'do'},{'toolId':'a','tool':'get'}`, plan.InvalidJSON, `/tools/1/toolId "a" is the id of /tools/0 already`},
		"an id of controls":      {`{'toolId':'a\u0007','tool':'do'}`, plan.InvalidJSON, "/tools/0/toolId"},
		"an id with braces":      {`{'toolId':'a}','tool':'do'}`, plan.InvalidJSON, "/tools/0/toolId"},
		"a long id":              {`{'toolId':'` + strings.Repeat("a", 300) + `','tool':'do'}`, plan.InvalidJSON, "/tools/0/toolId"},
		"no tool":                {`{'toolId':'a'}`, plan.ToolFailure, "/tools/0/tool"},
		"unknown tool":           {`{'toolId':'a','tool':'nosuch'}`, plan.ToolFailure, `/tools/0/tool "nosuch" is no tool`},
		"unknown path":           {`{'toolId':'a','toolPath':'x/nosuch.py'}`, plan.ToolFailure, `/tools/0/toolPath "x/nosuch.py"`},
		"an alias":               {`{'toolId':'a','tool':'do.it'}`, "", ""},
		"a source's":             {`{'toolId':'a','tool':'s.do'}`, "", ""},
		"a path that is a name":  {`{'toolId':'a','toolPath':'do'}`, "", ""},
		"a path to a file":       {`{'toolId':'a','toolPath':'tools/torch/torch.py'}`, "", ""},
		"a path with extension":  {`{'toolId':'a','toolPath':'/opt/dice.exe'}`, "", ""},
		"a path of Windows":      {`{'toolId':'a','toolPath':'tools\\\\dice.exe'}`, "", ""},
		"arguments":              {`{'toolId':'a','tool':'strict','input':{'as':'a','n':0}}`, plan.ToolFailure, "/tools/0/input/n"},
		"arguments missing":      {`{'toolId':'a','tool':'strict','input':{'as':'a'}}`, plan.ToolFailure, "/tools/0/input"},
		"arguments too many":     {`{'toolId':'a','tool':'strict','input':{'as':'a','n':1,'z':1}}`, plan.ToolFailure, "z"},
		"a reference may fit":    {`{'toolId':'a','tool':'do'},{'toolId':'b','tool':'strict','input':{'as':'b','n':'${a.output.n}'}}`, "", ""},
		"missing beside one":     {`{'toolId':'a','tool':'do'},{'toolId':'b','tool':'strict','input':{'as':'${a.output.n}'}}`, plan.ToolFailure, "/tools/1/input"},
		"wrong beside one":       {`{'toolId':'a','tool':'do'},{'toolId':'b','tool':'strict','input':{'as':1,'n':'${a.output.n}'}}`, plan.ToolFailure, "/tools/1/input/as"},
		"too many beside one":    {`{'toolId':'a','tool':'do'},{'toolId':'b','tool':'strict','input':{'as':'b','n':'${a.output.n}','z':1}}`, plan.ToolFailure, "z"},
		"deep beside one":        {`{'toolId':'a','tool':'do'},{'toolId':'b','tool':'strict','input':{'as':'b','n':1,'o':{'j':'${a.output}'}}}`, plan.ToolFailure, "/tools/1/input/o"},
		"deep as one":            {`{'toolId':'a','tool':'do'},{'toolId':'b','tool':'strict','input':{'as':'b','n':1,'o':'${a.output}','l':['${a.output.x}']}}`, "", ""},
		"one decides on another": {`{'toolId':'a','tool':'do'},{'toolId':'b','tool':'either','input':{'a':'${a.output}','b':'x'}}`, "", ""},
		"what is no reference":   {`{'toolId':'a','tool':'do','input':{'as':'${HOME} $${b.output} ${a.out}'}}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plan.Check(t.Context(), w, tool.Principal{ID: "ada"}, parse(t, one(c.tools)))
			var e *plan.Error
			if errors.As(err, &e); c.want == "" {
				kit.Check(t, err)
			} else if e == nil || e.Category != c.category || !strings.Contains(e.Message, c.want) {
				t.Errorf("%+v", e)
			}
		})
	}
	disabled := parse(t, one(`{'toolId':'a','tool':'do'}`))
	for _, name := range []string{"do", "s.do", "do.it"} {
		disabled.DisabledSkills = []string{name}
		kit.Fails(t, kit.Err(plan.Check(t.Context(), w, tool.Principal{}, disabled)), "disabledSkills", name)
	}
	if len(w.began) > 0 {
		t.Errorf("a check ran %v", w.began)
	}
}

func TestCheckReportsAllFaultsWithTheirTools(t *testing.T) {
	w := newWorld(t)
	_, err := plan.Check(t.Context(), w, tool.Principal{ID: "ada"}, parse(t, one(
		`{'toolId':'a','tool':'gett','dependencies':['bb']},{'toolId':'b','tool':'strict','input':{'as':1,'n':0},'dependencies':['c']},`+
			`{'toolId':'c','tool':'nosuch','dependencies':['b']}`)))
	want := []plan.Fault{
		{"a", "/tools/0/dependencies/0", `names "bb", which is no tool of the plan; did you mean "b"?`},
		{"", "", "tools wait for each other: b -> c -> b"},
		{"a", "/tools/0/tool", `"gett" is no tool; did you mean "get"?`},
		{"b", "/tools/1/input/as", "got number, want string"},
		{"b", "/tools/1/input/n", "0 is less than the minimum 1"},
		{"c", "/tools/2/tool", "\"nosuch\" is no tool; `toolpost tools` lists the tools"},
	}
	var e *plan.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	var details struct {
		Faults []plan.Fault
		Cycle  []string
	}
	if err := json.Unmarshal(e.Details, &details); err != nil || !slices.Equal(details.Faults, want) || !slices.Equal(details.Cycle, []string{"b", "c"}) {
		t.Errorf("%v: %+v", err, details)
	}
	if e.Category != plan.InvalidJSON || !strings.Contains(e.Message, `tool "a": /tools/0/dependencies/0 names`) || !strings.HasSuffix(e.Message, "; and 3 more") {
		t.Errorf("%+v", e)
	}
}

func TestTheFaultsThatAreListedAreBounded(t *testing.T) {
	var tools []string
	for i := range 200 {
		tools = append(tools, fmt.Sprintf(`{'toolId':'t%d','async':1}`, i))
	}
	long := one(strings.Join(tools, ","))
	_, err := plan.Read([]byte(strings.ReplaceAll(long, "'", `"`)))
	var e *plan.Error
	if !errors.As(err, &e) || !strings.Contains(e.Message, `tool "t0": /tools/0/async`) || len(e.Details) > 4096 {
		t.Errorf("%v", err)
	}
	p := parse(t, strings.ReplaceAll(long, "'async':1", "'tool':'nosuch'"))
	_, err = plan.Check(t.Context(), newWorld(t), tool.Principal{}, p)
	if !errors.As(err, &e) || !strings.HasSuffix(e.Message, "; and 197 more") || len(e.Details) > 4096 || !strings.Contains(string(e.Details), `"more":180`) {
		t.Errorf("%v %s", err, e.Details)
	}
}

// A plan may have names of megabytes. Faults do not repeat them.
func TestLongNamesDoNotComeBackInFaults(t *testing.T) {
	long := strings.Repeat("n", 1<<16)
	var e *plan.Error
	for name, tools := range map[string]string{
		"an id":            `{'toolId':'` + long + `','tool':'do'}`,
		"a dependency":     `{'toolId':'a','tool':'do','dependencies':['` + long + `']}`,
		"a tool":           `{'toolId':'a','tool':'` + long + `'}`,
		"a path":           `{'toolId':'a','toolPath':'x/` + long + `.py'}`,
		"a reference":      `{'toolId':'a','tool':'do','input':{'x':'${` + long + `.output.y}'}}`,
		"a deep reference": `{'toolId':'a','tool':'do','input':{'x':'${b.output.` + long + `}'}}`,
		"an argument":      `{'toolId':'a','tool':'strict','input':{'as':'x','n':1,'` + long + `':1}}`,
	} {
		_, err := plan.Check(t.Context(), newWorld(t), tool.Principal{ID: "ada"}, parse(t, one(tools)))
		if !errors.As(err, &e) || len(e.Message) > 4096 || len(e.Details) > 4096 {
			t.Errorf("%s: %.60v", name, err)
		}
	}
	_, err := plan.Read([]byte(`{"requestId":"r","requestId":"r","` + long + `":1,"` + long + `":1}`))
	if !errors.As(err, &e) || len(e.Message) > 4096 {
		t.Errorf("%.60v", err)
	}
	if got := plan.Ignored([]byte(`{"` + long + `":1}`)); len(got) != 1 || len(got[0].At) > 4096 {
		t.Errorf("%d", len(got))
	}
}

func TestIgnoredListsUnknownMembers(t *testing.T) {
	got := plan.Ignored([]byte(`{"requestId":"r","parallell":true,"metadata":{"by":1},
		"tools":[{"toolId":"a","tool":"do","retryPolicy":{"backoffMS":1},"input":{"x":1}},{"toolId":"b","colour":1},3]}`))
	want := []plan.Fault{
		{"", "/parallell", `is ignored; did you mean "parallel"?`},
		{"", "/metadata/by", "is ignored"},
		{"a", "/tools/0/retryPolicy/backoffMS", `is ignored; did you mean "backoffMs"?`},
		{"b", "/tools/1/colour", "is ignored"},
	}
	kit.EqualSlices(t, got, want)
	for _, document := range []string{``, `[]`, `{"tools":{}}`, `{"tools":[null]}`} {
		if got := plan.Ignored([]byte(document)); len(got) > 0 {
			t.Errorf("%s: %+v", document, got)
		}
	}
}

func TestNumberOfToolsIsBounded(t *testing.T) {
	w := newWorld(t)
	p := &plan.Plan{RequestID: "r"}
	for i := range plan.MaxTools {
		p.Tools = append(p.Tools, plan.Tool{ID: fmt.Sprint(i), Name: "do"})
	}
	kit.Equal(t, len(kit.Must(plan.Check(t.Context(), w, tool.Principal{}, p))(t).Order()), plan.MaxTools)
	p.Tools = append(p.Tools, plan.Tool{ID: "more", Name: "do"})
	kit.Fails(t, kit.Err(plan.Check(t.Context(), w, tool.Principal{}, p)), "at most 10000 tools")
}
