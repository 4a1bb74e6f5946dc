package singularity

import (
	"toolpost/config"
	"toolpost/host/offlimits"
)

// Claim says which files are the door's own. Changing its authorities would let one in as any caller.
func (c DoorConfig) Claim(dir string) offlimits.Claim {
	claim := c.Connect.claim(dir)
	claim.Keeps = append(claim.Keeps, offlimits.Given(dir, c.TLS.Key)...)
	claim.Starts = append(claim.Starts, offlimits.Given(dir, c.TLS.Cert, c.TLS.ClientCA)...)
	return claim
}

func (c Connect) claim(dir string) offlimits.Claim {
	return offlimits.Claim{
		Keeps: offlimits.Given(dir, c.NKey, c.Creds, c.Key), Starts: offlimits.Given(dir, c.CA, c.Cert),
	}
}

// Claim says which files are a configured source's own.
func Claim(src config.Source) (offlimits.Claim, error) {
	var o Options
	err := src.Decode(&o)
	return o.Connect.claim(src.Dir), err
}
