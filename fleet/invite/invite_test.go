package invite

import (
	"testing"

	"toolpost/internal/kit"
)

func FuzzParse(f *testing.F) {
	f.Add(Line{Hubs: []string{"a:1", "[::1]:2"}}.String())
	f.Add("tp://#")
	f.Fuzz(func(t *testing.T, line string) {
		if l, err := Parse(line); err == nil {
			kit.DeepEqual(t, kit.Must(Parse(l.String()))(t), l)
		}
	})
}
