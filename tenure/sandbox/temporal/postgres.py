"""PostgreSQL for Temporal: binaries of the system, with data that is removed with the sandbox.

`server.py` starts it for the Temporal server. Data does not survive a power failure, because it is temporary.
PostgreSQL does not run as root, so its processes run as another user if this process is root.
"""

import asyncio
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tenure.sandbox.errors import SandboxError
from tenure.sandbox.processes import HealthCheck, Process

USER: Final = "temporal"
PROGRAMS: Final = ("initdb", "postgres", "psql", "pg_dump", "pg_restore", "pg_isready")
OTHERS: Final = ("postgres", "nobody")
"""Users for its processes if this process is root; the first existing one is used."""
_SETTINGS: Final = (
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    # The data does not need to survive a power failure.
    "fsync=off",
    "full_page_writes=off",
)


class NoPostgres(SandboxError):
    """PostgreSQL is missing or unusable; the message has the installation command."""


def find_programs() -> Path:
    """The folder with all `PROGRAMS`: that of `initdb` on the PATH, else of the newest system package.

    Raises `NoPostgres`."""
    for folder in _folders():
        if all(os.access(folder / name, os.X_OK) for name in PROGRAMS):
            return folder
    raise NoPostgres(
        f"no PostgreSQL with {', '.join(PROGRAMS)} on the PATH or under /usr/lib/postgresql; install it: "
        "`apt-get install postgresql` on Debian and Ubuntu, `dnf install postgresql-server` on Fedora, "
        "`brew install postgresql` on macOS"
    )


def _folders() -> Iterator[Path]:
    if named := shutil.which("initdb"):
        yield Path(named).resolve().parent
    packaged = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(packaged, key=lambda folder: _version(folder.parent.name), reverse=True)


def _version(name: str) -> float:
    return float(name) if name.replace(".", "", 1).isdecimal() else 0.0


class Postgres:
    """One server on a local `port`. Its data is in a separate folder, which `remove` deletes."""

    def __init__(self, logs: Path, port: int) -> None:
        self.port, self.password = port, secrets.token_hex(16)
        self._programs, self._log = find_programs(), logs / "postgres.log"
        # Not in the folder of the sandbox, which only its owner can access.
        self._temporary_folder = tempfile.TemporaryDirectory(prefix="tenure-postgres-", ignore_cleanup_errors=True)
        self._folder = Path(self._temporary_folder.name)
        self.process = Process("postgres", self._command(), log=self._log, health=self._health(), end=signal.SIGINT)

    @property
    def data(self) -> Path:
        return self._folder / "data"

    async def start(self) -> None:
        """Start with new or existing data. Raises `PartFailed`, and `NoPostgres` if initdb fails."""
        await asyncio.to_thread(self._prepare)
        await self.process.start()

    async def stop(self, grace: float = 10.0) -> None:
        await self.process.stop(grace)

    def remove(self) -> None:
        """Delete the data after a stop. Safe to call twice."""
        self._temporary_folder.cleanup()

    def query(self, database: str, statement: str) -> str:
        """Output of `psql`: one line per row, columns separated by `|`. Raises CalledProcessError."""
        return self.run("psql", "-v", "ON_ERROR_STOP=1", "-At", "-d", database, "-c", statement).strip()

    def dump(self, database: str, file: Path) -> None:
        """Write a consistent backup for `pg_restore`."""
        self.run("pg_dump", "-Fc", "-f", str(file), database)

    def restore(self, database: str, file: Path) -> None:
        """Replace the existing data; open connections are closed."""
        self.recreate_database(database)
        self.run("pg_restore", "--exit-on-error", "-d", database, str(file))

    def recreate_database(self, database: str) -> None:
        """Drop the database and create it empty."""
        self.query("postgres", f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
        self.query("postgres", f"CREATE DATABASE {database}")

    def run(self, program: str, *arguments: str) -> str:
        """Run one of `PROGRAMS` as the owner of the databases. Raises CalledProcessError."""
        way = {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": USER, "PGPASSWORD": self.password}
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            check=True,
            stdout=subprocess.PIPE,
            env=os.environ | way,
            text=True,
        )
        return done.stdout

    def _command(self) -> list[str]:
        settings = [argument for setting in (*_SETTINGS, f"port={self.port}") for argument in ("-c", setting)]
        return [*_as_somebody(), str(self._programs / "postgres"), "-D", str(self.data), *settings]

    def _health(self) -> HealthCheck:
        async def check() -> str | None:
            try:
                await asyncio.to_thread(self.run, "pg_isready", "-q", "-t", "2")
            except subprocess.CalledProcessError:
                return "it does not accept connections yet"
            return None

        return check

    def _prepare(self) -> None:
        if self.data.exists():
            return
        secret = self._folder / "password"
        secret.touch(mode=0o600)
        secret.write_text(self.password)
        if os.geteuid() == 0:
            for path in (self._folder, secret):
                shutil.chown(path, *_unprivileged_user())
        command = [str(self._programs / "initdb"), "-D", str(self.data), "-U", USER, f"--pwfile={secret}"]
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run([*_as_somebody(), *command, *options], capture_output=True, text=True, cwd="/")
        secret.unlink()
        if made.returncode:
            raise NoPostgres(f"initdb failed: {made.stderr.strip()[-500:]}")


def _as_somebody() -> list[str]:
    """Prefix for a command that must not run as root. The kernel still kills it with its parent."""
    if os.geteuid() != 0:
        return []
    user, group = _unprivileged_user()
    if not (setpriv := shutil.which("setpriv")):
        raise NoPostgres("PostgreSQL does not run as root, and there is no setpriv (util-linux) to run it as another")
    return [setpriv, f"--reuid={user}", f"--regid={group}", "--clear-groups", "--pdeathsig=keep", "--"]


def _unprivileged_user() -> tuple[int, int]:
    for name in OTHERS:
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return found.pw_uid, found.pw_gid
    raise NoPostgres(f"PostgreSQL does not run as root, and none of {', '.join(OTHERS)} is a user here")
