package namel3ss

import (
	"strings"
	"testing"

	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func TestAFreshProcessGetsTheTraceparentOfItsCall(t *testing.T) {
	tooltest.NoLeaks(t)
	const code = "import os\ndef run(payload):\n    return {'said': os.environ.get('TRACEPARENT', '')}\n"
	for mode, want := range map[string]string{modeFresh: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", modeWarm: `"said":""`} {
		r := python(t, code, Options{Mode: mode})
		got, err := r.Invoke(t.Context(), &tool.Call{
			Tool: "t", Args: []byte(`{}`), Trace: "0af76519-16cd-43dd-8448-eb211c80319c", Span: "b7ad6b7169203331",
		}, tool.Discard)
		if err != nil || !strings.Contains(string(got.Output), want) {
			t.Errorf("%s: %+v, %v", mode, got, err)
		}
	}
}
