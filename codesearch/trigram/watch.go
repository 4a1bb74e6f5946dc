package trigram

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// A watch tells that something in the folders of a codebase changed. It is a hint: it may be late, it may miss
// something, and it may not be there at all.
type watch struct {
	root    string
	watcher *fsnotify.Watcher // nil: nothing is watched
	watched map[string]bool
	events  <-chan fsnotify.Event // nothing comes where nothing is watched
	errors  <-chan error
}

// maxWatches is how many folders are watched.
const maxWatches = 16_384

// follow watches these folders, of which the first is the root. With too many, or where the system has no room for
// them, it watches none: half of them would make one kind of change be noticed and another not.
func (w *watch) follow(folders []string) {
	if len(folders) > maxWatches {
		w.close()
		return
	}
	if w.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return
		}
		w.watcher, w.events, w.errors = watcher, watcher.Events, watcher.Errors
	}
	now := make(map[string]bool, len(folders))
	for _, f := range folders {
		now[f] = true
		if w.watched[f] {
			continue
		}
		// it went meanwhile
		if err := w.watcher.Add(filepath.Join(w.root, f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.close()
			return
		}
	}
	w.watched = now
}

// close stops watching.
func (w *watch) close() {
	if w.watcher != nil {
		w.watcher.Close()
	}
	*w = watch{root: w.root}
}
