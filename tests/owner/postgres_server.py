"""A PostgreSQL server for the tests: in a folder of its own, on a free loopback port, stopped at their end."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PASSWORD = "sw0rd/fish:&=%"  # every sign of it means something in a URL
_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


@dataclass(frozen=True)
class Server:
    port: int

    def url(self, password: str | None = None, database: str = "postgres") -> str:
        from urllib.parse import quote

        secret = "" if password is None else ":" + quote(password, safe="")
        return f"postgresql://owner{secret}@127.0.0.1:{self.port}/{database}"

    def execute(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="owner", password=PASSWORD, dbname="postgres", connect_timeout=10
        ) as connection:
            for statement in statements:
                connection.execute(statement)


def programs() -> Path | None:
    """Return the folder of the newest server's programs, or None where there is none."""
    if _PROGRAMS:
        return _PROGRAMS[-1].parent
    found = shutil.which("postgres")
    return None if found is None else Path(found).resolve().parent


@contextmanager
def running_server(programs: Path) -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="fedspan-postgres-"))
    process = None
    try:
        before, environment = _as_another_user(folder)
        secret = folder / "password"
        secret.write_text(PASSWORD)
        if before:
            os.chown(secret, folder.stat().st_uid, folder.stat().st_gid)
        secret.chmod(0o600)
        data, quiet = folder / "data", ("-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
        subprocess.run(
            [
                *before,
                programs / "initdb",
                "-D",
                data,
                "-U",
                "owner",
                "-A",
                "scram-sha-256",
                f"--pwfile={secret}",
                *quiet,
            ],
            check=True,
            capture_output=True,
            cwd=folder,
            env=environment,
            timeout=120,
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = ("-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off")
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*before, programs / "postgres", "-D", data, "-p", str(port), *settings],
                stdout=log,
                stderr=log,
                cwd=folder,
                env=environment,
            )
        _wait_until_ready(process, port, folder / "log")
        yield Server(port)
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)  # at once, but in order
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(120)
        shutil.rmtree(folder, ignore_errors=True)


def _as_another_user(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return what to put before a command: PostgreSQL refuses to run as root. The server ends with the tests."""
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    end_with_us = ["setpriv", "--pdeathsig", "INT"] if shutil.which("setpriv") else []
    if os.geteuid() != 0:
        return end_with_us, environment
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(folder, user.pw_uid, user.pw_gid)
        return [*end_with_us, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"], environment
    raise RuntimeError("there is no user to run PostgreSQL as")


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    import psycopg

    for _ in range(1200):  # two minutes
        if process.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended with {process.returncode}: {log.read_text()[-2000:]}")
        try:
            psycopg.connect(
                host="127.0.0.1", port=port, user="owner", password=PASSWORD, dbname="postgres", connect_timeout=5
            ).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise RuntimeError(f"PostgreSQL did not start: {log.read_text()[-2000:]}")
