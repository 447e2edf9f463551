"""Builds what a release consists of into ``dist``, and tries it: ``make dist``.

1. A source distribution and a wheel of the commit, built twice: both builds must have the same
   bytes.  The clock in them is the commit's.
2. Their contents are compared with the files of the commit, and their metadata checked by twine.
3. Each is installed into an empty environment with each Python that the package supports and this
   machine has.  There a broker starts in an empty directory and notifies a subscriber.
4. The licences of all dependencies, and an SBOM (CycloneDX) of the package and the versions in
   ``release/requirements.txt``, by which the image and the Debian package are built.
5. ``SHA256SUMS``.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from hashlib import sha256
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

TOP = Path(__file__).parents[1]
DIST = TOP / "dist"
LOCK = TOP / "release" / "requirements.txt"
FIRST_USE = TOP / "release" / "first_use.py"

#: The programs of the environment in which this runs.
BIN = Path(sys.executable).parent

#: Of the commit, what is for those who have its repository only.
NOT_IN_SDIST = {".gitignore", ".ci/run"}

PLUGIN = "twisted/plugins/rsscloud_broker_plugin.py"

#: An installed package must leave Twisted's package as it is, and be found by Twisted.
TWISTED = """
import twisted, twisted.plugins
from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins
names = {maker.tapname for maker in getPlugins(IServiceMaker)}
assert twisted.__version__ and twisted.plugins.__file__, twisted.plugins
assert {"rsscloud-broker", "web"} <= names, names
"""


def run(*command: str | Path, cwd: Path = TOP, **env: str) -> str:
    """What a command writes to its standard output; exits with what it says if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        check=False,
        cwd=cwd,
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nFailed with {done.returncode}: {' '.join(map(str, command))}")
    return done.stdout


def commit_files() -> set[str]:
    return set(run("git", "ls-tree", "-r", "--name-only", "HEAD").splitlines())


def normalized(sdist: Path, time: int) -> None:
    """Write a source distribution anew without its builder's clock and user.

    setuptools has them in the archive even if SOURCE_DATE_EPOCH is set.
    """
    plain = sdist.with_suffix("")
    with tarfile.open(sdist) as old, tarfile.open(plain, "w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            content = old.extractfile(member) if member.isfile() else None
            member.mtime, member.pax_headers = time, {}
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, content)
    sdist.write_bytes(gzip.compress(plain.read_bytes(), mtime=time))
    plain.unlink()


def built(directory: Path) -> list[Path]:
    """The source distribution of the commit, and the wheel that is built from it."""
    time = run("git", "log", "-1", "--format=%ct").strip()
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", f"{directory}/out"]
    source = directory / "source"
    source.mkdir()
    run("git", "archive", "--output", directory / "commit.tar", "HEAD")
    run("tar", "-xf", directory / "commit.tar", cwd=source)
    run(*build, "--sdist", source, SOURCE_DATE_EPOCH=time)
    (sdist,) = (directory / "out").glob("*.tar.gz")
    normalized(sdist, int(time))
    run("tar", "-xf", sdist, cwd=directory)
    unpacked = directory / sdist.name.removesuffix(".tar.gz")
    run(*build, "--wheel", unpacked, SOURCE_DATE_EPOCH=time)
    return sorted((directory / "out").iterdir())


def same(what: str, found: set[str], wanted: set[str]) -> None:
    if found != wanted:
        sys.exit(
            f"{what} does not have the files of the commit.  Missing: {sorted(wanted - found)}; "
            f"too many: {sorted(found - wanted)}.  setup.py and MANIFEST.in say what it has."
        )


def check_contents(sdist: Path, wheel: Path) -> None:
    commit = commit_files()
    names = zipfile.ZipFile(wheel).namelist()
    packed = {name for name in names if not PurePath(name).parts[0].endswith(".dist-info")}
    package = {name for name in commit if name.startswith("rsscloud_broker/")}
    same(wheel.name, packed, package | {PLUGIN})
    with tarfile.open(sdist) as archive:
        files = [str(PurePath(*PurePath(m.name).parts[1:])) for m in archive if m.isfile()]
    made = {"PKG-INFO", "setup.cfg"}
    kept = {name for name in files if "rsscloud_broker.egg-info/" not in name} - made
    same(sdist.name, kept, commit - NOT_IN_SDIST)


def pythons() -> list[str]:
    """The Pythons for which the package is, as far as this machine has them."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [c.rpartition(" ")[2] for c in project["classifiers"] if "Python :: 3." in c]
    # pyenv starts only what is chosen.
    os.environ["PYENV_VERSION"] = ":".join(versions)
    found = [f"python{version}" for version in versions if starts(f"python{version}")]
    print(f"Trying with {', '.join(found)}, of Python {', '.join(versions)}.")
    return found


def starts(python: str) -> bool:
    if not shutil.which(python):
        return False
    return subprocess.run([python, "-c", "import ensurepip, venv"], check=False).returncode == 0


def try_in_empty_environment(package: Path, python: str) -> None:
    with TemporaryDirectory() as name:
        env, empty = Path(name) / "env", Path(name) / "empty"
        empty.mkdir()
        run(python, "-m", "venv", env)
        run(env / "bin" / "pip", "install", "--quiet", package.absolute())
        run(env / "bin" / "pip", "check")
        run(env / "bin" / "python", "-c", TWISTED, cwd=empty)
        start = ["serve", "--local", "--listen", "tcp:{port}:interface=127.0.0.1"]
        broker = env / "bin" / "rsscloud-broker"
        said = run(env / "bin" / "python", FIRST_USE, "../state", broker, *start, cwd=empty)
        run(env / "bin" / "pip", "uninstall", "--yes", "--quiet", "rsscloud-broker")
        run(env / "bin" / "twistd", "--version", cwd=empty)
    print(f"{package.name}, {python}: {said.splitlines()[-1]}")


def describe_supply(wheel: Path) -> None:
    """Write the licences and the SBOM of the wheel and of the versions it is delivered with."""
    with TemporaryDirectory() as name:
        env = Path(name) / "env"
        python = str(env / "bin" / "python")
        run(sys.executable, "-m", "venv", "--without-pip", env)
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
        run(*pip, "--require-hashes", "--no-deps", "--requirement", str(LOCK))
        run(*pip, "--no-deps", str(wheel))
        licences = ["--python", python, "--from=mixed", "--with-urls", "--format=csv"]
        (DIST / "licences.csv").write_text(run(BIN / "pip-licenses", *licences), encoding="utf-8")
        sbom = DIST / f"{wheel.name.split('-py3')[0]}.cdx.json"
        options = ["--pyproject", "pyproject.toml", "--output-reproducible", "-o", str(sbom)]
        run(BIN / "cyclonedx-py", "environment", *options, python)
    shutil.copy(LOCK, DIST)


def write_sums() -> None:
    files = sorted(path for path in DIST.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (DIST / "SHA256SUMS").write_text("".join(lines), encoding="ascii")


def main() -> None:
    if changed := run("git", "status", "--porcelain").strip():
        print(f"Only what is committed is built.  These files differ:\n{changed}")
    os.umask(0o022)  # it is in the wheel
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    with TemporaryDirectory() as one, TemporaryDirectory() as two:
        first, second = built(Path(one)), built(Path(two))
        for this, that in zip(first, second, strict=True):
            if this.read_bytes() != that.read_bytes():
                sys.exit(f"Two builds of {this.name} differ.")
            shutil.copy(this, DIST)
    wheel, sdist = (
        DIST / path.name for path in sorted(first, key=lambda path: path.suffix != ".whl")
    )
    run(BIN / "twine", "check", "--strict", wheel, sdist)
    check_contents(sdist, wheel)
    print("Two builds have the same bytes, and all files of the commit.")
    for python in pythons():
        for package in (wheel, sdist):
            try_in_empty_environment(package, python)
    describe_supply(wheel)
    write_sums()
    print((DIST / "SHA256SUMS").read_text(encoding="ascii"), end="")


if __name__ == "__main__":
    main() if sys.argv[1:] != ["sums"] else write_sums()
