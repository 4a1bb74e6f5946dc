package asset_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/builtin/asset"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

var (
	_ asset.Assets = (*store.Assets)(nil)
	_ asset.Assets = (*store.AssetTable)(nil)
)

// keep puts an asset into a store, as a call of ada's would.
func keep(t *testing.T, s *store.Assets, content []byte) tool.Asset {
	t.Helper()
	path := filepath.Join(t.TempDir(), "made")
	kit.OK(t, os.WriteFile(path, content, 0o600))
	f := kit.Must(os.Open(path))(t)
	defer f.Close()
	return kit.Must(s.Add(t.Context(), "ada", tool.Asset{AssetID: "plan.png", MediaType: "image/png", Path: path}, f))(t)
}

func call(caller, args string) *tool.Call {
	return &tool.Call{Tool: "readAsset", Args: json.RawMessage(args), Caller: tool.Principal{ID: caller, Door: "cli"}}
}

type output struct {
	AssetID   string  `json:"assetId"`
	MediaType string  `json:"mediaType"`
	Size      int64   `json:"size"`
	SHA256    string  `json:"sha256"`
	Content   *string `json:"content"`
}

func TestAnAssetComesWithItsFileAndItsContent(t *testing.T) {
	s := &store.Assets{}
	r := asset.New(s)
	for name, c := range map[string]struct {
		size int
		more string // arguments
		with bool   // content in the result
	}{
		"empty":       {0, "", true},
		"small":       {10, "", true},
		"asked for":   {11, `,"content":true`, true},
		"not wanted":  {12, `,"content":false`, false},
		"the largest": {1 << 20, "", true},
		"too large":   {1<<20 + 1, "", false},
	} {
		content := bytes.Repeat([]byte("x"), c.size)
		a := keep(t, s, content)
		var events int
		res, err := r.Invoke(t.Context(), call("ada", `{"sha256":"`+a.SHA256+`"`+c.more+`}`), tool.SinkFunc(func(ev tool.Event) error {
			events++
			got, err := io.ReadAll(ev.File) // the result has the content too
			if ev.Kind != tool.KindAsset || err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s: an event %s with %d bytes, %v", name, ev.Kind, len(got), err)
			}
			return nil
		}))
		if err != nil || !res.OK || events != 1 {
			t.Errorf("%s: %+v, %v, %d events", name, res, err, events)
			continue
		}
		var o output
		kit.OK(t, json.Unmarshal(res.Output, &o))
		if o.AssetID != "plan.png" || o.MediaType != "image/png" || o.Size != int64(c.size) || o.SHA256 != a.SHA256 || (o.Content != nil) != c.with {
			t.Errorf("%s: %.200s", name, res.Output)
		}
		if c.with && *o.Content != base64.StdEncoding.EncodeToString(content) {
			t.Errorf("%s: another content", name)
		}
		if !c.with && c.more == "" && !strings.Contains(res.Summary, "/v1/assets/"+a.SHA256) {
			t.Errorf("%s: %s", name, res.Summary)
		}
	}
}

func TestReadAssetRefusesOtherCallersAndUnknownDigests(t *testing.T) {
	s := &store.Assets{}
	r := asset.New(s)
	a := keep(t, s, []byte("ada's"))
	nothing := tool.SinkFunc(func(ev tool.Event) error { t.Errorf("an event: %s", ev.Data); return nil })
	for name, c := range map[string]struct {
		call *tool.Call
		code tool.Code
	}{
		"another caller": {call("eve", `{"sha256":"`+a.SHA256+`"}`), tool.CodeNotFound},
		"no such asset":  {call("ada", `{"sha256":"`+strings.Repeat("0", 64)+`"}`), tool.CodeNotFound},
		"a path":         {call("ada", `{"sha256":"../`+a.SHA256+`"}`), tool.CodeNotFound},
		"no arguments":   {call("ada", `{}`), tool.CodeNotFound},
		"more arguments": {call("ada", `{"sha256":"`+a.SHA256+`","path":"/etc/passwd"}`), tool.CodeInvalidInput},
		"a duplicate":    {call("ada", `{"sha256":"a","sha256":"b"}`), tool.CodeInvalidInput},
		"no JSON":        {call("ada", `{`), tool.CodeInvalidInput},
		"another tool":   {&tool.Call{Tool: "writeAsset", Args: []byte(`{}`)}, tool.CodeNotFound},
	} {
		if res, err := r.Invoke(t.Context(), c.call, nothing); res != nil || tool.CodeOf(err) != c.code {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	kit.Refused(t, kit.Err(r.Invoke(ctx, call("ada", `{"sha256":"`+a.SHA256+`"}`), nothing)),
		tool.CodeCancelled, "", "after the end of the call")
}

func TestReadAssetIsReadOnly(t *testing.T) {
	specs, err := asset.New(&store.Assets{}).Tools(t.Context())
	if err != nil || len(specs) != 1 || specs[0].Name != "readAsset" || !specs[0].Effects.ReadOnly() || specs[0].Tier != 0 {
		t.Fatalf("%+v, %v", specs, err)
	}
	input := kit.Must(schema.Compile(specs[0].Input))(t)
	digest := strings.Repeat("a", 64)
	for args, fits := range map[string]bool{
		`{"sha256":"` + digest + `"}`: true, `{"sha256":"` + digest + `","content":false}`: true, `{}`: false, `{"sha256":"a"}`: false,
		`{"sha256":"` + strings.ToUpper(digest) + `"}`: false, `{"sha256":"` + digest + `","caller":"eve"}`: false,
	} {
		v := kit.Must(strictjson.Decode([]byte(args)))(t)
		if faults := input.Validate(v); (len(faults) == 0) != fits {
			t.Errorf("%s: %v", args, faults)
		}
	}
}
