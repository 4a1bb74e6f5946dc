package duration

import (
	"testing"
	"time"

	"toolpost/internal/kit"
)

func TestParseAcceptsDaysAndWeeks(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30d": 720 * time.Hour, "2w": 336 * time.Hour, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, "0": 0, "0d": 0,
		"90s": 90 * time.Second, "1m30s": 90 * time.Second, "-1d": -24 * time.Hour, "1h1d": 25 * time.Hour, ".5d": 12 * time.Hour,
		"106751d": 106751 * 24 * time.Hour,
	} {
		kit.Equal(t, kit.Must(Parse(text))(t), want, text)
	}
	for _, text := range []string{
		"", "d", "30", "30D", "1 d", "1..5d", "d30", "30days", "106752d", "999999999d", "1e3d", "15251w", "\xff1d", "1d-1h",
	} {
		kit.Fails(t, kit.Err(Parse(text)), "", "%q was read", text)
	}
}

func TestANumberOnTheCommandLineIsSeconds(t *testing.T) {
	var f Flag
	if err := f.Set("90"); err != nil || time.Duration(f) != 90*time.Second {
		t.Error(time.Duration(f), err)
	}
	for _, text := range []string{"", "-5", "5x", "1.5"} {
		if f.Set(text) == nil {
			t.Errorf("%q was read as %v", text, time.Duration(f))
		}
	}
}

func TestALengthIsWrittenAsItWouldBeTyped(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"30d": 720 * time.Hour, "0s": 0, "10s": 10 * time.Second, "5m": 5 * time.Minute, "12h": 12 * time.Hour,
		"1h30m": 90 * time.Minute, "1m30s": 90 * time.Second, "10m": 10 * time.Minute, "1h0m5s": time.Hour + 5*time.Second,
		"500ms": 500 * time.Millisecond, "25h": 25 * time.Hour,
	} {
		got := Text(d)
		if back, err := Parse(got); got != want || err != nil || back != d {
			t.Errorf("%v is written %q and read as %v, %v; want %q", d, got, back, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"30d", "1.5w", "-1d2h", "..d", "9223372036854775807w", "1dd"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		if back, err := Parse(Text(d)); err != nil || back != d {
			t.Errorf("%q is %v, written %q, read %v, %v", text, d, Text(d), back, err)
		}
	})
}
