package alphahuman

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// Bounds on what we store for a skill.
const (
	maxMemory    = 1 << 20 // bytes of state outside of sessions
	maxDataFile  = 4 << 20
	maxDataFiles = 1000
	maxDataTotal = 64 << 20
	maxEntities  = 16 << 20 // bytes of all of them
	maxFound     = 100
)

// A memory is the state of a skill outside of sessions.
type memory struct {
	mu    sync.Mutex
	state map[string]any
}

func (m *memory) get() map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Collect(maps.All(m.state)) // merge changes nothing in place
}

// merge replaces the members of the state that are in partial, one level deep, as the hosts of skills do.
func (m *memory) merge(partial map[string]any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	merged := maps.Collect(maps.All(m.state))
	maps.Copy(merged, partial)
	if b, _ := strictjson.Marshal(merged); len(b) > maxMemory { // both came as JSON
		return tool.Errorf(tool.CodeQuotaExceeded, "the state of the skill would be larger than %d bytes", maxMemory)
	}
	m.state = merged
	return nil
}

// A dataFolder holds the files of a skill, by plain names and without sub-folders. It is opened at the first use; os.Root
// keeps every name inside, even if it is a link.
type dataFolder struct {
	dir string

	mu   sync.Mutex
	root *os.Root
}

func (d *dataFolder) open() (*os.Root, error) {
	if d.root != nil {
		return d.root, nil
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the data folder %s cannot be made: %w", d.dir, tool.WithoutPath(err))
	}
	root, err := os.OpenRoot(d.dir)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the data folder %s cannot be opened: %w", d.dir, tool.WithoutPath(err))
	}
	d.root = root
	return root, nil
}

func (d *dataFolder) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.root != nil {
		_ = d.root.Close()
	}
}

// newSuffix marks the new content of a file until it is complete.
const newSuffix = ".~new"

// plainName refuses anything that is more than a name on any system that the skill may have been written for.
func plainName(name string) error {
	const most = 255 - len(newSuffix)
	notPlain := name == "" || name == "." || name == ".." || len(name) > most || strings.HasSuffix(name, newSuffix) ||
		strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == '\\' || unicode.IsControl(r) })
	if notPlain {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams,
			"filename %s: expected the plain name of a file, without folders", jsonrpc.Clip(name))
	}
	return nil
}

// use calls do with the folder and the name and content in the params of a callback.
func (d *dataFolder) use(params json.RawMessage, do func(root *os.Root, name, content string) error) error {
	var file struct {
		Filename string `json:"filename"`
		Content  string `json:"content"`
	}
	if err := decodeParams(params, &file); err != nil {
		return err
	}
	if err := plainName(file.Filename); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	root, err := d.open()
	if err == nil {
		err = do(root, file.Filename, file.Content)
	}
	if err == nil || errors.As(err, new(*tool.Error)) {
		return err
	}
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "filename %s: %v", jsonrpc.Clip(file.Filename), tool.WithoutPath(err))
}

// read returns the content of a file. A missing file is empty, which known skills rely on.
func (d *dataFolder) read(params json.RawMessage) (json.RawMessage, error) {
	var data []byte
	err := d.use(params, func(root *os.Root, name, _ string) (err error) {
		f, err := root.OpenFile(name, readNow, 0)
		if data, err = readRegular(f, err, maxDataFile); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return strictjson.Marshal(map[string]string{"content": strings.ToValidUTF8(string(data), "\uFFFD")})
}

// write replaces a file atomically: a reader sees the old content or the new.
func (d *dataFolder) write(params json.RawMessage) error {
	return d.use(params, func(root *os.Root, name, content string) error {
		if err := fits(root, name, int64(len(content))); err != nil {
			return err
		}
		return replace(root, name, []byte(content))
	})
}

// fits checks that a file of that size may be stored.
func fits(root *os.Root, name string, size int64) error {
	files, total := 1, size
	err := fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == "." || path == name {
			return nil // an unreadable entry is not counted, and cannot be written to
		}
		files++
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		if files > maxDataFiles {
			return fs.SkipAll
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case size > maxDataFile:
		return tool.Errorf(tool.CodeQuotaExceeded, "a data file may have %d bytes at the most", maxDataFile)
	case files > maxDataFiles || total > maxDataTotal:
		return tool.Errorf(tool.CodeQuotaExceeded, "the data folder may have %d files and %d bytes at the most",
			maxDataFiles, maxDataTotal)
	}
	return nil
}

func replace(root *os.Root, name string, content []byte) error {
	next := name + newSuffix
	_ = root.Remove(next) // left by a crash
	err := root.WriteFile(next, content, 0o600)
	if err == nil {
		err = root.Rename(next, name)
	}
	if err != nil {
		_ = root.Remove(next)
	}
	return err
}

// An entity is an object that a skill has recorded.
type entity struct {
	ID       string          `json:"id,omitempty"`
	Type     string          `json:"type"`
	Source   string          `json:"source"`
	SourceID string          `json:"sourceId,omitempty"`
	Title    string          `json:"title,omitempty"`
	Summary  string          `json:"summary,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitzero"`
}

// entities keeps the entities of one skill, in memory.
type entities struct {
	mu   sync.Mutex
	all  map[string]entity // by id
	size int               // bytes
}

func (s *entities) upsert(params json.RawMessage) error {
	var e entity
	if err := decodeParams(params, &e); err != nil {
		return err
	}
	if e.Type == "" || e.Source == "" {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "an entity needs type and source")
	}
	if e.ID == "" {
		e.ID = e.Source + ":" + e.Type + ":" + cmp.Or(e.SourceID, e.Title)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.all[e.ID]
	size := s.size - old.size() + e.size()
	if size > maxEntities {
		return tool.Errorf(tool.CodeQuotaExceeded, "the entities of a skill may have %d bytes at the most", maxEntities)
	}
	if s.all == nil {
		s.all = map[string]entity{}
	}
	s.all[e.ID], s.size = e, size
	return nil
}

// size estimates the memory of an entity; the zero entity takes none.
func (e *entity) size() int {
	const each = 256
	if e.ID == "" {
		return 0
	}
	return each + len(e.ID) + len(e.Type) + len(e.Source) + len(e.SourceID) +
		len(e.Title) + len(e.Summary) + len(e.Metadata)
}

// search finds entities whose text contains the query, ignoring case. They are sorted by id, so that the order is stable.
func (s *entities) search(params json.RawMessage) (json.RawMessage, error) {
	var q struct {
		Query string   `json:"query"`
		Types []string `json:"types"`
		Limit int      `json:"limit"`
	}
	if err := decodeParams(params, &q); err != nil {
		return nil, err
	}
	if q.Limit <= 0 || q.Limit > maxFound {
		q.Limit = maxFound
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []entity{}
	for _, id := range slices.Sorted(maps.Keys(s.all)) {
		e := s.all[id]
		if len(found) < q.Limit && (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) && e.has(q.Query) {
			found = append(found, e)
		}
	}
	return strictjson.Marshal(map[string]any{"results": found})
}

func (e *entity) has(query string) bool {
	query = strings.ToLower(query)
	return slices.ContainsFunc([]string{e.ID, e.SourceID, e.Title, e.Summary, string(e.Metadata)}, func(s string) bool {
		return strings.Contains(strings.ToLower(s), query)
	})
}
