package store

import (
	"encoding/json"

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

// text writes the detail as JSON.
func (d *detail) text() (string, error) {
	for _, raw := range []json.RawMessage{d.Shape, d.Args} {
		if len(raw) > 0 {
			if err := strictjson.Check(raw); err != nil {
				return "", tool.Errorf(tool.CodeInternal, "the record of a call cannot be written as JSON: %w", err)
			}
		}
	}
	w := strictjson.NewWriter(512)
	w.Text("call", d.Call)
	w.Text("trace", d.Trace)
	w.Text("asked", d.Asked)
	w.Text("run", d.Run)
	w.Int("tier", int64(d.Tier))
	w.Text("sha256", d.Digest)
	w.Raw("shape", d.Shape)
	w.Raw("args", d.Args)
	w.Texts("reads", d.Reads)
	w.Texts("writes", d.Writes)
	w.Lists("commands", d.Runs)
	w.Int("omitted", int64(d.Omitted))
	w.Text("lease", d.Lease)
	w.Text("key", d.Key)
	w.Flag("replay", d.Replay)
	w.Flag("cached", d.Cached)
	w.Flag("dry_run", d.DryRun)
	w.Text("reason", d.Reason)
	w.Int("lost", int64(d.Lost))
	return string(w.Done()), nil
}
