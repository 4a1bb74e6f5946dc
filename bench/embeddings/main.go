// Command embeddings trains the table of words embedded in semantic search, and measures how well that search finds
// functions it has never seen.
//
//	embeddings -train FILE   fetch the packages to train on, and write the table
//	embeddings -eval         fetch the packages that were held out, and print how often the right function is found
//
// Both read packages.txt: public packages, each pinned by the digest of its archive and fetched with the program for its
// registry (go, npm, apt-get). The same packages result in the same table, byte for byte, on any number of cores.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"toolpost/bench/attempt"
	"toolpost/codesearch/meaning"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := attempt.Do(func() { run(ctx) }); err != nil {
		fmt.Fprintln(os.Stderr, "embeddings:", err)
		os.Exit(1)
	}
}

// A program is one run of this command.
type program struct {
	teller
	fetcher fetcher
	cores   int
}

func run(ctx context.Context) {
	cache := filepath.Join(attempt.Must(os.UserCacheDir()), "toolpost", "embeddings")
	dir := flag.String("cache", cache, "where fetched packages are kept")
	table := flag.String("train", "", "train, and write the table to this file")
	eval := flag.Bool("eval", false, "measure")
	cores := flag.Int("cores", runtime.GOMAXPROCS(0), "how many cores to use")
	flag.Parse()
	if (*table == "") == !*eval || flag.NArg() > 0 || *cores < 1 {
		attempt.Check(errors.New("give -train FILE or -eval"))
	}
	shown := &display{begun: time.Now()}
	attempt.Check(os.MkdirAll(*dir, 0o755))
	packages := attempt.Must(parsePackages(packageList))
	prog := &program{teller: shown, fetcher: fetcher{dir: *dir, teller: shown}, cores: *cores}
	if *eval {
		prog.eval(ctx, only(packages, "eval"))
	} else {
		prog.train(ctx, packages, *table)
	}
}

func only(packages []pkg, use string) []pkg {
	return slices.DeleteFunc(slices.Clone(packages), func(p pkg) bool { return p.use != use })
}

// train fetches all packages, including those of the evaluation, whose contents must not be learned.
func (prog *program) train(ctx context.Context, packages []pkg, file string) {
	attempt.Check(prog.fetcher.fetch(ctx, packages))
	prog.log("%d packages are there", len(packages))
	all := examples(&prog.fetcher, only(packages, "train"), only(packages, "eval"), prog.cores)
	words := vocabulary(all)
	samples := samplesOf(all, words)
	prog.log("%d pairs of a sentence and a function:%s; %d words", len(samples), count(samples), len(words))
	t := newTrainer(standard(), len(words), prog.cores, prog.teller)
	attempt.Check(t.train(ctx, samples))
	b := meaning.WriteTable(t.dims, t.rows(words))
	prog.log("the table has %.1f MB", float64(len(b))/1e6)
	attempt.Check(os.WriteFile(file, b, 0o644))
}
