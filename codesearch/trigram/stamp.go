package trigram

import (
	"math/bits"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/host/workspace"
)

// rest is how long a file must have been left alone before its stamp counts: longer than the coarsest clock of a file
// system (FAT's two seconds) stands still.
const rest = 2500 * time.Millisecond

// stampOf makes one number of what tells two states of a file apart. It is never 0.
func stampOf(s workspace.Stamp) uint64 {
	h := uint64(0x9E3779B97F4A7C15)
	for _, v := range [...]uint64{s.Dev, s.Ino, uint64(s.Size), uint64(s.MTime.Sec), uint64(s.MTime.Nsec),
		uint64(s.CTime.Sec), uint64(s.CTime.Nsec)} {
		h = bits.RotateLeft64(h^v, 29) * 0xBF58476D1CE4E5B9
		h ^= h >> 32
	}
	return max(h, 1)
}

func rawStamp(st *unix.Stat_t) workspace.Stamp {
	return workspace.Stamp{Dev: st.Dev, Ino: st.Ino, Size: st.Size, MTime: st.Mtim, CTime: st.Ctim}
}

// restingStamp is the stamp of a state that was at rest at a time, else 0. The change time alone tells: every change
// sets it, and nobody else can.
func (x *Index) restingStamp(s workspace.Stamp, at time.Time) uint64 {
	if !x.resting(s.CTime.Nano(), at) {
		return 0
	}
	return stampOf(s)
}

func (x *Index) resting(last int64, at time.Time) bool { return at.UnixNano()-last >= int64(x.o.rest) }

// stat returns the state of what is at a path below the root. A link at the end of it is not followed.
func (x *Index) stat(rel string) (workspace.Stamp, bool) { return statAt(x.root.Fd(), rel) }

func statAt(dir int, rel string) (workspace.Stamp, bool) {
	var st unix.Stat_t
	if rel == "" {
		rel = "."
	}
	for {
		err := unix.Fstatat(dir, rel, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err != unix.EINTR {
			return rawStamp(&st), err == nil
		}
	}
}

// ruleFiles are what says, in a folder, what is ignored in it and below. Of .git it only counts whether it is there.
func ruleFiles() []string { return []string{".gitignore", ".ignore", ".git/info/exclude", ".git"} }

// rulesStamp is the stamp of the ignore files of a folder; 0: it has none. Last is when one of them was last changed.
func (x *Index) rulesStamp(folder string) (stamp uint64, last int64) {
	for i, name := range ruleFiles() {
		s, ok := x.stat(path.Join(folder, name))
		if !ok {
			continue
		}
		if name == ".git" {
			s = workspace.Stamp{}
		}
		last = max(last, s.CTime.Nano())
		stamp = max(1, bits.RotateLeft64(stamp, 7)^(stampOf(s)+uint64(i)))
	}
	return stamp, last
}

// rulesPath is the path under which the index keeps the stamp of a folder's rules. No file has it.
func rulesPath(folder string) string {
	if folder == "" {
		return "."
	}
	return folder + "/."
}
