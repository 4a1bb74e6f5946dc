package tool_test

import (
	"regexp"
	"testing"
	"time"

	"toolpost/tool"
)

func TestIDsAreUUIDsOfVersion7(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 10_000 {
		id := tool.NewID()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("%s is malformed or came twice", id)
		}
		seen[id] = true
	}
}

func TestLaterIDsSortAfterEarlierOnes(t *testing.T) {
	before := tool.NewID()
	for start := time.Now().UnixMilli(); time.Now().UnixMilli() <= start; {
		time.Sleep(100 * time.Microsecond)
	}
	if after := tool.NewID(); after <= before {
		t.Errorf("%s was made after %s", after, before)
	}
}
