package shell

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"toolpost/tool"
)

// A program that copies, moves or unpacks into a folder writes under names that no argument spells out. They are found here,
// and judged as if they had been arguments.

const (
	intoFolder = "-t --target-directory"    // names the folder that all arguments are put into
	notInto    = "-T --no-target-directory" // the last argument is what is written, not a folder for it
)

// checkPlaced judges what cp, mv and ln write: each source under its own name in a folder, and everything below it.
func checkPlaced(j *judging, items []item) error {
	sources, target, folder := arguments(items), "", false
	for _, it := range items {
		if has([]item{it}, intoFolder) {
			target, folder = it.values[0], true
		}
	}
	if !folder {
		if len(sources) < 2 {
			return nil
		}
		target, sources = sources[len(sources)-1], sources[:len(sources)-1]
		info, err := os.Stat(j.absolute(target))
		folder = err == nil && info.IsDir() && !has(items, notInto)
	}
	for _, source := range sources {
		to := target
		switch {
		case folder && has(items, "--parents"):
			to = filepath.Join(target, source)
		case folder:
			to = filepath.Join(target, ownName(source))
		}
		if err := j.path(to, true); err != nil {
			return err
		}
		if err := j.ground.lands(j.absolute(source), j.absolute(to)); err != nil {
			return err
		}
	}
	return nil
}

// ownName returns the name that a path gets in a folder that it is put into. A path that ends with . or .. is put there
// without its own folder.
func ownName(path string) string {
	name := path[strings.LastIndexByte(strings.TrimRight(path, "/"), '/')+1:]
	if name = strings.TrimRight(name, "/"); name == "." || name == ".." {
		return ""
	}
	return name
}

// lands returns why the tree at one path may not be written at another.
func (p place) lands(from, to string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return nil // there is nothing to copy
	}
	top, err := p.resolve(to)
	if err != nil {
		return err
	}
	seen, folders := 0, map[string]string{".": top} // the resolved target of each folder
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(from, path)
		if err != nil || rel == "." {
			return nil // if we cannot read it, the program cannot either
		}
		if seen++; seen > maxBelow {
			return tool.Errorf(tool.CodeAccessDenied, "%s is not allowed: there is more below it than can be judged", from)
		}
		at := filepath.Join(folders[filepath.Dir(rel)], d.Name())
		if _, err := os.Lstat(at); err == nil {
			if at, err = p.resolve(at); err != nil {
				return err
			}
		}
		folders[rel] = at
		return p.mayWrite(at, at)
	})
}

// An unpacking describes a command that unpacks an archive, before it runs.
type unpacking struct {
	list   []string // arguments that make the same program list the archive, one name per line
	quoted bool     // with the escapes of C
	into   string   // absolute
	strip  int      // leading folders to drop from a name
	flat   bool     // drops all of them
	ground place
}

// unpacks checks what a command is about to unpack: it must be allowed to write every name. An entry below another that is
// not a folder is refused, since that may be a link to anywhere.
func (s *session) unpacks(c *command) error {
	u := c.unpack
	files := map[string]bool{}
	_, code, err := s.ask(c.verdict, c.dir, func(line string) error {
		name := line
		if u.quoted {
			var err error
			if name, err = strconv.Unquote(`"` + strings.ReplaceAll(line, `"`, `\"`) + `"`); err != nil {
				return c.notHere("the archive has a name that cannot be read: %s", line)
			}
		}
		if len(files) >= maxBelow {
			return c.notHere("the archive has more entries than can be judged")
		}
		return u.judge(c, files, name)
	}, u.list...)
	if err == nil && code != 0 {
		err = c.notHere("the archive cannot be read, and so not judged")
	}
	return err
}

func (u *unpacking) judge(c *command, files map[string]bool, name string) error {
	parts := slices.DeleteFunc(strings.Split(name, "/"), func(part string) bool { return part == "" || part == "." })
	switch {
	case slices.Contains(parts, ".."):
		return c.notHere("the archive has %s, which leads upwards", name)
	case u.flat && len(parts) > 0:
		parts = parts[len(parts)-1:]
	default:
		parts = parts[min(u.strip, len(parts)):]
	}
	for n := 1; n < len(parts); n++ {
		if above := strings.Join(parts[:n], "/"); files[above] {
			return c.notHere("the archive has %s, below %s, which is no folder", name, above)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	rel := strings.Join(parts, "/")
	if !strings.HasSuffix(name, "/") {
		files[rel] = true
	}
	return u.ground.check(rel, filepath.Join(u.into, rel), true)
}
