// Package sandbox says which walls this machine can build around a tool. A wall that was asked for and
// cannot be built refuses the call: it is never run without it.
//
// No wall is built yet. So every guarantee that is asked for is refused, by name.
package sandbox

import (
	"strings"

	"toolpost/tool"
)

// CoverageMissing is the reason of a refusal for want of a wall, in the words of the namel3ss contract.
const CoverageMissing = "coverage_missing"

// Cover reports whether this machine can hold the guarantees around a tool. The error names those that
// it cannot.
func Cover(name string, g tool.Guarantees) error {
	asked := g.Asked()
	if len(asked) == 0 {
		return nil
	}
	return tool.Errorf(tool.CodeUnsupported,
		"%s was not run: %s cannot be enforced on this machine; take the guarantee out of its source to run it without",
		name, strings.Join(asked, ", ")).Because(CoverageMissing)
}
