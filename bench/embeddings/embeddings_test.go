package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"toolpost/codesearch/meaning"
	"toolpost/codesearch/split"
	"toolpost/internal/kit"
)

func TestPackageListIsPinnedAndSeparatesTrainFromEval(t *testing.T) {
	all := kit.Must(parsePackages(packageList))(t)
	for _, p := range all {
		kit.Equal(t, len(p.digest), 64, "%s is not pinned", p)
	}
	if len(only(all, "train")) < 300 || len(only(all, "eval")) < 20 {
		t.Errorf("%d to train on, %d to evaluate", len(only(all, "train")), len(only(all, "eval")))
	}
	for name, list := range map[string]string{
		"both uses":    "train go a v1 00\neval go a v1 00\n",
		"another use":  "test go a v1 00\n",
		"too few":      "train go a\n",
		"far too many": "train go a v1 00 more\n",
	} {
		kit.Fails(t, kit.Err(parsePackages(list)), "", name)
	}
}

func TestDocCommentBecomesOneSentence(t *testing.T) {
	for _, c := range []struct{ doc, name, want string }{
		{"// Open opens the named file. It waits.", "Open", "opens the named file"},
		{"/**\n * Adds two numbers together.\n * @param a first\n */", "add", "Adds two numbers together."},
		{"/**\n * g_list_append:\n * @list: a list\n *\n * Adds a new element to the list.\n */", "g_list_append", "Adds a new element to the list."},
		{"\"\"\"\n    Return the sum\n    of all values.\n\n    :param x: y\n    \"\"\"", "total", "Return the sum of all values."},
		{"# Sends a {Mail} to the user", "deliver", ""},
		{"/// Returns `true` if the path [`Path`] exists.", "exists", "Returns `true` if the path [`Path`]  ."},
		{"// TODO make this work somehow later", "f", ""},
		{"// Copyright 2020 The Authors of it all", "f", ""},
		{"// short one", "f", ""},
		{"/*! \\fn int f()\n\n  Closes the open <b>window</b> at once.\n*/", "f", "Closes the open  window  at once."},
	} {
		got, ok := sentenceOf(c.doc, c.name)
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(c.want), " ") || ok != (c.want != "") {
			t.Errorf("%q: got %q, want %q", c.doc, got, c.want)
		}
	}
}

func TestPairsAreMinedWithoutTheirDocumentation(t *testing.T) {
	src := "package a\n\n// Sum adds up all of the numbers.\nfunc Sum(n []int) (s int) {\n\tfor _, x := range n {\n\t\ts += x\n\t}\n\treturn s\n}\n"
	pairs := mine([]source{{"a.go", split.Go, []byte(src)}})
	if len(pairs) != 1 || pairs[0].query != "adds up all of the numbers." || bytes.Contains(pairs[0].code, []byte("adds")) || !bytes.HasPrefix(pairs[0].code, []byte("func Sum")) {
		t.Errorf("got %+v", pairs)
	}
}

// tiny returns examples in made-up words, in which a query and its code share none.
func tiny(n int) []example {
	rng := rand.New(rand.NewPCG(1, 2))
	var all []example
	for i := range n {
		topic := rng.IntN(20)
		e := example{language: split.Go, pkg: i % 4, sentence: uint64(i)}
		for k := range 3 {
			e.query = append(e.query, meaning.Term{Token: meaning.Token(1000 + 10*topic + (i+k)%5), Count: 1})
			e.code = append(e.code, meaning.Term{Token: meaning.Token(5000 + 10*topic + (i+2*k)%7), Count: uint16(1 + k)})
		}
		all = append(all, e)
	}
	return all
}

func TestTheTableIsTheSameOnAnyNumberOfCores(t *testing.T) {
	all := tiny(600)
	words := vocabulary(all)
	samples := samplesOf(all, words)
	r := recipe{dims: 64, batch: 64, epochs: 3, run: 16, scale: 20, rate: 0.1, weightRate: 0.05, seed: 1}
	var tables [][]byte
	var losses []string
	for _, cores := range []int{1, 3} {
		tr := newTrainer(r, len(words), cores, heard(func(line string) { losses = append(losses, line) }))
		kit.OK(t, tr.train(t.Context(), samples))
		tables = append(tables, meaning.WriteTable(r.dims, tr.rows(words)))
	}
	if !bytes.Equal(tables[0], tables[1]) {
		t.Error("the tables differ")
	}
	if len(losses) != 6 || losses[0] <= losses[2] && strings.HasPrefix(losses[0], "epoch 1") && losses[0][12:] <= losses[2][12:] {
		t.Errorf("nothing was learned: %q", losses)
	}
	kit.Check(t, kit.Err(meaning.ReadTable(tables[0])))
}

// heard receives the log lines, and ignores steps.
type heard func(line string)

func (h heard) log(format string, args ...any) { h(fmt.Sprintf(format, args...)) }

func (h heard) steps(string, int) (step, end func()) { return func() {}, func() {} }
