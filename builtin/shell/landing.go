package shell

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"toolpost/tool"
)

// A program that copies, moves or unpacks into a folder writes under names that no argument spells out. They are found here,
// and judged as if they had been arguments.

// places judges what cp, mv and ln write: each source under its own name in a folder, and everything below it. An archive is
// judged before it is unpacked, see unpacks.
func (j *judging) places() error {
	w := j.marks().scan(j.args, false)
	switch {
	case j.program == "tar":
		return j.untar(w)
	case j.program == "unzip":
		return j.unzip(w)
	case j.program == "zip":
		archives := slices.DeleteFunc(slices.Clone(w.plain), func(word string) bool {
			return word == "-" || word != w.plain[0] && filepath.Ext(word) != ".zip"
		})
		return each(archives, func(word string) error { return j.path(word, true) })
	case j.in("compressors") && j.changes:
		return each(w.plain, j.expands)
	case !j.in("placers"):
		return nil
	}
	var target string
	sources, folder := w.plain, len(w.with('>')) > 0
	switch {
	case folder:
		target = w.with('>')[0].value
	case len(sources) < 2:
		return nil
	default:
		target, sources = sources[len(sources)-1], sources[:len(sources)-1]
		info, err := os.Stat(j.absolute(target))
		folder = err == nil && info.IsDir() && !w.has("-T", "--no-target-directory")
	}
	for _, source := range sources {
		to := target
		switch {
		case j.program == "ln" && slices.Contains(strings.Split(source, "/"), ".."):
			return j.refuse("%q: a link that leads upwards is not followed to where it leads", source)
		case folder && slices.ContainsFunc(w.options, func(o string) bool { return stands(o, "--parents") }):
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

// expands judges the files that a compressor makes of one, or of those in a folder: it takes the end of a name away.
func (j *judging) expands(word string) error {
	seen := 0
	return filepath.WalkDir(j.absolute(word), func(path string, d fs.DirEntry, err error) error {
		if seen++; seen > maxBelow {
			return j.refuse("%q: there is more below it than can be judged", word)
		}
		made := strings.TrimSuffix(path, filepath.Ext(path))
		if err != nil || d.IsDir() || made == path || strings.HasSuffix(made, "/") {
			return nil
		}
		real, err := j.ground.resolve(made)
		if err != nil || !j.ground.innermost(real).Write {
			return err
		}
		return j.ground.mayWrite(word, real)
	})
}

// untar makes tar list what it would unpack. The list is made with options of ours, and with those of the caller that choose
// what is unpacked and under which names; an option that is not known is refused.
func (j *judging) untar(w words) error {
	from, list := "-", []string{"-t"}
	for _, o := range w.marked {
		if o.name == "-f" || o.name == "--file" {
			from = o.value
		}
	}
	switch {
	case !w.has("-x", "--extract", "--get"):
		if from != "-" && w.with('<') == nil {
			return j.path(from, true)
		}
		return nil
	case from == "-":
		return j.refuse("an archive from standard input: what it would write cannot be judged before; put it into a " +
			"file and name that with -f")
	}
	for _, name := range w.options {
		switch {
		case slices.Contains(wordsOf("tar chooses"), name):
			list = append(list, name)
		case !slices.Contains(wordsOf("tar unpacks"), name) && !(len(name) > 2 && name[1] != '-'): // a cluster, whose letters follow
			return j.refuse("%s, which is not among the options that are known to be harmless with -x", name)
		}
	}
	for _, o := range w.marked {
		if o.name == "--exclude" || o.name == "--strip-components" {
			list = append(list, o.name+"="+o.value)
		}
	}
	list = append(list, "--quoting-style=escape", "--show-transformed-names", "-f", from, "--")
	j.unpack = &unpacking{list: append(list, w.plain...), into: j.bases, quoted: true, ground: j.ground}
	return j.path(j.bases[len(j.bases)-1], true)
}

// unzip lists the archive that the first word names, with the members that the others name. Without -d, it is unpacked in
// the working folder. An option can make it list or show the archive instead; a second one, with a - behind it, takes that
// back.
func (j *judging) unzip(w words) error {
	negates := func(arg string) bool { return strings.HasPrefix(arg, "-") && strings.Contains(arg[1:], "-") }
	if !j.changes && !slices.ContainsFunc(j.args, negates) {
		return nil
	}
	for _, name := range w.options {
		if !slices.Contains(wordsOf("unzip unpacks"), name) && len(name) == 2 || strings.HasPrefix(name, "--") {
			return j.refuse("%s, which is not among the options that are known to be harmless to unpack with", name)
		}
	}
	if w.has("-x") && len(w.plain) > 0 {
		w.plain = w.plain[:1]
	}
	u := &unpacking{list: append([]string{"-Z1"}, w.plain...), into: j.bases, flat: w.has("-j"), ground: j.ground}
	for _, o := range w.with('>') {
		u.into = []string{j.absolute(o.value)}
	}
	j.unpack = u
	return j.path(u.into[0], true)
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
	into   []string // where it may be unpacked, absolute
	flat   bool     // without the folders of a name
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
	case !u.quoted && strings.ContainsFunc(name, func(r rune) bool { return r == '\\' || r == ';' || r == '^' || !unicode.IsPrint(r) }):
		return c.notHere("the archive has %q, which may be unpacked under another name", name)
	case slices.Contains(parts, ".."):
		return c.notHere("the archive has %s, which leads upwards", name)
	case u.flat && len(parts) > 0:
		parts = parts[len(parts)-1:]
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
	return each(u.into, func(dir string) error { return u.ground.check(rel, filepath.Join(dir, rel), true) })
}
