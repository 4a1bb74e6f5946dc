package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolpost/tool"
)

// Tiers is a list of tiers, or bounds on them.
type Tiers = tool.Several[Tier, *Tier]

// A Tier is a number such as 2, or a bound such as >= 2.
type Tier struct{ least, most int }

func (t Tier) has(tier int) bool { return t.least <= tier && tier <= t.most }

const noTier = 1 << 20 // above all tiers

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Tier) UnmarshalText(b []byte) error {
	text := strings.TrimSpace(string(b))
	digits := strings.TrimLeft(text, "<>=")
	n, err := strconv.Atoi(strings.TrimSpace(digits))
	if err != nil || n < 0 || n >= noTier {
		return fmt.Errorf("%q is not a tier; write a number such as 2, or a bound such as '>= 2'", b)
	}
	switch sign := text[:len(text)-len(digits)]; sign {
	case "", "=", "==":
		*t = Tier{n, n}
	case ">=":
		*t = Tier{n, noTier}
	case ">":
		*t = Tier{n + 1, noTier}
	case "<=":
		*t = Tier{0, n}
	case "<":
		*t = Tier{0, n - 1}
	default:
		return fmt.Errorf("%q is not a tier: %s is not a bound", b, sign)
	}
	return nil
}

// A Window is a part of the week. A window that ends before it begins goes over midnight and belongs to the day on which
// it began.
type Window struct {
	Days []Day `yaml:"days" doc:"days of the week: mon, tue, wed, thu, fri, sat, sun; default: every day"`
	From Clock `yaml:"from" doc:"first minute, such as '08:30'; default: midnight"`
	To   Clock `yaml:"to" doc:"the minute it ends, not included; default: midnight"`
	Zone Zone  `yaml:"zone" schema:"default=UTC" doc:"time zone, such as Europe/Berlin"`
}

// Validate implements config's validator.
func (w *Window) Validate() error {
	switch {
	case w.Days != nil && len(w.Days) == 0:
		return errors.New("days is an empty list and would match no day; leave it out for every day")
	case w.From == w.To && w.From.set:
		return errors.New("from and to are the same minute; leave both out for the whole day")
	}
	return nil
}

func (w *Window) holds(now time.Time) bool {
	now = now.In(cmp.Or(w.Zone.loc, time.UTC))
	minute := now.Hour()*60 + now.Minute()
	end := cmp.Or(w.To.minute, 24*60)
	if w.From.minute < end {
		return w.From.minute <= minute && minute < end && w.onDay(now.Weekday())
	}
	return minute >= w.From.minute && w.onDay(now.Weekday()) ||
		minute < end && w.onDay((now.Weekday()+6)%7)
}

func (w *Window) onDay(d time.Weekday) bool {
	return w.Days == nil || slices.Contains(w.Days, Day{d})
}

// A Day is a day of the week, written with at least its first three letters.
type Day struct{ day time.Weekday }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Day) UnmarshalText(b []byte) error {
	text := strings.ToLower(string(b))
	for day := time.Sunday; day <= time.Saturday; day++ {
		if len(text) >= 3 && strings.HasPrefix(strings.ToLower(day.String()), text) {
			d.day = day
			return nil
		}
	}
	return fmt.Errorf("%q is not a day; write mon, tue, wed, thu, fri, sat or sun", b)
}

// A Clock is a minute of the day.
type Clock struct {
	minute int
	set    bool
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Clock) UnmarshalText(b []byte) error {
	text := string(b)
	if text == "24:00" {
		text = "00:00"
	}
	t, err := time.Parse("15:04", text)
	if err != nil {
		return fmt.Errorf("%q is not a time of day; write it like '08:30'", b)
	}
	*c = Clock{t.Hour()*60 + t.Minute(), true}
	return nil
}

const unknownZone = "%q is not a time zone that this machine knows, such as UTC or Europe/Berlin"

// A Zone is a time zone by name.
type Zone struct{ loc *time.Location }

// UnmarshalText implements encoding.TextUnmarshaler.
func (z *Zone) UnmarshalText(b []byte) (err error) {
	if z.loc, err = time.LoadLocation(string(b)); err != nil {
		return fmt.Errorf(unknownZone, b)
	}
	return nil
}
