package tool

import (
	"context"
	"encoding/json"
	"iter"
)

// A Resource is something that an MCP server lets clients read, or a kind of such things with a template of their URIs.
// Its JSON is that of MCP.
type Resource struct {
	URI         string          `json:"uri,omitempty"`
	Template    string          `json:"uriTemplate,omitempty"`
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	MediaType   string          `json:"mimeType,omitempty"`
	Size        *int64          `json:"size,omitzero"`
	Annotations json.RawMessage `json:"annotations,omitzero"`
	Icons       json.RawMessage `json:"icons,omitzero"`
	Meta        json.RawMessage `json:"_meta,omitzero"`
}

// An Offering is a Catalog whose sources offer more than tools.
type Offering interface {
	// Offers yields the unlisted tools with a Method that a caller may see and call now, by name, each with the Follower
	// that reports changes of its resources, or nil.
	Offers(ctx context.Context, p Principal) iter.Seq2[*Spec, Follower]
}

// A Follower is a Runner that reports changes of resources, until stop is called or it is closed. Heard gets one of the
// uris and the URI that changed, which may be of a part of it. Heard must not block.
type Follower interface {
	Follow(ctx context.Context, uris []string, heard func(uri, changed string)) (stop func(), failed []string)
}

// Offers yields what a catalogue offers: nothing if it is not an Offering.
func Offers(ctx context.Context, c Catalog, p Principal) iter.Seq2[*Spec, Follower] {
	if o, ok := c.(Offering); ok {
		return o.Offers(ctx, p)
	}
	return func(func(*Spec, Follower) bool) {}
}
