package file

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"toolpost/host/workspace"
	"toolpost/tool"
)

// fileArgs name a file.
type fileArgs struct {
	Path string `json:"path" schema:"required minLength=1" doc:"The file, relative to an offered folder, or absolute below one. Example: docs/plan.md"`
}

func (a *fileArgs) paths() []*string { return []*string{&a.Path} }

type folderArgs struct {
	Path string `json:"path" schema:"required minLength=1" doc:"The folder, relative to an offered folder, or absolute below one."`
}

func (a *folderArgs) paths() []*string { return []*string{&a.Path} }

type writeArgs struct {
	fileArgs
	Content    string `json:"content" schema:"required" doc:"The new content."`
	Encoding   string `json:"encoding" schema:"enum=text|base64 default=text" doc:"The encoding of content."`
	CreateOnly bool   `json:"create_only" schema:"default=false" doc:"Fail where the file exists."`
	Append     bool   `json:"append" schema:"default=false" doc:"Add the content to the end of the file instead."`
	Mode       string `json:"mode" schema:"pattern=^[0-7]{3,4}$" doc:"The permissions, such as 755. Left out: those of the file that is replaced, or the usual ones."`
}

type written struct {
	Bytes int `json:"bytes_written" schema:"minimum=0"`
}

func (t *Tools) write(r *request, a writeArgs) (written, error) {
	content, err := a.decoded()
	if err != nil {
		return written{}, err
	}
	mode, err := parseMode(a.Mode)
	if err != nil {
		return written{}, err
	}
	o := workspace.WriteOptions{CreateOnly: a.CreateOnly, Mode: mode}
	switch {
	case a.Append && (a.CreateOnly || a.Mode != ""):
		return written{}, tool.Errorf(tool.CodeInvalidInput, "append does not go with create_only or mode; leave one out")
	case int64(len(content)) > t.maxFile:
		return written{}, t.tooMuch(a.Path)
	case a.Append:
		err = t.appendTo(r, a.Path, content)
	default:
		err = r.Write(a.Path, content, o)
	}
	return written{len(content)}, err
}

func (a writeArgs) decoded() ([]byte, error) {
	if err := checkEncoding(a.Encoding); err != nil {
		return nil, err
	}
	if a.Encoding != asBase64 {
		return []byte(a.Content), nil
	}
	b, err := base64.StdEncoding.Strict().DecodeString(a.Content)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "content is not base64: %w", err)
	}
	return b, nil
}

// parseMode reads permissions as people write them; it refuses anything beyond them, such as setuid.
func parseMode(s string) (fs.FileMode, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n == 0 || n > 0o777 {
		return 0, tool.Errorf(tool.CodeInvalidInput, "mode is %q; write permissions such as 644 or 755", s)
	}
	return fs.FileMode(n), nil
}

func (t *Tools) tooMuch(shown string) *tool.Error {
	return tool.Errorf(tool.CodeInvalidInput, "%s would be larger than %d bytes; max_file of the source says how much "+
		"is written", shown, t.maxFile).
		Because("too_large")
}

// appendTo appends to a file, or creates it. If another writer creates it in between, it appends to that.
func (t *Tools) appendTo(r *request, path string, content []byte) error {
	add := func() error {
		return r.Edit(path, t.maxFile, func(old []byte) ([]byte, error) {
			if int64(len(old)+len(content)) > t.maxFile {
				return nil, t.tooMuch(path)
			}
			return append(old, content...), nil
		})
	}
	err := add()
	if tool.CodeOf(err) != tool.CodeNotFound {
		return err
	}
	err = r.Write(path, content, workspace.WriteOptions{CreateOnly: true})
	if tool.CodeOf(err) == tool.CodeConflict {
		err = add()
	}
	return err
}

type editArgs struct {
	fileArgs
	Old        string `json:"old" schema:"required minLength=1" doc:"The text to replace, exactly as it is in the file, with its spaces and line ends."`
	New        string `json:"new" schema:"required" doc:"What takes its place."`
	ReplaceAll bool   `json:"replace_all" schema:"default=false" doc:"Replace it wherever it is."`
	Expected   *int   `json:"expected" schema:"minimum=1" doc:"Replace it wherever it is, if it is there exactly this often."`
}

type edited struct {
	Replacements int `json:"replacements" schema:"minimum=1"`
	Bytes        int `json:"bytes_written" schema:"minimum=0"`
}

func (t *Tools) edit(r *request, a editArgs) (edited, error) {
	if a.Old == "" {
		return edited{}, tool.Errorf(tool.CodeInvalidInput, "old is empty; give the text that is to be replaced, or use %s",
			writeName)
	}
	var done edited
	err := r.Edit(a.Path, t.maxFile, func(content []byte) ([]byte, error) {
		n := bytes.Count(content, []byte(a.Old))
		if err := a.check(n); err != nil {
			return nil, err
		}
		if int64(len(content))+int64(n)*int64(len(a.New)-len(a.Old)) > t.maxFile {
			return nil, t.tooMuch(a.Path)
		}
		changed := bytes.ReplaceAll(content, []byte(a.Old), []byte(a.New))
		done = edited{n, len(changed)}
		return changed, nil
	})
	return done, err
}

// check compares how often the old text occurs with how often it should.
func (a editArgs) check(n int) error {
	switch {
	case n == 0:
		return tool.Errorf(tool.CodeInvalidInput, "%s does not contain the old text; read the file again and copy it exactly",
			a.Path).Because("no_match")
	case a.Expected != nil && n != *a.Expected:
		return tool.Errorf(tool.CodeInvalidInput, "%s contains the old text %s, and %d was expected; nothing was changed",
			a.Path, times(n), *a.Expected).Because("ambiguous")
	case a.Expected == nil && !a.ReplaceAll && n > 1:
		return tool.Errorf(tool.CodeInvalidInput, "%s contains the old text %s; give more of what is around it, or say "+
			"replace_all or expected: %d", a.Path, times(n), n).Because("ambiguous")
	}
	return nil
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

type deleted struct {
	Deleted bool `json:"deleted" schema:"const=true"`
}

func (t *Tools) remove(r *request, a fileArgs) (deleted, error) {
	return deleted{true}, r.Remove(a.Path)
}

type moveArgs struct {
	From      string `json:"from" schema:"required minLength=1" doc:"The file, relative to an offered folder, or absolute below one. Example: docs/plan.md"`
	To        string `json:"to" schema:"required minLength=1" doc:"Its new path, in full."`
	Overwrite bool   `json:"overwrite" schema:"default=false" doc:"Replace a file that is there."`
}

func (a *moveArgs) paths() []*string { return []*string{&a.From, &a.To} }

type moved struct {
	Moved bool `json:"moved" schema:"const=true"`
}

func (t *Tools) move(r *request, a moveArgs) (moved, error) {
	return moved{true}, r.Rename(r, a.From, a.To, a.Overwrite)
}

type created struct {
	Created bool `json:"created" doc:"false: it existed"`
}

func (t *Tools) makeFolder(r *request, a folderArgs) (created, error) {
	made, err := r.Mkdir(a.Path)
	return created{made}, err
}

// A stat is the output of statFile.
type stat struct {
	entry
	Mode     string    `json:"mode" doc:"The permissions, such as 644."`
	Modified time.Time `json:"modified"`
}

func (t *Tools) stat(r *request, a fileArgs) (stat, error) {
	info, err := r.Stat(a.Path)
	if err != nil {
		return stat{}, err
	}
	return stat{newEntry(a.Path, info), fmt.Sprintf("%03o", info.Mode().Perm()), info.ModTime().UTC()}, nil
}
