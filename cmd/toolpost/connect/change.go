package connect

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"unicode"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// A Server is the entry that a client gets: a program to start, or an address to call.
type Server struct {
	Name    string
	Command string // absolute
	Args    []string
	URL     string
	Token   string // what the client presents there
}

// backupSuffix ends the name of the file that keeps the client's previous settings.
const backupSuffix = ".toolpost-backup"

// A format is how a client writes its settings. Documents are decoded to the types of strictjson.Decode.
type format interface {
	// decode reads a document; its errors name the place.
	decode(text []byte) (map[string]any, error)
	// set replaces the entry of that name, or appends it.
	set(text []byte, key, name string, entry config.Fields) ([]byte, error)
	// remove removes an entry, and also its key if emptied is set and the key is then empty.
	remove(text []byte, key, name string, emptied bool) ([]byte, error)
}

// A Change is a planned change of a client's file. It holds the file until it is closed.
type Change struct {
	Client Client
	File   string // resolved path
	New    bool   // there is no file yet
	Gone   bool   // the file is removed: it holds no other settings
	Before []byte
	After  []byte
	Entry  map[string]any // the current entry; nil if there is none

	name   string // of the entry
	file   *config.Own
	backup *config.Own
	ours   map[string]bool // values of the entry, before and after
}

// Close releases the file.
func (c *Change) Close() {
	c.backup.Close()
	c.file.Close()
}

// Nothing reports whether there is nothing to do.
func (c *Change) Nothing() bool { return !c.Gone && bytes.Equal(c.Before, c.After) }

// Backup returns the path of the previous version of the file.
func (c *Change) Backup() string { return c.backup.Path }

// open reads the file of a client.
func open(c Client, file, name string) (*Change, map[string]any, error) {
	own, err := config.OpenOwn(file)
	if err != nil {
		return nil, nil, err
	}
	backup, err := own.Sibling(filepath.Base(own.Path) + backupSuffix)
	if err != nil {
		own.Close()
		return nil, nil, err
	}
	ch := &Change{
		Client: c, File: own.Path, New: !own.There(), Before: own.Text, After: own.Text, name: name, file: own,
		backup: backup, ours: map[string]bool{},
	}
	doc, err := c.format.decode(own.Text)
	if err == nil {
		err = c.checkKey(doc)
	}
	if err != nil {
		ch.Close()
		return nil, nil, tool.Errorf(tool.CodeInvalidInput, "%s, the settings of %s, cannot be read: %w; fix it first",
			own.Path, c.Name, err)
	}
	return ch, doc, nil
}

func (c Client) checkKey(doc map[string]any) error {
	if v, ok := doc[c.Key]; ok {
		if _, ok := v.(map[string]any); !ok {
			return fmt.Errorf("%q is not an object with servers", c.Key)
		}
	}
	return nil
}

// entryOf returns the entry of a name, or nil.
func entryOf(doc map[string]any, key, name string) map[string]any {
	servers, _ := doc[key].(map[string]any)
	switch e := servers[name].(type) {
	case nil:
		return nil
	case map[string]any:
		return e
	default:
		return map[string]any{"": e}
	}
}

// entry returns the entry of a server in the client's own form.
func (c Client) entry(s Server) (config.Fields, error) {
	switch {
	case s.URL == "":
		return c.stdio(s), nil
	case c.http == nil:
		return nil, tool.Errorf(tool.CodeUnsupported, "%s takes no addresses from its file, only programs that it starts; "+
			"leave --http out", c.Name)
	}
	return c.http(s), nil
}

// Connect works out how to add a server to the file of a client.
func Connect(c Client, file string, s Server) (*Change, error) {
	want, err := c.entry(s)
	if err != nil {
		return nil, err
	}
	ch, doc, err := open(c, file, s.Name)
	if err != nil {
		return nil, err
	}
	ch.own(want.JSON())
	ch.own(entryOf(doc, c.Key, s.Name))
	if ch.Entry = entryOf(doc, c.Key, s.Name); ch.Entry != nil && reflect.DeepEqual(ch.Entry, want.JSON()) {
		return ch, nil
	}
	if ch.Entry != nil && !Ours(ch.Entry) {
		err = tool.Errorf(tool.CodeConflict, "%s has a server %q that `toolpost connect` did not write; take it out, or choose "+
			"another name with --name", ch.File, s.Name)
	}
	if err == nil {
		ch.After, err = c.format.set(ch.Before, c.Key, s.Name, want)
	}
	if err == nil {
		err = c.harmless(ch, doc, s.Name, want.JSON())
	}
	if err != nil {
		ch.Close()
		return nil, err
	}
	return ch, nil
}

// harmless makes sure that only the entry differs between the two texts: the rest of the file is not ours.
func (c Client) harmless(ch *Change, before map[string]any, name string, want map[string]any) error {
	after, err := c.format.decode(ch.After)
	if err != nil || !reflect.DeepEqual(entryOf(after, c.Key, name), want) {
		return tool.Errorf(tool.CodeInternal, "%s could not be changed: the result would not be readable (%v); add the server "+
			"by hand", ch.File, err)
	}
	for _, doc := range []map[string]any{before, after} {
		if servers, ok := doc[c.Key].(map[string]any); ok {
			if delete(servers, name); len(servers) == 0 {
				delete(doc, c.Key)
			}
		}
	}
	if !reflect.DeepEqual(before, after) {
		return tool.Errorf(tool.CodeInternal, "%s could not be changed without touching other settings; add or remove the "+
			"server by hand", ch.File)
	}
	return nil
}

// Disconnect works out how to remove a server from the file of a client. If the file has not changed otherwise since, its
// old content is restored byte for byte.
func Disconnect(c Client, file, name string) (*Change, error) {
	ch, doc, err := open(c, file, name)
	if err != nil {
		return nil, err
	}
	if ch.Entry = entryOf(doc, c.Key, name); ch.Entry == nil {
		return ch, nil
	}
	ch.own(ch.Entry)
	if err := c.takeOut(ch, doc, name); err != nil {
		ch.Close()
		return nil, err
	}
	return ch, nil
}

func (c Client) takeOut(ch *Change, doc map[string]any, name string) (err error) {
	if !Ours(ch.Entry) {
		return tool.Errorf(tool.CodeConflict, "%s has a server %q that `toolpost connect` did not write; take it out by hand",
			ch.File, name)
	}
	before, known := c.earlier(ch, name)
	had := false
	if known {
		_, had = before[c.Key]
	}
	if ch.After, err = c.format.remove(ch.Before, c.Key, name, !had); err != nil {
		return err
	}
	switch left := squeezed(ch.After); {
	case !known && (left == "" || left == "{}"):
		ch.Gone = true // there was no file before, and nothing is left in it
	case known && left == squeezed(ch.backup.Text):
		ch.After = ch.backup.Text
	}
	return c.harmless(ch, doc, name, nil)
}

// squeezed returns a text without its layout; comments stay.
func squeezed(text []byte) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || r == ',' {
			return -1
		}
		return r
	}, string(text))
}

// earlier reads the file from before the server was added. It returns false if there was none, or it is unknown.
func (c Client) earlier(ch *Change, name string) (map[string]any, bool) {
	if !ch.backup.There() {
		return nil, false
	}
	doc, err := c.format.decode(ch.backup.Text)
	return doc, err == nil && entryOf(doc, c.Key, name) == nil
}

// Ours reports whether an entry is one that Connect writes.
func Ours(entry map[string]any) bool {
	args, _ := entry["args"].([]any)
	if all, ok := entry["command"].([]any); ok && len(all) > 0 { // OpenCode has one list
		args = all[1:]
	}
	if len(args) >= 2 {
		return args[0] == "as" && args[1] == "mcp"
	}
	return TokenOf(entry) != ""
}

// tokenStart is the prefix of Toolpost's tokens.
const tokenStart = "tp_"

// TokenOf returns the Toolpost token in an entry, or "" if there is none.
func TokenOf(entry map[string]any) string {
	for _, name := range []string{"headers", "http_headers"} {
		headers, _ := entry[name].(map[string]any)
		text, _ := headers["Authorization"].(string)
		if token, ok := strings.CutPrefix(text, "Bearer "); ok && strings.HasPrefix(token, tokenStart) {
			return token
		}
	}
	return ""
}

var aToken = regex.Lazy(tokenStart + `[A-Za-z0-9_-]{20,}`)

// Masked returns a text without its tokens, for screens that others may see.
func Masked(text string) string { return aToken().ReplaceAllString(text, tokenStart+"...") }

// URLOf returns the address in an entry, or "".
func URLOf(entry map[string]any) string {
	for _, name := range []string{"url", "httpUrl", "serverUrl", "uri"} {
		if text, ok := entry[name].(string); ok {
			return text
		}
	}
	return ""
}

// Apply writes the change. The file keeps its permissions, but a file with a token becomes private to its owner. The version
// from before the server was added is kept beside it.
func (c *Change) Apply(secret bool) error {
	if c.Gone {
		return errors.Join(c.file.Remove(), c.forget())
	}
	mode := c.file.Mode
	if secret {
		mode &= 0o700
	}
	if undone := c.Entry != nil && bytes.Equal(c.After, c.backup.Text); undone {
		return errors.Join(c.file.Replace(c.After, mode), c.forget())
	}
	// Replacing an entry keeps the backup of the file without it.
	if !c.New && (c.Entry == nil || !c.backup.There()) {
		if err := c.backup.Replace(c.Before, 0o600); err != nil {
			return err
		}
	}
	return c.file.Replace(c.After, mode)
}

// Tidy removes the folders in the home of a user that a file has left empty: later, they would look like an agent's.
func Tidy(home, file string) {
	root, err := os.OpenRoot(home)
	if err != nil {
		return
	}
	defer root.Close()
	home, err = filepath.EvalSymlinks(home)
	dir, outside := filepath.Rel(home, filepath.Dir(file))
	for err = errors.Join(err, outside); err == nil && dir != "." && filepath.IsLocal(dir); dir = filepath.Dir(dir) {
		err = root.Remove(dir)
	}
}

// forget removes the backup of a file that was restored.
func (c *Change) forget() error {
	if !c.backup.There() {
		return nil
	}
	return c.backup.Remove()
}
