package node

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"toolpost/config"
	"toolpost/tool"
)

// settleTime is how long the config must be left alone before it is read: editors write in steps.
const settleTime = 200 * time.Millisecond

// Watch reloads the config when its file changes, and at once when now sends, until ctx ends. A config that cannot be
// read, or that somebody else could have written, is logged, and the node goes on with the one it has.
func (n *Node) Watch(ctx context.Context, now <-chan os.Signal) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "the config cannot be watched: %w", err)
	}
	defer w.Close()
	if n.cfg.Path != "" {
		if err := config.Trusted(n.cfg.Path); err != nil {
			n.o.Log.Warn("changes of the config will not be taken while the server runs", "error", message(err))
		}
		// The folder and not the file: editors put a new file in the place of the old one.
		if err := w.Add(n.cfg.Dir); err != nil {
			return tool.Errorf(tool.CodeUnavailable, "the config cannot be watched: %w", err)
		}
	}
	quiet := time.NewTimer(0)
	<-quiet.C
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev := <-w.Events:
			if filepath.Clean(ev.Name) == n.cfg.Path && !ev.Has(fsnotify.Chmod) {
				quiet.Reset(settleTime)
			}
		case err := <-w.Errors:
			n.o.Log.Warn("watching the config", "error", err)
		case <-quiet.C:
			n.reloadFile(ctx)
		case <-now:
			n.reloadFile(ctx)
		}
	}
}

// reloadFile reads the config again. It decides what runs on this machine without anybody looking, unlike a start; so
// it is only taken from those who may decide that.
func (n *Node) reloadFile(ctx context.Context) {
	if n.cfg.Path == "" {
		n.Reload(ctx, n.cfg)
		return
	}
	cfg, err := config.LoadTrusted(n.cfg.Path)
	if err != nil {
		n.o.Log.Error("the config was not reloaded; the one before it stays until it is saved again, or SIGHUP is sent",
			"error", message(err))
		return
	}
	n.Reload(ctx, cfg)
}
