package kit_test

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"toolpost/internal/kit"
	"toolpost/tool"
)

// A spy records the reports of a check.
type spy struct {
	failed, ended []string
	end           func() // what Fatalf does at last, if it does something
}

func (s *spy) Helper() {}
func (s *spy) Errorf(format string, args ...any) {
	s.failed = append(s.failed, fmt.Sprintf(format, args...))
}
func (s *spy) Fatalf(format string, args ...any) {
	s.ended = append(s.ended, fmt.Sprintf(format, args...))
	if s.end != nil {
		s.end()
	}
}

func TestChecksFailOnlyIfTheyMust(t *testing.T) {
	bad, denied := errors.New("bad"), &tool.Error{Code: tool.CodeAccessDenied, Message: "not you"}
	for name, c := range map[string]struct {
		pass, fail func(kit.TB)
		says       string
		ends       bool
	}{
		"OK": {func(t kit.TB) { kit.OK(t, nil) }, func(t kit.TB) { kit.OK(t, bad, "%d%s", 7, "x") }, "7x: bad", true},
		"Check": {func(t kit.TB) { kit.Check(t, nil) }, func(t kit.TB) { kit.Check(t, bad, []byte("it")) },
			"it: bad", false},
		"Must": {func(t kit.TB) { kit.Must(1, nil)(t) }, func(t kit.TB) { kit.Must(1, bad)(t) }, "bad", true},
		"Equal": {func(t kit.TB) { kit.Equal(t, "a", "a") }, func(t kit.TB) { kit.Equal(t, "", "a", "x", 1) },
			`x 1: got "", want "a"`, false},
		"MustEqual": {func(t kit.TB) { kit.MustEqual(t, 1, 1) }, func(t kit.TB) { kit.MustEqual(t, 1, 2) },
			"got 1, want 2", true},
		"EqualSlices": {func(t kit.TB) { kit.EqualSlices(t, nil, []int{}) },
			func(t kit.TB) { kit.EqualSlices(t, []int{1}, nil) }, "got [1], want []", false},
		"DeepEqual": {func(t kit.TB) { kit.DeepEqual(t, []int{1}, []int{1}) },
			func(t kit.TB) { kit.DeepEqual(t, []int(nil), []int{}) }, "got [], want []", false},
		"Contains": {func(t kit.TB) { kit.Contains(t, "abc", "b") }, func(t kit.TB) { kit.Contains(t, "abc", "d") },
			`"d" is not in "abc"`, false},
		"Fails": {func(t kit.TB) { kit.Fails(t, kit.Err(1, bad), "ba") }, func(t kit.TB) { kit.Fails(t, nil, "") },
			"got the error <nil>", false},
		"Fails, other words": {func(kit.TB) {}, func(t kit.TB) { kit.Fails(t, bad, "good") }, `one that says "good"`, false},
		"Refused": {func(t kit.TB) { kit.Refused(t, denied, tool.CodeAccessDenied, "not") },
			func(t kit.TB) { kit.Refused(t, bad, tool.CodeAccessDenied, "") }, "got bad, want access_denied", false},
		"Refused, other words": {func(kit.TB) {}, func(t kit.TB) { kit.Refused(t, denied, tool.CodeAccessDenied, "me") },
			`"me"`, false},
		"Refused, no error": {func(kit.TB) {}, func(t kit.TB) { kit.Refused(t, nil, tool.CodeAccessDenied, "") },
			"got <nil>", false},
	} {
		var s spy
		c.pass(&s)
		if len(s.failed)+len(s.ended) > 0 {
			t.Errorf("%s: %q, %q", name, s.failed, s.ended)
		}
		c.fail(&s)
		said := s.failed
		if c.ends {
			said = s.ended
		}
		if len(s.failed)+len(s.ended) != 1 || len(said) != 1 || !strings.Contains(said[0], c.says) {
			t.Errorf("%s: failed %q, ended %q", name, s.failed, s.ended)
		}
	}
}

func TestWaitsEndWhenTheirConditionHolds(t *testing.T) {
	looks := 0
	kit.Eventually(t, "the third look", func() bool { looks++; return looks == 3 })
	kit.Equal(t, looks, 3)
	c := make(chan int, 1)
	c <- 7
	kit.Equal(t, kit.Receive(t, "a number", c), 7)
}

func TestWaitsAreBounded(t *testing.T) {
	for name, wait := range map[string]func(kit.TB){
		"never true": func(t kit.TB) { kit.Eventually(t, "never true", func() bool { return false }) },
		"no value":   func(t kit.TB) { kit.Receive(t, "no value", make(chan int)) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := spy{end: runtime.Goexit}
			var wg sync.WaitGroup
			wg.Go(func() { wait(&s) })
			wg.Wait()
			if len(s.ended) != 1 || !strings.Contains(s.ended[0], name) {
				t.Errorf("%s: %q", name, s.ended)
			}
		})
	}
}

func TestAPeerAnswersUntilItsInputEnds(t *testing.T) {
	p := kit.Start(t, exec.Command("sh", "-c", "echo ready; cat"))
	kit.Equal(t, p.Line(), "ready")
	kit.Equal(t, p.Ask(map[string]int{"a": 1}), `{"a":1}`)
}

func TestFilesAreWrittenInNewFolders(t *testing.T) {
	dir := kit.Files(t, t.TempDir(), map[string]string{"a/b": "one", "c": "two"})
	kit.Equal(t, kit.Read(t, dir+"/a/b")+kit.Read(t, dir+"/c"), "onetwo")
}
