package all

import (
	"cmp"
	"strings"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/web"
)

// A mount is a door of the HTTP front as the config has it.
type mount struct {
	about  Door
	entry  config.Door
	config web.Config
	door   web.Door
}

// A front is an address, and the doors that say that they stand there.
type front struct {
	web.Options
	mounts []mount
}

// fronts puts the doors that say the same listen on one address, and gives what serves each address.
func (k Kit) fronts(mounts []mount) ([]tool.Door, error) {
	home := web.DefaultListen
	for _, m := range mounts {
		if m.entry.Name == homeDoor {
			home = cmp.Or(m.config.Listen, home)
		}
	}
	var all []*front
	at := map[string]*front{}
	for _, m := range mounts {
		m.config.Listen = cmp.Or(m.config.Listen, home)
		o, err := m.config.Options(k.Dir)
		if err != nil {
			return nil, m.entry.Placed(err)
		}
		f := at[o.Listen]
		if f == nil {
			f = &front{Options: o}
			all, at[o.Listen] = append(all, f), f
		}
		if about := f.Share(o); about != "" {
			return nil, m.entry.Placed(tool.Errorf(tool.CodeInvalidInput,
				"the doors %s and %s share the address %s and disagree "+
					"about %s: say it at one of them alone, or give one another address", f.mounts[0].entry.Name,
				m.entry.Name, o.Listen, about))
		}
		f.mounts = append(f.mounts, m)
	}
	var doors []tool.Door
	for _, f := range all {
		door, err := k.front(f)
		if err != nil {
			return nil, err
		}
		doors = append(doors, door)
	}
	return doors, nil
}

// homeDoor is where doors stand that have no address of their own, and which the command line can move.
const homeDoor = "http"

// front makes what serves an address. The command line moves an address as a whole: a door that relies on what another
// says there, TLS above all, must not be left behind without it.
func (k Kit) front(f *front) (tool.Door, error) {
	for _, m := range f.mounts {
		if m.entry.Name == homeDoor {
			f.Listen = cmp.Or(k.Listen, f.Listen)
		}
	}
	var doors []web.Door
	for _, m := range f.mounts {
		if err := k.Admits(m.entry, m.config.Anonymous, f.Listen); err != nil {
			return nil, err
		}
		m.door.Anonymous = m.config.Anonymous
		doors = append(doors, m.door)
	}
	f.Gate, f.Drain, f.Log, f.Calls = k.Gate, k.Drain, k.Log, k.Calls
	f.Ready = func(addr string) {
		for _, m := range f.mounts {
			url := f.URL(addr)
			if !strings.HasPrefix(url, web.UnixPrefix) {
				url += m.about.Path
			}
			k.Opened(m.entry, url, m.config.Anonymous)
		}
	}
	return web.New(f.Options, doors...), nil
}
