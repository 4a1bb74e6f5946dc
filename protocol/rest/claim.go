package rest

import (
	"toolpost/config"
	"toolpost/host/offlimits"
)

// Claim says which files are a configured source's own.
func Claim(src config.Source) (offlimits.Claim, error) {
	var o SourceOptions
	err := src.Decode(&o)
	return offlimits.Claim{Keeps: offlimits.Given(src.Dir, o.Key), Starts: offlimits.Given(src.Dir, o.CA, o.Cert)}, err
}
