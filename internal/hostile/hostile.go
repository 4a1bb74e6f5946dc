// Package hostile has the values that an attacker would pass to tools: options, second commands and paths that lead
// elsewhere. The other tests of this project have collected them.
package hostile

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// A Place is the scene of an attack.
type Place struct {
	Top     string // the parent of the others
	Root    string // the folder that a tool is given
	Outside string // a folder that it is not given
	Canary  string // a file that must not appear
}

// Paths combines what attackers put before, in between, in place of and after a name.
func Paths(p Place) []string {
	before := []string{
		"", "./", "/", "//", "../", "..//", "../../", "sub/../../", "sub/deep/../../../", p.Root + "/", p.Root + "/../", p.Root + "/sub/../../", p.Outside + "/",
		p.Root + "beside/", "/proc/self/root" + p.Top + "/", "/proc/self/cwd/../../../../../../" + p.Top + "/", "/dev/fd/../../" + p.Top + "/", "~/", "file://" + p.Top + "/",
		"dirlink/", "abslink/", "chain/", "loop/", "dangling/", "inner/", "rootlink/", "notes.txt/../", "%2e%2e/", "..%2f", `..\`, "．．/", "․․/", "..\u200b/", "\u202e../",
	}
	between := []string{"", "../", "x/../", "outside/", "../outside/", "sub/", "./../outside/./"}
	names := []string{
		"secret.txt", "outside/secret.txt", ".env", ".ｅnv", "sub/.ssh/config", "hard", "fifo", "filelink", "envlink", "newfile",
	}
	after := []string{"", "/", "/.", "/..", "\n", "\x00", " ", ".", "/x"}
	var all []string
	for _, b := range before {
		for _, m := range between {
			for _, n := range names {
				for _, a := range after {
					all = append(all, b+m+n+a)
				}
			}
		}
	}
	return all
}

// Words returns the string literals of a Go test file, such as the one with the escapes of shell commands, without
// duplicates. In them CANARY is the file that must not appear, RUN a command that makes it, SECRET a file whose text must
// not appear; ROOT and OUTSIDE are the folders.
func Words(file string, p Place) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	fill := strings.NewReplacer("RUN", "touch "+p.Canary, "CANARY", p.Canary, "SECRET", p.Outside+"/secret.txt", "ROOT", p.Root,
		"OUTSIDE", p.Outside)
	var all []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				all = append(all, fill.Replace(text))
			}
		}
		return true
	})
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Commands returns a command in every form from which a shell, or a program that only quotes, would run it.
func Commands(p Place) (all []string) {
	run := "touch " + p.Canary
	for _, around := range []string{
		";%s", "; %s #", "|%s", "||%s", "&&%s", "&%s&", "$(%s)", "`%s`", "\n%s\n", "\r\n%s", "';%s;'", "\";%s;\"", "'\n%s\n'", "\\';%s;#", "${IFS}%s",
		"$'%s'", ">%s", "<(%s)", "{%s,}", "\x1b]0;%s\a", "!%s", "e %s", "| %s", "%%0a%s", "a;%s", "x'||%s||'", ".shell %s", ".system %s", "ext::sh -c %s", "@%s",
	} {
		all = append(all, strings.ReplaceAll(around, "%s", run), strings.ReplaceAll(around, "%s", strings.ReplaceAll(run, " ", "${IFS}")))
	}
	return all
}
