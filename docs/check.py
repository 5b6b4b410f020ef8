#!/usr/bin/env python3
"""Checks that the documents are true where a program can tell, that their sentences are short, and that types hide their state.

    python3 docs/check.py          names every fault; exit code 1 if there is one
    python3 docs/check.py --test   plants a fault of each kind, and demands that it is found

What is checked:

- what a document names in the code is there: `crate::file::function`, `Type::member`, `type.field`, `a_name`, files in
  tables,
- ARCHITECTURE.md names all files and folders of the largest crate,
- files and make targets that a document names exist, and so do the mutants in tables,
- rules, headings and mechanisms of the papers that code or documents cite exist; sections are not cited by number,
- bytes that a document shows of a golden volume are that volume's,
- the median sentence of each document has at most 18 words,
- a type of the crates hides its fields, or is a record that shows all of them and lets nobody change it
  through methods (DESIGN.md, "State, and who may see it").
"""

import gzip
import re
import statistics
import sys
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS_MAX = 18
# The crate that a path without a crate belongs to, and its module whose name stands for all files below it.
CRATE, WHOLE = "fs", "volume"
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md")
# For users: names in them are of the kernel and of other programs as well.
FOR_USERS = ("README.md", "SECURITY.md")
SOURCES = ("crates/**/*.rs", "crates/**/*.sh", "crates/**/*.py", "Makefile", "docs/model/*.py")

# The type that shows its fields and hides nothing behind them: DESIGN.md says why. The tests' own crate is left alone.
SHOWN = {("fs", "Core")}
TESTING = "testing"
STRUCT = re.compile(r"^(?:pub(?:\([\w: ]+\))? )?struct (\w+)[^;{(]*\{\n(.*?)^\}", re.M | re.S)
MEMBER = re.compile(r"^    (pub(?:\([\w: ]+\))? )?(\w+):", re.M)
CHANGES = re.compile(r"^    pub(?:\([\w: ]+\))? (?:const )?fn (\w+)(?:<[^(]*>)?\(\s*&(?:'\w+ )?mut self", re.M)

TICKED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[A-Za-z_]\w*(?:::[A-Za-z_]\w*)+")
FIELD = re.compile(r"([a-z]+)\.([a-z]\w*)")
NAME = re.compile(r"[a-z]\w*_\w+|[A-Z][a-z]+(?:[A-Z][a-z]*)+")
FILE = re.compile(r"\.{0,2}[\w-]+(?:[./][\w-]+)*(?:/|\.(?:rs|md|py|sh|toml|html))")


def read_tree():
    """All documents and sources: path -> text."""
    files = {file for pattern in DOCUMENTS + SOURCES for file in ROOT.glob(pattern)}
    return {str(file.relative_to(ROOT)): file.read_text() for file in sorted(files)}


class Code:
    """The modules of all crates, and what they define."""

    def __init__(self, tree):
        self.all = "\n".join(text for path, text in tree.items() if not path.endswith(".md"))
        self.words = set(re.findall(r"\w+", self.all))
        self.modules = {}
        for path, text in tree.items():
            found = re.fullmatch(r"crates/([\w-]+)/src/(.+)\.rs", path)
            if found:
                parts = [part for part in found[2].split("/") if part not in ("lib", "mod", "bin")]
                self.modules[(found[1], *parts)] = text
        self.crates = {module[0] for module in self.modules}

    @lru_cache(maxsize=None)
    def has(self, path):
        """Whether there is such a module, item of a module, or member of a type."""
        parts = tuple(path.split("::"))
        starts = [start for start in (parts, (CRATE, *parts)) if start[0] in self.crates]
        types = [(crate, *parts) for crate in self.crates if len(parts) == 2 and parts[0][0].isupper()]
        return any(map(self.has_in, starts + types))

    def has_in(self, parts):
        length = max(n for n in range(1, len(parts) + 1) if n == 1 or self.below(parts[:n]))
        module, rest = parts[:length], parts[length:]
        if len(rest) == 2:
            return self.has_member(self.below(module), *rest)
        texts = self.below(module) if module[-1] == WHOLE else [self.modules.get(module, "")]
        return not rest or (len(rest) == 1 and any(defines(text, rest[0]) for text in texts))

    def has_member(self, texts, kind, name):
        """A type in one of these modules, and in it, or where it is implemented, the member."""
        mine = [text for text in texts if re.search(rf"\b(?:struct|enum|trait|type) {kind}\b", text)]
        uses = rf"^[^\n]*\b(?:impl|struct|enum|trait|type)\b[^{{\n]*\b{kind}\b.*?^\}}"
        return bool(mine) and any(
            defines(block, name) for text in texts for block in re.findall(uses, text, re.M | re.S)
        )

    def has_file(self, crate, name):
        """A module of the crate whose path ends so."""
        ending = tuple(name.strip("/").split("/"))
        mine = [module for module in self.modules if module[0] == crate]
        return any(ending == module[n : n + len(ending)] for module in mine for n in range(1, len(module)))

    def below(self, module):
        return [text for other, text in self.modules.items() if other[: len(module)] == module]


def defines(text, name):
    """An item, a field or a variant."""
    item = rf"\b(?:fn|struct|enum|trait|type|const|static|mod|macro_rules!) {name}\b"
    member = rf"^\s+(?:pub(?:\([\w ]+\))? )?{name}(?::|,$|\(| \{{$)"
    return re.search(f"{item}|{member}", text, re.M) is not None


class World:
    """What may be cited."""

    def __init__(self, tree):
        documents = {path: text for path, text in tree.items() if is_document(path)}
        self.code = Code(tree)
        self.targets = set(re.findall(r"^([\w-]+):", tree["Makefile"], re.M))
        self.headings = {path.rsplit("/", 1)[-1]: headings(text) for path, text in documents.items()}
        self.rules = {n for heading in self.headings["DESIGN.md"] for n in re.findall(r"^Rule (\d+):", heading)}
        rows = re.findall(r"^\| ([HLSYZ])(\d+)(?:-\1(\d+))? \|", tree["docs/ARCHITECTURE.md"], re.M)
        self.mechanisms = {f"{paper}{n}" for paper, a, b in rows for n in range(int(a), int(b or a) + 1)}


def is_document(path):
    return path.endswith(".md")


def without_code(text):
    """A document whose fenced blocks are empty lines."""
    inside, lines = False, []
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        lines.append("" if inside or fence else line)
        inside ^= fence
    return "\n".join(lines)


def headings(text):
    return [line.lstrip("#").strip() for line in without_code(text).split("\n") if line.startswith("#")]


def anchor(heading):
    """The name by which a link leads to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def names(world, path, text):
    """What a document names in backticks."""
    for target in re.findall(r"(?:^|`)make ([a-z][\w-]*)", text, re.M):
        if target not in world.targets:
            yield f"no target of make: {target}"
    column = None
    for line in without_code(text).split("\n"):
        cells = [cell.strip().strip("`") for cell in line.split("|")]
        column = None if not line.startswith("|") else column or cells[1:3]
        if column == ["rule", "mutants"]:
            for name in re.findall(r"[a-z]+(?:-[a-z]+)+", TICKED.sub("", line)):
                if f'"{name}"' not in world.code.all:
                    yield f"no such mutant: {name}"
        crate, files = None, line
        if column and column[0] == "crate":
            crate, files = cells[1], line.rsplit("|", 2)[1]
        elif column and column[0] == "file":
            crate = CRATE
        for word in TICKED.findall(files):
            yield from named(world, path, crate, word.removesuffix("()"))


def missing(world, path, text):
    """Files and folders of the largest crate that the table of its files leaves out."""
    if path == "docs/ARCHITECTURE.md":
        rows = "\n".join(line for line in text.split("\n") if line.startswith("|"))
        told = {word.split("/")[0] for word in TICKED.findall(rows)}
        for name in sorted({module[1] for module in world.code.modules if module[0] == CRATE and len(module) > 1}):
            if name not in told:
                yield f"not in the table of files: {name}"


def named(world, path, crate, word):
    code, field = world.code, FIELD.fullmatch(word)
    if PATH.fullmatch(word):
        if not code.has(word):
            yield f"not in the code: {word}"
    elif crate in code.crates and re.fullmatch(r"[a-z_/]+", word):
        if not code.has_file(crate, word):
            yield f"not a file of {crate}: {word}"
    elif NAME.fullmatch(word):
        if word not in code.words and path not in FOR_USERS:
            yield f"not in the code: {word}"
    elif field and f"struct {field[1].capitalize()} " in code.all and path not in FOR_USERS:
        if not code.has(f"{field[1].capitalize()}::{field[2]}"):
            yield f"not in the code: {word}"
    elif FILE.fullmatch(word) and not word.startswith("target/"):
        if not any((place / word).exists() for place in (ROOT, (ROOT / path).parent)):
            yield f"no such file: {word}"


def citations(world, path, text):
    """Rules, headings and mechanisms of the papers."""
    # A sentence may go on in the next line of a comment.
    flat = re.sub(r"\s*\n\s*(?://[/!]?|#+)?\s*", " ", text)
    for found in re.finditer(r"\b[Rr]ules? (\d+(?:(?:,| and| to|, and) \d+)*)", flat):
        for number in re.findall(r"\d+", found[1]):
            if number not in world.rules:
                yield f"no such rule: {number}"
    for found in re.finditer(r"\b[Ss]ections? \d", flat):
        around = flat[max(0, found.start() - 60) : found.end() + 40]
        if not re.search(r"paper|hFS|LFS\b", around):
            yield f"cite the heading, not the number of the section: {around[40:]}"
    for document, heading in re.findall(r"\b([A-Z]+\.md)`?,? (?:in |under )?\"([A-Z][^\"]+)\"", flat):
        known = world.headings.get(document, [])
        if not any(other == heading or other.startswith(heading + ",") for other in known):
            yield f"no such heading in {document}: {heading}"
    comments = text if is_document(path) else "\n".join(re.findall(r"//.*$", text, re.M))
    # The explorer's tests number segments S1, S2.
    papers = "HLZ" if f"/{TESTING}/" in path else "HLSYZ"
    for found in re.findall(rf"\b[{papers}]\d{{1,2}}\b", comments):
        if found not in world.mechanisms:
            yield f"no such mechanism: {found}"


def links(world, path, text):
    """Links to files and headings."""
    for target, at in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", text):
        if not (ROOT / path).parent.joinpath(target).exists():
            yield f"no such file: {target}"
        there = world.headings.get((target or path).rsplit("/", 1)[-1], [])
        if at and at not in map(anchor, there):
            yield f"no such heading: {target}#{at}"


@lru_cache(maxsize=None)
def volume(name):
    """The bytes of a golden volume."""
    kept = ROOT / f"crates/testing/golden/{name}.img.gz"
    return gzip.decompress(kept.read_bytes()) if kept.exists() else b""


def golden_bytes(_world, _path, text):
    """Blocks that begin with ```hex NAME: an offset and bytes a line, of the golden volume NAME."""
    for name, block in re.findall(r"^```hex (\w+)\n(.*?)^```", text, re.M | re.S):
        for line in block.splitlines():
            found = re.match(r"([0-9a-f]+):((?: [0-9a-f]{2})+)", line)
            shown = bytes.fromhex(found[2]) if found else b""
            at = int(found[1], 16) if found else 0
            if not shown or volume(name)[at : at + len(shown)] != shown:
                yield f"not what the volume {name} has: {line}"


def sentences(text):
    """The words of each sentence in a document's paragraphs and list items, without tables and code."""
    paragraphs, lines = [], []
    for line in without_code(text).split("\n") + [""]:
        line = line.strip()
        item = re.match(r"(?:[-*]|\d+\.) ", line)
        if not line or line.startswith(("|", "#")) or item:
            paragraphs.append(" ".join(lines))
            lines = []
        if line and not line.startswith(("|", "#")):
            lines.append(line[item.end() :] if item else line)
    for paragraph in paragraphs:
        # What is in backticks is a word, whatever is in it.
        plain = TICKED.sub(lambda word: re.sub(r"[.?! ]", "_", word[0]), paragraph)
        for sentence in re.split(r"(?<=[.?!])[\"*)]*\s+(?=[\"*(`\[]*[A-Z0-9`])", plain):
            words = re.findall(r"\S*\w\S*", sentence)
            if words:
                yield words


def lengths(_world, _path, text):
    counts = [len(words) for words in sentences(text)]
    median = statistics.median(counts) if counts else 0
    if median > WORDS_MAX:
        yield f"the median sentence has {median:g} words, more than {WORDS_MAX}"


def state(world, path, text):
    """Types that show fields, although they hide others or can be changed through methods."""
    crate = re.match(r"crates/([\w-]+)/src/(?!.*test)", path)
    if not crate or crate[1] == TESTING:
        return
    for name, body in STRUCT.findall(without_tests(text)):
        fields = MEMBER.findall(body)
        shown = {field for seen, field in fields if seen}
        if not shown or (crate[1], name) in SHOWN:
            continue
        if any(not seen for seen, _ in fields):
            yield f"{name} shows {', '.join(sorted(shown))} and hides other fields"
        for change in changes(world, crate[1], name, text):
            yield f"{name} shows its fields, and {change} changes them"


def without_tests(text):
    return re.split(r"\n#\[cfg\(test\)\]\nmod \w+ \{", text)[0]


def changes(world, crate, name, text):
    """The methods that others may call and that change a type, in this text or elsewhere in its crate."""
    found = set()
    for other in [text, *world.code.below((crate,))]:
        for impl in re.findall(rf"^impl(?:<[^\n{{]*?>)? {name}\b[^\n{{]*\{{\n(.*?)^\}}", without_tests(other), re.M | re.S):
            found.update(CHANGES.findall(impl))
    return sorted(found)


def faults(world, path, text):
    checks = (names, missing, citations, links, golden_bytes, lengths) if is_document(path) else (citations, state)
    return [f"{path}: {fault}" for check in checks for fault in check(world, path, text)]


LONG = "This is a sentence that goes on and on for no other reason than that somebody has to count all of its words.\n"
# What is appended where, or with a minus taken away, and what is then found.
PLANTED = [
    ("docs/ARCHITECTURE.md", "`commit::no_such_function`", "not in the code: commit::no_such_function"),
    ("docs/ARCHITECTURE.md", "`space::no_such_file::place`", "not in the code: space::no_such_file::place"),
    ("docs/DESIGN.md", "`Writeback::no_such_field`", "not in the code: Writeback::no_such_field"),
    ("docs/DESIGN.md", "`core.no_such_field`", "not in the code: core.no_such_field"),
    ("docs/FORMAT.md", "`never_a_name`", "not in the code: never_a_name"),
    ("docs/DESIGN.md", "\n| rule | mutants |\n|---|---|\n| 1 | no-such-mutant |", "no such mutant: no-such-mutant"),
    ("docs/ARCHITECTURE.md", "\n| crate | files |\n|---|---|\n| `log` | `nothing` |", "not a file of log: nothing"),
    ("docs/ARCHITECTURE.md", "-`leftovers`", "not in the table of files: leftovers"),
    ("README.md", "`crates/no_such_file.rs`", "no such file: crates/no_such_file.rs"),
    ("README.md", "`make nothing`", "no target of make: nothing"),
    ("crates/fs/src/lib.rs", "// By rules 1 and 99.", "no such rule: 99"),
    ("crates/fs/src/lib.rs", "// DESIGN.md section 7 says so.", "cite the heading, not the number of the section"),
    ("crates/fs/src/lib.rs", '// See FORMAT.md, "No such\n// heading".', "no such heading in FORMAT.md: No such"),
    ("crates/fs/src/lib.rs", "// H99 asks for it.", "no such mechanism: H99"),
    ("docs/FORMAT.md", "[there](#no-such-heading)", "no such heading: #no-such-heading"),
    ("docs/FORMAT.md", "\n```hex sound\n00010000: 00\n```\n", "not what the volume sound has: 00010000: 00"),
    ("crates/fs/src/lib.rs", "pub struct Half {\n    pub a: u8,\n    b: u8,\n}", "Half shows a and hides other fields"),
    (
        "crates/fs/src/lib.rs",
        "pub struct Open {\n    pub a: u8,\n}\n\nimpl Open {\n    pub fn set(&mut self) {}\n}",
        "Open shows its fields, and set changes them",
    ),
    ("SECURITY.md", "\n" + 1000 * LONG, "the median sentence has"),
]


def test():
    """Every planted fault is found, and nothing besides."""
    tree = read_tree()
    world = World(tree)
    for path, planted, expected in PLANTED:
        text = tree[path]
        changed = text.replace(planted[1:], "") if planted[0] == "-" else f"{text}\n{planted}\n"
        before = faults(world, path, text)
        found = [fault for fault in faults(world, path, changed) if fault not in before]
        if len(found) != 1 or not found[0].startswith(f"{path}: {expected}"):
            sys.exit(f"check.py: planted {planted[:80]!r} in {path}, found {found}")


def main():
    if sys.argv[1:] == ["--test"]:
        return test()
    tree = read_tree()
    world = World(tree)
    found = [fault for path, text in tree.items() for fault in faults(world, path, text)]
    for fault in found:
        print(fault, file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
