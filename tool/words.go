package tool

// Words lists names in a message, as people write a list.
func Words[S ~string](all []S) string {
	text := ""
	for i, one := range all {
		if i > 0 {
			text += ", "
		}
		text += string(one)
	}
	return text
}
