package workspace

import (
	"testing"

	"toolpost/internal/kit"
)

func defaults(t testing.TB, o Sensitive) *sensitive {
	t.Helper()
	return kit.Must(newSensitive(o))(t)
}

func TestNamesThatHoldSecretsAreSensitiveAndOthersNot(t *testing.T) {
	s := defaults(t, Sensitive{})
	for _, name := range []string{
		".env", ".ENV", ".Env.local", "credentials.json", "CREDENTIALS.JSON", "server.key", "a.pem", "b.P12", "c.pfx", "id_rsa", "id_rsa.pub", "id_ed25519",
		".ssh", ".netrc", ".git-credentials", ".pgpass", ".toolpost", ".toolpost-0123456789abcdef.tmp",
		".env.", ".env...", ".env ", ".env. .", ".env~", ".env::$DATA", ".env:x", `x\.env`,
	} {
		if !s.name(name) {
			t.Errorf("%q is not sensitive", name)
		}
	}
	for _, name := range []string{"env", "environment", ".envrc", "key", "keys.go", "monkey.go", "pem.go", "id.go", "ssh", "notes.txt", "", ".", "é.txt", "Makefile", "密钥.txt"} {
		if s.name(name) {
			t.Errorf("%q is sensitive", name)
		}
	}
}

func TestNamesThatLookLikeSensitiveOnesAreSensitive(t *testing.T) {
	s := defaults(t, Sensitive{})
	for _, name := range []string{
		".ｅｎｖ", "．env", ".еnv" /* Cyrillic */, ".eոv" /* Armenian */, ".𝐞𝐧𝐯", ".ⓔⓝⓥ", "․env", ".e\u200bnv", ".e\u0301nv", ".\u2060env", ".env\u00a0", "\ufeff.env", ".énv",
		"ıd_rsa", "İd_rsa", "id_rſa", "id‿rsa", "id_rsа" /* Cyrillic */, "server.Key" /* Kelvin */, "server.κey", "ｃredentials．json", ".ſsh", ".𝗌𝗌𝗁", ".🅴🅽🆅", ".🇪🇳🇻",
		"x／.env", ".toolpоst" /* Cyrillic */, "a．pem",
	} {
		if !s.name(name) {
			t.Errorf("%q is not sensitive (folded: %q)", name, fold(name))
		}
	}
}

func TestTheConfigAddsAndAllowsNamesButNeverOurOwnState(t *testing.T) {
	s := defaults(t, Sensitive{Add: []string{"*.KDBX", "secret?", "[ab].txt"}, Allow: []string{".env.example", "*.pem", ".toolpost*"}})
	for name, want := range map[string]bool{
		"x.kdbx": true, "secret1": true, "a.txt": true, "c.txt": false,
		".env.example": false, "x.pem": false, ".env": true, ".env.local": true,
		".toolpost": true, ".toolpost-x": true,
	} {
		kit.Equal(t, s.name(name), want, name, !want)
	}
}

func TestSensitiveNamesMatchAnyPartOfAPath(t *testing.T) {
	s := defaults(t, Sensitive{})
	for path, want := range map[string]bool{".ssh/config": true, "a/.env/b": true, "a/b/x.key": true, "a/b/c": false, "": false} {
		kit.Equal(t, s.path(path), want, path, !want)
	}
}

func FuzzFold(f *testing.F) {
	for _, seed := range []string{".env", "．ｅｎｖ", "a\u0301", "\xff\xfe", "x:y", "  . ."} {
		f.Add(seed)
	}
	s := defaults(f, Sensitive{})
	f.Fuzz(func(t *testing.T, name string) {
		folded := fold(name)
		kit.Equal(t, fold(folded), folded, "%q folds to", name)
		if isPlain(name) && folded != name {
			t.Errorf("%q is called plain and folds to %q", name, folded)
		}
		if s.name(folded) && !s.name(name) {
			t.Errorf("%q is allowed although it looks like %q", name, folded)
		}
	})
}
