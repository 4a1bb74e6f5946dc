package shell

import (
	"slices"
	"strconv"
	"strings"
)

// textProgram knows the programs that read text and files and print something about them.
func textProgram(name string) *profile {
	switch name {
	case "grep", "egrep", "fgrep":
		return &profile{form: form{
			opts: "-[EFGPivwxcLlnHhoqsabUzyTIrZ] -# -A:n -B:n -C:n -m:n -e:t -f:r -d:k -D:k " +
				"--extended-regexp --fixed-strings --basic-regexp --perl-regexp --ignore-case --no-ignore-case --invert-match " +
				"--word-regexp --line-regexp --count --files-without-match --files-with-matches --line-number --with-filename " +
				"--no-filename --only-matching --quiet --silent --no-messages --text --byte-offset --null-data --null --recursive " +
				"--initial-tab --line-buffered --version --help --color?k --colour?k --regexp:t --file:r --max-count:n " +
				"--after-context:n --before-context:n --context:n --include:t --exclude:t --exclude-dir:t --binary-files:k --directories:k --devices:k --label:t",
			args: "tr*", instead: "-e -f --regexp --file", recurse: "-r --recursive -d --directories", min: 0,
		}, spare: "--exclude=%s --exclude-dir=%s", spareLast: true}
	case "rg":
		return &profile{form: form{
			opts: "-[ivwxclnNHIoqasSFUP0puV.] -A:n -B:n -C:n -m:n -e:t -f:r -g:t -t:k -T:k -r:t -j:n -M:n -d:n -E:k " +
				"--ignore-case --smart-case --case-sensitive --invert-match --word-regexp --line-regexp --count --count-matches --files " +
				"--files-with-matches --files-without-match --line-number --no-line-number --with-filename --no-filename --heading --no-heading " +
				"--only-matching --quiet --text --fixed-strings --multiline --multiline-dotall --pcre2 --null --pretty --hidden --no-ignore " +
				"--no-ignore-vcs --no-ignore-parent --no-messages --json --stats --trim --vimgrep --column --type-list --version --no-config --sort:k --sortr:k " +
				"--color:k --context:n --after-context:n --before-context:n --max-count:n --max-depth:n --max-columns:n --max-filesize:n --threads:n " +
				"--regexp:t --file:r --glob:t --iglob:t --type:k --type-not:k --replace:t --encoding:k --passthru --crlf --unrestricted --byte-offset",
			args: "tr*", instead: "-e -f --regexp --file --files --type-list", recurse: "always",
		}, spare: "--iglob=!%s", spareLast: true}
	case "sed":
		return &profile{form: form{
			opts: "-[nErsuzi] -e:t -f:r -l:n --quiet --silent --expression:t --file:r --regexp-extended --separate --unbuffered " +
				"--null-data --in-place --posix --debug --sandbox --line-length:n --version --help",
			args: "tr*", instead: "-e -f --expression --file", writing: "-i --in-place",
		}, insert: []string{"--sandbox"}}
	case "awk", "gawk", "mawk", "nawk":
		return &profile{form: form{opts: "-F:t -v:t --field-separator:t --assign:t", args: "tr*", min: 1, stop: true}, check: checkAwk}
	case "jq":
		return &profile{form: form{
			opts: "-[rcnsSejaMCR0] --raw-output --compact-output --null-input --slurp --sort-keys --exit-status --join-output " +
				"--ascii-output --monochrome-output --color-output --raw-input --raw-output0 --tab --indent:n --arg:tt --argjson:tt " +
				"--slurpfile:tr --rawfile:tr --seq --stream --version --help",
			args: "tr*",
		}, check: checkJQ}
	case "find":
		return &profile{form: form{
			opts: "-[P] -name:t -iname:t -path:t -ipath:t -wholename:t -regex:t -iregex:t -regextype:k -type:k -xtype:k -size:n -empty " +
				"-mtime:n -mmin:n -atime:n -amin:n -ctime:n -cmin:n -newer:r -newermt:t -anewer:r -cnewer:r -maxdepth:n -mindepth:n -depth -d -daystart -perm:t " +
				"-user:k -group:k -uid:n -gid:n -nouser -nogroup -links:n -inum:n -samefile:r -print -print0 -printf:t -ls -prune -quit " +
				"-not -o -or -a -and -true -false -xdev -mount -readable -writable -executable -noleaf -ignore_readdir_race -warn -nowarn -help -version",
			args: "r*", single: true, // its ! ( ) and , are names of files that are not there, as far as paths go
		}}
	case "diff":
		return &profile{form: form{
			opts: "-[qsuceybBEZwitaNdprT] -# -U:n -C:n -W:n -x:t -I:t -F:t --brief --report-identical-files --unified?n --context?n --ed --normal " +
				"--side-by-side --suppress-common-lines --width:n --ignore-case --ignore-all-space --ignore-space-change --ignore-trailing-space " +
				"--ignore-blank-lines --ignore-tab-expansion --ignore-matching-lines:t --text --strip-trailing-cr --new-file --recursive --exclude:t " +
				"--minimal --speed-large-files --color?k --label:t --expand-tabs --initial-tab --show-c-function --version --help",
			args: "rr", recurse: "-r --recursive",
		}, insert: []string{"--no-dereference"}, spare: "--exclude=%s"}
	}
	if f, ok := simplePrograms()[name]; ok {
		return &profile{form: f}
	}
	return nil
}

const sumOptions = "-[btwz] --binary --tag --text --ignore-missing --quiet --status --strict --warn --zero --version --help"

// simplePrograms need nothing but a form.
func simplePrograms() map[string]form {
	sum := form{opts: sumOptions, args: "r*"}
	condition := form{opts: "-[abcdefghknoprstuvwxzGLNOS] -eq -ne -lt -le -gt -ge -nt -ot -ef", args: "l*", single: true}
	return map[string]form{
		"ls": {opts: "-[aAbBcCdfFgGhHiklmnNopqQrRsStuUvxXZ1] -w:n -T:n -I:t --all --almost-all --author --escape --ignore-backups --directory " +
			"--classify?k --file-type --full-time --group-directories-first --no-group --human-readable --si --inode --kibibytes " +
			"--numeric-uid-gid --literal --quote-name --reverse --recursive --size --zero --color?k --format:k --sort:k --time:k --time-style:t " +
			"--indicator-style:k --hide:t --ignore:t --width:n --tabsize:n --block-size:k --quoting-style:k --hyperlink?k --version --help", args: "r*"},
		"cat":  {opts: "-[AbeEnstTuv] --show-all --number-nonblank --show-ends --number --squeeze-blank --show-tabs --show-nonprinting --version --help", args: "r*"},
		"head": {opts: "-[qvz] -# -n:n -c:n --lines:n --bytes:n --quiet --silent --verbose --zero-terminated --version --help", args: "r*"},
		"tail": {opts: "-[qvz] -# -n:n -c:n --lines:n --bytes:n --quiet --silent --verbose --zero-terminated --version --help", args: "r*"},
		"wc":   {opts: "-[clmwL] --bytes --chars --lines --words --max-line-length --total:k --version --help", args: "r*"},
		"sort": {opts: "-[bdfghinMRrVcCmsuz] -k:k -t:t -o:w -S:n --ignore-leading-blanks --dictionary-order --ignore-case --general-numeric-sort " +
			"--human-numeric-sort --ignore-nonprinting --month-sort --numeric-sort --random-sort --reverse --version-sort --check?k --merge --stable " +
			"--unique --zero-terminated --key:k --field-separator:t --output:w --sort:k --parallel:n --buffer-size:n --debug --version --help", args: "r*"},
		"uniq": {opts: "-[cdDiuz] -f:n -s:n -w:n --count --repeated --unique --ignore-case --zero-terminated --skip-fields:n --skip-chars:n " +
			"--check-chars:n --all-repeated?k --group?k --version --help", args: "rw"},
		"cut": {opts: "-[nsz] -b:k -c:k -d:t -f:k --bytes:k --characters:k --delimiter:t --fields:k --complement --only-delimited " +
			"--output-delimiter:t --zero-terminated --version --help", args: "r*"},
		"tr":       {opts: "-[cCdst] --complement --delete --squeeze-repeats --truncate-set1 --version --help", args: "tt"},
		"nl":       {opts: "-[p] -b:t -d:t -f:t -h:t -i:n -l:n -n:k -s:t -v:n -w:n --version --help", args: "r*"},
		"tac":      {opts: "-[br] -s:t --before --regex --separator:t --version --help", args: "r*"},
		"rev":      {opts: "--version --help", args: "r*"},
		"fold":     {opts: "-[bs] -w:n --bytes --spaces --width:n --version --help", args: "r*"},
		"expand":   {opts: "-[i] -t:k --initial --tabs:k --version --help", args: "r*"},
		"unexpand": {opts: "-[a] -t:k --all --first-only --tabs:k --version --help", args: "r*"},
		"paste":    {opts: "-[sz] -d:t --serial --zero-terminated --delimiters:t --version --help", args: "r*"},
		"join":     {opts: "-[iz] -a:n -e:t -j:n -o:k -t:t -v:n -1:n -2:n --ignore-case --header --check-order --nocheck-order --version --help", args: "rr"},
		"comm":     {opts: "-[123z] --check-order --nocheck-order --output-delimiter:t --total --zero-terminated --version --help", args: "rr"},
		"column":   {opts: "-[txne] -s:t -o:t -c:n -N:t -H:t -R:t --table --separator:t --output-separator:t --version --help", args: "r*"},
		"od":       {opts: "-[abcdfiloshxv] -A:k -j:n -N:n -t:k -w?n -S:n --version --help", args: "r*"},
		"hexdump":  {opts: "-[bcCdoxv] -n:n -s:n --version --help", args: "r*"},
		"xxd":      {opts: "-[abeiuEpCv] -c:n -g:n -l:n -s:n -o:n --version --help", args: "r"},
		"strings":  {opts: "-[afow] -n:n -t:k -e:k -# --all --print-file-name --bytes:n --radix:k --encoding:k --version --help", args: "r*"},
		"base64":   {opts: "-[di] -w:n --decode --ignore-garbage --wrap:n --version --help", args: "r"},
		"base32":   {opts: "-[di] -w:n --decode --ignore-garbage --wrap:n --version --help", args: "r"},
		"md5sum":   sum, "sha1sum": sum, "sha224sum": sum, "sha256sum": sum, "sha384sum": sum, "sha512sum": sum, "b2sum": sum, "cksum": sum,
		"cmp":      {opts: "-[bls] -i:k -n:n --print-bytes --verbose --silent --quiet --ignore-initial:k --bytes:n --version --help", args: "rrnn"},
		"file":     {opts: "-[bikLhnprN0] -e:k -F:t -P:t --brief --mime --mime-type --mime-encoding --extension --no-dereference --no-pad --version --help", args: "r*"},
		"stat":     {opts: "-[Lft] -c:t --dereference --file-system --format:t --printf:t --terse --version --help", args: "r*"},
		"du":       {opts: "-[0abchklmPsSx] -d:n -t:n -B:k --all --apparent-size --bytes --total --human-readable --si --max-depth:n --summarize --separate-dirs --one-file-system --exclude:t --time?k --time-style:t --threshold:n --inodes --null --version --help", args: "r*"}, //nolint:misspell // its own word
		"df":       {opts: "-[ahHiklPT] -t:k -x:k -B:k --human-readable --si --inodes --portability --print-type --total --version --help", args: "r*"},
		"tree":     {opts: "-[adfpsughDFqNnCiXJQ] -L:n -P:t -I:t --dirsfirst --noreport --prune --filelimit:n --charset:k --gitignore --version --help", args: "r*"},
		"basename": {opts: "-[az] -s:t --multiple --suffix:t --zero --version --help", args: "t*"},
		"dirname":  {opts: "-[z] --zero --version --help", args: "t*"},
		"realpath": {opts: "-[emqszLP] --canonicalize-existing --canonicalize-missing --quiet --strip --no-symlinks --zero --relative-to:r --relative-base:r --version --help", args: "r*"},
		"readlink": {opts: "-[femnqsvz] --canonicalize --canonicalize-existing --canonicalize-missing --no-newline --version --help", args: "r*"},
		"pwd":      {opts: "-[LP] --logical --physical"},
		"echo":     {opts: "-[neE]", args: "t*", stop: true},
		"printf":   {args: "t*", stop: true},
		"true":     {}, "false": {}, "yes": {args: "t*"},
		"test": condition, "[": condition,
		"seq":    {opts: "-[w] -f:t -s:t -# --equal-width --format:t --separator:t --version --help", args: "n*"},
		"sleep":  {args: "n*"},
		"date":   {opts: "-[uRI] -d:t -r:r --date:t --reference:r --utc --universal --iso-8601?k --rfc-3339:k --rfc-email --version --help", args: "f"},
		"cal":    {opts: "-[13jmsy]", args: "n*"},
		"whoami": {opts: "--version --help"},
		"id":     {opts: "-[gGnru] --group --groups --name --real --user --version --help"},
		"uname":  {opts: "-[amnoprsiv] --all --machine --kernel-name --kernel-release --version --help"},
		"nproc":  {opts: "--all --version --help"},
		"which":  {opts: "-[a]", args: "k*"},
		"factor": {args: "n*"},
		"numfmt": {opts: "--to:k --from:k --field:k --suffix:k --padding:n --round:k --header?n --delimiter:t --version --help", args: "n*"},
		"shuf":   {opts: "-[rz] -i:k -n:n -o:w --input-range:k --head-count:n --output:w --repeat --zero-terminated --version --help", args: "r"},
		"tsort":  {args: "r"},
		"zcat":   {opts: "-[fqv]", args: "r*"},
		"gofmt":  {opts: "-d -e -l -s -w -r:t", args: "r*", single: true, writing: "-w", recurse: "always", follows: true, only: ".go"},
	}
}

// fileProgram knows the programs that make, change and remove files.
func fileProgram(name string) *profile {
	switch name {
	case "tar":
		return &profile{form: form{
			opts: "-[ctxrvzjJkpOam] -f:a -C:c --create --list --extract --get --verbose --gzip --bzip2 --xz --zstd --auto-compress " +
				"--keep-old-files --to-stdout --exclude:t --exclude-vcs --strip-components:n --wildcards --no-same-owner --sort:k --mtime:t --numeric-owner --owner:k --group:k " +
				"--file:a --directory:c --totals --version --help",
			args: "r*",
		}, check: checkTar, spare: "--exclude=%s"}
	case "cp":
		// What is there already is removed first: it may be a link, and cp would write to where it leads.
		return &profile{form: form{opts: "-[afnprRuvTPd] -t:w --archive --force --no-clobber --recursive --update --verbose --no-target-directory " +
			"--target-directory:w --no-dereference --parents --preserve?k --version --help",
			args: "r*", last: writes, recurse: "-r -R -a --recursive --archive"}, insert: []string{"--remove-destination"}, check: checkPlaced}
	case "mv":
		return &profile{form: form{opts: "-[fnuvT] -t:w --force --no-clobber --update --verbose --no-target-directory --target-directory:w --version --help",
			args: "d*", last: writes, recurse: "always"}, check: checkPlaced}
	case "ln":
		return &profile{form: form{opts: "-[fnrsvT] --force --no-dereference --relative --symbolic --verbose --no-target-directory --version --help", args: "dw", min: 2}, check: checkLink}
	case "dd":
		return &profile{form: form{args: "t*"}, check: checkDD}
	case "zip":
		return &profile{form: form{
			opts: "-[rqvujy] -# -x:t -i:t --recurse-paths --quiet --junk-paths --exclude:t --include:t",
			args: "wr*", min: 2, recurse: "-r --recurse-paths",
		}, insert: []string{"-y"}} // links stay links
	case "unzip":
		return &profile{form: form{opts: "-[lvtpqnojLzZ1] -d:w -x:t", args: "rt*", min: 1}, check: checkUnzip}
	}
	if f, ok := simpleFilePrograms()[name]; ok {
		return &profile{form: f}
	}
	return nil
}

func simpleFilePrograms() map[string]form {
	const squeeze = "-[cdfklnqtv] -# --stdout --decompress --force --keep --list --quiet --test --verbose --fast --best --version --help"
	squeezer := form{opts: squeeze, args: "w*", reading: "-c --stdout -l --list -t --test"}
	return map[string]form{
		"tee":      {opts: "-[ai] --append --ignore-interrupts --version --help", args: "w*"},
		"touch":    {opts: "-[acmh] -t:k -d:t -r:r --no-create --date:t --reference:r --time:k --version --help", args: "w*"},
		"mkdir":    {opts: "-[pv] -m:m --parents --verbose --mode:m --version --help", args: "w*"},
		"rmdir":    {opts: "-[pv] --parents --verbose --ignore-fail-on-non-empty --version --help", args: "d*"},
		"rm":       {opts: "-[dfrRv] --dir --force --recursive --verbose --one-file-system --version --help", args: "d*", recurse: "-r -R --recursive"},
		"unlink":   {args: "d"},
		"chmod":    {opts: "-[Rcfv] --recursive --changes --quiet --silent --verbose --version --help", args: "mw*", recurse: "-R --recursive"},
		"truncate": {opts: "-[c] -s:n --no-create --size:n --version --help", args: "w*"},
		"gzip":     squeezer, "gunzip": squeezer, "bzip2": squeezer, "bunzip2": squeezer, "xz": squeezer, "unxz": squeezer, "zstd": squeezer, "unzstd": squeezer,
	}
}

var (
	awkRuns    = lazily(`system|getline|ARGV|ARGC|@|\\\n|\\\r|extension`)
	awkOutputs = lazily(`(?s)print.*>`)
)

// checkAwk refuses a program that runs, reads or writes something, as far as its letters could mean that: it is
// searched and not understood, so that no trick of quoting hides anything, and some harmless ones are refused.
func checkAwk(j *judging, items []item) error {
	for _, it := range items {
		if it.name != "" {
			continue
		}
		text := strings.ReplaceAll(it.values[0], "||", "")
		switch {
		case awkRuns().MatchString(text):
			return j.refuse("%q in its program, which can run programs or open files", awkRuns().FindString(text))
		case strings.Contains(text, "|"):
			return j.refuse("a | in its program, which runs a program; in a pattern write a || b")
		case awkOutputs().MatchString(text):
			return j.refuse("a > after print in its program, which writes a file; put comparisons before it")
		}
		return nil
	}
	return nil
}

var jqImports = lazily(`\b(import|include|modulemeta)\b`)

// checkJQ refuses a filter that reads files which no argument names.
func checkJQ(j *judging, items []item) error {
	for _, it := range items {
		for i, v := range it.values {
			if kind(it.kinds[i]) == free && jqImports().MatchString(v) {
				return j.refuse("%s in its filter, which reads other files", jqImports().FindString(v))
			}
		}
	}
	return nil
}

// checkTar finds out which way the files go. Old-style letters without a dash are not understood.
func checkTar(j *judging, items []item) error {
	if len(items) > 0 && items[0].name == "" {
		return j.refuse("%q: letters need their dash", items[0].values[0])
	}
	create := has(items, "-c --create -r")
	extract := has(items, "-x --extract --get")
	modes := 0
	for _, on := range []bool{create, extract, has(items, "-t --list")} {
		if on {
			modes++
		}
	}
	if modes != 1 && !has(items, "--version --help") {
		return j.refuse("not exactly one of -c, -x and -t")
	}
	for _, it := range items {
		if it.name == "-f" || it.name == "--file" {
			if err := j.tarFile(it.values[0], create); err != nil {
				return err
			}
		}
	}
	switch {
	case create:
		return j.recursion(&form{args: "r*"}, items)
	case extract && !has(items, "-O --to-stdout"):
		return j.untar(items)
	}
	return nil
}

// untar judges where an archive is unpacked; what is in it is judged before it is: see unpacks.
func (j *judging) untar(items []item) error {
	u := &unpacking{into: j.base, quoted: true, ground: j.ground}
	var which, names []string
	file := "-"
	for _, it := range items {
		switch it.name {
		case "":
			names = append(names, it.values[0])
		case "-f", "--file":
			file = it.values[0]
		case "--exclude":
			which = append(which, "--exclude="+it.values[0])
		case "--wildcards", "--exclude-vcs":
			which = append(which, it.name)
		case "--strip-components":
			n, err := strconv.Atoi(it.values[0])
			if err != nil || n < 0 {
				return j.refuse("%q, where a number is wanted", it.values[0])
			}
			u.strip = n
		}
	}
	if file == "-" {
		return j.refuse("an archive from standard input: what it would write cannot be judged before; put it into a file and name that with -f")
	}
	u.list = slices.Concat([]string{"-t", "--quoting-style=escape", "-f", file}, which, []string{"--"}, names)
	j.unpack = u
	return j.path(".", true)
}

func (j *judging) tarFile(name string, create bool) error {
	if name == "-" || !create {
		return nil
	}
	return j.fromDir(name, true)
}

// checkLink lets symbolic links lead to places below the folder that they are in, or to allowed ones by their
// whole path. A hard link gives a file a second name, so that the first must be one that may be written.
func checkLink(j *judging, items []item) error {
	for _, it := range items {
		if it.name == "" && hasDotDot(it.values[0]) && has(items, "-s --symbolic") {
			return j.refuse("%q: a link that leads upwards is not followed to where it leads", it.values[0])
		}
	}
	return checkPlaced(j, items)
}

func hasDotDot(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

// checkDD reads dd's own way to name things.
func checkDD(j *judging, items []item) error {
	kinds := map[string]kind{
		"if": reads, "of": writes, "bs": number, "ibs": number, "obs": number, "cbs": number, "count": number,
		"skip": number, "seek": number, "conv": keyword, "status": keyword, "iflag": keyword, "oflag": keyword,
	}
	for _, it := range items {
		name, value, _ := strings.Cut(it.values[0], "=")
		k, ok := kinds[name]
		if !ok {
			return j.refuse("the operand %q", it.values[0])
		}
		if err := j.value(k, value); err != nil {
			return err
		}
	}
	return nil
}

// checkUnzip: without an option that only looks, it writes in the working folder or in the one that -d names.
func checkUnzip(j *judging, items []item) error {
	if has(items, "-l -v -t -p -z -Z -1") {
		return nil
	}
	u := &unpacking{list: []string{"-Z1"}, into: j.base, flat: has(items, "-j"), ground: j.ground}
	for _, it := range items {
		switch it.name {
		case "":
			u.list = append(u.list, it.values[0])
		case "-d":
			u.into = j.absolute(it.values[0])
		}
	}
	j.unpack = u
	return j.path(u.into, true)
}
