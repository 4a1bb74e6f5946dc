package machina

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/tool"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// A SelectionKind is the kind of a selector's decision.
type SelectionKind string

// The kinds.
const (
	Pick    SelectionKind = "PICK"    // call a tool
	AskSup  SelectionKind = "ASK_SUP" // ask the supervisor
	Noop    SelectionKind = "NOOP"    // do nothing
	Invalid SelectionKind = "INVALID" // not a valid selection
)

// A Selection is the decision of a selector: which tool of a menu is called next.
type Selection struct {
	Kind           SelectionKind `json:"kind"`
	SID            string        `json:"sid,omitempty"`              // of a PICK
	InputPatchJSON string        `json:"input_patch_json,omitempty"` // an object, to be merged into the inputs
	Raw            string        `json:"raw"`                        // the selector's text
}

// maxSelection bounds a selector's text, in bytes.
const maxSelection = 64 << 10

var pick = regex.Lazy(`(?s)^<PICK><(SID[0-9]{4})>(?:<INP>(.*)</INP>|<INP64>(.*)</INP64>)?<END>$`)

// ParseSelection reads a selector's text. White space around it does not matter; anything that is not exactly one selection
// is INVALID.
func ParseSelection(raw string) Selection {
	invalid := Selection{Kind: Invalid, Raw: raw}
	if len(raw) > maxSelection {
		invalid.Raw = strings.ToValidUTF8(raw[:maxSelection], "")
		return invalid
	}
	said := strings.TrimSpace(raw)
	switch said {
	case "<ASK_SUP><END>":
		return Selection{Kind: AskSup, Raw: raw}
	case "<NOOP><END>":
		return Selection{Kind: Noop, Raw: raw}
	}
	m := pick().FindStringSubmatch(said)
	if m == nil {
		return invalid
	}
	s := Selection{Kind: Pick, SID: m[1], InputPatchJSON: m[2], Raw: raw}
	if m[3] != "" {
		b, err := decode64(m[3])
		if err != nil {
			return invalid
		}
		s.InputPatchJSON = string(b)
	}
	patched := strings.Contains(said, "<INP")
	if patched && strictjson.CheckObject([]byte(s.InputPatchJSON)) != nil {
		return invalid
	}
	return s
}

// decode64 reads base64 with or without padding, and with any white space from line wrapping.
func decode64(text string) ([]byte, error) {
	text = strings.Join(strings.Fields(text), "")
	return base64.RawStdEncoding.Strict().DecodeString(strings.TrimRight(text, "="))
}

// Inputs returns the inputs with the selection's patch applied: its members replace theirs.
func (s Selection) Inputs(inputs json.RawMessage) (json.RawMessage, error) {
	inputs, err := inputsOf(inputs)
	if err != nil || s.InputPatchJSON == "" {
		return inputs, err
	}
	merged := map[string]json.RawMessage{}
	for _, doc := range [][]byte{inputs, []byte(s.InputPatchJSON)} {
		if err := strictjson.Unmarshal(doc, &merged); err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "the inputs of a selection: %w", err)
		}
	}
	return strictjson.Marshal(merged)
}

// inputsOf checks inputs, which may be empty.
func inputsOf(inputs json.RawMessage) (json.RawMessage, error) {
	if len(inputs) == 0 {
		return json.RawMessage(`{}`), nil
	}
	if err := strictjson.CheckObject(inputs); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, `the inputs must be a JSON object, such as {"name": "Ada"}: %w`,
			err)
	}
	return inputs, nil
}

// An Offer is one line of a menu.
type Offer struct {
	SID         string          `json:"sid"`
	AID         string          `json:"aid"`
	Name        string          `json:"name"`
	Tags        []string        `json:"tags"`
	Description string          `json:"description,omitempty"`
	Input       json.RawMessage `json:"input_schema,omitempty"`
}

// maxMenu is how many tools four digits can number.
const maxMenu = 9999

// Menu lists tools in the order of their names, as SID0001, SID0002 and so on.
func Menu(specs []*tool.Spec) ([]Offer, error) {
	if len(specs) > maxMenu {
		return nil, tool.Errorf(tool.CodeInvalidInput, "a menu has at most %d tools, not %d", maxMenu, len(specs))
	}
	bySource := map[string][]*tool.Spec{}
	for _, s := range specs {
		bySource[s.Source] = append(bySource[s.Source], s)
	}
	var menu []Offer
	for source, specs := range bySource {
		for _, o := range offers(source, specs) {
			w := o.words()
			menu = append(menu, Offer{
				AID: o.aid, Name: o.spec.Name, Tags: w.Tags, Description: o.spec.Description, Input: o.spec.Input,
			})
		}
	}
	slices.SortFunc(menu, func(a, b Offer) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.AID, b.AID))
	})
	for i := range menu {
		menu[i].SID = fmt.Sprintf("SID%04d", i+1)
	}
	return menu, nil
}

// Picked finds the offer of a PICK. A tool that is not on the menu is an INVALID_PICK.
func Picked(menu []Offer, s Selection) (Offer, error) {
	for _, o := range menu {
		if s.Kind == Pick && o.SID == s.SID {
			return o, nil
		}
	}
	what := cmp.Or(s.SID, string(s.Kind)) // a selection that is no PICK has no offer either
	e := tool.Errorf(tool.CodeNotFound, "%s: %s is not on the menu", statusInvalidPick, what)
	return Offer{}, e.Because(statusInvalidPick)
}

// A Policy is an external program that selects, with its arguments. It reads one JSON document on stdin, {run_header,
// inputs, menu}, and prints one selection.
type Policy []string

// maxThought is how long a policy may take.
const maxThought = timeoutSeconds * time.Second

// Select runs the policy. If it prints nonsense or nothing the selection is INVALID; if it fails or does not end in time
// Select returns an error.
func (p Policy) Select(ctx context.Context, h RunHeader, menu []Offer, inputs json.RawMessage) (Selection, error) {
	inputs, err := inputsOf(inputs)
	if err != nil {
		return Selection{}, err
	}
	payload, err := strictjson.Marshal(map[string]any{"run_header": h, "inputs": inputs, "menu": menu})
	if err != nil {
		return Selection{}, tool.Errorf(tool.CodeInvalidInput, "the menu cannot be sent: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, maxThought,
		tool.Errorf(tool.CodeTimeout, "the policy ran longer than its %v", maxThought))
	defer cancel()
	said, err := process.Printed(ctx, append(payload, '\n'), maxSelection, func() (*process.Child, error) {
		return process.Start(process.Command{Argv: p, Env: process.Environment(nil, nil)})
	})
	switch {
	case ctx.Err() != nil:
		return Selection{}, tool.AsError(context.Cause(ctx))
	case err != nil:
		return Selection{}, err
	case said.Exit.Code != 0 && !said.TooLong():
		return Selection{}, tool.Errorf(tool.CodeCrash, "the policy failed: %s", said.Last)
	}
	return ParseSelection(string(said.Doc)), nil
}

// SourceOf returns the name of the source that a host means. Hosts name a plugin by the path of its file: this selects the
// first source with that plugin, or else the only source. A word that is not a path must match exactly, so that a typing
// error does not select a source.
func SourceOf(word string, sources []config.Source) string {
	if slices.ContainsFunc(sources, func(src config.Source) bool { return src.Name == word }) {
		return word
	}
	for _, src := range sources {
		if plugin := pluginOf(src); plugin != "" && sameFile(word, plugin) {
			return src.Name
		}
	}
	if len(sources) == 1 && isPath(word) {
		return sources[0].Name
	}
	return word
}

// isPath distinguishes a path from a name: by its slashes, or by the extension of a library.
func isPath(word string) bool {
	switch filepath.Ext(word) {
	case ".so", ".dylib", ".dll":
		return true
	}
	return strings.Contains(word, "/")
}

// pluginOf returns the path of a source's plugin, or "" if it has none.
func pluginOf(src config.Source) string {
	if src.Protocol != "machina" {
		return ""
	}
	o, err := optionsOf(src)
	if err != nil || o.Plugin == "" {
		return "" // opening the source reports what is wrong with it
	}
	return offlimits.Under(o.Folder(src.Dir), o.Plugin)
}

// sameFile reports whether two paths are the same, or lead to the same file. Relative ones are relative to the working
// directory.
func sameFile(a, b string) bool {
	absA, errA := filepath.Abs(a)
	absB, errB := filepath.Abs(b)
	if errA == nil && errB == nil && absA == absB {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
