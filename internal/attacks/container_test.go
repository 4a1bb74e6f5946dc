package attacks

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/served"
	"toolpost/tool"
)

// TestNoContainerGivesAwayProtectedFiles makes the attempts in a podman container, which has nothing of the place in it.
func TestNoContainerGivesAwayProtectedFiles(t *testing.T) {
	p := newPlace(t, os.Geteuid())
	image, err := p.image(t)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	box := room{name: "box", each: true, args: func(o order) any { return o }, source: "{name: box, protocol: namel3ss, app: app, tool: box, " +
		"runner: container, image: '" + image + "', timeout: 2m, #%s}"}
	p.config(t, []room{box})
	s := served.Start(t, served.Build(t), p.dir, "CONTAINERS_CONF="+os.Getenv("CONTAINERS_CONF"))
	t.Logf("%d attempts", p.everyAttempt(t, s, box))
	s.Stop(t)
}

// image makes an image that holds only the attacker.
func (p *place) image(t *testing.T) (string, error) {
	t.Helper()
	dir := t.TempDir()
	// Hard limits cannot be raised everywhere, and only runc supports every kind of cgroups.
	conf := "[containers]\ndefault_ulimits=[\"nofile=1024:1024\",\"nproc=512:512\"]\n"
	if _, err := exec.LookPath("runc"); err == nil {
		conf += "[engine]\nruntime=\"runc\"\n"
	}
	kit.OK(t, os.WriteFile(filepath.Join(dir, "containers.conf"), []byte(conf), 0o600))
	t.Setenv("CONTAINERS_CONF", filepath.Join(dir, "containers.conf"))
	kit.OK(t, os.MkdirAll(dir+"/image/work", 0o777))
	kit.OK(t, os.WriteFile(dir+"/image/attacker", []byte(attacker()), 0o755))
	name := "localhost/toolpost-attacks-" + tool.NewID() + ":latest"
	for _, argv := range [][]string{
		{"tar", "-C", dir + "/image", "-cf", dir + "/image.tar", "."},
		{"podman", "import", "--change", `ENTRYPOINT ["/attacker"]`, dir + "/image.tar", name},
	} {
		if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", argv[0], err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("podman", "rmi", "-f", name).Run() }) // a leftover image is not a failure
	return name, nil
}
