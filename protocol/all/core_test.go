package all_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/internal/leaks"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// abortingPy uses its key, asks for core files of any size, and aborts where it may write.
const abortingPy = `
import os, resource, sys, urllib.request
key = os.environ["API_KEY"]
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + key})
kept = urllib.request.urlopen(request, timeout=50).read()
try:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
except (ValueError, OSError):
    pass
os.chdir("out")
open("came", "w").write("here")
os.abort()
`

// A program that aborts leaves no core, although this process may have some.
func TestProgramWithAKeyLeavesNoCore(t *testing.T) {
	tooltest.NoLeaks(t)
	var before unix.Rlimit
	kit.OK(t, unix.Getrlimit(unix.RLIMIT_CORE, &before))
	kit.OK(t, unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: before.Max, Max: before.Max}))
	t.Cleanup(func() { kit.Check(t, unix.Setrlimit(unix.RLIMIT_CORE, &before)) })
	a, dir := newAPI(t), t.TempDir()
	kit.Files(t, dir, map[string]string{"aborting.py": abortingPy, "out/empty": ""})
	host := a.Listener.Addr().String()
	text := fmt.Sprintf("sources: [{name: up, protocol: command, tool: ask, command: [%q, aborting.py, '{url}'], "+
		"arguments: {url: string}, walls: {write: [out]}, connections: [api]}]", tooltest.Python())
	src := kit.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(text)))(t).Sources[0]
	src.Credentials = []*tool.Credential{{Connection: "api", Hosts: []string{host}, Env: "API_KEY"}}
	r := kit.Must(protocol(t, "command").OpenSource(t.Context(), src, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { kit.Check(t, r.Close(kit.Context(t))) })
	spec := kit.Must(r.(tool.Source).Tools(t.Context()))(t)[0]
	said, err := askFor(t, r, spec, "ada", a.URL+"/x")
	kit.Equal(t, err != nil, true, said)
	kit.Equal(t, a.key("/x"), keyOf("ada"))
	kit.Equal(t, kit.Read(t, filepath.Join(dir, "out", "came")), "here")
	kit.Equal(t, len(kit.Must(os.ReadDir(filepath.Join(dir, "out")))(t)), 2, "files, and a core")
	leaks.Files(t, dir, keyOf("ada")[:20])
	leaks.Text(t, "the error", fmt.Sprint(err), keyOf("ada")[:20])
}
