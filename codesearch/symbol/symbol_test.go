package symbol_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/codesearch/split"
	"toolpost/codesearch/symbol"
	"toolpost/internal/kit"
)

func TestDefinitionsNameFunctionsTypesAndVariables(t *testing.T) {
	for file, c := range map[string]struct {
		src  string
		want []string
	}{
		"a.go":  {"package a\n\nvar x, y = 1, 2\n\nconst (\n\tA = iota\n\tB\n)\n\ntype T struct{ n int }\n\nfunc (t *T) M() {\n\tvar local int\n}\n", []string{"variable x 3", "variable A 6", "variable B 7", "type T 10", "function T.M 12"}},
		"a.py":  {"LIMIT: int = 3\n\nclass C:\n    x = 1\n\n    def m(self):\n        y = 2\n", []string{"variable LIMIT 1", "type C 3", "function C.m 6"}},
		"a.js":  {"const limit = 3;\nexport const f = (a) => {\n  return a;\n};\n", []string{"variable limit 1", "function f 2"}},
		"a.c":   {"#define MAX 3\n\nint f(void)\n{\n\treturn MAX;\n}\n", []string{"variable MAX 1", "function f 3"}},
		"a.rs":  {"pub const MAX: usize = 3;\n\nfn f() -> usize { MAX }\n", []string{"variable MAX 1", "function f 3"}},
		"a.rb":  {"class C\n  MAX = 3\n\n  def m\n    MAX\n  end\nend\n", []string{"type C 1", "variable MAX 2", "function C.m 4"}},
		"a.md":  {"# One\n\ntext\n", []string{"section One 1"}},
		"a.txt": {"plain words that say nothing at all\n", nil},
	} {
		var got []string
		for _, d := range symbol.Definitions(split.LanguageOf(file), []byte(c.src)) {
			name := d.Name
			if d.Owner != "" {
				name = d.Owner + "." + name
			}
			got = append(got, fmt.Sprintf("%s %s %d", d.Kind, name, d.Line))
		}
		kit.Equal(t, cmp.Diff(c.want, got), "", file)
	}
}

func TestReferencesAreWholeWordsOfTheCode(t *testing.T) {
	src := "package a\n\n// open is described here\nfunc open() { reopen(); opened() }\n\nfunc use() {\n\topen(\"open\")\n\tx := \"open\"\n\ty.open = open\n}\n"
	want := []symbol.Reference{
		{Line: 4, Column: 6, Content: "func open() { reopen(); opened() }", Defines: true},
		{Line: 7, Column: 2, Content: `open("open")`},
		{Line: 9, Column: 4, Content: "y.open = open"},
	}
	kit.Equal(t, cmp.Diff(want, symbol.References(split.Go, []byte(src), "open", 10)), "")
	if got := symbol.References(split.Go, []byte(src), "open", 1); len(got) != 1 {
		t.Errorf("the limit was not kept: %v", got)
	}
	if got := symbol.References(split.Go, []byte(src), "", 1); got != nil {
		t.Errorf("no name was found: %v", got)
	}
}

func TestImportsAreFoundAndResolved(t *testing.T) {
	files := map[string]bool{
		"lib": true, "src/util.ts": true, "src/deep/index.js": true, "app/models.py": true, "app/__init__.py": true, "lib/tools.rb": true,
		"lib/near.rb": true, "include/api.h": true, "src/part.rs": true, "src/main/java/org/a/B.java": true, ".": true,
	}
	p := symbol.Project{Module: "example.org/m", Has: func(rel string) bool { return files[rel] }}
	for _, c := range []struct{ file, src, want string }{
		{"main.go", "package m\n\nimport (\n\t\"fmt\"\n\tx \"example.org/m/lib\"\n)\nimport \"example.org/mother\"\n", "fmt@4 example.org/m/lib@5=lib example.org/mother@7"},
		{"src/a.ts", "import x, {y} from './util';\nexport * from \"./deep\";\nconst z = require('lodash');\n// import q from 'comment'\nawait import('./none')\n", "./util@1=src/util.ts ./deep@2=src/deep/index.js lodash@3 ./none@5"},
		{"app/views.py", "import os, sys as s\nfrom .models import M\nfrom app import x\n\"\"\"\nimport no\n\"\"\"\nfrom . import y\n", "os@1 sys@1 .models@2=app/models.py app@3=app/__init__.py .@7=app/__init__.py"},
		{"lib/a.rb", "require 'json'\nrequire_relative 'near'\nrequire 'tools'\n", "json@1 ./near@2=lib/near.rb tools@3=lib/tools.rb"},
		{"src/a.c", "#include <stdio.h>\n#include \"api.h\"\n#include \"../../etc/passwd\"\n", "<stdio.h>@1 \"api.h\"@2=include/api.h \"../../etc/passwd\"@3"},
		{"src/lib.rs", "mod part;\npub use std::fmt;\nextern crate serde;\n", "self::part@1=src/part.rs std::fmt@2 serde@3"},
		{"src/main/java/X.java", "import static org.junit.Assert.*;\nimport org.a.B;\n", "org.junit.Assert.*@1 org.a.B@2=src/main/java/org/a/B.java"},
		{"a.ex", "defmodule A do\n  alias Shop.Cart\n  use GenServer\nend\n", "Shop.Cart@2 GenServer@3"},
	} {
		l := split.LanguageOf(c.file)
		var got []string
		for _, i := range symbol.Imports(l, []byte(c.src)) {
			text := fmt.Sprintf("%s@%d", i.Name, i.Line)
			if to := p.Resolve(l, c.file, i.Name); to != "" {
				text += "=" + to
			}
			got = append(got, text)
		}
		kit.Equal(t, cmp.Diff(c.want, strings.Join(got, " ")), "", c.file)
	}
}

func TestManifestsAreRead(t *testing.T) {
	for name, c := range map[string]struct{ src, want string }{
		"go.mod":               {"module example.org/m\n\ngo 1.26\n\nrequire example.org/a v1.0.0\nrequire (\n\texample.org/b v2.0.0 // indirect\n)\nreplace example.org/a => ../a\n", "go example.org/m: example.org/a v1.0.0; example.org/b v2.0.0 indirect"},
		"web/package.json":     {`{"name":"web","dependencies":{"b":"^2","a":"1"},"devDependencies":{"c":"*"}}`, "npm web: a 1; b ^2; c * dev"},
		"requirements-dev.txt": {"# comment\nflask>=2,<3 ; python_version > '3'\nrequests[socks]==2.31\n-r other.txt\n\n", "python : flask >=2,<3; requests ==2.31"},
		"pyproject.toml":       {"[project]\nname = \"p\"\ndependencies = [\"a>=1\"]\n[project.optional-dependencies]\nx = [\"b\"]\n[tool.poetry.dependencies]\nc = {version = \"^3\"}\n", "python p: a >=1; b  x; c ^3"},
		"Cargo.toml":           {"[package]\nname = \"p\"\n[dependencies]\nserde = {version = \"1\"}\nlog = \"0.4\"\n[dev-dependencies]\nx = \"2\"\n", "cargo p: log 0.4; serde 1; x 2 dev"},
		"Gemfile":              {"source 'x'\ngem 'rails', '~> 7'\n  gem \"puma\"\n# gem 'no'\n", "ruby : rails ~> 7; puma "},
		"p.gemspec":            {"Gem::Specification.new do |s|\n  s.name = 'p'\n  s.add_dependency 'a', '>= 1'\n  s.add_development_dependency('b')\nend\n", "ruby p: a >= 1; b  dev"},
		"mix.exs":              {"def project do\n  [app: :shop]\nend\ndefp deps do\n  [\n    {:jason, \"~> 1.4\"},\n    {:credo, \"~> 1\", only: [:dev]}\n  ]\nend\n", "hex shop: jason ~> 1.4; credo ~> 1 dev"},
		"pom.xml":              {"<project><groupId>g</groupId><artifactId>a</artifactId><dependencies><dependency><groupId>x</groupId><artifactId>y</artifactId><version>1</version><scope>test</scope></dependency></dependencies></project>", "maven g:a: x:y 1 test"},
	} {
		m, err := symbol.ReadManifest(name, []byte(c.src))
		if err != nil || !symbol.IsManifest(name) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var deps []string
		for _, d := range m.Dependencies {
			text := d.Name + " " + d.Version
			if d.Scope != "" {
				text += " " + d.Scope
			}
			deps = append(deps, text)
		}
		kit.Equal(t, m.Ecosystem+" "+m.Module+": "+strings.Join(deps, "; "), c.want, name)
	}
}

func TestBadManifestsAreErrors(t *testing.T) {
	for name, src := range map[string]string{
		"package.json": `{"name":1}`, "Cargo.toml": "[", "pom.xml": "<project>", "other.lock": "", "go.mod": strings.Repeat("x", symbol.MaxManifest+1),
		"twice/package.json": `{"name":"a","name":"b"}`,
	} {
		kit.Fails(t, kit.Err(symbol.ReadManifest(name, []byte(src))), "", name)
	}
}

func FuzzSources(f *testing.F) {
	for _, s := range []string{"import a, b\nX = 1\n", "require './x'\n", "#include <x>\n", "use a::b;\nmod c;\n", "package a\nimport \"x\"\nvar (\n\ta\n)\n", "\xff\nconst x = 1"} {
		f.Add("a.py", []byte(s))
		f.Add("a.go", []byte(s))
		f.Add("a.rs", []byte(s))
	}
	f.Fuzz(func(t *testing.T, name string, src []byte) {
		l := split.LanguageOf(name)
		lines := strings.Count(string(src), "\n") + 1
		for _, d := range symbol.Definitions(l, src) {
			if d.Line < 1 || d.Line > lines || d.Last < d.Line {
				t.Fatalf("%+v in %d lines", d, lines)
			}
		}
		for _, i := range symbol.Imports(l, src) {
			p := symbol.Project{Module: "m", Has: func(rel string) bool {
				if strings.HasPrefix(rel, "..") || strings.HasPrefix(rel, "/") {
					t.Fatalf("asked for %q", rel)
				}
				return true
			}}
			p.Resolve(l, name, i.Name)
		}
		symbol.References(l, src, "x", 5)
	})
}

func FuzzManifests(f *testing.F) {
	for _, name := range []string{"go.mod", "package.json", "pyproject.toml", "Cargo.toml", "Gemfile", "mix.exs", "pom.xml", "requirements.txt", "a.gemspec"} {
		f.Add(name, []byte("require a v1\n"))
		f.Add(name, []byte(`{"dependencies":{"a":"1"}}`))
		f.Add(name, []byte("[dependencies]\na = \"1\"\n"))
		f.Add(name, []byte("<project><dependencies/></project>"))
	}
	f.Fuzz(func(_ *testing.T, name string, src []byte) { _, _ = symbol.ReadManifest(name, src) })
}
