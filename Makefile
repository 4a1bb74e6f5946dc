# Toolpost. `make` alone says what there is.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run build console screenshots release release-test test long storm servers bench compare transcripts embeddings eval fuzz lint setup clean

# git refuses to speak about a tree that somebody else owns; the build then goes without it.
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)
DATE   := $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The version of a release is the newest one in the changelog; before its tag is set it is a -dev version, which comes before it.
LATEST   := $(shell sed -nE 's/^\#\# \[?([0-9]+\.[0-9]+\.[0-9]+).*/\1/p' CHANGELOG.md | head -1)
RELEASE  ?= $(LATEST)$(shell [ "$$(git describe --exact-match --tags --dirty 2>/dev/null)" = v$(LATEST) ] \
	|| echo "-dev.$$(git rev-list --count HEAD 2>/dev/null || echo 0)$$(git diff --quiet HEAD 2>/dev/null || echo .dirty)")
FUZZTIME ?= 30s
CONFIG   ?= examples/toolpost.yaml

LINT_VERSION := 2.14.0
LINT = $(shell golangci-lint version 2>/dev/null | grep -Eq 'version v?$(LINT_VERSION) ' && command -v golangci-lint \
	|| echo .tools/golangci-lint-$(LINT_VERSION))

help: ## say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

run: build ## build, and serve the examples (CONFIG=FILE serves another config)
	@.ci/setup python3
	./bin/toolpost serve --config $(CONFIG)

build: ## build ./bin/toolpost, one static file
	@echo 'compiling ./bin/toolpost: minutes the first time, seconds after that'
	CGO_ENABLED=0 go build -v -buildvcs=false -trimpath \
		-ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)' -o bin/toolpost ./cmd/toolpost 2>&1 | .ci/compiling

console: ## build the console's page into web/console/dist, which the program embeds
	@.ci/setup node console
	cd web/console/app && npm run --silent check && npm run --silent build

screenshots: ## take pictures of every view of the console, light and dark, desktop and phone, into build/screenshots
	@.ci/setup chromium python3
	TOOLPOST_PICTURES='$(CURDIR)/build/screenshots' go test -trimpath -count=1 -timeout 20m -run TestPictures ./internal/console

release: ## build what is published into ./dist: archives for Linux and macOS, .deb, SBOMs, checksums
	@.ci/setup deb
	packaging/release '$(RELEASE)' '$(COMMIT)' '$(DATE)'

release-test: release ## try the release: the .deb on a fresh Debian in a virtual machine, the container (as root; minutes)
	@.ci/setup vm podman curl
	packaging/test/archives
	packaging/test/container
	packaging/test/debian

# SQLite is C turned into Go, which the race detector makes ten times as slow, and whose own memory is none of our affair: it is
# left out. What calls it is not, the driver's Go code included. The same goes for the two packages that look at every byte
# of every JSON document: they keep nothing, and what hands them a text and takes the values has the race detector. Packages that
# use sync.Map cannot be left out: its code is compiled into one of them, and the detector would no longer see it order things.
RACE := -race -trimpath $(foreach p,modernc.org/sqlite/lib modernc.org/libc github.com/go-json-experiment/json/jsontext \
	github.com/go-json-experiment/json/internal/jsonwire,-gcflags=$(p)=-race=false)

# What tests start is lean. They start thousands of Pythons: the system's own one starts in less than half the time of a version
# manager's, which has a script in front and other people's packages behind it; Go and Node stay those that were found. Node reads
# further certificates at each start, if it is told of some. A program with the race detector sleeps for a second before it exits,
# each of hundreds of them; a twentieth will do.
LEAN := where='import os, sys; sys.exit(1) if sys.version_info < (3, 9) else print(os.path.dirname(sys.executable))'; \
	python=$$(/usr/bin/python3 -c "$$where" 2>/dev/null || python3 -c "$$where" 2>/dev/null || true); \
	keep=; for p in node go; do found=$$(command -v $$p) && keep=$${found%/*}:$$keep; done; \
	PATH=$$keep$${python:+$$python:}$$PATH; unset NODE_EXTRA_CA_CERTS; export GORACE=atexit_sleep_ms=50

# Packages in which goroutines share memory run with the race detector: it makes tests two to ten times as long, and everything that
# such a package imports has to be compiled a second time. `make long` runs the others with it.
CONCURRENT := ^toolpost/(tool/tooltest|wire/(bounded|jsonrpc)|engine(/(approval|ask|audit|breaker|cache|calls|follow|idempotency|job|notify|persist|queue|quota|redact|session|telemetry))?|host/(forks|notice|process|secret|spawn|walls|worker|workspace)|store(/(auditlog|database))?|identity|model|plan(/planner)?|web(/console)?|codesearch(/(grep|meaning|trigram))?|protocol/mcp/(door|runner))$$

# The packages that take longest begin first, so that none of them is left to run alone at the end.
SLOW := /(cmd/toolpost|node|store/postgres|internal/(attacks|console|fleets|matrix|mcpsuite)|protocol/(mcp/(door|runner)|namel3ss|openai))$$

# vet reads what the tests are compiled to, so one compilation serves both. Test programs are linked without what debuggers read
# (-s -w), which is two fifths of the work of linking; traces stay whole. With -trimpath what is compiled does not depend on the folder,
# so another checkout need not compile it again.
# Half of a test's time is waiting for what it started, so five packages run at once on two cores: more would make
# each of them slow, and a tool has its ten seconds on a slow machine too.
test: ## install what the tests need, vet, and run every test
	@echo '== 1 of 4: what the tests need'
	@.ci/setup python3 venv curl cc git jq sqlite3 rg node js console chromium podman postgres tmux $(if $(filter true,$(CI)),agents)
	@$(LEAN); race='$(RACE)'; .ci/setup --check cc || { race=-trimpath; echo 'no C compiler: the tests run without the race detector'; }; \
	echo '== 2 of 4: vet, which compiles every package with its tests: minutes the first time'; \
	echo 'go vet ./...'; CGO_ENABLED=0 go vet -v -trimpath ./... 2>&1 | .ci/compiling; \
	echo '== 3 of 4: the layout of the house'; \
	CGO_ENABLED=0 go test -trimpath -count=1 ./internal/house; \
	packages=$$(go list ./... | grep -v '/internal/house$$'); \
	packages=$$(grep -E '$(SLOW)' <<<"$$packages"; grep -vE '$(SLOW)' <<<"$$packages"); \
	echo "== 4 of 4: linking and running the tests of $$(wc -w <<<"$$packages") packages, a line for each one that is done; the slowest take minutes"; \
	run() { go test -vet=off -ldflags='-s -w' -timeout 20m "$$@" | grep --line-buffered -v '\[no test files\]$$'; }; \
	echo "go test ./..., some with $${race%% *}"; ok=0; \
	CGO_ENABLED=0 run -p $$(($$(nproc) * 3 / 2)) -trimpath $$(grep -vE '$(CONCURRENT)' <<<"$$packages") & others=$$!; \
	run -p $$(nproc) $$race $$(grep -E '$(CONCURRENT)' <<<"$$packages") || ok=$$?; \
	wait $$others || ok=$$?; exit $$ok

# The two runs are side by side, for the same reason, and share what `make test` has compiled.
long: ## run every test with all its rounds, without the race detector, and those with it that `make test` runs without (40 minutes)
	@.ci/setup python3 venv curl cc git jq sqlite3 rg node js console agents chromium podman postgres tmux
	@$(LEAN); TOOLPOST_LONG=1 CGO_ENABLED=0 go test -trimpath -count=1 -timeout 10m -v ./internal/hogs
	@$(LEAN); packages=$$(go list ./... | grep -v /internal/hogs$$); packages=$$(grep -E '$(SLOW)' <<<"$$packages"; grep -vE '$(SLOW)' <<<"$$packages"); \
	run() { go test -vet=off -ldflags='-s -w' -trimpath -count=1 -timeout 60m -p "$$@" | grep --line-buffered -v '\[no test files\]$$'; }; ok=0; \
	TOOLPOST_LONG=1 CGO_ENABLED=0 run $$(($$(nproc) * 3 / 2)) $$packages & others=$$!; \
	run $$(nproc) $(RACE) $$(go list ./... | grep -vE '$(CONCURRENT)') || ok=$$?; \
	wait $$others || ok=$$?; exit $$ok

storm: ## let the storm of a SEED rage over a fleet for MINUTES (5), and draw its timeline in build/storm-SEED (as root)
	@[[ '$(SEED)' =~ ^[0-9]+$$ ]] || { echo "make storm: SEED='$(SEED)' is no number; the number says what breaks when, as in SEED=7" >&2; exit 2; }
	@.ci/setup python3 postgres
	@$(LEAN); TOOLPOST_STORM_SEED='$(SEED)' TOOLPOST_STORM_MINUTES='$(or $(MINUTES),5)' CGO_ENABLED=0 \
		go test -vet=off -ldflags='-s -w' -trimpath -count=1 -timeout 60m -v -run '^TestStorm$$' ./internal/stormfleet

servers: ## try MCP servers from npm directly and through the program, and write their table (minutes, hundreds of MB for a while)
	@.ci/setup node js
	go test -count=1 -timeout 60m -parallel 2 -v ./internal/mcpservers -run TestServers -update

bench: build ## measure against references of the same run (ONLY=PART: one part); fails where a target is missed
	@.ci/setup python3 rg bwrap $(if $(filter-out code%,$(firstword $(ONLY))),,node) \
		$(if $(filter-out console%,$(firstword $(ONLY))),,chromium) $(if $(filter-out postgres%,$(firstword $(ONLY))),,postgres)
	go build -o bin/bench ./bench && bin/bench -toolpost bin/toolpost -only '$(ONLY)' $(if $(GROWTH),-huge) \
		-json build/bench.json -pictures docs/pictures

compare: build ## measure by turns with an earlier tree (OLD=REVISION), row by row (ONLY=PART: of one part)
	@git rev-parse --verify --quiet '$(OLD)^{commit}' >/dev/null || { \
		echo "make compare: OLD='$(OLD)' is no revision; say which one to compare with, as in OLD=HEAD~1" >&2; exit 2; }
	@.ci/setup python3 rg bwrap
	@old=$$(mktemp -d); trap 'rm -rf "$$old"' EXIT; git archive '$(OLD)' | tar -x -C "$$old"; \
	(cd "$$old" && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o toolpost ./cmd/toolpost && go build -o measure ./bench); \
	go run ./bench -toolpost bin/toolpost -old "$$old/measure" -old-toolpost "$$old/toolpost" -only '$(ONLY)'

transcripts: build ## compare what the program says on the wire with an earlier tree (OLD=REVISION), over every door (minutes)
	@git rev-parse --verify --quiet '$(OLD)^{commit}' >/dev/null || { \
		echo "make transcripts: OLD='$(OLD)' is no revision; say which one to compare with, as in OLD=HEAD~1" >&2; exit 2; }
	@.ci/setup python3
	@old=$$(mktemp -d); trap 'rm -rf "$$old"' EXIT; git archive '$(OLD)' | tar -x -C "$$old"; \
	(cd "$$old" && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o toolpost ./cmd/toolpost); \
	internal/transcripts/transcripts.py "$$old/toolpost" bin/toolpost

embeddings: ## train the table of words for search by meaning anew, from public packages (Debian, as root; about 30 minutes the first time)
	@.ci/setup node
	go run ./bench/embeddings -train codesearch/meaning/table.bin

eval: ## measure search by meaning on packages that the table was not trained on
	@.ci/setup node
	go run ./bench/embeddings -eval

fuzz: ## run every fuzz target for FUZZTIME (30s)
	@grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort | while IFS=: read -r file target; do \
		target=$${target#func }; echo "== $$(dirname "$$file") $$target"; \
		go test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) "$$(dirname "$$file")" </dev/null; \
	done

lint: ## run the linter, installed into ./.tools where it is missing
	@lint='$(LINT)'; [ -x "$$lint" ] || { echo "installing golangci-lint $(LINT_VERSION) into .tools"; \
		GOBIN='$(CURDIR)/.tools' go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(LINT_VERSION); \
		mv .tools/golangci-lint "$$lint"; }; \
	"$$lint" run ./...
	@.ci/setup node console
	cd web/console/app && npm run --silent check
	@echo 'vet for macOS: the program as it is built there, without its tests'
	@export GOOS=darwin CGO_ENABLED=0; \
	go list -deps -f '{{with .Module}}{{if eq .Path "toolpost"}}{{$$.Dir}}{{"\t"}}{{join $$.GoFiles " "}}{{end}}{{end}}' ./cmd/toolpost \
		| sed '/^$$/d' | while IFS=$$'\t' read -r dir files; do (cd "$$dir" && go vet $$files); done

setup: ## install what tests, examples and benchmarks need (Debian packages, as root; npm)
	@.ci/setup python3 curl cc git jq sqlite3 node js console agents chromium podman postgres tmux rg bwrap

clean: ## remove what was built
	rm -rf bin build dist .tools
