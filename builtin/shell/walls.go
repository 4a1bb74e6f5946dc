package shell

import (
	"slices"

	"toolpost/sandbox"
	"toolpost/tool"
	"toolpost/walls"
	"toolpost/workspace"
)

// confine makes the walls of a call: its commands read the folders that are offered to its caller, change those of
// them that may be written, and have a home and a cache of their own. What is in none of them is not there.
func (s *session) confine(c *tool.Call, events *tool.Relay) error {
	w, err := s.around(s.view.Roots(), []string{s.work.dir}, []string{s.work.home, s.work.tmp, s.work.cache})
	if err != nil {
		return err
	}
	s.guarantees = c.Tightened(tool.Guarantees{})
	s.watch.Follow(events, walls.Sources(tool.Guarantees{}, s.guarantees))
	s.walls, err = w.Confine(c.Spec.Name, s.guarantees, &s.watch)
	return err
}

// around gives the walls of commands over some roots, that read and change some folders of their own.
func (t *Tools) around(roots []workspace.Root, read, write []string) (*walls.Walls, error) {
	needs, err := walls.NeedsOf(t.base, "")
	if err != nil {
		return nil, err
	}
	needs.Read, needs.Write = read, write
	needs.Run = slices.Clone(write) // what a compiler makes there is run there
	for _, r := range roots {
		if r.Write {
			needs.Write = append(needs.Write, r.Dir)
		} else {
			needs.Read = append(needs.Read, r.Dir)
		}
		needs.Run = append(needs.Run, r.Dir) // which code may be run has been judged
	}
	for _, folder := range t.path {
		needs.Run = append(needs.Run, walls.Code(folder+"/x")...)
	}
	return t.o.Walls.Around(needs)
}

// room gives the walls of one command. One that was allowed to reach the network can.
func (s *session) room(network bool) *sandbox.Confinement {
	if s.walls == nil {
		return nil
	}
	room := *s.walls
	if network && !s.guarantees.NoNetwork && room.Network == sandbox.NetworkNone {
		room.Network = sandbox.NetworkAll
	}
	return &room
}
