package shell

// Options that several subcommands of git share.
const (
	gitDiff = " -[pusRaWwbzB] -U:n -M?n -C?n -D -l:n -S:t -G:t --patch --no-patch --unified:n --raw --stat?k --numstat --shortstat --dirstat?k --summary " +
		"--name-only --name-status --minimal --patience --histogram --diff-algorithm:k --color?k --no-color --word-diff?k --color-words " +
		"--check --full-index --binary --abbrev?n --find-renames?n --find-copies?n --no-renames --diff-filter:k --pickaxe-all --pickaxe-regex " +
		"--ignore-all-space --ignore-space-change --ignore-space-at-eol --ignore-blank-lines --function-context --exit-code --quiet --no-ext-diff " +
		"--no-textconv --submodule?k --ignore-submodules?k --src-prefix:k --dst-prefix:k --no-prefix --relative --inter-hunk-context:n --compact-summary --cc --text "
	gitLog = " -# -n:n -L:l -i -g -c -m --max-count:n --skip:n --since:t --after:t --until:t --before:t --author:t --committer:t --grep:t --all-match --invert-grep " +
		"--regexp-ignore-case --extended-regexp --fixed-strings --perl-regexp --merges --no-merges --first-parent --all --branches?t --tags?t --remotes?t " +
		"--oneline --graph --decorate?k --no-decorate --pretty?t --format:t --abbrev-commit --no-abbrev-commit --date:t --relative-date --topo-order " +
		"--date-order --author-date-order --reverse --follow --full-history --simplify-merges --ancestry-path --cherry-pick --left-right --cherry --no-walk " +
		"--walk-reflogs --source --show-notes --no-notes --encoding:k --name-only --not --count --parents --children --boundary --full-diff --log-size --glob:t "
	gitMerge = " -[nqv] -m:t --no-ff --ff --ff-only --no-commit --commit --squash --no-edit --abort --quit --continue --stat --no-stat --quiet --verbose --allow-unrelated-histories "
)

// gitProgram knows git. Only what comes with git itself is run, never a program that a repository's own
// configuration names; see guard.
func gitProgram(name string) *profile {
	if name != "git" {
		return nil
	}
	return &profile{
		form:  form{opts: "-C:c --no-pager -P --no-optional-locks --literal-pathspecs --no-replace-objects --version"},
		subs:  gitSubcommands(),
		check: func(j *judging, _ []item) error { j.repository = j.base; return nil },
	}
}

func gitSubcommands() map[string]*form {
	subs := map[string]*form{
		"status":         {opts: "-[sbvz] -u?k --short --branch --porcelain?k --long --verbose --untracked-files?k --ignored?k --ignore-submodules?k --column?k --no-column --ahead-behind --no-ahead-behind --renames --no-renames --show-stash", args: "v*"},
		"log":            {opts: gitLog + gitDiff, args: "v*"},
		"whatchanged":    {opts: gitLog + gitDiff, args: "v*"},
		"show":           {opts: gitLog + gitDiff, args: "v*"},
		"diff":           {opts: gitDiff + " --cached --staged --merge-base --base --ours --theirs", args: "v*"},
		"diff-tree":      {opts: gitDiff + " -r -t --root --no-commit-id --stdin", args: "v*"},
		"diff-index":     {opts: gitDiff + " --cached", args: "v*"},
		"diff-files":     {opts: gitDiff, args: "v*"},
		"blame":          {opts: "-[beflnswtpc] -L:l -M?n -C?n --root --show-stats --porcelain --line-porcelain --incremental --show-name --show-number --show-email --date:t --reverse --first-parent --abbrev:n --ignore-rev:v", args: "v*"},
		"shortlog":       {opts: "-[nsec] -w?k --numbered --summary --email --group:t --committer --since:t --until:t --all --no-merges --format:t", args: "v*"},
		"reflog":         {opts: gitLog},
		"reflog show":    {opts: gitLog, args: "v*"},
		"rev-parse":      {opts: "--short?n --abbrev-ref?k --verify -q --quiet --show-toplevel --show-prefix --show-cdup --git-dir --git-common-dir --absolute-git-dir --is-inside-work-tree --is-inside-git-dir --is-bare-repository --is-shallow-repository --symbolic --symbolic-full-name --all --branches?t --tags?t --remotes?t --revs-only --no-revs --not --sq", args: "v*"},
		"rev-list":       {opts: gitLog + " --objects --disk-usage --use-bitmap-index", args: "v*"},
		"describe":       {opts: "--all --tags --contains --abbrev:n --candidates:n --exact-match --debug --long --match:t --exclude:t --always --first-parent --dirty?k --broken?k", args: "v*"},
		"ls-files":       {opts: "-[zcdmoiskutvf] -x:t --cached --deleted --modified --others --ignored --stage --killed --unmerged --exclude-standard --exclude:t --directory --no-empty-directory --full-name --error-unmatch --eol --deduplicate --abbrev?n --format:t", args: "v*"},
		"ls-tree":        {opts: "-[drtlz] --long --name-only --name-status --full-name --full-tree --abbrev?n --format:t --object-only", args: "v*"},
		"cat-file":       {opts: "-[tspe]", args: "v*"},
		"merge-base":     {opts: "-[a] --all --octopus --independent --is-ancestor --fork-point", args: "v*"},
		"name-rev":       {opts: "--tags --refs:t --all --name-only --always", args: "v*"},
		"show-ref":       {opts: "-[dqs] --head --heads --tags --dereference --hash?n --verify --abbrev?n", args: "v*"},
		"for-each-ref":   {opts: "--count:n --sort:t --format:t --points-at:v --merged?v --no-merged?v --contains?v --no-contains?v --ignore-case", args: "v*"},
		"grep":           {opts: "-[aIiwvhHEGFPnlLzocpWq] -# -e:t -A:n -B:n -C:n -m:n -f:r --cached --text --ignore-case --word-regexp --invert-match --full-name --extended-regexp --basic-regexp --perl-regexp --fixed-strings --line-number --column --files-with-matches --name-only --files-without-match --null --only-matching --count --color?k --no-color --break --heading --show-function --context:n --after-context:n --before-context:n --function-context --max-depth:n --threads:n --and --or --not --all-match --quiet --untracked --max-count:n", args: "tv*", instead: "-e -f"},
		"check-ignore":   {opts: "-[qvnz] --quiet --verbose --non-matching --no-index --stdin", args: "r*"},
		"check-attr":     {opts: "-[az] --all --cached --stdin", args: "l*"},
		"count-objects":  {opts: "-[vH] --verbose --human-readable"},
		"fsck":           {opts: "--full --no-dangling --connectivity-only --unreachable", args: "v*"},
		"version":        {opts: "--build-options"},
		"var":            {opts: "-[l]", args: "k"},
		"config":         {opts: "-[lz] --get --get-all --get-regexp --list --local --null --name-only --show-origin --show-scope --type:k --bool --int --default:t", args: "t"},
		"remote":         {opts: "-[v] --verbose"},
		"remote get-url": {opts: "--all --push", args: "k"},
		"stash list":     {opts: gitLog + gitDiff},
		"stash show":     {opts: gitDiff + " -u --include-untracked", args: "v*"},
		"ls-remote":      {opts: "-[htq] --heads --tags --refs --quiet --exit-code --sort:t", args: "uv*", net: true},
		"worktree list":  {opts: "-[vz] --verbose --porcelain"},
	}
	for name, f := range gitWriters() {
		if f.work == "" {
			f.work = "always"
		}
		subs[name] = f
	}
	return subs
}

// gitWriters change the repository or the files in it.
func gitWriters() map[string]*form {
	return map[string]*form{
		"init":     {opts: "-[q] -b:k --quiet --bare --initial-branch:k", args: "w"},
		"add":      {opts: "-[nvfAuN] --dry-run --verbose --force --all --no-all --update --intent-to-add --renormalize --ignore-errors --chmod:t", args: "v*"},
		"commit":   {opts: "-[aqsvnz] -m:t -F:r -C:v --all --message:t --file:r --amend --no-edit --allow-empty --allow-empty-message --author:t --date:t --signoff --quiet --verbose --dry-run --short --porcelain --branch --no-verify --fixup:v --squash:v --reset-author --only --include --cleanup:k --no-gpg-sign --no-status", args: "v*"},
		"rm":       {opts: "-[nrfq] --dry-run --force --cached --quiet --ignore-unmatch", args: "v*"},
		"mv":       {opts: "-[fknv] --force --dry-run --verbose", args: "w*"},
		"restore":  {opts: "-[SWq] -s:v --staged --worktree --source:v --ours --theirs --merge --quiet --overlay --no-overlay", args: "v*"},
		"checkout": {opts: "-[qfdlm] -b:v -B:v --quiet --force --detach --ours --theirs --merge --orphan:v --track?k -t --no-track --guess --no-guess --progress --no-progress --ignore-skip-worktree-bits", args: "v*"},
		"switch":   {opts: "-[qdfm] -c:v -C:v --create:v --force-create:v --detach --guess --no-guess --force --discard-changes --merge --quiet --track?k -t --no-track --orphan:v", args: "v*"},
		"reset":    {opts: "-[qN] --soft --mixed --hard --merge --keep --quiet --refresh --no-refresh", args: "v*"},
		"branch": {opts: "-[arvqfdDmMcCil] -u:v --all --remotes --list --verbose --quiet --force --delete --move --copy --show-current --contains?v --no-contains?v --merged?v --no-merged?v --points-at:v --sort:t --format:t --column?k --no-column --color?k --no-color --abbrev?n --ignore-case --track?k --no-track --set-upstream-to:v --unset-upstream", args: "v*",
			work: "args -u -d -D -m -M -c -C --delete --move --copy --set-upstream-to --unset-upstream", look: "-l --list"},
		"tag":          {opts: "-[alfdni] -# -m:t -F:r --annotate --list --force --delete --message:t --file:r --sort:t --format:t --contains?v --no-contains?v --merged?v --no-merged?v --points-at:v --column?k --color?k --ignore-case --no-sign", args: "v*", work: "args", look: "-l --list"},
		"merge":        {opts: gitMerge, args: "v*"},
		"cherry-pick":  {opts: "-[nx] -m:n --no-commit --abort --quit --skip --allow-empty --keep-redundant-commits --ff", args: "v*"},
		"revert":       {opts: "-[n] -m:n --no-commit --no-edit --abort --quit --skip", args: "v*"},
		"stash":        {opts: "-[ukaqS] -m:t --include-untracked --keep-index --no-keep-index --all --quiet --message:t --staged"},
		"stash push":   {opts: "-[ukaqS] -m:t --include-untracked --keep-index --no-keep-index --all --quiet --message:t --staged", args: "v*"},
		"stash pop":    {opts: "-[q] --index --quiet", args: "v*"},
		"stash apply":  {opts: "-[q] --index --quiet", args: "v*"},
		"stash drop":   {opts: "-[q] --quiet", args: "v*"},
		"stash clear":  {},
		"clean":        {opts: "-[dfnqxX] -e:t --force --dry-run --quiet --exclude:t", args: "v*"},
		"apply":        {opts: "-[3Rvqz] -p:n -C:n --stat --numstat --summary --check --index --cached --3way --reverse --reject --recount --whitespace:k --ignore-whitespace --ignore-space-change --include:t --exclude:t --verbose --quiet --intent-to-add --allow-empty --unidiff-zero", args: "r*", work: "always", look: "--stat --numstat --summary --check"},
		"update-index": {opts: "--refresh -q --really-refresh --assume-unchanged --no-assume-unchanged --skip-worktree --no-skip-worktree", args: "w*"},
		"fetch":        {opts: "-[apqvtkn] --all --append --depth:n --deepen:n --unshallow --dry-run --force --keep --prune --tags --no-tags --quiet --verbose --progress --no-progress", args: "uv*", net: true},
		"pull":         {opts: "-[qv] --ff-only --no-rebase --no-ff --quiet --verbose --tags --no-tags --depth:n", args: "uv*", net: true},
		"push":         {opts: "-[nquvdf] --all --tags --follow-tags --dry-run --delete --force --force-with-lease?v --set-upstream --quiet --verbose --porcelain --atomic --no-verify", args: "uv*", net: true},
		"clone":        {opts: "-[qvn] -b:v -o:k --quiet --verbose --no-checkout --bare --depth:n --branch:v --single-branch --no-single-branch --no-tags --origin:k", args: "uw", net: true},
	}
}
