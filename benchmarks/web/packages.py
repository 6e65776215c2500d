"""npm packages that are compared, and a server for them, for exports and for models."""

from __future__ import annotations

import shutil
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PACKAGES = {"onnxruntime-web": "1.30.0"}
_TYPES = {
    **SimpleHTTPRequestHandler.extensions_map,
    ".mjs": "text/javascript",
    ".js": "text/javascript",
    ".wasm": "application/wasm",
}


def install(folder: Path) -> Path:
    """Return `node_modules` of a folder with the packages, which npm fetches if they are missing.

    Raises OSError, with npm's last line, if it cannot.
    """
    modules = folder / "node_modules"
    if all((modules / name / "package.json").exists() for name in PACKAGES):
        return modules
    npm = shutil.which("npm")
    if npm is None:
        raise OSError("there is no npm, which fetches the other runtimes; install Node.js, or pass --only-polyhal")
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
    words = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder), *wanted]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [x for x in done.stderr.strip().splitlines() if "complete log" not in x]
        last = (lines or ["no message"])[-1]
        raise OSError(
            f"npm cannot fetch {' and '.join(wanted)} into {folder}: {last}; it needs a network once, "
            "or pass --only-polyhal"
        )
    return modules


class Server:
    """Serves folders by the first part of an address, with the headers that threads of WebAssembly need."""

    def __init__(self, folders: dict[str, Path]) -> None:
        class Handler(SimpleHTTPRequestHandler):
            extensions_map = _TYPES

            def translate_path(self, path: str) -> str:
                first, _, rest = path.partition("?")[0].lstrip("/").partition("/")
                found = folders.get(first, Path("/nowhere"))
                inside = (found / rest).resolve()
                return str(inside if inside.is_relative_to(found.resolve()) else Path("/nowhere"))

            def end_headers(self) -> None:
                self.send_header("Cross-Origin-Opener-Policy", "same-origin")
                self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
                super().end_headers()

            def log_message(self, *args: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
