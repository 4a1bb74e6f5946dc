// Package asset has the tool readAsset, which returns assets: files from earlier calls of the same caller. Its calls pass
// the engine like any other, so that policy, quotas and records apply.
package asset

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"toolpost/builtin/define"
	"toolpost/tool"
)

// maxContent is how many bytes of an asset a result holds. The HTTP door sends larger assets as a file.
const maxContent = 1 << 20

// Assets keeps the files that tools made.
type Assets interface {
	// Open opens an asset from a call of the caller. Any other is not_found, whether it belongs to another caller or does
	// not exist. The caller closes the file.
	Open(ctx context.Context, caller, sha256 string) (*os.File, tool.Asset, error)
}

// New makes the tool.
func New(assets Assets) *define.Set {
	spec := tool.Spec{
		Name: "readAsset", Aliases: []string{"asset.read"},
		Description: "Returns an asset: a file that an earlier call of the same caller produced.",
		Effects:     tool.Effects{Reads: true, Idempotent: true},
		Timeout:     10 * time.Minute, // a large file to a slow peer
	}
	return define.NewSet(define.New(spec, tools{assets}.read))
}

type tools struct{ assets Assets }

type readArgs struct {
	SHA256  string `json:"sha256" schema:"required pattern=^[0-9a-f]{64}$" doc:"the digest of the asset, as its asset event had it"`
	Content *bool  `json:"content" doc:"put the content into the result, in Base64, if it has at most 1 MiB; default true"`
}

// A description is the result of readAsset.
type description struct {
	AssetID   string  `json:"assetId"`
	MediaType string  `json:"mediaType"`
	Size      int64   `json:"size"`
	SHA256    string  `json:"sha256"`
	Content   *[]byte `json:"content,omitzero"` // nil if left out; an empty file has a content too
}

// read returns an asset. The asset event carries the file, for doors that can send one.
func (t tools) read(ctx context.Context, c *define.Call, args readArgs) (description, error) {
	f, a, err := t.assets.Open(ctx, c.Caller.ID, args.SHA256)
	if err != nil {
		return description{}, err
	}
	defer f.Close()
	ev := tool.NewEvent(tool.KindAsset, a)
	ev.File = f
	if err := c.Out.Emit(ev); err != nil {
		return description{}, err
	}
	d := description{AssetID: a.AssetID, MediaType: a.MediaType, Size: a.Size, SHA256: a.SHA256}
	c.Summary = fmt.Sprintf("an asset of %d bytes", a.Size)
	if args.Content != nil && !*args.Content {
		return d, nil
	}
	if a.Size > maxContent {
		c.Summary += "; its content is too large for a result, get it over HTTP from /v1/assets/" + a.SHA256
		return d, nil
	}
	content, err := io.ReadAll(io.NewSectionReader(f, 0, maxContent)) // wherever other readers are in the file
	if err != nil {
		return d, tool.Errorf(tool.CodeInternal, "asset %s cannot be read: %w", a.SHA256, err)
	}
	d.Content = &content
	return d, nil
}
