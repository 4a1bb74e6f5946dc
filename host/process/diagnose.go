package process

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"toolpost/tool"
)

// Diagnose explains why a start failed with err: it looks at what was to be started as the kernel
// does, step by step, until it finds the step that cannot work.
func Diagnose(argv []string, dir string, err error) error {
	var known *tool.Error
	switch {
	case errors.As(err, &known):
		return known
	case len(argv) == 0 || argv[0] == "":
		return refuse(err, "no program was given: name one in the command")
	}
	if why := folderProblem(dir); why != "" {
		return refuse(err, "%s cannot be started: %s", argv[0], why)
	}
	if why := limitProblem(err); why != "" {
		return refuse(err, "%s cannot be started: %s", argv[0], why)
	}
	if !strings.Contains(argv[0], "/") {
		return refuse(err, "%s", searchProblem(argv[0]))
	}
	path := argv[0]
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if why := fileProblem(path, err); why != "" {
		return refuse(err, "%s cannot be started: %s", path, why)
	}
	return refuse(err, "%s cannot be started: %v", path, err)
}

func refuse(err error, format string, args ...any) error {
	e := tool.Errorf(tool.CodeUnavailable, format, args...)
	e.Op, e.Err = "start", err
	return e
}

func folderProblem(dir string) string {
	if dir == "" {
		return ""
	}
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return "its working folder " + dir + " does not exist: create it or name another"
	case err != nil:
		return "its working folder " + dir + " cannot be entered: " + err.Error()
	case !info.IsDir():
		return "its working folder " + dir + " is not a folder: name another"
	}
	return ""
}

// limitProblem knows the errors that say nothing about the program.
func limitProblem(err error) string {
	switch {
	case errors.Is(err, syscall.E2BIG):
		return "its arguments and environment are larger than the kernel takes: pass large values on standard input " +
			"or in a file"
	case errors.Is(err, syscall.EAGAIN):
		return "the limit of processes is reached: end some, or raise the limit (ulimit -u, pids.max)"
	case errors.Is(err, syscall.ENOMEM):
		return "the machine is out of memory"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "the limit of open files is reached: raise it (ulimit -n)"
	case errors.Is(err, syscall.EINVAL):
		return "an argument or a variable holds a NUL byte"
	}
	return ""
}

// searchProblem explains why a name was not found on the PATH.
func searchProblem(name string) string {
	const shown = 5
	folders := filepath.SplitList(os.Getenv("PATH"))
	for _, folder := range folders {
		path := filepath.Join(folder, name)
		switch info, err := os.Stat(path); {
		case err != nil || info.IsDir():
		case info.Mode()&0o111 == 0:
			return path + " cannot be started: " + modeProblem(info)
		case !filepath.IsAbs(folder):
			return name + " was found in " + folder + ", a relative entry of PATH, which is not used: write ./" + name +
				" to mean that one"
		}
	}
	if len(folders) == 0 {
		return name + " was not found: PATH is empty"
	}
	looked := strings.Join(folders[:min(shown, len(folders))], ", ")
	if len(folders) > shown {
		looked += ", ..."
	}
	return name + " was not found on PATH (looked in " + looked + "): install it, or give its full path"
}

func modeProblem(info fs.FileInfo) string {
	return "it is not executable (its mode is " + info.Mode().String() + "): run chmod +x on it"
}

// fileProblem explains why a file that was named by its path cannot be run.
func fileProblem(path string, err error) string {
	info, statErr := os.Stat(path)
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
		return missingProblem(path)
	case statErr != nil:
		return "it cannot be reached: " + statErr.Error()
	case info.IsDir():
		return "it is a folder: name a program in it"
	case !info.Mode().IsRegular():
		return "it is not a file (its mode is " + info.Mode().String() + ")"
	case info.Mode()&0o111 == 0:
		return modeProblem(info)
	case errors.Is(err, syscall.ETXTBSY):
		return "it is open for writing: try again when it is complete"
	}
	if why := contentProblem(path, err); why != "" {
		return why
	}
	if errors.Is(err, fs.ErrPermission) {
		return "running it is not permitted: its owner may differ, or its disk is mounted noexec"
	}
	return ""
}

func missingProblem(path string) string {
	if target, err := os.Readlink(path); err == nil {
		return "it is a link to " + target + ", which does not exist"
	}
	return "it does not exist: check the path"
}

// contentProblem looks into the file.
func contentProblem(path string, err error) string {
	file, openErr := os.Open(path)
	if openErr != nil {
		return ""
	}
	defer file.Close()
	head := make([]byte, 256) // what the kernel reads of a script
	n, _ := io.ReadFull(file, head)
	head = head[:n]
	switch {
	case bytes.HasPrefix(head, []byte("#!")):
		return scriptProblem(head)
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		return elfProblem(file)
	case n == 0:
		return "it is empty"
	case errors.Is(err, syscall.ENOEXEC):
		return "it is neither a program for this machine nor a script that starts with #!: name its interpreter in " +
			"the command, or add the line"
	}
	return ""
}

// scriptProblem checks the interpreter that a script's first line names.
func scriptProblem(head []byte) string {
	line, _, _ := bytes.Cut(head[2:], []byte{'\n'})
	carriage := bytes.HasSuffix(line, []byte{'\r'})
	name, _, _ := strings.Cut(strings.Trim(string(line), " \t\r"), " ")
	if name == "" {
		return "its first line is #! without an interpreter: name one"
	}
	if _, err := os.Stat(name); err != nil {
		return "its first line asks for the interpreter " + name +
			", which does not exist: install it or correct the line"
	}
	if carriage {
		return "its first line ends in a carriage return (Windows line ends), so that the interpreter " + name +
			"\\r is looked for: convert the file to Unix line ends"
	}
	return ""
}

// machines are the ELF names of the machines that Go calls otherwise.
var machines = map[elf.Machine]string{
	elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_386: "386", elf.EM_ARM: "arm",
	elf.EM_RISCV: "riscv64", elf.EM_PPC64: "ppc64le", elf.EM_S390: "s390x",
}

// elfProblem checks what a binary was built for and the loader that it asks for.
func elfProblem(r io.ReaderAt) string {
	file, err := elf.NewFile(r)
	if err != nil {
		return "it is a damaged program: " + err.Error()
	}
	built := machines[file.Machine]
	if built == "" {
		built = file.Machine.String()
	}
	loader := elfLoader(file)
	if _, err := os.Stat(loader); loader != "" && err != nil {
		return "it was built for " + built + " and asks for the loader " + loader +
			", which does not exist here (another machine or another C library): install it or use another build"
	}
	if built != runtime.GOARCH {
		return "it was built for " + built + " and this machine is " + runtime.GOARCH + ": use another build"
	}
	return ""
}

// elfLoader returns the dynamic loader of a binary; a static one has none.
func elfLoader(file *elf.File) string {
	const longest = 4096 // PATH_MAX
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			name, _ := io.ReadAll(io.LimitReader(p.Open(), longest))
			return strings.TrimRight(string(name), "\x00")
		}
	}
	return ""
}
