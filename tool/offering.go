package tool

import (
	"context"
	"encoding/json"
	"iter"
)

// A Resource is something that an MCP server has to be read, or a kind of such things with a template of their URIs. Its
// JSON is that of MCP.
type Resource struct {
	URI         string          `json:"uri,omitempty"`
	Template    string          `json:"uriTemplate,omitempty"`
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	MediaType   string          `json:"mimeType,omitempty"`
	Size        int64           `json:"size,omitempty"`
	Annotations json.RawMessage `json:"annotations,omitempty"`
}

// An Offering is a Catalog whose sources have more than tools.
type Offering interface {
	// Offers yields the unlisted tools with a Method that a caller may see and call now, by name.
	Offers(ctx context.Context, p Principal) iter.Seq[*Spec]
	// Follow tells heard of changes of resources that the tool of this name reads, until stop is called. Heard must not
	// block. It ends with the source, too: follow again when the catalogue has changed.
	Follow(ctx context.Context, p Principal, name string, uris []string, heard func(uri string)) (stop func(), err error)
}

// Offers asks a catalogue; one that is no Offering has none.
func Offers(ctx context.Context, c Catalog, p Principal) iter.Seq[*Spec] {
	if o, ok := c.(Offering); ok {
		return o.Offers(ctx, p)
	}
	return func(func(*Spec) bool) {}
}

// Follow asks a catalogue; one that is no Offering cannot.
func Follow(
	ctx context.Context, c Catalog, p Principal, name string, uris []string, heard func(uri string),
) (stop func(), err error) {
	if o, ok := c.(Offering); ok {
		return o.Follow(ctx, p, name, uris, heard)
	}
	return nil, Errorf(CodeUnsupported, "%s does not tell of changes", name)
}
