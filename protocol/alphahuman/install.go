package alphahuman

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/host/process"
	"toolpost/tool"
	"toolpost/wire/bounded"
)

// proxied lists the variables that pip and venv may need, besides the usual ones, to reach a package index.
func proxied() []string {
	return []string{
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
		"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "PIP_TRUSTED_HOST", "PIP_CONFIG_FILE", "SSL_CERT_FILE",
		"REQUESTS_CA_BUNDLE",
	}
}

// Install installs the requirements of a Python skill, from its requirements.txt and its manifest's dependencies, into .venv
// in its folder. The runner uses that environment if it exists. The output of pip goes to log.
func (Skills) Install(ctx context.Context, dir string, log io.Writer) error {
	s := readSkill(dir)
	switch {
	case s.Err != nil:
		return tool.AsError(s.Err)
	case s.Manifest == nil || !s.Manifest.python():
		return tool.Errorf(tool.CodeUnsupported, "%s is not a Python skill: there is nothing to install", s.Name())
	case !s.Manifest.needsInstall(dir):
		fmt.Fprintf(log, "%s needs no packages\n", s.Name())
		return nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "the skill's folder: %w", err)
	}
	in := &installer{dir: dir, log: log, name: s.Name()}
	return in.install(ctx, s.Manifest.Dependencies)
}

type installer struct {
	dir, name string
	mu        sync.Mutex // guards log
	log       io.Writer
}

func (in *installer) install(ctx context.Context, dependencies []string) (err error) {
	venv := filepath.Join(in.dir, venvFolder)
	if _, statErr := os.Stat(venv); errors.Is(statErr, fs.ErrNotExist) {
		defer func() {
			if err != nil { // half an environment would be used as if it were complete
				_ = os.RemoveAll(venv)
			}
		}()
		if err := in.run(ctx, "python3", "-m", "venv", venv); err != nil {
			return err
		}
	}
	pip := []string{
		filepath.Join(venv, "bin", "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input",
	}
	if _, err := os.Stat(filepath.Join(in.dir, requirementsFile)); err == nil {
		pip = append(pip, "-r", requirementsFile)
	}
	for _, d := range dependencies {
		if strings.HasPrefix(d, "-") {
			return tool.Errorf(tool.CodeInvalidInput, "%s: dependency %.40q is not a package", in.name, d)
		}
	}
	return in.run(ctx, slices.Concat(pip, dependencies)...)
}

// run runs one command to its end.
func (in *installer) run(ctx context.Context, argv ...string) error {
	child, err := process.Start(process.Command{
		Argv: argv, Dir: in.dir, Env: process.Environment(nil, proxied()), Stderr: in.say,
	})
	if err != nil {
		return err
	}
	defer child.Close()
	child.CloseStdin()
	stop := context.AfterFunc(ctx, func() { child.Stop(process.Ladder{Term: time.Second}) })
	defer stop()
	lines := bounded.NewLines(child.Stdout, bounded.LineLimits{})
	for {
		line, err := lines.Next()
		if err != nil && len(line) == 0 {
			break
		}
		in.say(line)
	}
	exit := child.Wait()
	switch {
	case ctx.Err() != nil:
		return tool.AsError(context.Cause(ctx))
	case exit != (process.Exit{}):
		return tool.Errorf(tool.CodeUnavailable, "%s: %s did not work: %s", in.name,
			strings.Join(argv[:min(4, len(argv))], " "), child.Describe(exit))
	}
	return nil
}

func (in *installer) say(line []byte) {
	in.mu.Lock()
	defer in.mu.Unlock()
	_, _ = in.log.Write(append(bytes.Clone(line), '\n')) // there is no remedy for a log that cannot be written
}

// template is the skill that New writes.
//
//go:embed template
var template embed.FS

// New writes a working Python skill into a new folder in dir, named after the skill, and returns its path.
func (Skills) New(dir, name string) (string, error) {
	if !validName(name) {
		return "", tool.Errorf(tool.CodeInvalidInput,
			"%.80q cannot be the name of a skill: use 1 to %d lower-case letters, digits and single hyphens", name,
			maxSkillName)
	}
	folder := filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "%s cannot be made: %w", dir, tool.WithoutPath(err))
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return "", tool.Errorf(tool.CodeConflict, "%s cannot be made: %w", folder, tool.WithoutPath(err))
	}
	files, _ := template.ReadDir("template") // it is part of the program
	for _, f := range files {
		text, _ := template.ReadFile("template/" + f.Name())
		text = bytes.ReplaceAll(text, []byte("my-skill"), []byte(name))
		if err := os.WriteFile(filepath.Join(folder, f.Name()), text, 0o644); err != nil {
			return "", tool.Errorf(tool.CodeUnavailable, "%s: %w", folder, tool.WithoutPath(err))
		}
	}
	return folder, nil
}
