"""Files that processes share and that survive crashes: atomic replacement, locks, and parsing with typed errors."""

from polyhal.hal.core.settings.atomic import remove_folder, replacing
from polyhal.hal.core.settings.file_lock import FileLock
from polyhal.hal.core.settings.json_store import parse as parse_json
from polyhal.hal.core.settings.json_store import read as read_json
from polyhal.hal.core.settings.json_store import write as write_json
from polyhal.hal.core.settings.toml import parse as parse_toml

__all__ = ["FileLock", "parse_json", "parse_toml", "read_json", "remove_folder", "replacing", "write_json"]
