"""Web servers on the loopback interface; one for the tests of downloads: ranges, cut connections, missing files."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Loopback:
    """A web server; its method `answer` gets every request, with one of these `methods`."""

    methods, protocol = ("GET",), "HTTP/1.0"

    def __init__(self):
        handled = {f"do_{method}": lambda request: self.answer(request) for method in self.methods}
        handled |= {"protocol_version": self.protocol, "log_message": lambda *_: None}
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (BaseHTTPRequestHandler,), handled))
        threading.Thread(target=self.http.serve_forever, args=[0.01], daemon=True).start()
        self.address = f"http://127.0.0.1:{self.http.server_port}"

    def close(self):
        self.http.shutdown()
        self.http.server_close()


class Server(Loopback):
    """Serves `files` ({name: bytes}); `cuts` ({name: n}) ends the next answer for a file after n bytes of it.

    `requests` has (name, Range header or None) of everything asked for. With `ranges` False, Range headers are ignored.
    `kinds` ({name: content type}) is said of a file.
    """

    def __init__(self, files):
        self.files, self.cuts, self.requests = dict(files), {}, []
        self.ranges, self.etag, self.kinds = True, None, {}
        super().__init__()

    def url(self, name):
        return f"{self.address}/{name}"

    def answer(self, request):
        name, asked = request.path.lstrip("/"), request.headers.get("Range")
        self.requests.append((name, asked))
        body = self.files.get(name)
        if body is None:
            return request.send_error(404)
        start, status = 0, 200
        same = request.headers.get("If-Range") in (None, self.etag)
        if asked and self.ranges and same:
            start, status = int(asked.removeprefix("bytes=").removesuffix("-")), 206
            if start >= len(body):
                request.send_response(416)
                request.send_header("Content-Range", f"bytes */{len(body)}")
                request.send_header("Content-Length", "0")
                return request.end_headers()
        request.send_response(status)
        request.send_header("Content-Length", str(len(body) - start))
        if name in self.kinds:
            request.send_header("Content-Type", self.kinds[name])
        if self.etag:
            request.send_header("ETag", self.etag)
        if status == 206:
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        request.end_headers()
        request.wfile.write(body[start : start + self.cuts.pop(name, len(body))])
