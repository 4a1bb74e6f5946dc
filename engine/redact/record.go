package redact

import (
	"context"

	"toolpost/host/secret"
	"toolpost/tool"
)

// A Keeper keeps the records of calls; see audit.Log, which is the same.
type Keeper interface {
	Begin(ctx context.Context, r *tool.Record) error
	Append(ctx context.Context, r *tool.Record, durable bool) error
}

// Records redacts what a keeper gets to keep.
func Records(of Keeper, r *secret.Redactor) Keeper { return records{of, r} }

type records struct {
	of Keeper
	r  *secret.Redactor
}

// Begin implements audit.Log.
func (k records) Begin(ctx context.Context, rec *tool.Record) error {
	return k.r.Error(k.of.Begin(ctx, k.clean(rec)))
}

// Append implements audit.Log.
func (k records) Append(ctx context.Context, rec *tool.Record, durable bool) error {
	return k.r.Error(k.of.Append(ctx, k.clean(rec), durable))
}

// clean gives a record without secrets. Digests stay as they are: nobody reads a value off them.
func (k records) clean(was *tool.Record) *tool.Record {
	if k.r.Idle() {
		return was
	}
	rec := *was
	for _, text := range []*string{
		&rec.Call, &rec.Trace, &rec.Tool, &rec.Asked, &rec.Source, &rec.Protocol, &rec.Door, &rec.Caller, &rec.Session, &rec.Run,
		&rec.Rule, &rec.Key, &rec.Walls, &rec.Reason,
	} {
		*text = k.r.String(*text)
	}
	rec.Code = tool.Code(k.r.String(string(rec.Code)))
	rec.Shape, rec.Args = k.r.JSON(rec.Shape), k.r.JSON(rec.Args)
	rec.Touches = k.touches(rec.Touches)
	return &rec
}

func (k records) touches(was tool.Touches) tool.Touches {
	clean := tool.Touches{Reads: k.texts(was.Reads), Writes: k.texts(was.Writes)}
	for _, argv := range was.Commands {
		clean.Commands = append(clean.Commands, k.texts(argv))
	}
	return clean
}

func (k records) texts(was []string) []string {
	var clean []string
	for _, text := range was {
		clean = append(clean, k.r.String(text))
	}
	return clean
}
