// Package asset has the tool that hands out assets, readAsset: the files that earlier calls of the same caller
// brought. Calling it passes the engine like any other call, so that policy, quotas and records hold for it.
package asset

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const readName = "readAsset"

// maxContent is how many bytes of an asset a result has. Larger ones come over the HTTP door, as a file.
const maxContent = 1 << 20

// Assets keeps the files that tools made.
type Assets interface {
	// Open opens an asset that a call of the caller brought. Any other is not_found, whether somebody else brought
	// it or nobody did. The caller closes the file.
	Open(ctx context.Context, caller, sha256 string) (*os.File, tool.Asset, error)
}

// A Runner has the tool.
type Runner struct{ assets Assets }

var (
	_ tool.Runner = (*Runner)(nil)
	_ tool.Source = (*Runner)(nil)
)

// New makes the source.
func New(assets Assets) *Runner { return &Runner{assets} }

const readInput = `{"type":"object","required":["sha256"],"additionalProperties":false,"properties":{` +
	`"sha256":{"type":"string","pattern":"^[0-9a-f]{64}$","description":"the digest of the asset, as its asset event had it"},` +
	`"content":{"type":"boolean","description":"put the content into the result, in Base64, if it has at most 1 MiB; default true"}}}`

// Tools implements tool.Source.
func (r *Runner) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{{
		Name: readName, Aliases: []string{"asset.read"}, Input: json.RawMessage(readInput),
		Description: "Hands out an asset: a file that an earlier call of the same caller brought.",
		Effects:     tool.Effects{Reads: true, Idempotent: true},
		Timeout:     10 * time.Minute, // a large file to a slow peer
	}}, nil
}

// Close implements tool.Runner.
func (r *Runner) Close(context.Context) error { return nil }

// Invoke implements tool.Handler. The file goes with the asset event, for doors that can send one.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, tool.AsError(context.Cause(ctx))
	}
	if c.Tool != readName {
		return nil, tool.Errorf(tool.CodeNotFound, "%q is not a tool for assets; there is %s", c.Tool, readName)
	}
	var args struct {
		SHA256  string `json:"sha256"`
		Content *bool  `json:"content"`
	}
	if err := strictjson.UnmarshalClosed(c.Args, &args); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s: %w", readName, err)
	}
	f, a, err := r.assets.Open(ctx, c.Caller.ID, args.SHA256)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ev := tool.NewEvent(tool.KindAsset, a)
	ev.File = f
	if err := out.Emit(ev); err != nil {
		return nil, err
	}
	return describe(f, a, args.Content == nil || *args.Content)
}

// A description is the result of readAsset.
type description struct {
	AssetID   string  `json:"assetId"`
	MediaType string  `json:"mediaType"`
	Size      int64   `json:"size"`
	SHA256    string  `json:"sha256"`
	Content   *string `json:"content,omitzero"`
}

func describe(f *os.File, a tool.Asset, content bool) (*tool.Result, error) {
	d := description{AssetID: a.AssetID, MediaType: a.MediaType, Size: a.Size, SHA256: a.SHA256}
	summary := fmt.Sprintf("an asset of %d bytes", a.Size)
	if content && a.Size > maxContent {
		summary += "; its content is too large for a result, get it over HTTP from /v1/assets/" + a.SHA256
	} else if content {
		text, err := io.ReadAll(io.NewSectionReader(f, 0, maxContent)) // wherever others have read to
		if err != nil {
			return nil, tool.Errorf(tool.CodeInternal, "asset %s cannot be read: %w", a.SHA256, err)
		}
		encoded := base64.StdEncoding.EncodeToString(text)
		d.Content = &encoded
	}
	output, err := strictjson.Marshal(d)
	if err != nil {
		return nil, err
	}
	return &tool.Result{OK: true, Output: output, Summary: summary}, nil
}
