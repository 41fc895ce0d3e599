# make demo     see lariat at work on scripted agents: no key, no config
# make test     everything that must hold
# make torture  what must never happen, tried by the thousand (TORTURE="--rows 1,2 --count N --seed N", KILLS, MINUTES)
# make bench    ratios against the limits of this machine
# make install  put lariat into ~/.cargo/bin, and what `lariat demo` needs
# make web      build the web page, which the other builds embed
# make check    formatting and lints only

CARGO ?= cargo
TESTS := --workspace --features lariat/pause-points
BUILT := $(or $(CARGO_TARGET_DIR),target)

.PHONY: demo test torture bench install check web page agents clients tools rust record clean

demo: rust tools page
	@echo "building lariat (once, about a minute) ..."
	@$(CARGO) build --release -q -p lariat -p lariat-testkit
	@$(BUILT)/release/lariat demo

# Most tests wait more than they work: one more at once than there are cores.
test: export RUST_TEST_THREADS ?= $(shell expr $$(nproc) + 1)
# The page first, which is compiled in; then the lints, while what is installed comes over the net.
test: web
	@$(MAKE) --no-print-directory -j check agents tools clients
	@scripts/need chromium=chromium
	$(CARGO) build $(TESTS) --bins
	$(CARGO) test $(TESTS)

check: rust
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(TESTS) --all-targets -- -D warnings

torture: rust tools agents clients
	$(CARGO) build $(TESTS) --bins
	LARIAT_SWAPS=$(or $(SWAPS),10000) $(CARGO) test -q -p lariat-sys --lib swaps_that_race
	LARIAT_KILLS=$(or $(KILLS),1000) $(CARGO) test -p lariat --features pause-points \
		--test scenarios -- --nocapture delivering::killed_under_load
	LARIAT_MINUTES=$(or $(MINUTES),10) $(CARGO) test -p lariat --features pause-points \
		--test scenarios -- --nocapture subscribers::two_hundred
	LARIAT_EXAMPLES=$(or $(EXAMPLES),200) $(CARGO) test -p lariat --features pause-points \
		--test scenarios -- --nocapture clients::a_fuzzer
	LARIAT_SESSIONS=$(or $(SESSIONS),400) $(CARGO) test -p lariat --features pause-points --test contract -- s04_s05_s06
	$(BUILT)/debug/lariat-torture $(TORTURE)

bench: rust tools web
	@scripts/need tmux=tmux dtach=dtach chromium=chromium
	$(CARGO) build --release -p lariat
	$(CARGO) run --release -q -p lariat-bench -- all

install: rust page
	$(CARGO) install --locked --path crates/cli
	$(CARGO) install --locked --path crates/testkit $(addprefix --bin lariat-,demo actor world)

# The page, which the daemon embeds: `web` wants it, `page` takes it where this machine can build it.
PAGE := $(shell find web/src -type f) $(wildcard web/*.json web/*.ts web/*.js web/index.html)
web: web/dist/.built
web/dist/.built: $(PAGE)
	scripts/page
page:
	@$(MAKE) --no-print-directory -q web || scripts/page --if-possible

# The real agents at exact versions, by the lock file: the contract tests drive them. (`npm ci` would refuse
# where a registry lacks packages for other systems, which these name as optional.)
agents: agents/node_modules/.installed agents/openclaw/node_modules/.installed
agents/node_modules/.installed: agents/package-lock.json
	@scripts/need node=nodejs npm=npm
	@# Some run once as they are installed, and would settle in this user's home.
	cd agents && own=$$(mktemp -d) && XDG_CACHE_HOME=$$own XDG_CONFIG_HOME=$$own XDG_DATA_HOME=$$own XDG_STATE_HOME=$$own \
		npm install --no-save --no-audit --no-fund --loglevel=error && rm -r $$own
	@touch $@

# OpenClaw apart: it brings the Node that it needs, and its scripts, which the gateway
# does without, refuse any other.
agents/openclaw/node_modules/.installed: agents/openclaw/package-lock.json
	@scripts/need node=nodejs npm=npm
	cd agents/openclaw && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@# Its first start finishes the installation, and two at once would be in each other's way.
	cd agents/openclaw && own=$$(mktemp -d) && HOME=$$own TMPDIR=$$own \
		node_modules/node-linux-*/bin/node node_modules/openclaw/openclaw.mjs --version && rm -r $$own
	@touch $@

# Programs of others that the tests let loose on lariat, at exact versions, below target/.
clients: $(BUILT)/clients/.installed
$(BUILT)/clients/.installed: crates/cli/tests/clients/requirements.txt
	@scripts/need python3=python3-venv curl=curl
	python3 -m venv $(BUILT)/clients
	$(BUILT)/clients/bin/pip install -q --disable-pip-version-check --require-hashes --only-binary :all: --no-deps -r $<
	@touch $@

# What the tests and benchmarks run besides.
tools:
	@scripts/need git=git unshare=util-linux mount=mount setpriv=util-linux strace=strace git-lfs=git-lfs tmux=tmux cc=gcc \
		systemctl=systemd ssh=openssh-client /usr/sbin/sshd=openssh-server

rust:
	@command -v $(CARGO) >/dev/null 2>&1 || { echo "lariat needs Rust (rustup or Debian's cargo, 1.90 or later)" >&2; exit 1; }
	@scripts/need cc=gcc

# Records the stores of the real agents anew into fixtures/.
record: agents tools
	$(CARGO) build $(TESTS) --bins
	LARIAT_RECORD=$(CURDIR)/fixtures $(CARGO) test -p lariat --features pause-points --test contract

clean:
	$(CARGO) clean
	rm -rf agents/node_modules agents/openclaw/node_modules web/node_modules web/dist
