package meaning

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"toolpost/codesearch/split"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Service is an OpenAI-compatible service reached over HTTP. It makes vectors of texts in place of the table, or reranks
// texts.
type Service struct {
	// URL is the full address, such as one that ends in /v1/embeddings or /rerank.
	URL        string
	Model      string
	Key        string // sent as a bearer token if set
	Dimensions int    // of the vectors that the model makes
	// Timeout applies to one request; 0 means 20 seconds.
	Timeout time.Duration
}

// Limits of the requests to a service.
const (
	batchTexts     = 64
	maxText        = 8 << 10
	maxReply       = 64 << 20
	serviceTimeout = 20 * time.Second
)

// space returns the space of its vectors, padded to a round number of dimensions.
func (s *Service) space() space { return space{s.URL + " " + s.Model, (s.Dimensions + 63) / 64 * 64} }

// Embed returns a vector for each text.
func (s *Service) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	var reply struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	if err := s.post(ctx, map[string]any{"model": s.Model, "input": texts}, &reply); err != nil {
		return nil, err
	}
	vectors := make([][]float32, len(texts))
	for _, d := range reply.Data {
		if d.Index < 0 || d.Index >= len(vectors) || vectors[d.Index] != nil || len(d.Embedding) != s.Dimensions ||
			!finite(d.Embedding) {
			return nil, s.fail("it gave a vector of %d dimensions for text %d; %d texts were sent and %d dimensions "+
				"are configured", len(d.Embedding), d.Index, len(texts), s.Dimensions)
		}
		vectors[d.Index] = d.Embedding
	}
	if i := slices.IndexFunc(vectors, func(v []float32) bool { return v == nil }); i >= 0 {
		return nil, s.fail("it gave no vector for text %d of %d", i, len(texts))
	}
	return vectors, nil
}

// Rerank scores how well each text answers a question, from 0 to 1. It uses the format that reranking servers share:
// documents in, indexed relevance scores out.
func (s *Service) Rerank(ctx context.Context, question string, texts []string) ([]float64, error) {
	var reply struct {
		Results []struct {
			Index int     `json:"index"`
			Score float64 `json:"relevance_score"`
		} `json:"results"`
	}
	ask := map[string]any{"model": s.Model, "query": question, "documents": clipTexts(texts)}
	if err := s.post(ctx, ask, &reply); err != nil {
		return nil, err
	}
	scores := slices.Repeat([]float64{math.NaN()}, len(texts))
	for _, r := range reply.Results {
		if r.Index < 0 || r.Index >= len(scores) || !math.IsNaN(scores[r.Index]) {
			return nil, s.fail("it scored text %d; %d were sent", r.Index, len(texts))
		}
		scores[r.Index] = min(1, max(0, r.Score))
	}
	if i := slices.IndexFunc(scores, math.IsNaN); i >= 0 {
		return nil, s.fail("it gave no score for text %d of %d", i, len(texts))
	}
	return scores, nil
}

// post sends a document and reads the reply.
func (s *Service) post(ctx context.Context, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(max(0, s.Timeout), serviceTimeout))
	defer cancel()
	b, err := strictjson.Marshal(body)
	if err != nil {
		return s.fail("the request cannot be written: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(b))
	if err != nil {
		return s.fail("%w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if s.Key != "" {
		req.Header.Set("Authorization", "Bearer "+s.Key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return s.fail("%w", err)
	}
	defer res.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	switch {
	case err != nil:
		return s.fail("%w", err)
	case len(reply) > maxReply:
		return s.fail("its reply is longer than %d bytes", maxReply)
	case res.StatusCode != http.StatusOK:
		return s.fail("it answered %s: %.200s", res.Status, bytes.ToValidUTF8(reply, nil))
	}
	if err := strictjson.Unmarshal(reply, into); err != nil {
		return s.fail("its reply is not what was asked for: %w", err)
	}
	return nil
}

func (s *Service) fail(format string, args ...any) error {
	return tool.Errorf(tool.CodeUnavailable, "the service %s of code search failed: %w; the search goes on without it",
		s.URL, fmt.Errorf(format, args...))
}

func finite(v []float32) bool {
	return !slices.ContainsFunc(v, func(x float32) bool { return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) })
}

// clipTexts keeps the beginnings of texts, because services have limits of their own.
func clipTexts(texts []string) []string {
	clipped := make([]string, len(texts))
	for i, t := range texts {
		clipped[i] = strings.ToValidUTF8(t[:min(len(t), maxText)], "?")
	}
	return clipped
}

// vectors requests the vectors of texts in batches, and pads them to the dimensions of their space.
func (s *Service) vectors(ctx context.Context, texts []string) (all [][]float32, err error) {
	for batch := range slices.Chunk(texts, batchTexts) {
		vectors, err := s.Embed(ctx, clipTexts(batch))
		if err != nil {
			return nil, err
		}
		for _, v := range vectors {
			all = append(all, append(v[:len(v):len(v)], make([]float32, s.space().dims-len(v))...))
		}
	}
	return all, nil
}

// remote makes the vectors of a file's parts with a service.
func (w *analyst) remote(ctx context.Context, parts []split.Part, src []byte) (codes []byte, err error) {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = string(src[p.Start:p.End])
	}
	vectors, err := w.embedder.vectors(ctx, texts)
	for _, v := range vectors {
		codes = pack(v, codes)
	}
	return codes, err
}
