package machina_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"toolpost/internal/kit"
	"toolpost/store"
)

// Requests that arrive together are answered as if they came one by one: each sees the effects of those before it, and an
// invalid line is refused in its place. Lines after an empty one are ignored.
func TestBatchedRequestsAreAnsweredInOrder(t *testing.T) {
	const most = 1000 // more than are read at once
	var lines strings.Builder
	for i := range most {
		switch i % 7 {
		case 0:
			fmt.Fprintln(&lines, ask("AID.TOOLTEST.NOTE.v1", fmt.Sprintf(`{"n":%d,"at%d":true}`, i, i%21)))
		case 3:
			fmt.Fprintf(&lines, "{\"aid\": %d\r\n", i)
		case 4:
			lines.WriteString("\r\n")
		case 5:
			fmt.Fprintln(&lines, ask("AID.TOOLTEST.COUNT.v1", `{}`))
		default:
			fmt.Fprintln(&lines, ask("AID.TOOLTEST.ECHO.v1", fmt.Sprintf(`{"n":%d,"long":%q}`, i, strings.Repeat("x", i*7%600))))
		}
	}
	text := lines.String() + "\n" + ask("AID.TOOLTEST.COUNT.v1", `{}`) + "\n"
	var together, apart bytes.Buffer
	s := newStack(&store.Leases{}, 4)
	kit.OK(t, doorOf(strings.NewReader(text), &together).Serve(kit.Context(t), s, s))
	s = newStack(&store.Leases{}, 4)
	kit.OK(t, doorOf(iotest.OneByteReader(strings.NewReader(text)), &apart).Serve(kit.Context(t), s, s))
	kit.Equal(t, bytes.Count(apart.Bytes(), []byte("\n")), most)
	got, want := strings.Split(together.String(), "\n"), strings.Split(apart.String(), "\n")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("answer %d differs:\n%.500q\n%.500q", i, got[min(i, len(got)):], want[min(i, len(want)):])
		}
	}
}
