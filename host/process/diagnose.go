package process

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"toolpost/config/offlimits"
	"toolpost/tool"
)

// Diagnose explains why a start failed with err: it checks the program as the kernel does, step by step, until it finds
// the step that fails.
func Diagnose(argv []string, dir string, err error) error {
	if known, ok := errors.AsType[*tool.Error](err); ok {
		return known
	}
	if len(argv) == 0 || argv[0] == "" {
		return refuse(err, "no program was given: name one in the command")
	}
	program, why := argv[0], cmp.Or(folderProblem(dir), limitProblem(err))
	switch {
	case why != "":
	case !strings.Contains(program, "/"):
		return refuse(err, "%s", searchProblem(program))
	default:
		program = offlimits.Under(dir, program)
		why = cmp.Or(fileProblem(program, err), err.Error())
	}
	return refuse(err, "%s cannot be started: %s", program, why)
}

func refuse(err error, format string, args ...any) error {
	e := tool.Errorf(tool.CodeUnavailable, format, args...)
	e.Err = err
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

// limitProblem explains the errors that have nothing to do with the program.
func limitProblem(err error) string {
	const files = "the limit of open files is reached: raise it (ulimit -n)"
	errno, _ := errors.AsType[syscall.Errno](err)
	return map[syscall.Errno]string{
		syscall.E2BIG: "its arguments and environment are larger than the kernel takes: pass large values on " +
			"standard input or in a file",
		syscall.EAGAIN: "the limit of processes is reached: end some, or raise the limit (ulimit -u, pids.max)",
		syscall.ENOMEM: "the machine is out of memory",
		syscall.EMFILE: files, syscall.ENFILE: files,
		syscall.EINVAL: "an argument or a variable holds a NUL byte",
	}[errno]
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
	if words := strings.Fields(name); len(words) > 1 {
		return name + " is one word of the command, and no program has this name: write each word on its own, [" +
			strings.Join(words, ", ") + "]"
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

// fileProblem explains why a file given by its path cannot be run.
func fileProblem(path string, err error) string {
	info, statErr := os.Stat(path)
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
		if target, err := os.Readlink(path); err == nil {
			return "it is a link to " + target + ", which does not exist"
		}
		return "it does not exist: check the path"
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

// contentProblem explains what is wrong with the file's content.
func contentProblem(path string, err error) string {
	file, openErr := os.Open(path)
	if openErr != nil {
		return ""
	}
	defer file.Close()
	head := make([]byte, 256) // as much of a script as the kernel reads
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

// machines maps the ELF machines to Go's names for them.
var machines = map[elf.Machine]string{
	elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_386: "386", elf.EM_ARM: "arm",
	elf.EM_RISCV: "riscv64", elf.EM_PPC64: "ppc64le", elf.EM_S390: "s390x",
}

// elfProblem checks the architecture of a binary and the loader that it asks for.
func elfProblem(r io.ReaderAt) string {
	file, err := elf.NewFile(r)
	if err != nil {
		return "it is a damaged program: " + err.Error()
	}
	built := cmp.Or(machines[file.Machine], file.Machine.String())
	var loader string // a static program has none
	if i := slices.IndexFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }); i >= 0 {
		const longest = 4096 // PATH_MAX
		name, _ := io.ReadAll(io.LimitReader(file.Progs[i].Open(), longest))
		loader = strings.TrimRight(string(name), "\x00")
	}
	if _, err := os.Stat(loader); loader != "" && err != nil {
		return "it was built for " + built + " and asks for the loader " + loader +
			", which does not exist here (another machine or another C library): install it or use another build"
	}
	if built != runtime.GOARCH {
		return "it was built for " + built + " and this machine is " + runtime.GOARCH + ": use another build"
	}
	return ""
}
