"""The checks of `make test` and `make lint`, each in an environment of its own, and one of the built wheel."""

import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "unit", "property"]

HERE = Path(__file__).parent


def install_pinned(session: nox.Session) -> None:
    """Install what is pinned for development, by its hashes."""
    session.install("--require-hashes", "-r", "constraints/dev.txt")


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
    """Types, by two opinions."""
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
    """Laws, with Hypothesis."""
    install(session)
    session.run("pytest", "tests/property", *session.posargs)


@nox.session
def integration(session: nox.Session) -> None:
    """Real kernels, stores and executables; needs root."""
    install(session)
    session.run("pytest", "tests/integration", *session.posargs)


@nox.session
def dist(session: nox.Session) -> None:
    """Build the wheel, and test what was installed from it rather than this folder."""
    install_pinned(session)
    away = Path(session.create_tmp())
    shutil.rmtree(away, ignore_errors=True)
    session.run("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(away / "dist"), ".")
    (wheel,) = (away / "dist").glob("netplug-*.whl")
    session.install("--force-reinstall", "--no-deps", str(wheel))
    shutil.copytree(HERE / "tests", away / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(HERE / name, away)
    session.chdir(away)
    session.run("netplugctl", "version")
    session.run("pytest", "tests/unit", *session.posargs)
