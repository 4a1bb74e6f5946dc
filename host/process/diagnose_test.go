package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// bench returns a folder with programs that cannot be started.
func bench(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	binary := kit.Must(os.ReadFile("/bin/true"))(t)
	foreign := bytes.Clone(binary)
	foreign[18], foreign[19] = 0xF3, 0 // e_machine: RISC-V
	noLoader := bytes.ReplaceAll(binary, []byte("/ld-linux"), []byte("/ld-nowhe"))
	for name, content := range map[string]string{
		"script":       "#!/nowhere/interpreter -x\n",
		"script-empty": "#!\n",
		"script-crlf":  "#!/bin/sh\r\necho hello\r\n",
		"text":         "echo hello\n",
		"empty":        "",
		"foreign":      string(foreign),
		"no-loader":    string(noLoader),
		"damaged":      string(binary[:40]),
	} {
		write(t, filepath.Join(dir, name), content, 0o755)
	}
	write(t, filepath.Join(dir, "plain"), "#!/bin/sh\n", 0o644)
	kit.OK(t, errors.Join(os.Mkdir(filepath.Join(dir, "folder"), 0o755), os.Symlink("nowhere", filepath.Join(dir, "link"))))
	return dir
}

func TestAFailedStartExplainsItself(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := bench(t)
	t.Setenv("PATH", "/nowhere/1:"+dir+":/nowhere/2:/nowhere/3:/nowhere/4:/nowhere/5")
	for _, test := range []struct {
		name string
		cmd  Command
		want []string // all of these are in the message
	}{
		{"no program", Command{}, []string{"no program was given"}},
		{"an empty name", Command{Argv: []string{""}}, []string{"no program was given"}},
		{"not on PATH", Command{Argv: []string{"no-such"}}, []string{"no-such was not found on PATH", "/nowhere/1, " + dir, "/nowhere/4, ...", "install it"}},
		{"on PATH, not executable", Command{Argv: []string{"plain"}}, []string{dir + "/plain", "not executable", "-rw-r--r--", "chmod +x"}},
		{"missing", Command{Argv: []string{dir + "/no-such"}}, []string{dir + "/no-such", "does not exist"}},
		{"missing below the working folder", Command{Argv: []string{"./no-such"}, Dir: dir}, []string{dir + "/no-such", "does not exist"}},
		{"a link to nowhere", Command{Argv: []string{dir + "/link"}}, []string{"a link to nowhere, which does not exist"}},
		{"a folder", Command{Argv: []string{dir + "/folder"}}, []string{"it is a folder"}},
		{"a device", Command{Argv: []string{os.DevNull}}, []string{"it is not a file"}},
		{"below a file", Command{Argv: []string{dir + "/plain/x"}}, []string{"cannot be reached", "not a directory"}},
		{"not executable", Command{Argv: []string{dir + "/plain"}}, []string{"not executable", "-rw-r--r--", "chmod +x"}},
		{"a missing interpreter", Command{Argv: []string{dir + "/script"}}, []string{"the interpreter /nowhere/interpreter, which does not exist"}},
		{"no interpreter", Command{Argv: []string{dir + "/script-empty"}}, []string{"#! without an interpreter"}},
		{"Windows line ends", Command{Argv: []string{dir + "/script-crlf"}}, []string{"carriage return", "/bin/sh\\r", "Unix line ends"}},
		{"not a program", Command{Argv: []string{dir + "/text"}}, []string{"neither a program for this machine nor a script"}},
		{"empty", Command{Argv: []string{dir + "/empty"}}, []string{"it is empty"}},
		{"another machine", Command{Argv: []string{dir + "/foreign"}}, []string{"built for riscv64"}},
		{"no loader", Command{Argv: []string{dir + "/no-loader"}}, []string{"the loader /lib", "ld-nowhe", "which does not exist here"}},
		{"damaged", Command{Argv: []string{dir + "/damaged"}}, []string{"a damaged program"}},
		{"no working folder", Command{Argv: []string{"/bin/sh"}, Dir: dir + "/no-such"}, []string{"/bin/sh", "working folder " + dir + "/no-such does not exist"}},
		{"a file as working folder", Command{Argv: []string{"/bin/sh"}, Dir: dir + "/plain"}, []string{"working folder " + dir + "/plain is not a folder"}},
		{"too much", Command{Argv: []string{"/bin/sh", strings.Repeat("x", 1<<20)}}, []string{"larger than the kernel takes"}},
		{"NUL", Command{Argv: []string{"/bin/sh", "a\x00b"}}, []string{"NUL byte"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := Start(test.cmd)
			if err == nil {
				c.Close()
				t.Fatal("it started")
			}
			kit.Refused(t, err, tool.CodeUnavailable, "")
			for _, part := range test.want {
				kit.Contains(t, err.Error(), part, "%q does not say", err)
			}
		})
	}
}

func TestDiagnoseNamesTheMissingResource(t *testing.T) {
	for cause, want := range map[error]string{
		syscall.EAGAIN:           "the limit of processes",
		syscall.ENOMEM:           "out of memory",
		syscall.EMFILE:           "the limit of open files",
		syscall.ETXTBSY:          "open for writing",
		syscall.EACCES:           "noexec",
		errors.New("unheard of"): "/bin/sh cannot be started: unheard of",
	} {
		err := Diagnose([]string{"/bin/sh"}, "", cause)
		if !strings.Contains(err.Error(), want) || !errors.Is(err, cause) {
			t.Errorf("%v: %v", cause, err)
		}
	}
	for path, want := range map[string]string{"": "PATH is empty", ".": "write ./diagnose.go"} {
		t.Setenv("PATH", path)
		name := map[string]string{"": "no-such", ".": "diagnose.go"}[path]
		if path == "." {
			t.Chdir(t.TempDir())
			write(t, name, "", 0o755)
		}
		kit.Fails(t, kit.Err(Start(Command{Argv: []string{name}})), want, "with PATH=%q", path)
	}
}

func FuzzContentOfPrograms(f *testing.F) {
	f.Add([]byte("#!/bin/sh\r\n"))
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	if binary, err := os.Open("/bin/true"); err == nil {
		head, _ := io.ReadAll(io.LimitReader(binary, 4096))
		f.Add(head)
		binary.Close()
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "program")
		write(t, path, string(content), 0o755)
		kit.Refused(t, Diagnose([]string{path}, "", syscall.ENOEXEC), tool.CodeUnavailable, "")
	})
}
