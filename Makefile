# The two commands: `make run` shows a volume at work, `make test` runs everything that CI runs.

# Where the demonstration and the tests put their files.
WORK ?= $(CURDIR)/target/work
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),$(CURDIR)/target)
LOAMFS := $(TARGET)/release/loamfs
# What the tests of real mounts try: it is there after the unit tests, and sums that overflow and assertions that fail are met.
TRIED := $(TARGET)/debug/loamfs
# What hangs is ended, so that it is named.
PATIENCE := timeout --kill-after=60
# What `loamfs bench` starts, from beside it.
MEASURE := $(TARGET)/release/loamfs-bench
SCRIPTS := crates/cli/scripts
# Mounting as a block device takes root.
ROOT := $(if $(filter-out 0,$(shell id -u)),sudo,)
# A namespace begins with a copy of all mounts, and a copy keeps the daemons and the loop devices of what others unmount.
# So whoever mounts beside others does it in one of his own, which nobody copies.
OWN_MOUNTS := $(if $(ROOT),,unshare --mount)

# What "make fsx" is given: how much, and from which seed.
FSX ?= --ops 1000000

# How often "make replaced" kills a daemon.
REPLACED ?= 1000

# What "make claims" measures, and where: some 10 GiB on a file system with direct I/O.
CLAIMS ?=

# More arguments for "make bench" and "make bench-emulated".
BENCH ?=

.PHONY: help run stop test lint unit unit-first unit-second procedures smoke beside alone fsx brim stress replaced test-posix test-programs claims bench bench-emulated flames build debug setup man install deb test-deb clean

help:
	@echo "make run    build, make a volume in a file, mount it, unpack a source tree into it"
	@echo "make stop   unmount that volume"
	@echo "make test   format, lints, documentation, unit tests, and a volume in real use"
	@echo "make test-posix  the POSIX test suite pjdfstest on a mount, and on ext4 beside it (root)"
	@echo "make fsx    random work on a mount beside shadow copies, kills between (root); FSX=\"--seed 2 --seconds 600\""
	@echo "make brim   volumes filled until nothing fits and emptied, in memory, crashes between; BRIM=\"--seed 2 --seconds 600\""
	@echo "make test-programs  git, rsync, SQLite, PostgreSQL, Samba, NFS and others on a mount (root)"
	@echo "make replaced  daemons killed under load, 1,000 times: who uses the mount goes on (root); REPLACED=200"
	@echo "make stress 64 processes of mixed work for ten minutes, then a check (root)"
	@echo "make claims what the project promises, measured by the kernel's counters (root, 10 GiB, half an hour)"
	@echo "make bench  the papers' workloads beside ext2, ext4, XFS and btrfs, and a page of it (root, 5 GiB, ten minutes)"
	@echo "make bench-emulated  adds F2FS and NILFS2 in an emulated machine, with Debian's kernel unpacked, not installed (hours)"
	@echo "make flames where a daemon's time goes, drawn for each operation into docs/flames (root, perf)"
	@echo "make man    manual pages and completions, in target/man"
	@echo "make deb    a Debian package, in target/deb; make test-deb installs and removes it (root)"

setup:
	@sh $(SCRIPTS)/setup.sh

build: setup
	cargo build --release --package loamfs --package loamfs-bench

run: build
	@sh $(SCRIPTS)/demo.sh start $(WORK) $(LOAMFS)

stop:
	@sh $(SCRIPTS)/demo.sh stop $(WORK) $(LOAMFS)

test: lint debug
	@sh $(SCRIPTS)/tree.sh $(WORK)/tree
	$(MAKE) --jobs=4 --output-sync=target unit procedures test-posix beside
	$(MAKE) alone

lint: setup
	@# What documents name and cite is there, and their sentences are short.
	python3 docs/check.py --test
	python3 docs/check.py
	@# The law of commit and recovery, as a model: a slice of it.
	python3 docs/model/law.py --quick
	@# What the programs are linked from: sources, checksums, licences.
	python3 crates/cli/scripts/dependencies.py --test
	python3 crates/cli/scripts/dependencies.py check
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items
	@# Only tests hand volumes another law, and only they know which clauses can be left out.
	! cargo tree --edges features --package loamfs --package loamfs-bench | grep 'feature "overrule"'
	! grep -rniE "mutant" $(filter-out crates/testing,$(wildcard crates/*)) --include=*.rs --include=*.toml
	@# What mounts volumes takes nothing along that measures them.
	! cargo tree --edges normal --package loamfs | grep loamfs-bench

# Two halves, one beside the other: most programs end with one long test, while a processor has nothing to do. Both ask for all
# packages: with others, features would differ, and all would be built once more.
unit: unit-first unit-second

unit-first: setup
	$(PATIENCE) 3000 $(OWN_MOUNTS) cargo test --workspace --lib --bins --test '[a-d]*'
	$(PATIENCE) 3000 cargo test --workspace --doc

unit-second: setup
	$(PATIENCE) 3000 $(OWN_MOUNTS) cargo test --workspace --test '[!a-d]*'

# Wrong procedures, in one build more: the tests must notice.
procedures: setup
	$(PATIENCE) 3000 sh crates/testing/procedures/run.sh $(TARGET)

# Real mounts: each script says at its head what it tries. These leave the machine as it is and wait for disks more than
# they work, so that three at once, or two beside the unit tests, end sooner. The longest come first. `fsx` is random work
# on files, with kills between.
BESIDE := brim lfs-brim cleaning lfs-cleaning replaced devices mount tools failing hot salvage fsx copies idle degraded place others rot reserve scrub places \
    oracle log columns unmounted available confined tiers watch owners direct noxattr atime alike readme promise deep \
    privileges completion lfs-fsx
# What these switch holds for the whole machine, meanwhile.
ALONE := transport through-mount through-oracle bench

# What a script takes behind the program.
smoke-mount smoke-through-mount: ARGUMENTS = $(WORK)/tree
smoke-fsx smoke-lfs-fsx: ARGUMENTS = $(TARGET)/debug/fsx --ops 100000 --seconds 30

smoke: debug
	@sh $(SCRIPTS)/tree.sh $(WORK)/tree
	$(MAKE) --jobs=3 --output-sync=target beside
	$(MAKE) alone

beside: $(BESIDE:%=smoke-%)

alone:
	$(MAKE) --jobs=1 $(ALONE:%=smoke-%)

smoke-%: setup
	$(ROOT) $(PATIENCE) 900 unshare --mount bash crates/cli/tests/$*.sh $(TRIED) $(ARGUMENTS)

smoke-lfs-%: setup
	$(ROOT) $(PATIENCE) 900 unshare --mount bash crates/cli/tests/through.sh lfs $(TRIED) crates/cli/tests/$*.sh $(ARGUMENTS)

smoke-through-%: setup
	$(ROOT) $(PATIENCE) 900 unshare --mount bash crates/cli/tests/through.sh uring $(TRIED) crates/cli/tests/$*.sh $(ARGUMENTS)

# With all tests: after `make unit` nothing is left to build, where a release of what tests take would be minutes.
debug: setup
	cargo build --workspace --all-targets

fsx: build debug
	$(ROOT) bash crates/cli/tests/fsx.sh $(LOAMFS) $(TARGET)/debug/fsx $(FSX)

# Volumes filled until ENOSPC and emptied in every order, with crashes between; for example: make brim BRIM="--seconds 3600"
brim: setup
	cargo run --release --package loamfs-testing --bin brim -- $(BRIM)

# The suite comes from the Rust registry and stays in the target directory.
test-posix: debug
	$(ROOT) env "PATH=$(PATH)" $(PATIENCE) 3000 unshare --mount bash crates/cli/tests/posix.sh $(TRIED) $(TARGET)/pjdfstest $(POSIX)

# For example: make test-programs PROGRAMS="git sqlite"
test-programs: build
	$(ROOT) env "PATH=$(PATH)" bash crates/cli/tests/programs.sh $(LOAMFS) $(PROGRAMS)

# Ten minutes with 64 processes; for example: make stress STRESS="60 16"
stress: build
	$(ROOT) bash crates/cli/tests/stress.sh $(LOAMFS) $(STRESS)

# Daemons killed under load, a third each of block devices, plain mounts and dirsync; for example: make replaced REPLACED=200
replaced: build
	$(ROOT) bash crates/cli/tests/replaced.sh $(LOAMFS) $(REPLACED)

# For example: make claims CLAIMS="--only create --only fsync"
claims: build
	mkdir -p $(WORK)/claims
	$(ROOT) $(LOAMFS) bench claims --work $(WORK)/claims $(CLAIMS)

# For example: make bench BENCH="--scale paper"
bench: build
	@sh $(SCRIPTS)/setup.sh bench
	mkdir -p $(WORK)/bench
	$(ROOT) $(LOAMFS) bench run --out $(WORK)/bench/results.json $(BENCH)
	$(LOAMFS) bench report $(WORK)/bench/results.json --html $(WORK)/bench/report.html

# For example: make bench-emulated BENCH="--only postmark --fs f2fs"
bench-emulated: build
	@sh $(SCRIPTS)/setup.sh emulate
	@sh crates/bench/scripts/kernel.sh $(WORK)/kernel
	mkdir -p $(WORK)/bench
	$(ROOT) $(LOAMFS) bench emulate --kernel $(WORK)/kernel --out $(WORK)/bench/results.json $(BENCH)
	$(LOAMFS) bench report $(WORK)/bench/results.json --html $(WORK)/bench/report.html

# Frames are kept in a build of its own, so that what is measured elsewhere is what is installed.
flames: setup
	@command -v perf >/dev/null || { echo "perf is missing: install linux-perf" >&2; exit 1; }
	RUSTFLAGS="-C force-frame-pointers=yes" cargo build --release --target-dir $(TARGET)/flames --package loamfs
	cargo install --quiet --locked --root $(TARGET)/tools inferno
	$(ROOT) env "PATH=$(TARGET)/tools/bin:$(PATH)" python3 crates/bench/scripts/flames.py $(TARGET)/flames/release/loamfs docs/flames

man: build
	$(LOAMFS) generate-man $(TARGET)/man
	@# Its page takes the place of the one that only says that there is such a program.
	$(MEASURE) generate-man $(TARGET)/man
	for shell in bash fish zsh; do \
	    for name in loamfs mkfs.loamfs fsck.loamfs mount.loamfs; do \
	        $(LOAMFS) completions $$shell $$name >$(TARGET)/man/$$name.$$shell || exit 1; \
	    done; \
	done

# mount(8) and fsck(8) look for their helpers below /usr only; the names with "fuse" are for changing a mount.
PREFIX ?= /usr
HELPERS := mkfs.loamfs fsck.loamfs mount.loamfs mount.fuse.loamfs mount.fuseblk.loamfs

install: man
	install -D -m 755 $(LOAMFS) $(DESTDIR)$(PREFIX)/bin/loamfs
	install -D -m 755 $(MEASURE) $(DESTDIR)$(PREFIX)/libexec/loamfs-bench
	install -d $(DESTDIR)$(PREFIX)/sbin
	for name in $(HELPERS); do ln -sf ../bin/loamfs $(DESTDIR)$(PREFIX)/sbin/$$name || exit 1; done
	@# Where earlier versions were: scripts and rules may name it. On some systems sbin is bin.
	[ $(DESTDIR)$(PREFIX)/sbin -ef $(DESTDIR)$(PREFIX)/bin ] || ln -sf ../bin/loamfs $(DESTDIR)$(PREFIX)/sbin/loamfs
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(TARGET)/man/*.1
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man8 $(TARGET)/man/*.8
	for name in loamfs mkfs.loamfs fsck.loamfs mount.loamfs; do \
	    install -D -m 644 $(TARGET)/man/$$name.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$name && \
	    install -D -m 644 $(TARGET)/man/$$name.zsh $(DESTDIR)$(PREFIX)/share/zsh/vendor-completions/_$$name && \
	    install -D -m 644 $(TARGET)/man/$$name.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$name.fish || exit 1; \
	done
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/udev/rules.d crates/cli/data/61-loamfs.rules
	install -D -m 644 crates/cli/data/loamfs.magic $(DESTDIR)$(PREFIX)/share/loamfs/magic

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

deb: man
	sh $(SCRIPTS)/deb.sh $(TARGET)/deb $(VERSION)

test-deb: deb
	$(ROOT) bash crates/cli/tests/package.sh $(TARGET)/deb/loamfs_$(VERSION)_$$(dpkg --print-architecture).deb

clean: stop
	cargo clean
