# needs: git:git
# Clone, commits, worktree, gc and fsck, before and after a crash.
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q origin
cp -r "$repository/crates" "$repository/docs" origin/
git -C origin add -A
git -C origin commit -qm first
git clone -q --no-hardlinks origin clone
cd clone
for i in $(seq 50); do
    echo "$i" >>docs/counter
    git add -A
    git commit -qm "$i"
done
git worktree add -q ../tree HEAD~20
git gc -q --aggressive --prune=now
git -c core.fsync=all commit -q --allow-empty -m durable
head=$(git rev-parse HEAD)
sync
cd /
crash
cd "$here/clone"
[ "$(git rev-parse HEAD)" = "$head" ] || fail "the last commit was lost"
git fsck --full --strict
[ -z "$(git status --porcelain)" ] || fail "the tree differs from the commit"
[ -z "$(git -C ../tree status --porcelain)" ] || fail "the worktree differs from its commit"
[ "$(git rev-list --count HEAD)" = 52 ] || fail "commits are missing"
