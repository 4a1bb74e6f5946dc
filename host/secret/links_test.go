package secret

import (
	"os"
	"testing"

	"toolpost/internal/kit"
)

func TestAFileWithASecondNameIsWarnedAbout(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(dir+"/key.txt", []byte("value"), 0o600))
	from := From{File: "key.txt"}
	kit.Check(t, from.Links(dir), "with one name")
	kit.OK(t, os.Link(dir+"/key.txt", dir+"/other"))
	kit.Fails(t, from.Links(dir), "has 2 hard links", "with two names")
}
