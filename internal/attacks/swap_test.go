package attacks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// TestSwappedLinkIsNotFollowed swaps a folder that a room may write for a link to one that it may not, and calls again:
// in the same server, and in one that is started after it.
func TestSwappedLinkIsNotFollowed(t *testing.T) {
	bin := served.Build(t)
	kit.OK(t, os.Chmod(filepath.Dir(filepath.Dir(bin)), 0o755))
	users := map[string]int{"as ourselves": os.Geteuid()}
	if os.Geteuid() == 0 {
		users["as an ordinary user"] = nobody
	}
	for name, uid := range users {
		t.Run(name, func(t *testing.T) {
			for _, r := range rooms() {
				t.Run(r.name, func(t *testing.T) { swapped(t, bin, uid, r) })
			}
		})
	}
}

func swapped(t *testing.T, bin string, uid int, r room) {
	p := newPlace(t, uid)
	p.needs(t, r)
	p.config(t, []room{r})
	s := p.serve(t, bin)
	said := r.attack(t, s, p.order("swap", "work/inner"))
	if link, err := os.Readlink(p.dir + "/work/inner"); err != nil || link != p.beyond {
		// A room in which the folder is a mount of its own cannot rename it. Another process may, so the test does it.
		kit.OK(t, os.Rename(p.dir+"/work/inner", p.dir+"/work/inner.gone"))
		kit.OK(t, os.Symlink(p.beyond, p.dir+"/work/inner"))
		t.Logf("the room itself could not: %.200s", said)
	}
	p.leadsNowhere(t, r.attack(t, s, p.order("beyond", "work/inner")))
	s.Stop(t)
	s = p.serve(t, bin)
	p.leadsNowhere(t, r.attack(t, s, p.order("beyond", "work/inner")))
	s.Stop(t)
}

func (p *place) leadsNowhere(t *testing.T, said string) {
	t.Helper()
	if strings.Contains(said, canary) {
		t.Errorf("the room reads the host: %.500s", said)
	}
	kit.Fails(t, kit.Err(os.Lstat(p.beyond+"/made")), "", "the room writes to the host: %.500s", said)
}
