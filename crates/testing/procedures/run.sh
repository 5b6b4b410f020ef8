#!/bin/sh
# Some clauses cannot be left out by another decision or a lying device: without them a whole procedure is another one.
# This builds a copy of the file system once more with these wrong procedures patched in, and runs the tests that must
# notice. Usage: run.sh TARGET-DIRECTORY
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
copy=$1/procedures
mkdir -p "$copy"
rm -rf "$copy/crates"
# With their times, so that only what is patched is built anew.
cp -pR "$root/Cargo.toml" "$root/Cargo.lock" "$root/crates" "$copy"
cd "$copy"
if ! patch --quiet --strip 1 <"$here/procedures.patch"; then
    echo "$here/procedures.patch does not fit the sources any more: bring it up to date" >&2
    exit 1
fi
cp -p "$here/wrong.rs" crates/fs/src/writeback/wrong.rs
# Cargo would take what is built here for what the sources themselves give, if both went to one place. What runs takes no second:
# what counts is how long it is built.
CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_TARGET_DIR=$copy/target cargo test --package loamfs-testing --test mutants -- --ignored
