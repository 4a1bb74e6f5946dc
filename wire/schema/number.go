package schema

import (
	"cmp"
	"math/big"
	"strconv"
	"strings"
)

// A number is a number of a schema, parsed once.
type number struct {
	text    string
	small   int64
	isSmall bool
	exact   decimal
}

func newNumber(text string) *number {
	n := &number{text: text, exact: parseDecimal(text)}
	n.small, n.isSmall = parseSmall(text)
	return n
}

// compare returns the sign of v - n.
func (n *number) compare(v string) int {
	if n.isSmall {
		if small, ok := parseSmall(v); ok {
			return cmp.Compare(small, n.small)
		}
	}
	return parseDecimal(v).compare(n.exact)
}

// divides reports whether v is a multiple of n, which is greater than zero.
func (n *number) divides(v string) bool {
	if n.isSmall {
		if small, ok := parseSmall(v); ok {
			return small%n.small == 0
		}
	}
	return parseDecimal(v).multipleOf(n.exact)
}

// parseSmall is the fast path for integers of up to 18 digits, which nearly all numbers are.
func parseSmall(s string) (int64, bool) {
	digits := s
	if len(s) > 0 && s[0] == '-' {
		digits = s[1:]
	}
	if len(digits) == 0 || len(digits) > 18 {
		return 0, false
	}
	var n int64
	for i := range len(digits) {
		d := digits[i] - '0'
		if d > 9 {
			return 0, false
		}
		n = n*10 + int64(d)
	}
	if len(digits) < len(s) {
		n = -n
	}
	return n, true
}

func isInteger(s string) bool {
	if _, ok := parseSmall(s); ok {
		return true
	}
	return parseDecimal(s).isInteger()
}

// A decimal is ±0.digits × 10^exp. The digits neither begin nor end with 0, so equal numbers are equal decimals,
// and comparing 1e9999 with 1 takes no arithmetic.
type decimal struct {
	negative bool
	digits   string
	exp      int64
}

// maxExponent keeps sums of exponents from overflowing; JSON read by strictjson has at most four digits.
const maxExponent = 1 << 40

func parseDecimal(s string) decimal {
	var d decimal
	s, d.negative = strings.CutPrefix(s, "-")
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		d.exp, _ = strconv.ParseInt(s[i+1:], 10, 64) // if out of range, the nearest number, which is clamped below
		d.exp = min(max(d.exp, -maxExponent), maxExponent)
		s = s[:i]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	whole = strings.TrimLeft(whole, "0")
	fraction = strings.TrimRight(fraction, "0")
	if whole == "" {
		d.digits = strings.TrimLeft(fraction, "0")
		d.exp -= int64(len(fraction) - len(d.digits))
	} else {
		d.digits = strings.TrimRight(whole+fraction, "0")
		d.exp += int64(len(whole))
	}
	if d.digits == "" {
		return decimal{}
	}
	return d
}

func (d decimal) compare(e decimal) int {
	if d.sign() != e.sign() {
		return cmp.Compare(d.sign(), e.sign())
	}
	return d.sign() * cmp.Or(cmp.Compare(d.exp, e.exp), strings.Compare(d.digits, e.digits))
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}

func (d decimal) isInteger() bool { return d.exp >= int64(len(d.digits)) }

// multipleOf calculates with at most as many digits as were written, whatever the exponents.
func (d decimal) multipleOf(e decimal) bool {
	if d.digits == "" {
		return true
	}
	shift := (d.exp - int64(len(d.digits))) - (e.exp - int64(len(e.digits)))
	if shift < 0 {
		return false // d has digits after the last place of e; its own last digit is not 0
	}
	var of, by, power big.Int
	by.SetString(e.digits, 10)
	of.SetString(d.digits, 10)
	power.Exp(big.NewInt(10), big.NewInt(shift), &by)
	return of.Mod(of.Mul(&of, &power), &by).Sign() == 0
}
