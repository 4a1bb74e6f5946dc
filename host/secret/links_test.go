package secret

import (
	"os"
	"strings"
	"testing"
)

func TestAFileWithASecondNameIsWarnedAbout(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/key.txt", []byte("value"), 0o600); err != nil {
		t.Fatal(err)
	}
	from := From{File: "key.txt"}
	if err := from.Links(dir); err != nil {
		t.Errorf("with one name: %v", err)
	}
	if err := os.Link(dir+"/key.txt", dir+"/other"); err != nil {
		t.Fatal(err)
	}
	if err := from.Links(dir); err == nil || !strings.Contains(err.Error(), "has 2 hard links") {
		t.Errorf("with two names: %v", err)
	}
}
