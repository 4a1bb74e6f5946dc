package leaks

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"toolpost/internal/kit"
)

const key = "canary-5f0d9b21-key"

// failures counts failures of a test in place of failing it.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Errorf(string, ...any) { f.n++ }
func (f *failures) Helper()               {}

func TestCanaryIsFoundInItsForms(t *testing.T) {
	for _, text := range []string{
		"it is " + key + ".", hex.EncodeToString([]byte("it is " + key)), base64.StdEncoding.EncodeToString([]byte(key)),
		base64.StdEncoding.EncodeToString([]byte("x" + key + "yz")), base64.RawURLEncoding.EncodeToString([]byte("xy" + key + "z")),
	} {
		f := &failures{TB: t}
		Text(f, "a text", text, "other-canary", key)
		kit.Equal(t, f.n, 1, text)
	}
	f := &failures{TB: t}
	Text(f, "a text", "it is canary-5f0d9b21-ke", key, "")
	kit.Equal(t, f.n, 0)
}

func TestCanaryIsFoundInFilesAndPrograms(t *testing.T) {
	dir := t.TempDir()
	kit.Write(t, filepath.Join(dir, "below", "file"), "it is "+key)
	f := &failures{TB: t}
	kit.Equal(t, Files(f, dir, key), 1)
	kit.Equal(t, f.n, 1)
	for in, env := range map[string]string{"environment": "KNOWN=" + key, "nothing": "KNOWN=x", "memory": "KNOWN=y"} {
		words := []string{"-c", `read line; echo "$line"; read line`}
		cmd := exec.CommandContext(t.Context(), "sh", words...)
		cmd.Env = append(os.Environ(), env)
		to, from := kit.Must(cmd.StdinPipe())(t), kit.Must(cmd.StdoutPipe())(t)
		kit.OK(t, cmd.Start())
		said := key
		if in != "memory" {
			said = "x"
		}
		kit.Must(fmt.Fprintln(to, said))(t)
		kit.Must(fmt.Fscan(from, &said))(t)
		f := &failures{TB: t}
		Programs(f, []int{cmd.Process.Pid}, "KNOWN", key)
		kit.Equal(t, f.n > 0, in != "nothing", in)
		kit.OK(t, to.Close())
		_ = cmd.Wait() // the last read fails
	}
}
