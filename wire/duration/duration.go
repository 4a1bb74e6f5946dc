// Package duration parses durations as people write them: Go's syntax, and days and weeks. It is the one parser for
// config files, flags and headers, so that 30d means the same everywhere.
package duration

import (
	"fmt"
	"math"
	"strings"
	"time"

	"toolpost/wire/regex"
)

// A day is always 24 hours here, regardless of summer time: a duration has no position on a calendar.
const day = 24 * time.Hour

var long = regex.Lazy(`[0-9.]+[dw]`)

// Parse reads a duration such as 90s, 1m30s, 12h, 30d or 2w, or several of them in a row, 1d12h.
func Parse(text string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a length of time, such as 90s, 12h or 30d", text)
	over := false
	d, err := time.ParseDuration(long().ReplaceAllStringFunc(text, func(term string) string {
		count, unit := term[:len(term)-1], day
		if strings.HasSuffix(term, "w") {
			unit = 7 * day
		}
		hours, err := time.ParseDuration(count + "h")
		times := unit / time.Hour
		over = over || err != nil || hours > math.MaxInt64/times
		return (hours * times).String()
	}))
	if err != nil || over {
		return 0, bad
	}
	return d, nil
}

// Text writes a duration so that Parse reads it: whole days as days, and without the zeros that Go adds.
func Text(d time.Duration) string {
	if d != 0 && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// A Flag is a duration on the command line. It is a pflag.Value.
type Flag time.Duration

// Set implements pflag.Value. A plain number is seconds.
func (f *Flag) Set(text string) error {
	if text != "" && strings.Trim(text, "0123456789") == "" {
		text += "s"
	}
	d, err := Parse(text)
	*f = Flag(d)
	return err
}

// String implements pflag.Value. For "0" the help shows no default.
func (f *Flag) String() string {
	if *f == 0 {
		return "0"
	}
	return Text(time.Duration(*f))
}

// Type implements pflag.Value: the name of the type in the help.
func (f *Flag) Type() string { return "duration" }
