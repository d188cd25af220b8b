"""Object storage for tests: one bucket over HTTP, as far as pyarrow's S3 client needs it to list and read."""

from __future__ import annotations

import re
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit


@contextmanager
def object_storage(folder: Path):
    """Serve the files of a folder as objects; yield host and port."""

    class Bucket(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def do_HEAD(self):
            self._object(body=False)

        def do_GET(self):
            parts = urlsplit(self.path)
            if "list-type" in parse_qs(parts.query):
                return self._list(unquote(parse_qs(parts.query).get("prefix", [""])[0]))
            return self._object(body=True)

        def _list(self, prefix):
            found = sorted(path for path in folder.rglob("*") if path.is_file())
            names = [(path.relative_to(folder).as_posix(), path.stat().st_size) for path in found]
            names = [one for one in names if one[0].startswith(prefix)]
            items = "".join(
                f"<Contents><Key>{name}</Key><Size>{size}</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                '<ETag>"0"</ETag><StorageClass>STANDARD</StorageClass></Contents>'
                for name, size in names
            )
            self._send(
                200,
                '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
                f"<Name>bucket</Name><IsTruncated>false</IsTruncated><KeyCount>{len(names)}</KeyCount>{items}</ListBucketResult>".encode(),
            )

        def _object(self, body):
            file = folder / unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]
            if not file.is_file():
                return self._send(404, b"")
            content, status, extra = file.read_bytes(), 200, {}
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if wanted:
                start, end = int(wanted[1]), min(int(wanted[2]), len(content) - 1)
                extra = {"Content-Range": f"bytes {start}-{end}/{len(content)}"}
                content, status = content[start : end + 1], 206
            return self._send(status, content, body=body, **extra)

        def _send(self, status, content, body=True, **headers):
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), "ETag": '"0"', **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.end_headers()
            if body:
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
