package toolfind_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"toolpost/codesearch/toolfind"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func tools() []*tool.Spec {
	return []*tool.Spec{
		{Name: "readFile", Description: "Reads a file as text.", Aliases: []string{"file.read"}},
		{Name: "writeFile", Description: "Writes a file."},
		{Name: "deleteFile", Description: "Deletes a file."},
		{Name: "listFiles", Description: "Lists the files of a folder."},
		{Name: "execShell", Description: "Runs a shell command."},
		{Name: "forecast", Description: "Tells the weather.", Input: json.RawMessage(`{"properties":{"municipality":{"description":"which place"}}}`)},
		{Name: "send_email", Description: "Sends a message to somebody by mail."},
		{Name: "create_issue", Description: "Opens a new issue in a GitHub repository.\n\n# Notes\n\nIt needs a token."},
		{Name: "add", Description: "Adds two numbers."},
		{Name: "hub.x7", Source: "jira", Description: ""},
	}
}

func TestToolsAreFoundByWordsAndByMeaning(t *testing.T) {
	var f toolfind.Finder
	for question, want := range map[string]string{
		"readFile": "readFile", "READFILE": "readFile", "file.read": "readFile", "mail somebody": "send_email",
		"run a program": "execShell", "remove a document": "deleteFile", "sum": "add", "weather": "forecast",
		"municipality": "forecast", "bug report on github": "create_issue", "a GitHub token": "create_issue", "jira": "hub.x7",
		"x7": "hub.x7", "create_iss": "create_issue",
	} {
		hits, err := f.Search(t.Context(), tools(), question, 3)
		if err != nil || len(hits) == 0 || hits[0].Spec.Name != want || hits[0].Score <= 0 || hits[0].Score > 1 {
			t.Errorf("%q finds %+v, %v; want %s first", question, names(hits), err, want)
		}
	}
	for _, nothing := range []string{"zzzqqq", "quantum chromodynamics"} {
		if hits, err := f.Search(t.Context(), tools(), nothing, 3); err != nil || len(hits) != 0 {
			t.Errorf("%q finds %v, %v", nothing, names(hits), err)
		}
	}
}

func names(hits []toolfind.Hit) (list []string) {
	for _, h := range hits {
		list = append(list, h.Spec.Name)
	}
	return list
}

func TestInvalidQueriesAreRefused(t *testing.T) {
	var f toolfind.Finder
	for _, question := range []string{"", " \n", strings.Repeat("x ", 4000)} {
		kit.Refused(t, kit.Err(f.Search(t.Context(), tools(), question, 3)),
			tool.CodeInvalidInput, "", "%d characters", len(question))
	}
	kit.Equal(t, len(kit.Must(f.Search(t.Context(), nil, "file", 3))(t)), 0, "without tools")
}

// A tool that a caller does not see is not in its list, so it is not found and does not affect the ranking. A changed
// list is a new list.
func TestOnlyTheGivenToolsAreFound(t *testing.T) {
	var f toolfind.Finder
	all := tools()
	var wg sync.WaitGroup
	for round := range 4 {
		for i := range all {
			wg.Go(func() {
				without := append(append([]*tool.Spec{}, all[:i]...), all[i+1:]...)
				hits, err := f.Search(t.Context(), without, all[i].Name+" "+all[i].Description, 100)
				for _, h := range hits {
					if h.Spec == all[i] {
						t.Errorf("round %d: %s is found among those without it", round, all[i].Name)
					}
				}
				kit.Check(t, err)
			})
		}
	}
	wg.Wait()
	changed := tools()
	changed[0].Description = "Plays chess."
	if hits, _ := f.Search(t.Context(), changed, "chess", 1); len(hits) != 1 || hits[0].Spec != changed[0] {
		t.Errorf("after a change: %v", names(hits))
	}
}

func TestHostileDescriptionsAreSearchedLikeOthers(t *testing.T) {
	var f toolfind.Finder
	specs := append(tools(),
		&tool.Spec{Name: "long", Description: strings.Repeat("weather ", 200_000)},
		&tool.Spec{Name: "headings", Description: strings.Repeat("# weather\n", 5000)},
		&tool.Spec{Name: "odd\x00\xff", Description: "\x00\xff\xfe", Input: json.RawMessage(`{"properties":{"a":true,"b":[],"c":{"type":["string"]}}}`)},
		&tool.Spec{Name: "broken", Input: json.RawMessage(`{"properties":`)},
		&tool.Spec{Name: "deep", Input: json.RawMessage(strings.Repeat(`{"properties":`, 10_000))},
	)
	hits, err := f.Search(t.Context(), specs, "weather", 10)
	seen := map[string]int{}
	for _, h := range hits {
		seen[h.Spec.Name]++
	}
	if err != nil || seen["forecast"] != 1 || seen["headings"] != 1 {
		t.Errorf("%v, %v", names(hits), err)
	}
}

func TestBriefIsTheFirstSentence(t *testing.T) {
	kit.Equal(t, toolfind.Brief(&tool.Spec{Description: "Reads\na file. More of it."}), "Reads a file.")
}

func BenchmarkSearchOf10000(b *testing.B) {
	var f toolfind.Finder
	var many []*tool.Spec
	kinds := tools()
	for i := range 10_000 {
		s := *kinds[i%len(kinds)]
		s.Name, s.Description = fmt.Sprint(s.Name, i), fmt.Sprint(s.Description, " Like ", kinds[i/10%len(kinds)].Description)
		many = append(many, &s)
	}
	_, _ = f.Search(b.Context(), many, "weather", 10)
	for b.Loop() {
		kit.MustEqual(b, len(kit.Must(f.Search(b.Context(), many, "tell me the weather", 10))(b)), 10)
	}
}
