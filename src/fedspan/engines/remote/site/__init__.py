"""The site's side of a remote federation. It needs POSIX: forks, file locks and limits on processes."""

from __future__ import annotations

from importlib.util import find_spec

from fedspan.errors import MissingPackageError

if find_spec("fcntl") is None or find_spec("resource") is None:
    raise MissingPackageError(
        "a site of a real federation needs Linux or macOS, because it forks processes and limits them; embedded "
        "federations and analysis run on Windows, too"
    )
