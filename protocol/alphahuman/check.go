package alphahuman

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"toolpost/config/offlimits"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/regex"
)

// A Finding is a fault of a skill folder. A skill with errors cannot be used; a warning is advice.
type Finding struct {
	Error   bool   `json:"error"` // false for a warning
	File    string `json:"file"`
	Message string `json:"message"`
}

// String formats the finding as one line.
func (f Finding) String() string {
	level := "warning"
	if f.Error {
		level = "error"
	}
	return fmt.Sprintf("%s: %s: %s", level, f.File, f.Message)
}

// findings collects the findings of a check.
type findings []Finding

func (f *findings) errorf(file, format string, args ...any) {
	*f = append(*f, Finding{true, file, fmt.Sprintf(format, args...)})
}

func (f *findings) warnf(file, format string, args ...any) {
	*f = append(*f, Finding{false, file, fmt.Sprintf(format, args...)})
}

// Check examines one skill folder without running anything.
func (Skills) Check(dir string) []Finding {
	var f findings
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if !isSkill(dir) {
		f.fault(dir, dir, noSkill(dir))
		return f
	}
	doc, err := readPart(dir, skillFile, maxSkillFile, parseDoc)
	switch {
	case err != nil:
		f.fault(skillFile, dir, err)
	case doc == nil:
		f.errorf(skillFile, "missing; the contract asks for it: it says what the skill is called and when to use it")
	default:
		f.checkDoc(doc, filepath.Base(dir))
	}
	file, manifest, err := readManifest(dir)
	switch {
	case err != nil:
		f.fault(file, dir, err)
	case manifest != nil:
		f.checkManifest(file, manifest, dir)
	case there(dir, programFile):
		f.errorf(manifestFile, "missing; %s", unstarted(dir, programFile))
	}
	return f
}

// fault records an error. It removes the path from the start of the message, because the finding names the file.
func (f *findings) fault(file, dir string, err error) {
	message := strings.ReplaceAll(tool.AsError(err).Message, dir+string(filepath.Separator), "")
	f.errorf(file, "%s", strings.TrimLeft(strings.TrimPrefix(strings.TrimLeft(message, " "), file), ": "))
}

var nameForm = regex.Lazy(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// Limits of the Agent Skills standard, in characters.
const (
	maxSkillName     = 64
	maxDescription   = 1024
	maxCompatibility = 500
)

func (f *findings) checkDoc(d *Doc, folder string) {
	switch {
	case d.Name == "":
		f.errorf(skillFile, "field name: missing; give the skill a name in the frontmatter")
	case !validName(d.Name):
		f.errorf(skillFile, "field name: %.80q has to be 1 to %d lower-case letters, digits and single hyphens", d.Name,
			maxSkillName)
	case d.Name != folder:
		f.warnf(skillFile, "field name: %q differs from the folder's name %q", d.Name, folder)
	}
	switch n := utf8.RuneCountInString(d.Description); {
	case n == 0:
		f.errorf(skillFile, "field description: missing; say what the skill does and when to use it")
	case n > maxDescription:
		f.errorf(skillFile, "field description: %d characters; %d is the most", n, maxDescription)
	}
	if n := utf8.RuneCountInString(d.Compatibility); n > maxCompatibility {
		f.errorf(skillFile, "field compatibility: %d characters; %d is the most", n, maxCompatibility)
	}
	for _, name := range d.unknown {
		f.warnf(skillFile, "field %s: not known, and ignored", jsonrpc.Clip(name))
	}
	if strings.TrimSpace(d.Body) == "" {
		f.warnf(skillFile, "there are no instructions below the frontmatter")
	}
}

func validName(name string) bool { return len(name) <= maxSkillName && nameForm().MatchString(name) }

func (f *findings) checkManifest(file string, m *Manifest, dir string) {
	start, err := m.launch(dir)
	if err != nil {
		f.errorf(file, "%s", tool.AsError(err).Message)
		return
	}
	argv, program := start.argv, start.argv[0]
	if strings.Contains(program, "/") {
		program = offlimits.Under(dir, program)
	}
	if _, err := exec.LookPath(program); err != nil {
		f.errorf(file, "field runtime: %s was not found, or is not executable; install it, or correct the command", argv[0])
	}
	if len(argv) > 1 && !strings.HasPrefix(argv[1], "-") && filepath.Ext(argv[1]) != "" &&
		!exists(offlimits.Under(dir, argv[1])) {
		f.errorf(argv[1], "missing; the manifest starts it")
	}
	for _, d := range m.Dependencies {
		if strings.HasPrefix(d, "-") {
			f.errorf(file, "field dependencies: %.40q is not a package", d)
		}
	}
	if !exists(filepath.Join(dir, venvFolder)) && m.python() && m.needsInstall(dir) {
		f.warnf(requirementsFile, "its packages are not installed; run `toolpost skill install`")
	}
}

// needsInstall reports whether the skill requires packages.
func (m *Manifest) needsInstall(dir string) bool {
	data, _ := readFile(filepath.Join(dir, requirementsFile), maxManifest) // an unreadable file requires none
	for l := range strings.Lines(string(data)) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
			return true
		}
	}
	return len(m.Dependencies) > 0
}
