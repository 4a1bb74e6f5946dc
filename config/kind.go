package config

import (
	"math/bits"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"toolpost/wire/regex"
	"toolpost/wire/typeschema"
)

// The values of the tag kind, which a field has if people write it in ways that its type does not know.
const (
	kindPath   = "path"   // of a string, or of a list of them: ~/ is the home folder of the user who runs this program
	kindBytes  = "bytes"  // of a number: 512MiB
	kindListen = "listen" // of a string: a port alone is one of 127.0.0.1
)

// decodeKind is decode for a field whose tag kind has the given value, or none.
func decodeKind(n ast.Node, v reflect.Value, kind string) error {
	switch {
	case kind == kindBytes && !isNull(n):
		return decodeBytes(n, v)
	case kind == kindListen && number(n) != "":
		v.SetString(Listen(number(n)))
		return nil
	case kind == kindListen:
		err := decode(n, v)
		v.SetString(Listen(v.String()))
		return err
	case kind == kindPath && isNull(n):
		return notHome(n)
	case kind == kindPath:
		full, err := atHome(n)
		if err != nil {
			return err
		}
		n = full
	}
	return decode(n, v)
}

// Listen completes an address to listen on: a port alone is one that only this machine reaches.
func Listen(address string) string {
	if _, err := strconv.ParseUint(address, 10, 16); err != nil {
		return address
	}
	return "127.0.0.1:" + address
}

// notHome refuses ~ for nothing: YAML has this way to write null, and people mean their home folder.
func notHome(n ast.Node) error {
	if n == nil || n.GetToken().Value != "~" {
		return nil
	}
	return faultAt(n, "~ alone means nothing in YAML; write ~/ for your home folder, or leave the field out")
}

// atHome returns a path, or a list of paths, in which the home folder replaces a ~/ at the beginning.
func atHome(n ast.Node) (ast.Node, error) {
	switch v := n.(type) {
	case *ast.SequenceNode:
		list := *v
		list.Values = slices.Clone(v.Values)
		for i, item := range v.Values {
			var err error
			if list.Values[i], err = atHome(item); err != nil {
				return nil, err
			}
		}
		return &list, nil
	case *ast.StringNode:
		full, err := AtHome(v.Value)
		if err == nil && full == v.Value {
			break
		}
		whole := *v
		whole.Value = full
		return &whole, placed(n, err)
	}
	return n, nil
}

// AtHome returns a path, or the URL of a store in a file, with the home folder in place of a ~/ at the beginning.
func AtHome(path string) (string, error) {
	scheme, rest, ok := strings.Cut(path, "~")
	if !ok || rest != "" && rest[0] != '/' || scheme != "" && scheme != "sqlite:" {
		return path, nil
	}
	home, err := os.UserHomeDir()
	return scheme + filepath.Join(home, rest), err
}

var (
	binarySize = regex.Lazy(`^([0-9]+) ?([KMGT])i(B?)$`)
	otherSize  = regex.Lazy(`^([0-9]+) ?([kKmMgGtT])[bB]?$`)
)

// decodeBytes reads a number of bytes. Units are powers of 1024 and say so: 512MB is 536,870,912 bytes to some programs and
// 512,000,000 to others.
func decodeBytes(n ast.Node, v reflect.Value) error {
	s, ok := text(n)
	if !ok {
		return decode(n, v)
	}
	if m := otherSize().FindStringSubmatch(s); m != nil {
		return faultAt(n, "a size is in bytes or has a unit such as MiB: write %s%siB", m[1], strings.ToUpper(m[2]))
	}
	m := binarySize().FindStringSubmatch(s)
	if m == nil {
		return faultAt(n, "expected a number of bytes, or a size such as 512MiB, got %s", kindOf(n))
	}
	count, err := strconv.ParseUint(m[1], 10, 63)
	over, size := bits.Mul64(count, 1<<(10*(1+strings.Index("KMGT", m[2]))))
	if err != nil || over > 0 || v.OverflowInt(int64(size)) || int64(size) < 0 {
		return faultAt(n, "%s is too much", s)
	}
	v.SetInt(int64(size))
	return nil
}

// clientsCommand refuses args beside command, which is how MCP clients write a command: here it is one list.
func clientsCommand(n ast.Node, fields []typeschema.Field) error {
	command, args := child(n, "command"), child(n, "args")
	named := func(name string) bool {
		return slices.ContainsFunc(fields, func(f typeschema.Field) bool { return f.Name == name })
	}
	if command == n || args == n || !named("command") || named("args") {
		return nil
	}
	var words []string
	for _, list := range []ast.Node{command, args} {
		for word := range scalars(list) {
			words = append(words, word.GetToken().Value)
		}
	}
	return faultAt(command, "a command is one list, with its arguments: write `command: %s`, and no args", flowList(words))
}
