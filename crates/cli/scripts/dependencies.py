#!/usr/bin/env python3
"""What the programs are made of on this kind of machine, from Cargo's own records.

    python3 dependencies.py check       every crate comes from crates.io, by a checksum, under a licence that may be used
    python3 dependencies.py sbom        prints a bill of materials (CycloneDX 1.5, JSON) of what goes into the programs
    python3 dependencies.py --test      plants a fault of each kind, and demands that it is found
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("loamfs", "loamfs-bench")
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
# Those under which what is linked may be given on under MIT or Apache-2.0.
LICENCES = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC",
    "MIT", "MIT-0", "Unicode-3.0", "Unlicense", "Zlib",
}  # fmt: skip


def metadata():
    told = subprocess.run(["rustc", "-vV"], stdout=subprocess.PIPE, check=True, text=True).stdout
    host = re.search(r"^host: (.*)$", told, re.M)[1]
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return json.loads(ran.stdout)


def checksums(lock):
    """Of what Cargo.lock names: (name, version) -> checksum."""
    found = re.findall(r'name = "(.*)"\nversion = "(.*)"\nsource = ".*"\nchecksum = "(\w+)"', lock)
    return {(name, version): checksum for name, version, checksum in found}


def is_free(expression):
    """Whether an SPDX expression leaves a choice that may be used. `/` is an old way to write OR."""
    choice = re.sub(r"\s*/\s*", " OR ", expression or "")
    while match := re.search(r"\(([^()]*)\)", choice):
        choice = choice.replace(match[0], "MIT" if is_free(match[1]) else "refused", 1)
    either = [part.split(" AND ") for part in choice.split(" OR ")]
    return any(all(licence.strip() in LICENCES for licence in part) for part in either)


def faults(packages, sums):
    for package in packages:
        name, source = f"{package['name']} {package['version']}", package["source"]
        if source is None:
            continue
        if source != CRATES_IO:
            yield f"{name} is from {source}, not from crates.io"
        elif (package["name"], package["version"]) not in sums:
            yield f"{name} has no checksum in Cargo.lock"
        if not is_free(package["license"]):
            yield f"{name} is under {package['license'] or 'no licence that it names'}"


def linked(data):
    """What goes into the programs: no crates of build scripts, tests and macros."""
    names = {package["id"]: package["name"] for package in data["packages"]}
    macros = {
        package["id"]
        for package in data["packages"]
        if any("proc-macro" in target["kind"] for target in package["targets"])
    }
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    todo = [own for own in data["workspace_members"] if names[own] in PROGRAMS]
    found = {}
    while todo:
        one = todo.pop()
        if one not in found:
            is_normal = lambda dep: dep["pkg"] not in macros and any(kind["kind"] is None for kind in dep["dep_kinds"])
            found[one] = sorted(dep["pkg"] for dep in nodes[one]["deps"] if is_normal(dep))
            todo += found[one]
    return found


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def sbom(data, sums):
    packages = {package["id"]: package for package in data["packages"]}
    needs = linked(data)
    components = []
    for package in sorted((packages[one] for one in needs), key=lambda p: (p["name"], p["version"])):
        component = {
            "type": "application" if package["name"] in PROGRAMS else "library",
            "bom-ref": purl(package),
            "name": package["name"],
            "version": package["version"],
            "purl": purl(package),
            "licenses": [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}],
        }
        if checksum := sums.get((package["name"], package["version"])):
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    edges = [
        {"ref": purl(packages[one]), "dependsOn": sorted({purl(packages[dep]) for dep in deps})}
        for one, deps in needs.items()
    ]
    own = next(package for package in data["packages"] if package["name"] == PROGRAMS[0])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "LoamFS", "version": own["version"], "bom-ref": "LoamFS"}},
        "components": components,
        "dependencies": sorted(edges, key=lambda edge: edge["ref"]),
    }  # fmt: skip


def test():
    good = {"name": "a", "version": "1", "source": CRATES_IO, "license": "MIT/Apache-2.0"}
    sums = {("a", "1"): "00"}
    assert not list(faults([good], sums))
    assert not list(faults([good | {"license": "(MIT OR GPL-3.0) AND Unicode-3.0"}], sums))
    for fault in (
        {"source": "git+https://example.org/a"},
        {"version": "2"},
        {"license": "GPL-3.0"},
        {"license": "MIT AND GPL-3.0"},
        {"license": "(MIT AND GPL-3.0) OR AGPL-3.0"},
        {"license": None},
    ):
        assert len(list(faults([good | fault], sums))) == 1, fault


def main(arguments):
    if arguments == ["--test"]:
        test()
        return 0
    if arguments not in (["check"], ["sbom"]):
        print(__doc__, file=sys.stderr)
        return 64
    data, sums = metadata(), checksums((ROOT / "Cargo.lock").read_text())
    if arguments == ["sbom"]:
        print(json.dumps(sbom(data, sums), indent=1))
        return 0
    found = sorted(faults(data["packages"], sums))
    print("\n".join(found) or f"{len(data['packages'])} crates: sources, checksums and licences are in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
