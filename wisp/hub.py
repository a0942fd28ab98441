"""Downloading files and checkpoints into a cache."""
import hashlib
import os
import re
import sys
import tempfile
import urllib.parse
import urllib.request

import wisp

__all__ = ["download_url_to_file", "get_dir", "load_state_dict_from_url", "set_dir"]

_dir = None
_HASH = re.compile(r"-([a-f0-9]{8,})\.")


def get_dir():
    """The folder of the cache: $WISP_HOME/hub, by default ~/.cache/wisp/hub."""
    if _dir is not None:
        return _dir
    cache = os.environ.get("XDG_CACHE_HOME", os.path.join("~", ".cache"))
    return os.path.join(os.path.expanduser(os.environ.get("WISP_HOME", os.path.join(cache, "wisp"))), "hub")


def set_dir(d):
    """Keep downloads in another folder."""
    global _dir
    _dir = os.path.expanduser(d)


def download_url_to_file(url, dst, hash_prefix=None, progress=True):
    """Download a file; it appears at `dst` only when it is complete and its SHA-256 begins with `hash_prefix`."""
    from wisp.progress import Progress
    dst = os.path.expanduser(dst)
    request = urllib.request.Request(url, headers={"User-Agent": "wisp.hub"})
    with urllib.request.urlopen(request) as source:
        total = source.headers.get("Content-Length")
        digest = hashlib.sha256()
        handle, part = tempfile.mkstemp(suffix=".partial", dir=os.path.dirname(os.path.abspath(dst)))
        try:
            with os.fdopen(handle, "wb") as target:
                size = int(total) if total else None
                bar = Progress(None, os.path.basename(dst), size, "B", file=sys.stderr) if progress else None
                while block := source.read(1 << 17):
                    target.write(block)
                    digest.update(block)
                    if bar:
                        bar.update(len(block))
                if bar:
                    bar.close()
            if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')
            os.replace(part, dst)
        finally:
            if os.path.exists(part):
                os.unlink(part)


def load_state_dict_from_url(url, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None,
                             weights_only=True):
    """Load a checkpoint from a URL, downloading it the first time."""
    model_dir = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(model_dir, exist_ok=True)
    name = file_name or os.path.basename(urllib.parse.urlparse(url).path)
    path = os.path.join(model_dir, name)
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        found = _HASH.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    return wisp.load(path, map_location=map_location, weights_only=weights_only)
