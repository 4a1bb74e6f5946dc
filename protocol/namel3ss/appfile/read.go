package appfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"toolpost/host/process"
	"toolpost/tool"
)

// The languages and the runners of the contract.
const (
	KindPython = "python"
	KindNode   = "node"

	RunnerLocal     = "local"
	RunnerService   = "service"
	RunnerContainer = "container"
)

// Kinds lists the languages.
func Kinds() []string { return []string{KindPython, KindNode} }

// RunnerNames lists the runners.
func RunnerNames() []string { return []string{RunnerLocal, RunnerService, RunnerContainer} }

// maxFile bounds each of the files of an app.
const maxFile = 1 << 20

// Read returns the content of a file of an app or a pack, or nothing where there is none.
func Read(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && !info.Mode().IsRegular():
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s is not a regular file", name)
	case err != nil:
		return nil, tool.Errorf(tool.CodeUnavailable, "%s cannot be read: %w", name, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "%s cannot be read: %w", name, err)
	}
	defer f.Close()
	data, err := process.ReadDocument(f, maxFile)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w", name, err)
	}
	return data, nil
}

// Slug is the name of a tool as that of a Python module.
func Slug(name string) string {
	s := strings.Trim(notWord().ReplaceAllString(strings.ToLower(name), "_"), "_")
	switch {
	case s == "":
		return "tool"
	case s[0] >= '0' && s[0] <= '9':
		return "tool_" + s
	}
	return s
}

var notWord = lazily(`[^a-z0-9]+`)
