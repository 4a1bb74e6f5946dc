package policy

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// MaxRecord is how long a line of the record may be, in bytes; arguments that would make it longer are left
// out.
const MaxRecord = 64 << 10

// A Record is a line of the file that policy.record names: a call and what was decided about it. The arguments are
// those of the call, but for the values of secrets: they are what a replay judges.
type Record struct {
	Time     time.Time       `json:"time"`
	Caller   string          `json:"caller"`
	Door     string          `json:"door"`
	Session  string          `json:"session,omitempty"`
	Tool     string          `json:"tool"`
	Args     json.RawMessage `json:"args,omitzero"` // absent: they were too long
	Decision Effect          `json:"decision"`
	Rule     string          `json:"rule"`
}

// record adds a line. A record that cannot be written is a loss for a later replay and no reason to refuse
// the call. The file is opened for each line, so that it can be moved away at any time.
func (p *Policy) record(in *input, d Decision) {
	r := Record{
		Time: in.now.UTC(), Caller: in.call.Caller.ID, Door: in.call.Caller.Door, Session: in.call.Session,
		Tool: in.spec.Name, Args: in.call.Args, Decision: Deny, Rule: d.Rule,
	}
	if d.Allowed {
		r.Decision = Allow
	}
	if p.env.Redact != nil {
		r.Args = p.env.Redact(r.Args)
	}
	if err := appendLine(p.o.Record, r); err != nil {
		p.env.Log.Error("a judged call was not recorded", "tool", in.spec.Name, "error", err)
	}
}

func appendLine(path string, r Record) error {
	if len(r.Args) > MaxRecord-4096 {
		r.Args = nil
	}
	line, err := strictjson.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n')) // in one piece: several processes may add lines
	return errors.Join(err, f.Close())
}

// ParseRecord reads a line of a record.
func ParseRecord(line []byte) (Record, error) {
	var r Record
	if err := strictjson.Unmarshal(line, &r); err != nil {
		return Record{}, tool.Errorf(tool.CodeInvalidInput, "not a record: %w", err)
	}
	if r.Tool == "" || r.Decision != Allow && r.Decision != Deny {
		return Record{}, tool.Errorf(tool.CodeInvalidInput,
			"not a record: it has no tool, or no decision that is allow or deny")
	}
	return r, nil
}
