package walls

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"toolpost/config/offlimits"
	"toolpost/host/sandbox"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// Room returns what the walls allow, for advice, or nil if there are none.
func (w *Walls) Room() *tool.Room {
	if w.off {
		return nil
	}
	p, l := w.profile, w.profile.Limits.WithDefaults()
	return &tool.Room{
		Base: w.base, Read: w.o.Read, Write: w.o.Write, Network: w.network,
		Reads:  slices.Concat(p.Readable, p.Writable, p.Executable),
		Memory: max(l.Memory, 0), Tasks: max(l.Processes, 0), Box: p.Root != "",
	}
}

// Publish adds what a tool may do to its spec.
func (w *Walls) Publish(s *tool.Spec) { s.Walls, s.Held, s.Room = w.String(), w.Holds(), w.Room() }

// Hint completes the message of a failed call: what the walls around its tool stopped, and the line of the config that
// would allow it. If nothing was seen to be stopped, but the message reads as if it had been, it says that the walls may
// be the cause. It returns "" if the walls seem to have nothing to do with it.
//
// A stopped attempt is reported as such, and not as the cause of the failure: a tool may try something, do without, and
// fail for another reason.
func Hint(s *tool.Spec, blocked []tool.Blocked, said string) string {
	a := advice{spec: s, room: s.Room}
	if a.room == nil {
		a.room = &tool.Room{}
	}
	for _, b := range blocked {
		a.take(b)
	}
	a.imported(said)
	if len(a.stopped)+len(a.forbidden)+len(a.keys) == 0 {
		return a.guess(said)
	}
	return a.String()
}

// advice is assembled from what was stopped.
type advice struct {
	spec      *tool.Spec
	room      *tool.Room
	stopped   []string  // by the walls, in words
	forbidden []string  // by something that no walls allow, in words
	keys      []string  // what the proxy refused to do with the keys of connections
	settings  []setting // that would allow it
}

// A setting is a field of the walls and its required value.
type setting struct {
	field  string
	list   bool
	values []string
}

// How many attempts a message names, and how many bytes of a path.
const (
	mostTold = 4
	mostPath = 200
)

// take adds something that was stopped.
func (a *advice) take(b tool.Blocked) {
	if b.Capability == capCredential {
		if why := clean(b.Target); len(a.keys) < mostTold && !slices.Contains(a.keys, why) {
			a.keys = append(a.keys, why)
		}
		return
	}
	does, known := map[string]string{
		"filesystem_write": "writing ", "network": "connecting to ", "subprocess": "starting ",
		"memory": "more memory than ", "processes": "more processes than ",
	}[b.Capability]
	// Python caches compiled code if it can, and works the same without.
	if !known || strings.Contains(b.Target, "/__pycache__") {
		return
	}
	does += clean(b.Target)
	switch {
	case slices.Contains(a.stopped, does):
	case b.Never:
		a.forbid(does + ", which is off limits: no setting allows it")
	case b.By == "user":
		a.forbid(fmt.Sprintf("%s: take no_%s out of `guarantees:` there to allow it", does, b.Capability))
	case b.By == byEngine && b.Capability == "subprocess" && a.room.Key == "shell":
		a.forbid(does + ", which a command may not; a rule of `shell` with allow_args, or trust, can allow it")
	case b.By != byEngine || b.Capability == "subprocess":
		a.forbid(fmt.Sprintf("%s: no_%s holds, by the policy or by who called; see `toolpost policy explain %s`", does,
			b.Capability, clean(a.spec.Name)))
	case len(a.stopped) == mostTold:
	default:
		a.stopped = append(a.stopped, does)
		a.allow(b)
	}
}

func (a *advice) forbid(why string) {
	if len(a.forbidden) < mostTold && !slices.Contains(a.forbidden, why) {
		a.forbidden = append(a.forbidden, why)
	}
}

// allow finds the setting that would have allowed it.
func (a *advice) allow(b tool.Blocked) {
	switch b.Capability {
	case "filesystem_write":
		a.write(b.Target)
	case "network":
		a.set("network", true, hostOf(b.Target))
	case "memory":
		a.raise("memory", 2*a.room.Memory)
	case "processes":
		a.raise("processes", 2*int64(a.room.Tasks))
	}
}

// write allows a change of a path. The setting names its folder: a file is usually written under another name first, and
// then renamed. Its existence is not checked: a caller that chooses the path must not find out.
func (a *advice) write(path string) {
	if !filepath.IsAbs(path) || len(path) > mostPath {
		a.set("write", true, "FOLDER")
		return
	}
	folder := filepath.Dir(path)
	for _, root := range a.room.Roots {
		if offlimits.Within(path, root) {
			a.set("roots", true, "{path: "+word(a.shown(root))+", write: true}")
			return
		}
	}
	a.set("write", true, a.shown(folder))
}

var noModule = regex.Lazy(`No module named '(([^'.]+)(?:\.[^'.]+)?)`)

// imported explains an import that failed because the walls withhold the module from the program.
func (a *advice) imported(said string) {
	for _, name := range noModule().FindStringSubmatch(said) {
		if path := a.room.Withheld[name]; path != "" {
			a.stopped = append(a.stopped, "importing "+clean(name)+" from "+clean(path))
			a.set("read", true, a.shown(path))
			return
		}
	}
}

// shown returns a path as a config would have it.
func (a *advice) shown(path string) string {
	base := a.room.Base
	switch {
	case base == "" || !offlimits.Within(path, base) || base == "/":
		return path
	case path == base:
		return "."
	}
	return "./" + strings.TrimPrefix(path, base+"/")
}

// set adds a value to a field, after those that the config has there.
func (a *advice) set(field string, list bool, value string) {
	i := slices.IndexFunc(a.settings, func(s setting) bool { return s.field == field })
	if i < 0 {
		has := map[string][]string{"read": a.room.Read, "write": a.room.Write}[field]
		if field == "network" && !slices.ContainsFunc(a.room.Network, isKind) {
			has = a.room.Network
		}
		a.settings = append(a.settings, setting{field, list, slices.Clone(has)})
		i = len(a.settings) - 1
	}
	if s := &a.settings[i]; !slices.Contains(s.values, value) {
		s.values = append(s.values, value)
	}
}

// isKind reports whether a network is one of the words, not a host.
func isKind(word string) bool {
	return slices.Contains([]string{
		sandbox.NetworkNone.String(), sandbox.NetworkLoopback.String(), sandbox.NetworkAll.String(),
	}, word)
}

// raise sets a limit to a number; 0 means that the limit is not known, and the user chooses.
func (a *advice) raise(field string, to int64) {
	value := strconv.FormatInt(to, 10)
	switch {
	case to <= 0:
		value = "MORE"
	case a.room.Box && field == "memory":
		value = strconv.FormatInt(to>>20, 10) + "m"
	}
	a.set(field, false, value)
}

// hostOf returns the entry for a list of hosts. A query to a name server is for a host that is not known here.
func hostOf(target string) string {
	name, digits, err := net.SplitHostPort(target)
	port, bad := parsePort(digits)
	switch {
	case err != nil || bad != nil || port == 53:
		return "HOST"
	default:
		return newHost(name, port).entry()
	}
}

// String returns what was stopped, and ends with the line.
func (a *advice) String() string {
	text := ""
	if len(a.keys) > 0 {
		text += "; the proxy of source " + strconv.Quote(clean(a.spec.Source)) + ": " + strings.Join(a.keys, "; ")
	}
	if len(a.forbidden) > 0 {
		text += "; forbidden for source " + strconv.Quote(clean(a.spec.Source)) + ": " + strings.Join(a.forbidden, "; ")
	}
	if len(a.stopped) > 0 {
		text += "; blocked by the walls of source " + strconv.Quote(clean(a.spec.Source)) + ": " +
			strings.Join(a.stopped, ", ") + "; to allow it" + a.proxies() + ": " + a.line()
	}
	return text
}

// proxies warns that a list of hosts does not help some programs. Which ones shows only when they are run with one.
func (a *advice) proxies() string {
	if !a.room.Engine && slices.ContainsFunc(a.settings, func(s setting) bool { return s.field == "network" }) {
		return " (`network: all` for a program that ignores HTTPS_PROXY)"
	}
	return ""
}

// line returns the line of the config.
func (a *advice) line() string {
	var walls, box, roots []string
	for _, s := range a.settings {
		value := strings.Join(s.values, ", ")
		if s.list && s.field != "roots" {
			words := make([]string, len(s.values))
			for i, v := range s.values {
				words[i] = word(v)
			}
			value = strings.Join(words, ", ")
		}
		if s.list {
			value = "[" + value + "]"
		}
		switch {
		case s.field == "roots":
			roots = append(roots, "`roots: "+value+"`")
		case a.room.Box && s.field == "processes":
			box = append(box, "pids: "+value)
		case a.room.Box && s.field == "memory":
			box = append(box, "memory: "+value)
		case a.room.Engine && s.field == "network":
			box = append(box, "network: NAME")
		default:
			walls = append(walls, s.field+": "+value)
		}
	}
	lines := roots
	if len(walls) > 0 {
		line := "walls: {" + strings.Join(walls, ", ") + "}"
		if a.room.Key != "" {
			line = a.room.Key + ": {" + line + "}"
		}
		lines = append(lines, "`"+line+"`")
	}
	if len(box) > 0 {
		lines = append(lines, "`container: {"+strings.Join(box, ", ")+"}`")
	}
	return strings.Join(lines, " and ")
}

// plain matches text that needs no quotes in YAML, even between brackets.
var plain = regex.Lazy(`^[A-Za-z./_][A-Za-z0-9./_@+-]*(:[0-9]+)?$|^[0-9]+(\.[0-9]+){3}(:[0-9]+)?$`)

// word writes a value of a list, in quotes if necessary.
func word(s string) string {
	if plain().MatchString(s) {
		return s
	}
	b, _ := json.Marshal(s) // YAML reads the strings of JSON
	return string(b)
}

// clean makes a path or a name that a tool chose fit for a message.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != '`' {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > mostPath {
		s = strings.ToValidUTF8(s[:mostPath], "") + "..."
	}
	return s
}

// A sign is a message of programs about something missing or forbidden, which may be because of the walls.
type sign struct {
	says func() *regexp.Regexp
	then func(a *advice, line string)
}

func says(pattern string) func() *regexp.Regexp { return regex.Lazy(`(?i)\b(` + pattern + `)\b`) }

// limit raises a limit; if the room does not report it, the user chooses the number.
func limit(field string, to func(*tool.Room) int64) func(*advice, string) {
	return func(a *advice, _ string) { a.raise(field, to(a.room)) }
}

func unknown(*tool.Room) int64 { return 0 }

var signs = []sign{
	{says(`network is unreachable|ENETUNREACH|name resolution|name or service not known|could not resolve host|` +
		`getaddrinfo|EAI_AGAIN|ENOTFOUND`), func(a *advice, _ string) {
		if !slices.Equal(a.room.Network, []string{sandbox.NetworkAll.String()}) {
			a.set("network", true, "HOST")
		}
	}},
	{says(`read-only file system|EROFS`), func(a *advice, line string) { a.write(pathIn(line)) }},
	{says(`no such file or directory|ENOENT|permission denied|EACCES`), (*advice).read},
	{says(`MemoryError|cannot allocate memory|ENOMEM|out of memory`),
		limit("memory", func(r *tool.Room) int64 { return 2 * r.Memory })},
	{says(`resource temporarily unavailable|can't start new thread|cannot fork`),
		limit("processes", func(r *tool.Room) int64 { return 2 * int64(r.Tasks) })},
	{says(`too many open files|EMFILE`), limit("files", unknown)},
	{says(`file too large|EFBIG|SIGXFSZ`), limit("file_size", unknown)},
	{says(`SIGXCPU`), func(a *advice, _ string) { a.set("cpu_time", false, "MORE") }},
	{says(`no space left on device|ENOSPC`), limit("tmp", unknown)},
}

// read allows a path that was missing, if that may be because of the walls.
func (a *advice) read(line string) {
	path := pathIn(line)
	if path == "" || a.spec.Room == nil {
		return
	}
	known := slices.Concat(a.room.Reads, []string{"/tmp", "/dev", "/proc", "/sys", "/usr", "/bin", "/sbin", "/lib", "/lib64"})
	if a.room.Box || !slices.ContainsFunc(known, func(o string) bool { return offlimits.Within(path, o) }) {
		a.set("read", true, a.shown(path))
	}
}

// pathWord matches an absolute path in a text, but not the rest of a URL or of a longer word.
var pathWord = regex.Lazy("(?:^|[\\s'\"=(\u201c\u2018`])(/[^\\s'\"`:,;()\\[\\]{}<>|\u201d\u2019]+)")

// pathIn finds the first path in a line, except that of the program that says it, as in "/usr/bin/cat: /x: ...".
func pathIn(line string) string {
	found := pathWord().FindAllStringSubmatchIndex(line, 2)
	if found == nil {
		return ""
	}
	at := found[0]
	if len(found) == 2 && strings.HasPrefix(line[at[3]:], ": ") {
		at = found[1]
	}
	return filepath.Clean(line[at[2]:at[3]])
}

// guess suggests, from a tool's message, which walls may have been the cause.
func (a *advice) guess(said string) string {
	const most = 8 << 10 // of a tool's message about its failure
	for line := range strings.SplitSeq(said[:min(len(said), most)], "\n") {
		for _, s := range signs {
			if at := s.says().FindStringIndex(line); at != nil {
				if s.then(a, line[max(0, at[0]-300):]); len(a.settings) > 0 {
					return "; it may be the walls of source " + strconv.Quote(clean(a.spec.Source)) +
						"; if so, this allows it" + a.proxies() + ": " + a.line()
				}
			}
		}
	}
	return ""
}
