package fleet

import (
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestCallWithCredentialsIsNotSentToAnotherNode(t *testing.T) {
	c := &tool.Call{Tool: "list", Spec: &tool.Spec{Name: "list"}, Notes: tool.Notes{Credentials: []*tool.Credential{{Connection: "github"}}}}
	_, err := (&Source{}).Invoke(t.Context(), c, tool.Discard)
	kit.Refused(t, err, tool.CodeUnsupported, "not sent to other nodes")
	kit.Equal(t, tool.NotRun(err), true)
}
