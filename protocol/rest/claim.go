package rest

import (
	"strings"

	"toolpost/config"
	"toolpost/host/offlimits"
)

// Claim says which files are the door's own. Whoever could change its authorities could come in as anybody, and a tool that
// finds its socket is taken for the user who runs it.
func (c DoorConfig) Claim(dir string) offlimits.Claim {
	claim := offlimits.Claim{Keeps: offlimits.Given(dir, c.TLS.Key), Starts: offlimits.Given(dir, c.TLS.Cert, c.TLS.ClientCA)}
	if socket, ok := strings.CutPrefix(c.Listen, unixPrefix); ok {
		claim.Keeps = append(claim.Keeps, offlimits.Given(dir, socket)...)
	}
	return claim
}

// Claim says which files are a configured source's own.
func Claim(src config.Source) (offlimits.Claim, error) {
	var o SourceOptions
	err := src.Decode(&o)
	return offlimits.Claim{Keeps: offlimits.Given(src.Dir, o.Key), Starts: offlimits.Given(src.Dir, o.CA, o.Cert)}, err
}
