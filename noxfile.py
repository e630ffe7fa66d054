"""The checks of `make test` and `make lint`, each in its own environment, and one of the built wheel."""

import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "unit", "property"]

HERE = Path(__file__).parent
PACKAGES = ("netplug_core", "netplug_backends", "netplug_cli")
MUTMUT = "mutmut==3.8.1"


def install_pinned(session: nox.Session) -> None:
    """Install what is pinned for development, by its hashes; as in `tools/prepare`, pip resolves nothing."""
    session.install("--no-deps", "--require-hashes", "-r", "constraints/dev.txt")


def install(session: nox.Session) -> None:
    """Install what is pinned, and netplug from this folder."""
    install_pinned(session)
    session.install("--no-deps", "--no-build-isolation", "-e", ".")


@nox.session
def lint(session: nox.Session) -> None:
    """Format, style and import contracts."""
    install(session)
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Types, by two checkers."""
    install(session)
    session.run("mypy", "--strict")
    session.run("pyright", "--pythonpath", f"{session.bin}/python", "--warnings")


@nox.session
def unit(session: nox.Session) -> None:
    """Examples, refusals and known vectors."""
    install(session)
    session.run("pytest", "tests/unit", *session.posargs)


@nox.session(name="property")
def property_(session: nox.Session) -> None:
    """Properties, with Hypothesis."""
    install(session)
    session.run("pytest", "tests/property", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """Every fault at every write of every operation of the allocator."""
    install(session)
    session.run("pytest", "tests/faults", *session.posargs)


@nox.session
def integration(session: nox.Session) -> None:
    """Real kernels, stores and executables; needs root."""
    install(session)
    session.run("tools/servers", external=True)
    session.run("pytest", "tests/integration", *session.posargs)


@nox.session
@nox.parametrize("protobuf", ["==4.25.0", "~=4.25", "==5.26.0", "~=5.26", "==6.30.0", "~=6.30", "==7.34.0", "~=7.34"])
def protobuf(session: nox.Session, protobuf: str) -> None:
    """The etcd backend, on the oldest and the newest protobuf of every major version that it supports."""
    install(session)
    session.install(f"protobuf{protobuf}")
    session.run("pytest", "tests/unit/netplug_backends/etcdv3", "tests/integration/test_etcd_conformance.py")


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation as a site, in a folder of the session; a warning is an error."""
    install(session)
    session.run("python", "-m", "sphinx", "--fail-on-warning", "-c", "tools/site", ".", f"{session.create_tmp()}/site")


@nox.session
def dist(session: nox.Session) -> None:
    """Build what is published, install it, and run the tests of the source distribution on what was installed."""
    install_pinned(session)
    # Not a temporary folder of the session: tests of projects in theirs would find this project's settings above.
    away = Path(session.cache_dir) / "dist"
    shutil.rmtree(away, ignore_errors=True)
    away.mkdir(parents=True)
    session.run("hatchling", "build", "-t", "sdist", "-d", str(away), silent=True)
    (sources,) = away.glob("netplug-*.tar.gz")
    session.run("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(away), str(sources))
    (wheel,) = away.glob("netplug-*.whl")
    session.install("--force-reinstall", "--no-deps", str(wheel))
    shutil.unpack_archive(sources, away)
    session.chdir(away / sources.name.removesuffix(".tar.gz"))
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    installed = Path(str(session.run("python", "-c", where, silent=True)).strip())
    for package in PACKAGES:
        # So that only what is installed can be imported, and read by the tests of texts and names.
        shutil.rmtree(package)
        Path(package).symlink_to(installed / package)
    session.run("netplugctl", "version", "--client")
    session.run("pytest", "tests/unit", *session.posargs)


@nox.session
def manifests(session: nox.Session) -> None:
    """Write netplug_cli/manifests again from the tables of kinds and rights."""
    install(session)
    session.run("python", "-m", "tools.manifests")


@nox.session
def mutation(session: nox.Session) -> None:
    """Make thousands of small changes to the allocator: a test fails, or the page of survivors has the reason."""
    install_pinned(session)
    session.install(MUTMUT)
    away = Path(session.create_tmp()) / "tree"
    shutil.rmtree(away, ignore_errors=True)
    for folder in (*PACKAGES, "tests", "docs"):
        shutil.copytree(HERE / folder, away / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(HERE / name, away)
    session.chdir(away)
    with (away / "mutmut.log").open("w") as log:  # it draws its progress, one line for each frame
        session.run("mutmut", "run", *session.posargs, stdout=log, stderr=log)
    session.run("python", str(HERE / "tools" / "mutants.py"), str(HERE / "docs" / "design" / "mutants.md"))
