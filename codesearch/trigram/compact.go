package trigram

import (
	"errors"
	"io"
	"slices"
)

// finish makes what a refresh found the index.
func (r *refresh) finish() error {
	news := len(r.fresh) + len(r.b.files) + len(r.segs)
	if r.old != nil && news == 0 && !slices.Contains(r.seen, false) {
		return nil
	}
	for i, seen := range r.seen {
		if !seen {
			r.fresh = append(r.fresh, entry{path: r.old.known[i].path, kind: kindGone})
		}
	}
	for _, e := range r.fresh {
		r.b.add(e, nil)
	}
	if err := r.flush(); err != nil {
		closeAll(r.segs)
		return err
	}
	var segs []*segment
	if r.old != nil {
		segs = slices.Clone(r.old.segs)
	}
	all, err := r.x.compact(append(segs, r.segs...))
	if err == nil {
		err = r.x.commit(all)
	}
	for _, s := range slices.Concat(r.segs, all) {
		if !slices.Contains(segs, s) && (err != nil || !slices.Contains(all, s)) {
			s.file.Close()
		}
	}
	if errors.Is(err, errCorrupt) {
		r.x.discard()
	}
	return err
}

// compact makes one segment of many small ones, and another of a large one of which little is left.
func (x *Index) compact(segs []*segment) ([]*segment, error) {
	snap := newSnapshot(segs)
	var few, keep []*segment // small ones, and the others
	var places [][]int32     // of the files of the small ones
	for i, s := range segs {
		alive := snap.alive(i)
		if alive < len(snap.known)/small || alive < len(s.files)/2 {
			few, places = append(few, s), append(places, snap.place[i])
		} else {
			keep = append(keep, s)
		}
	}
	if len(few) <= maxSmall {
		return segs, nil
	}
	one, err := x.writeSegment(func(w io.Writer) error {
		return merge(w, few, func(seg, file int) bool {
			place := places[seg][file]
			return place >= 0 || place == gone && len(keep) > 0 // a segment that stays may have the path
		})
	})
	if err != nil {
		return nil, err
	}
	return append(keep, one), nil
}
