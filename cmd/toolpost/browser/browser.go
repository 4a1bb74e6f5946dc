// Package browser opens links in the browser of this machine.
package browser

import (
	"context"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"toolpost/config/offlimits"
	"toolpost/tool"
)

// Open opens a link. Other users of the machine can see the words of a command, so the browser gets a file that
// leads to the link and that only this user can read. The file stays, because the browser reads it in its own time; by then
// the code in it is used up.
func Open(ctx context.Context, url string) error {
	dir, err := os.UserCacheDir()
	if err == nil {
		dir = filepath.Join(dir, "toolpost")
		err = os.MkdirAll(dir, 0o700)
	}
	path := filepath.Join(dir, "console.html")
	if err == nil {
		page := `<!doctype html><meta http-equiv="refresh" content="0;url=` + html.EscapeString(url) + `">`
		err = offlimits.WriteOver(path, page)
	}
	if err == nil {
		opener := "xdg-open"
		if runtime.GOOS == "darwin" {
			opener = "open"
		}
		cmd := exec.CommandContext(ctx, opener, path)
		cmd.WaitDelay = time.Second
		err = cmd.Run()
	}
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "no browser can be opened here: %w; open the link that `toolpost console` "+
			"prints", err)
	}
	return nil
}
