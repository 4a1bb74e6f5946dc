package matrix

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func namel3ssContainer() *runner {
	tools := []string{"echo", "fail", "hang", "wait", "report", "large", "danger"}
	return &runner{
		name: containerRow, about: "a container for each call",
		sources: func(h *house) string { return one("box", tools, fmt.Sprintf("runner: container, image: %q", h.image)) },
		where:   func(tool string) string { return in("box-"+tool, tools...)(tool) },
		carries: carries{
			progress: {asLog, "the namel3ss contract has no events: what a tool writes to stderr is its log"},
			state:    {never, namel3ssState},
			asset:    {never, namel3ssAsset},
			choice:   {never, namel3ssChoice},
			question: {never, namel3ssAsk},
		},
	}
}

const containerRow = "namel3ss container"

// makeImage makes an image of the tools. If that is impossible, the row is skipped, and missing gives the reason; if
// everything must be tested, the test fails.
func makeImage(t *testing.T) (image, missing string) {
	t.Helper()
	engine, err := exec.LookPath("podman")
	if err != nil {
		engine, err = exec.LookPath("docker")
	}
	if err == nil {
		image, err = importImage(t, engine)
	}
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatal(err)
	case err != nil:
		return "", fmt.Sprintf("no container engine that works: %v", err)
	}
	return image, ""
}

func importImage(t *testing.T, engine string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	containersConf(t, filepath.Join(dir, "containers.conf"))
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "tool"), "testdata/container/main.go")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	archive := filepath.Join(dir, "image.tar")
	name := "localhost/toolpost-matrix-" + tool.NewID() + ":latest"
	for _, argv := range [][]string{
		{"tar", "-C", dir, "-cf", archive, "tool"},
		{engine, "import", "--change", `ENTRYPOINT ["/tool"]`, archive, name},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", argv[0], err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command(engine, "rmi", "-f", name).Run() }) // a leftover test image is not a failure
	return name, nil
}

// containersConf lets podman run if limits cannot be raised, unless the environment already configures it.
func containersConf(t *testing.T, path string) {
	t.Helper()
	if os.Getenv("CONTAINERS_CONF") != "" {
		return
	}
	conf := "[containers]\ndefault_ulimits=[\"nofile=1024:1024\",\"nproc=512:512\"]\n"
	if _, err := exec.LookPath("runc"); err == nil {
		conf += "[engine]\nruntime=\"runc\"\n"
	}
	kit.OK(t, os.WriteFile(path, []byte(conf), 0o600))
	t.Setenv("CONTAINERS_CONF", path)
}
