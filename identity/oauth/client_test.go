package oauth_test

import (
	"encoding/json"
	"testing"
	"time"

	"toolpost/identity/oauth"
	"toolpost/internal/kit"
)

func TestSecondsOfAnyFormOfNumber(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`3600`: time.Hour, `"3600"`: time.Hour, `3600.0`: time.Hour, `3.6e3`: time.Hour, `"3600.0"`: time.Hour, `0.5`: time.Second / 2,
		`0`: time.Minute, `-1`: time.Minute, `"NaN"`: time.Minute, `"Inf"`: time.Minute, `1e300`: time.Minute, `null`: time.Minute, ``: time.Minute,
	} {
		kit.Equal(t, oauth.Seconds(json.RawMessage(text), time.Minute), want, text)
	}
}

func TestRefusalsThatEndAGrant(t *testing.T) {
	for code, want := range map[string]bool{
		"invalid_grant": true, "bad_refresh_token": true, "invalid_refresh_token": true, "invalid_client": false, "slow_down": false, "": false,
	} {
		kit.Equal(t, (&oauth.Refused{Code: code}).Final(), want, code)
	}
}
