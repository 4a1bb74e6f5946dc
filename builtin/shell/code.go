package shell

import (
	"slices"
	"strings"
)

// codeProgram knows interpreters and build tools. They run code, and code does what it likes; so the
// question is whose. Tree, which most have unless a rule says otherwise, is code that lies in files below an
// offered folder; code in an argument or on standard input is any. To compile is to run, as far as this goes: a
// compiler shows and embeds the files that its input names.
func codeProgram(name string) *profile {
	switch name {
	case "python", "pypy":
		return &profile{code: CodeTree, check: checkPython, form: form{
			opts: "-[bBdEIOPqsSuvxV] -W:k -m:k --version --help", args: "sl*", stop: true, instead: "-m", ends: "-m"}}
	case "node", "nodejs":
		return &profile{code: CodeTree, check: checkNode, form: form{
			opts: "-v -c --check --version --test --trace-warnings --trace-deprecation --no-warnings --enable-source-maps --throw-deprecation " +
				"--experimental-strip-types --max-old-space-size:n --stack-trace-limit:n --test-name-pattern:t --test-only",
			args: "sl*", stop: true}}
	case "perl":
		return interpreter("-[wWctTv] --version", "-v --version", CodeTree)
	case "ruby":
		return interpreter("-[wWcv] --version", "-v --version", CodeTree)
	case "php":
		return interpreter("-[lv] --version", "-v --version", CodeTree)
	case "lua":
		return interpreter("-[v]", "-v", CodeTree)
	case "bash", "sh", "dash", "zsh", "ksh":
		return interpreter("-[euxnv] --version", "--version", CodeNone) // a script of a shell is there to run other programs
	case "pytest", "py.test":
		return &profile{code: CodeTree, form: pytestForm()}
	case "go":
		return &profile{code: CodeTree, form: form{opts: "-C:c", single: true}, subs: goSubcommands(), check: checkGo}
	case "npm":
		return &profile{code: CodeTree, form: npmForm(""), subs: npmSubcommands()}
	case "cargo":
		return &profile{code: CodeTree, form: form{opts: "-[Vvq] --version --verbose --quiet --color:k --offline --frozen --locked"}, subs: cargoSubcommands()}
	case "make", "gmake":
		return &profile{code: CodeTree, form: form{
			opts: "-[BiknqsSwt] -j?n -l?n -C:c -f:s --always-make --ignore-errors --keep-going --dry-run --question --silent --quiet " +
				"--no-print-directory --print-directory --jobs?n --directory:c --file:s --makefile:s --touch --version --help",
			args: "l*", code: CodeTree}, check: checkMake}
	case "pip":
		return &profile{form: form{opts: "-V --version"}, subs: map[string]*form{
			"list":   {opts: "-[ve] --editable --format:k --user --not-required"},
			"show":   {opts: "-[fv] --files --verbose", args: "k*"},
			"freeze": {opts: "-[l] --all --local --user"},
			"check":  {},
		}}
	}
	return nil
}

// interpreter is one that runs a script and leaves the arguments after it to the script. Without one it is
// good for the options named by without.
func interpreter(opts, without string, code Code) *profile {
	return &profile{code: code, check: needScript(without), form: form{opts: opts, args: "sl*", stop: true}}
}

// needScript refuses an interpreter without a script, which would read code from its standard input.
func needScript(unless string) func(*judging, []item) error {
	return func(j *judging, items []item) error {
		script := slices.ContainsFunc(items, func(it item) bool { return it.name == "" })
		if script || has(items, unless) || j.code.covers(CodeAny) {
			return nil
		}
		return j.refuse("no script, so that it would run what is on its standard input: name a file, or allow it by a rule with code: any")
	}
}

// checkNode: with --test it finds the scripts by itself.
func checkNode(j *judging, items []item) error {
	if has(items, "--test") && !j.code.covers(CodeTree) {
		return j.refuse("--test, which runs code: a rule with code: tree can allow it")
	}
	return needScript("--version -v --test")(j, items)
}

// checkPython knows the two modules that run the tests of a tree.
func checkPython(j *judging, items []item) error {
	at := slices.IndexFunc(items, func(it item) bool { return it.name == "-m" })
	if at < 0 {
		return needScript("--version --help -V")(j, items)
	}
	switch {
	case j.code.covers(CodeAny):
		return nil
	case !j.code.covers(CodeTree):
		return j.refuse("-m, which runs code: a rule with code: tree can allow it")
	}
	var rest []string
	for _, it := range items[at+1:] {
		rest = append(rest, it.values...)
	}
	var f form
	switch items[at].values[0] {
	case "pytest":
		f = pytestForm()
	case "unittest":
		f = form{opts: "-[vqfcb] -k:t -s:r -p:t -t:r --verbose --quiet --failfast --buffer --locals --start-directory:r --pattern:t --top-level-directory:r", args: "l*"}
	case "json.tool":
		f = form{opts: "--sort-keys --no-ensure-ascii --indent:n --tab --compact --json-lines", args: "rw"}
	case "py_compile":
		f = form{args: "w*"}
	default:
		return j.refuse("-m %s: a module that is not among those known to run only the code of a tree; a rule with code: any can allow it", items[at].values[0])
	}
	parsed, err := f.parse(rest)
	if err != nil {
		return j.refuse("%v", err)
	}
	return j.judgeItems(&f, parsed)
}

func pytestForm() form {
	return form{
		opts: "-[vqxsl] -k:t -m:t -n:k -r:k --verbose --quiet --exitfirst --maxfail:n --lf --last-failed --ff --failed-first --nf --sw --stepwise " +
			"--co --collect-only --tb:k --durations:n --no-header --no-summary --capture:k --showlocals --strict-markers --runxfail --cov?r --cov-report:k --version",
		args: "l*", code: CodeTree,
	}
}

const (
	goBuild = " -C:c -a -n -p:n -v -x -race -msan -asan -cover -covermode:k -coverpkg:l -tags:k -mod:k -modcacherw -trimpath -buildvcs:k -buildmode:k -ldflags:g -installsuffix:k -json "
	goTest  = " -bench:t -benchmem -benchtime:k -blockprofilerate:n -c -count:n -coverprofile:w -cpu:k -cpuprofile:w -memprofile:w -blockprofile:w -mutexprofile:w " +
		"-trace:w -failfast -fullpath -fuzz:t -fuzztime:k -fuzzminimizetime:k -list:t -parallel:n -run:t -short -shuffle:k -skip:t -timeout:k -vet:k -o:w -outputdir:w "
)

func goSubcommands() map[string]*form {
	golang := func(opts, args string, code Code) *form {
		return &form{opts: opts, args: args, single: true, code: code}
	}
	subs := map[string]*form{
		"version":   golang("-m -v", "r*", ""),
		"env":       golang("-json -changed", "k*", ""),
		"list":      golang(goBuild+"-f:t -m -deps -e -find -test", "p*", ""),
		"vet":       golang(goBuild+"-c:n", "p*", CodeTree),
		"doc":       golang("-all -c -cmd -short -src -u", "p*", ""),
		"build":     golang(goBuild+"-o:w", "p*", CodeTree),
		"test":      golang(goBuild+goTest, "p*", CodeTree),
		"run":       golang(goBuild, "p", CodeTree),
		"fmt":       golang("-n -x", "p*", ""),
		"generate":  golang(goBuild+"-run:t -skip:t", "p*", CodeAny),
		"mod graph": golang("", "", ""), "mod verify": golang("", "", ""), "mod why": golang("-m -vendor", "p*", ""),
		"mod tidy": golang("-v -e -diff", "", ""), "mod vendor": golang("-v -e", "", ""),
		"mod download": golang("-x -json", "p*", ""),
		"work sync":    golang("", "", ""),
		"get":          golang("-t -u -v", "k*", ""),
	}
	for _, name := range []string{"fmt", "mod tidy", "mod vendor", "work sync", "get"} {
		subs[name].work = "always"
	}
	subs["get"].net, subs["mod download"].net = true, true
	subs["test"].rest, subs["run"].rest = "-args", "1"
	return subs
}

// checkGo: a build of one main package writes its program into the working folder.
func checkGo(j *judging, items []item) error {
	if j.subcommand != "build" || has(items, "-o -n") {
		return nil
	}
	for _, it := range items {
		if it.name == "" && strings.Contains(it.values[0], "...") {
			return nil
		}
	}
	return j.path(".", true)
}

func npmForm(more string) form {
	return form{opts: "-[sdv] --silent --quiet --json --prefix:c --loglevel:k --no-color --color?k --version --workspaces -w:r --workspace:r " + more}
}

func npmSubcommands() map[string]*form {
	npm := func(more, args string, code Code) *form {
		f := npmForm(more)
		f.args, f.code = args, code
		return &f
	}
	list := npm("-[agl] --all --depth:n --long --parseable --omit:k --include:k --link --package-lock-only", "k*", "")
	test := npm("--if-present --ignore-scripts", "l*", CodeTree)
	run := npm("--if-present --ignore-scripts", "kl*", CodeTree)
	subs := map[string]*form{
		"ls": list, "list": list, "ll": list, "test": test, "t": test, "start": test, "run": run, "run-script": run,
		"explain": npm("", "k*", ""), "why": npm("", "k*", ""), "root": npm("", "", ""), "prefix": npm("", "", ""), "version": npm("", "", ""),
		"pkg get": npm("", "k*", ""),
		"ci":      npm("--omit:k --include:k --ignore-scripts --no-audit --no-fund", "", ""),
		"install": npm("-[DES] --save-dev --save-exact --save --no-save --omit:k --include:k --ignore-scripts --no-audit --no-fund --package-lock-only", "k*", ""),
		"view":    npm("", "k*", ""), "outdated": npm("--all --long", "k*", ""), "audit": npm("--omit:k --audit-level:k", "", ""),
	}
	for _, name := range []string{"ci", "install", "view", "outdated", "audit"} {
		subs[name].net = true
	}
	subs["ci"].work, subs["install"].work = "always", "always"
	return subs
}

func cargoSubcommands() map[string]*form {
	const build = "-[vqr] -p:k -j:n -F:t --release --package:k --workspace --all --exclude:k --lib --bin:k --bins --example:k --examples --test:k --tests --bench:k --benches " +
		"--all-targets --features:t --all-features --no-default-features --profile:k --target:k --message-format:k --offline --locked --frozen --verbose --quiet " +
		"--color:k --jobs:n --keep-going --manifest-path:r --no-run --no-fail-fast "
	cargo := func(args string) *form {
		return &form{opts: build, args: args, code: CodeTree, rest: "--", work: "always"}
	}
	return map[string]*form{
		"build": cargo(""), "b": cargo(""), "check": cargo(""), "c": cargo(""),
		"test": cargo("l*"), "t": cargo("l*"), "run": cargo("l*"), "bench": cargo("l*"), "doc": cargo(""),
		"clippy":   cargo("l*"),
		"fmt":      {opts: "-[vq] -p:k --all --check --package:k", code: CodeTree, work: "always", look: "--check"},
		"tree":     {opts: "-[vqdei] -p:k --depth:n --all-features --features:t --no-default-features --duplicates --invert?k --prefix:k --offline --locked --frozen --workspace", code: CodeTree},
		"metadata": {opts: "--format-version:n --no-deps --offline --locked --frozen --manifest-path:r", code: CodeTree},
		"version":  {opts: "-[v]"},
	}
}

// checkMake refuses variables, which a makefile may take for commands, and a makefile from standard input.
func checkMake(j *judging, items []item) error {
	for _, it := range items {
		if it.name == "" && strings.Contains(it.values[0], "=") {
			return j.refuse("the assignment %q: a makefile may run what a variable holds", it.values[0])
		}
	}
	return nil
}
