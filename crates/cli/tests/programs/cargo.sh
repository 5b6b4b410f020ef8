# needs: cargo:cargo
# Build and test of a crate, everything on the mount.
git -C "$repository" archive HEAD 2>/dev/null | tar -xf - || cp -r "$repository/Cargo.toml" "$repository/Cargo.lock" "$repository/crates" .
CARGO_TARGET_DIR=$here/target CARGO_PROFILE_DEV_DEBUG=0 cargo test --package loamfs-space --lib
CARGO_TARGET_DIR=$here/target CARGO_PROFILE_DEV_DEBUG=0 cargo test --package loamfs-space --lib 2>&1 | tee again
! grep -q Compiling again || fail "a second build compiled again: times are wrong"
