package store

import (
	"encoding/json"
	"strconv"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A detail is what is kept of a record beside the columns.
type detail struct {
	Call    string          `json:"call,omitzero"`
	Trace   string          `json:"trace,omitzero"`
	Asked   string          `json:"asked,omitzero"`
	Run     string          `json:"run,omitzero"`
	Tier    int             `json:"tier,omitzero"`
	Digest  string          `json:"sha256,omitzero"`
	Shape   json.RawMessage `json:"shape,omitzero"`
	Args    json.RawMessage `json:"args,omitzero"`
	Reads   []string        `json:"reads,omitzero"`
	Writes  []string        `json:"writes,omitzero"`
	Runs    [][]string      `json:"commands,omitzero"`
	Omitted int             `json:"omitted,omitzero"`
	Lease   string          `json:"lease,omitzero"`
	Key     string          `json:"key,omitzero"`
	Replay  bool            `json:"replay,omitzero"`
	Cached  bool            `json:"cached,omitzero"`
	DryRun  bool            `json:"dry_run,omitzero"`
	Reason  string          `json:"reason,omitzero"`
	Lost    int             `json:"lost,omitzero"`
}

func detailOf(r *tool.Record) *detail {
	d := &detail{
		Call: plain(r.Call, maxName), Trace: plain(r.Trace, maxName), Asked: plain(r.Asked, maxName), Run: plain(r.Run, maxName), Tier: r.Tier,
		Digest: plain(r.Digest, maxName), Shape: r.Shape, Args: r.Args, Lease: plain(r.Lease, maxName),
		Key: plain(r.Key, maxName), Replay: r.Replay, Cached: r.Cached, DryRun: r.DryRun, Reason: plain(r.Reason, maxName), Lost: r.Lost,
	}
	room := maxTouches
	d.Reads, d.Writes = d.paths(r.Touches.Reads, &room), d.paths(r.Touches.Writes, &room)
	for _, argv := range r.Touches.Commands {
		if room--; room < 0 {
			d.Omitted++
			continue
		}
		d.Runs = append(d.Runs, d.paths(argv, new(maxTouches)))
	}
	return d
}

// paths bounds a list, and counts what it leaves out.
func (d *detail) paths(list []string, room *int) (kept []string) {
	for _, p := range list {
		if *room--; *room < 0 {
			d.Omitted++
			continue
		}
		kept = append(kept, plain(p, maxPath))
	}
	return kept
}

// text writes the detail as JSON, as strictjson would: it is done for every call, and this takes a fifth of the
// time.
func (d *detail) text() (string, error) {
	for _, raw := range []json.RawMessage{d.Shape, d.Args} {
		if len(raw) > 0 {
			if err := strictjson.Check(raw); err != nil {
				return "", tool.Errorf(tool.CodeInternal, "the record of a call cannot be written as JSON: %w", err)
			}
		}
	}
	o := object{b: make([]byte, 0, 512)}
	o.text("call", d.Call)
	o.text("trace", d.Trace)
	o.text("asked", d.Asked)
	o.text("run", d.Run)
	o.number("tier", d.Tier)
	o.text("sha256", d.Digest)
	o.raw("shape", d.Shape)
	o.raw("args", d.Args)
	o.texts("reads", d.Reads)
	o.texts("writes", d.Writes)
	if len(d.Runs) > 0 {
		o.name("commands")
		o.b = append(o.b, '[')
		for i, argv := range d.Runs {
			if i > 0 {
				o.b = append(o.b, ',')
			}
			o.list(argv)
		}
		o.b = append(o.b, ']')
	}
	o.number("omitted", d.Omitted)
	o.text("lease", d.Lease)
	o.text("key", d.Key)
	o.flag("replay", d.Replay)
	o.flag("cached", d.Cached)
	o.flag("dry_run", d.DryRun)
	o.text("reason", d.Reason)
	o.number("lost", d.Lost)
	return o.end(), nil
}

// An object is a JSON object that is being written. Members with nothing in them are left out.
type object struct{ b []byte }

func (o *object) name(name string) {
	if o.b = append(o.b, ','); len(o.b) == 1 {
		o.b[0] = '{'
	}
	o.b = append(append(append(o.b, '"'), name...), '"', ':')
}

func (o *object) text(name, value string) {
	if value != "" {
		o.name(name)
		o.b = appendQuoted(o.b, value)
	}
}

func (o *object) raw(name string, value []byte) {
	if len(value) > 0 {
		o.name(name)
		o.b = append(o.b, value...)
	}
}

func (o *object) texts(name string, values []string) {
	if len(values) > 0 {
		o.name(name)
		o.list(values)
	}
}

func (o *object) list(values []string) {
	o.b = append(o.b, '[')
	for i, v := range values {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = appendQuoted(o.b, v)
	}
	o.b = append(o.b, ']')
}

func (o *object) number(name string, n int) {
	if n != 0 {
		o.name(name)
		o.b = strconv.AppendInt(o.b, int64(n), 10)
	}
}

func (o *object) flag(name string, on bool) {
	if on {
		o.name(name)
		o.b = append(o.b, "true"...)
	}
}

func (o *object) end() string {
	if len(o.b) == 0 {
		return "{}"
	}
	return string(append(o.b, '}'))
}

// appendQuoted writes a text that is valid UTF-8 as JSON.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', "0123456789abcdef"[c>>4], "0123456789abcdef"[c&0xf])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
