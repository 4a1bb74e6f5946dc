package workspace

import (
	"strings"
	"unicode"
)

// isPlain reports whether a name is its own folded form, which nearly all are.
func isPlain(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_', c == '-', c == '+', c == ',', c == '=', c == '@',
			c == '#', c == '%':
		case c == '.' && i+1 < len(name):
		default:
			return false
		}
	}
	return true
}

// fold returns the plain name that a name looks like, in lower case: without marks and invisible characters, with
// the letters of other scripts and styles that look like Latin ones replaced, and without the trailing dots,
// spaces and tildes that some file systems and editors add.
func fold(name string) string {
	folded := strings.Map(foldRune, name)
	return strings.TrimRight(folded, ". ~")
}

func foldRune(r rune) rune {
	switch {
	case r < 0x80:
		return unicode.ToLower(r)
	case isInvisible(r) || unicode.In(r, unicode.Mn, unicode.Me):
		return -1
	case unicode.IsSpace(r):
		return ' '
	}
	r = unicode.ToLower(styled(r))
	if r < 0x80 {
		return r
	}
	for _, same := range lookAlikes() {
		if i := strings.IndexRune(same, r); i > 0 {
			return rune(same[0])
		}
	}
	return r
}

func isInvisible(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// styled returns the plain letter of one in another style: full width, bold, script, circled, squared.
func styled(r rune) rune {
	const capitals = 'A'
	switch {
	case 0xFF01 <= r && r <= 0xFF5E: // full width
		return r - 0xFEE0
	case 0x1D400 <= r && r <= 0x1D6A3: // mathematical alphabets, each of 26 capitals and 26 small letters
		if n := (r - 0x1D400) % 52; n < 26 {
			return capitals + n
		}
		return 'a' + (r-0x1D400)%52 - 26
	case 0x1D7CE <= r && r <= 0x1D7FF:
		return '0' + (r-0x1D7CE)%10
	case 0x249C <= r && r <= 0x24B5: // in parentheses
		return 'a' + r - 0x249C
	case 0x24B6 <= r && r <= 0x24CF: // circled
		return capitals + r - 0x24B6
	case 0x24D0 <= r && r <= 0x24E9:
		return 'a' + r - 0x24D0
	case 0x1F110 <= r && r <= 0x1F129, 0x1F130 <= r && r <= 0x1F149, 0x1F150 <= r && r <= 0x1F169,
		0x1F170 <= r && r <= 0x1F189:
		return capitals + (r-0x1F110)%32
	case 0x1F1E6 <= r && r <= 0x1F1FF: // regional indicators
		return capitals + r - 0x1F1E6
	}
	return r
}

// lookAlikes lists plain characters, each with others, in lower case, that are read as it.
func lookAlikes() []string {
	return []string{
		".․﹒。｡·•∙⋅٠۰۔܁‧", "-‐‑‒–—―−﹘﹣➖", "_‿⁀︳︴﹍﹎﹏ˍ", "/∕⁄╱⧸", "\\∖⧵﹨⧹", ":∶ː˸﹕։׃",
		"aàáâãäåāăąǎǟǡǻȁȃȧḁạảấầẩẫậắằẳẵặаɑαªᵃₐ⍺", "bḃḅḇьᵇƅ", "cçćĉċčḉсϲᶜⅽℂ¢", "dďđḋḍḏḑḓԁᵈⅾɗ",
		"eèéêëēĕėęěȅȇȩḕḗḙḛḝẹẻẽếềểễệеєёҽᵉₑℯℰε", "fḟᶠƒ", "gĝğġģǧǵḡɡցᵍℊ", "hĥȟḣḥḧḩḫẖһհʰₕℎħℋ",
		"iìíîïĩīĭįıǐȉȋḭḯỉịіїιɩⁱᵢℹⅰ¡ӏ", "jĵǰјϳʲⱼ", "kķĸǩḱḳḵкκᵏₖ", "lĺļľŀłḷḹḻḽⅼˡₗℓ|ǀ∣", "mḿṁṃмᵐₘⅿ",
		"nñńņňŉǹṅṇṉṋпոηⁿₙ", "oòóôõöøōŏőơǒǫǭȍȏȫȭȯȱṍṏṑṓọỏốồổỗộớờởỡợоοσօᵒₒº", "pṕṗрρᵖₚ℘", "qԛգզ", "rŕŗřȑȓṙṛṝṟгʳᵣ",
		"sśŝşšșṡṣṥṧṩѕˢₛſꜱ", "tţťțŧṫṭṯṱтτᵗₜ", "uùúûüũūŭůűųưǔǖǘǚǜȕȗṳṵṷṹṻụủứừửữựυսᵘᵤцµ", "vṽṿνѵᵛᵥⅴ∨", "wŵẁẃẅẇẉẘωԝʷɯ",
		"xẋẍхχˣₓⅹ×", "yýÿŷȳẏẙỳỵỷỹуүγʸ", "zźżžẑẓẕᴢᶻ",
		"0°⁰₀", "1¹₁", "2²₂", "3³₃зӡ", "4⁴₄", "5⁵₅", "6⁶₆б", "7⁷₇", "8⁸₈", "9⁹₉",
	}
}
