package conformance_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"toolpost/internal/conformance"
	"toolpost/internal/kit"
)

var update = flag.Bool("update", false, "write docs/conformance.md")

func TestEveryLineOfTheContractsHasAProof(t *testing.T) {
	const root = "../.."
	claims := kit.Must(conformance.Claims(root))(t)
	contracts, err := conformance.Contracts()
	if err != nil || len(contracts) == 0 {
		t.Fatalf("%d contracts, %v", len(contracts), err)
	}
	known := map[string]bool{}
	for _, c := range contracts {
		known[c.Protocol] = true
		if len(c.Differs) == 0 {
			t.Errorf("%s: the list does not say what differs on purpose", c.Protocol)
		}
		proof := c.Proof(claims)
		for _, line := range c.Lines {
			if len(proof[line]) == 0 {
				t.Errorf("%s: no test claims to prove: %s", c.Protocol, line)
			}
		}
	}
	for _, cl := range claims {
		if !known[cl.Protocol] || cl.Test == "" {
			t.Errorf("%s: a claim for the contract %q that belongs to no test or to no contract: %s", cl.File, cl.Protocol, cl.Line)
		}
	}
	page, path := conformance.Page(contracts, claims), filepath.Join(root, "docs", "conformance.md")
	if *update {
		kit.OK(t, os.WriteFile(path, page, 0o644))
	}
	if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, page) {
		t.Errorf("docs/conformance.md is stale: run go test ./internal/conformance -update")
	}
}
