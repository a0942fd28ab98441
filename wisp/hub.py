"""Downloading files and checkpoints into a cache."""
import hashlib
import os
import re
import sys
import tempfile
import urllib.parse
import urllib.request

import wisp

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

_dir = None
HASH_REGEX = re.compile(r"-([a-f0-9]{8,})\.")


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
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    return wisp.load(path, map_location=map_location, weights_only=weights_only)


def _repository(repo_or_dir, source, what):
    """The folder of a repository: a local one, or one of GitHub's that lies in the cache already."""
    if source == "local":
        folder = os.path.expanduser(repo_or_dir)
    elif source == "github":
        name, _, branch = repo_or_dir.partition(":")
        owner, _, project = name.partition("/")
        places = [os.path.join(get_dir(), f"{owner}_{project}_{ref}") for ref in ([branch] if branch else ["main", "master"])]
        folder = next((place for place in places if os.path.isdir(place)), None)
        if folder is None:
            raise RuntimeError(f"hub.{what}: Wisp downloads no code; put a copy of github.com/{name} into {places[0]}, "
                               "or name a folder with source='local'")
    else:
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if not os.path.exists(os.path.join(folder, "hubconf.py")):
        raise FileNotFoundError(f"hub.{what}: there is no hubconf.py in {folder}")
    return folder


def _hubconf(folder):
    import importlib.util
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location("hubconf", os.path.join(folder, "hubconf.py"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def _entry(module, model):
    function = getattr(module, model, None)
    if not callable(function):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return function


def load(repo_or_dir, model, *args, source="github", trust_repo=None, force_reload=False, verbose=True, skip_validation=False, **kwargs):
    """Make a model by an entry point of a repository's hubconf.py, which lies in a local folder or in the cache."""
    return _entry(_hubconf(_repository(repo_or_dir, source, "load")), model)(*args, **kwargs)


def list(github, force_reload=False, skip_validation=False, trust_repo=None, verbose=True, source="github"):
    """The entry points of a repository's hubconf.py."""
    module = _hubconf(_repository(github, source, "list"))
    return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]


def help(github, model, force_reload=False, skip_validation=False, trust_repo=None, source="github"):
    """The docstring of an entry point."""
    return _entry(_hubconf(_repository(github, source, "help")), model).__doc__


_download_url_to_file = download_url_to_file


def _get_torch_home():
    return os.path.dirname(get_dir())
