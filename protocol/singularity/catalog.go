package singularity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/tool"
	"toolpost/wire/listing"
	"toolpost/wire/strictjson"
)

// A Toolpost node lists its tools at toolpost.catalog, sorted by name and in pages, because one message may not hold them
// all: {"after": name} -> {"tools": [...], "next": name}. Without next the listing is complete. Package listing encodes each
// tool.
type pageRequest struct {
	After string `json:"after,omitempty"`
}

type page struct {
	Tools []json.RawMessage `json:"tools"`
	Next  string            `json:"next,omitempty"`
	Error *tool.Error       `json:"error,omitzero"`
}

const (
	maxPage    = 512 << 10 // bytes of a page; a larger tool is listed with an error
	maxTools   = 100_000   // of one node
	pageWithin = 10 * time.Second
)

// list answers one page.
func (d *desk) list(e *endpoint, m *nats.Msg) {
	received := time.Now()
	p, err := d.page(m.Data)
	if err != nil {
		p = &page{Error: readable(tool.AsError(err))}
	}
	e.count(p.Error, received)
	d.respond(m, "a request for the catalogue", p)
}

func (d *desk) page(body []byte) (*page, error) {
	var asked pageRequest
	if len(body) > 0 {
		if err := strictjson.Unmarshal(body, &asked); err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "the request to %s: %w", subjectCatalog, err)
		}
	}
	most := min(maxPage, int(d.nc.MaxPayload())/2)
	p := &page{Tools: []json.RawMessage{}}
	size, last := 0, ""
	for spec, why := range d.catalog.Specs(d.base, d.who()) {
		if spec.Name == "" || spec.Name <= asked.After {
			continue
		}
		entry := listing.Encode(spec, why)
		if len(entry) > most {
			entry = listing.Encode(&tool.Spec{Name: spec.Name},
				errors.New("its description is larger than this NATS server carries"))
		}
		if size += len(entry) + 1; size > most && len(p.Tools) > 0 {
			p.Next = last
			break
		}
		p.Tools = append(p.Tools, entry)
		last = spec.Name
	}
	return p, nil
}

// tellChanged announces at every desk that the catalogue may have changed. A caller finds out by listing again whether the
// tools that it sees are different.
func (s *serving) tellChanged() {
	s.mu.Lock()
	desks := slices.Collect(maps.Keys(s.desks))
	s.mu.Unlock()
	for _, d := range desks {
		if err := d.nc.Publish(subjectChanged, nil); err != nil {
			d.o.Log.Warn("a caller could not be told that the catalogue changed", "error", err)
		}
	}
}

// discover lists the tools of another node.
func discover(ctx context.Context, nc *nats.Conn, shown string) (all []*tool.Spec, err error) {
	for after := ""; ; {
		specs, next, err := fetch(ctx, nc, after)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return nil, tool.Errorf(tool.CodeUnavailable,
				"no Toolpost node answers on the NATS server at %s; declare the tools of other servers in the "+
					"source's tools", shown)
		case err != nil:
			return nil, tool.Errorf(tool.CodeOf(err), "the tools of the node at %s cannot be listed: %w", shown, err)
		case len(all)+len(specs) > maxTools || next != "" && next <= after:
			return nil, tool.Errorf(tool.CodeProtocol, "the node at %s lists its tools without end", shown)
		}
		all = append(all, specs...)
		if after = next; after == "" {
			return all, nil
		}
	}
}

func fetch(ctx context.Context, nc *nats.Conn, after string) (specs []*tool.Spec, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageWithin)
	defer cancel()
	body, _ := strictjson.Marshal(pageRequest{after}) // the name came as JSON
	m, err := nc.RequestWithContext(ctx, subjectCatalog, body)
	if err != nil {
		return nil, "", err
	}
	return decodePage(m.Data)
}

func decodePage(body []byte) (specs []*tool.Spec, next string, err error) {
	var p page
	if err := strictjson.Unmarshal(body, &p); err != nil {
		return nil, "", badReply(err)
	}
	if p.Error != nil {
		return nil, "", p.Error
	}
	for _, entry := range p.Tools {
		s, _, err := listing.Decode(entry)
		if err == nil && s.Name == "" {
			err = errors.New("it has no name")
		}
		if err != nil {
			return nil, "", badReply(fmt.Errorf("it describes a tool in a way that cannot be read: %w", err))
		}
		specs = append(specs, s)
	}
	return specs, p.Next, nil
}
