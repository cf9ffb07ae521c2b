"""PostgreSQL for Temporal: the system's own binaries, on a cluster of databases that goes with the sandbox.

`temporal_server.py` starts it below the Temporal server. It keeps nothing over a power cut, since nothing of it is to
last; where this process is root, which PostgreSQL refuses to be, its processes belong to somebody else.
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
"""Who runs it where this process is root: the first that the system knows."""
_SETTINGS: Final = (
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    # Of a machine that loses power nothing needs to be left.
    "fsync=off",
    "full_page_writes=off",
)


class NoPostgres(SandboxError):
    """This system has no PostgreSQL, or one that cannot be used; the message says what to install."""


def find_programs() -> Path:
    """The folder with all of `PROGRAMS`: that of the `initdb` on the PATH, else the newest of the system's packages.

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
    """One server on `port` of this machine. Its data has a folder of its own, which goes with `remove`."""

    def __init__(self, logs: Path, port: int) -> None:
        self.port, self.password = port, secrets.token_hex(16)
        self._programs, self._log = find_programs(), logs / "postgres.log"
        # Not in the sandbox's own folder, which only its owner may enter.
        self._temporary_folder = tempfile.TemporaryDirectory(prefix="tenure-postgres-", ignore_cleanup_errors=True)
        self._folder = Path(self._temporary_folder.name)
        self.process = Process("postgres", self._command(), log=self._log, health=self._health(), end=signal.SIGINT)

    @property
    def data(self) -> Path:
        return self._folder / "data"

    async def start(self) -> None:
        """From nothing, or on the data that is there. Raises `PartFailed`, and `NoPostgres` where initdb fails."""
        await asyncio.to_thread(self._prepare)
        await self.process.start()

    async def stop(self, grace: float = 10.0) -> None:
        await self.process.stop(grace)

    def remove(self) -> None:
        """The data, once it is stopped. Safe to call twice."""
        self._temporary_folder.cleanup()

    def query(self, database: str, statement: str) -> str:
        """What `psql` answers, a line for each row, `|` between columns. Raises CalledProcessError."""
        return self.run("psql", "-v", "ON_ERROR_STOP=1", "-At", "-d", database, "-c", statement).strip()

    def dump(self, database: str, file: Path) -> None:
        """A backup as `pg_restore` reads it, consistent in itself."""
        self.run("pg_dump", "-Fc", "-f", str(file), database)

    def restore(self, database: str, file: Path) -> None:
        """Replaces the existing data; open connections are closed."""
        self.recreate_database(database)
        self.run("pg_restore", "--exit-on-error", "-d", database, str(file))

    def recreate_database(self, database: str) -> None:
        """The database, with nothing in it."""
        self.query("postgres", f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
        self.query("postgres", f"CREATE DATABASE {database}")

    def run(self, program: str, *arguments: str) -> str:
        """One of its programs, as the databases' owner. Raises CalledProcessError."""
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
                return "it takes no connections yet"
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
    """Before a command that root must not run; the kernel still ends it with its parent."""
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
