"""Files of weights: loading them into models, and downloading them into a cache."""

import hashlib
import json
import os
import re
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from urllib.parse import urlparse  # noqa: F401 (programs import it from here)

import wisp
from wisp import _reference

__all__ = """
    download_url_to_file get_dir help list load load_safetensors load_state_dict_from_url save_safetensors set_dir""".split()

_dir = None
HASH_REGEX = re.compile(r"-([a-f0-9]{8,})\.")


# ---------------------------------------------------------------- safetensors into models
def load_safetensors(model, path, strict=True, *, prefix=None, rename=None, convert=None, dtype=None, device="cpu", assign=False):
    """Load the weights of a model from `.safetensors` -> (missing names, unexpected names).

    `path` is a file, the `model.safetensors.index.json` of a model in several files, a folder that holds either, or a
    list of files. Names are brought to those of the model by `prefix`, a text to take off or a dict of what to replace
    by what, then by `rename`, a function of a name (None leaves the tensor out). `convert(name, tensor)` may change a
    tensor, `dtype` converts floating-point ones. Values are copied into the parameters, which keep their dtype; with
    `assign` the tensors take the parameters' places. Tied weights need to be there once.

    >>> import os, tempfile, wisp
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> wisp.utils.safetensors.save_file({"net.weight": wisp.ones(1, 2), "net.bias": wisp.zeros(1)}, path)
    >>> model = wisp.nn.Linear(2, 1)
    >>> wisp.hub.load_safetensors(model, path, prefix="net.")
    (set(), [])
    >>> model(wisp.ones(2)).detach()
    tensor([2.])
    """
    from wisp.utils.safetensors import load_file, load_into

    state, origin = {}, {}
    for file in _weight_files(path):
        for name, tensor in load_file(file, device=device, mmap=True).items():
            target = _renamed(name, prefix)
            target = target if rename is None else rename(target)
            if target is None:
                continue
            if target in state:
                raise RuntimeError(f"load_safetensors: {origin[target]!r} and {name!r} both become {target!r}")
            if convert is not None:
                tensor = convert(target, tensor)
            if dtype is not None and tensor.is_floating_point():
                tensor = tensor.to(dtype)
            state[target], origin[target] = tensor, name
    return load_into(model, state, strict, assign)


def save_safetensors(model, path, max_bytes=5_000_000_000, metadata=None):
    """Save the weights of a model into a folder: `model.safetensors`, or several files and their index if there are more
    than `max_bytes`.

    >>> import os, tempfile, wisp
    >>> folder = tempfile.mkdtemp()
    >>> wisp.hub.save_safetensors(wisp.nn.Linear(100, 2), folder, max_bytes=500)
    >>> sorted(os.listdir(folder))
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors', 'model.safetensors.index.json']
    """
    from wisp.serialization import replacing
    from wisp.utils.safetensors import save_file, untied

    state, dropped = untied(model)
    parts, size = [{}], 0
    for name, tensor in state.items():
        count = tensor.numel() * tensor.element_size()
        if size + count > max_bytes and parts[-1]:
            parts.append({})
            size = 0
        parts[-1][name] = tensor
        size += count
    os.makedirs(path, exist_ok=True)
    metadata = {"format": "pt", **(metadata or {}), **dropped}
    if len(parts) == 1:
        save_file(parts[0], os.path.join(path, "model.safetensors"), metadata)
        return
    places = {}
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05}-of-{len(parts):05}.safetensors"
        save_file(part, os.path.join(path, file), metadata)
        places.update(dict.fromkeys(part, file))
    total = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    with replacing(os.path.join(path, "model.safetensors.index.json")) as file:
        file.write(json.dumps({"metadata": {"total_size": total}, "weight_map": places}, indent=2).encode())


def _weight_files(path):
    """The files that hold the weights."""
    if not isinstance(path, (str, os.PathLike)):
        return [os.fspath(part) for part in path]
    path = os.path.expanduser(os.fspath(path))
    if os.path.isdir(path):
        for name in ("model.safetensors", "model.safetensors.index.json"):
            if os.path.exists(os.path.join(path, name)):
                path = os.path.join(path, name)
                break
        else:
            found = sorted(name for name in os.listdir(path) if name.endswith(".safetensors"))
            if len(found) != 1:
                raise FileNotFoundError(
                    f"{path} holds neither model.safetensors nor model.safetensors.index.json, but {found}: "
                    "name the file or the list of files"
                )
            path = os.path.join(path, found[0])
    if not path.endswith(".json"):
        return [path]
    with open(path, "rb") as file:
        try:
            places = json.load(file)["weight_map"]
            names = sorted(set(places.values()))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RuntimeError(f"{path} is not the index of a model in several files: {error!r}") from None
    if not all(isinstance(name, str) and os.path.basename(name) == name for name in names):
        raise RuntimeError(f"{path} names files outside its own folder")
    files = [os.path.join(os.path.dirname(path), name) for name in names]
    absent = [name for name, file in zip(names, files) if not os.path.exists(file)]
    if absent:
        raise FileNotFoundError(f"{path} names {len(names)} files, of which these are missing beside it: {', '.join(absent)}")
    return files


def _renamed(name, prefix):
    replacements = {prefix: ""} if isinstance(prefix, str) else prefix or {}
    for old, new in replacements.items():
        if name.startswith(old):
            return new + name[len(old) :]
    return name


# ---------------------------------------------------------------- downloads
def get_dir():
    """The folder of the cache: $WISP_HOME/hub, by default ~/.cache/wisp/hub.

    >>> import wisp
    >>> wisp.hub.get_dir()[-3:]
    'hub'
    """
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


def load_state_dict_from_url(url, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None, weights_only=True):
    """Load a checkpoint (`.pt`, `.pth` or `.safetensors`) from a URL, downloading it the first time."""
    model_dir = os.path.join(get_dir(), "checkpoints") if model_dir is None else os.path.expanduser(model_dir)
    name = file_name or os.path.basename(urllib.parse.urlparse(url).path)
    path = os.path.join(model_dir, name)
    if not os.path.exists(path):
        os.makedirs(model_dir, exist_ok=True)
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        try:
            download_url_to_file(url, path, found.group(1) if found else None, progress)
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise RuntimeError(
                f"could not download {url}: {error}. If you have the file, put it at {path} and call this again: it is used from there"
            ) from error
    if name.endswith(".safetensors"):
        from wisp.utils.safetensors import load_file

        return load_file(path, device="cpu" if map_location is None else map_location)
    return wisp.load(path, map_location=map_location, weights_only=weights_only)


# ---------------------------------------------------------------- models of other people
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
            raise RuntimeError(
                f"hub.{what}: Wisp downloads no code; put a copy of github.com/{name} into {places[0]}, "
                "or name a folder with source='local'"
            )
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
    """Make a model by an entry point of a repository's hubconf.py, which lies in a local folder or in the cache.

    >>> import os, tempfile, wisp
    >>> folder = tempfile.mkdtemp()
    >>> with open(os.path.join(folder, "hubconf.py"), "w") as file:
    ...     _ = file.write("import wisp\\ndef small(width=2):\\n    return wisp.nn.Linear(width, 1)")
    >>> wisp.hub.load(folder, "small", source="local", width=3)
    Linear(in_features=3, out_features=1, bias=True)
    """
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


_reference.attach(__name__, globals())


def __getattr__(name):
    if name == "tqdm":
        from wisp._compat.helpers import tqdm

        return tqdm
    raise AttributeError(f"module 'wisp.hub' has no attribute {name!r}")
