package attacks

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// TestRemovedCallerIsCutOffAtEveryDoor has a caller with open connections: of HTTP, with a cookie, of an MCP
// session, of its stream, of NATS; with streams that begin with a POST, with running calls, and with a half-sent body.
func TestRemovedCallerIsCutOffAtEveryDoor(t *testing.T) {
	dir := t.TempDir()
	config := func(callers ...string) []byte {
		text := "store: {url: none}\nsources: [{name: files, protocol: builtin, roots: [{path: .}]},\n" +
			"  {name: slow, protocol: command, timeout: 10m, tools: [{tool: nap, command: [sleep, '300']}]}]\n" +
			"doors: {http: {}, nats: {listen: '127.0.0.1:0'}}\ncallers: {list: {"
		for _, name := range callers {
			text += fmt.Sprintf("%s: {tools: '*', tokens: [%x]}, ", name, sha256.Sum256([]byte("the-token-of-"+name+"-0123456789")))
		}
		return []byte(text + "}}\n")
	}
	kit.OK(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("a note"), 0o600))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), config("ada", "ben"), 0o600))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "keep.yaml"), config("ben"), 0o600))
	s := served.Start(t, served.Build(t), dir)
	var nats []string
	kit.Eventually(t, "the log has the address of NATS", func() bool {
		nats = regexp.MustCompile(`nats://(\S+)`).FindStringSubmatch(s.Log())
		return nats != nil
	})
	peer := kit.Must(filepath.Abs("testdata/removed/peer.py"))(t)
	cmd := exec.Command("python3", peer, s.URL(), nats[1])
	cmd.Dir = dir
	if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("%v: %s\n%s", err, said, s.Log())
	}
	s.Stop(t)
}
