"""Files of datasets: checksums, downloads, archives."""

import gzip
import hashlib
import os
import shutil
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile

__all__ = [
    "calculate_md5",
    "check_integrity",
    "check_md5",
    "download_and_extract_archive",
    "download_file_from_google_drive",
    "download_url",
    "extract_archive",
    "iterable_to_str",
    "list_dir",
    "list_files",
    "verify_str_arg",
]


def list_dir(root, prefix=False):
    """The folders within a folder: their names, or with `prefix` their paths."""
    root = os.path.expanduser(root)
    return [os.path.join(root, name) if prefix else name for name in os.listdir(root) if os.path.isdir(os.path.join(root, name))]


def list_files(root, suffix, prefix=False):
    """The files within a folder whose names end so (one ending, or a tuple): their names, or with `prefix` their paths."""
    root = os.path.expanduser(root)
    names = (name for name in os.listdir(root) if name.endswith(suffix) and os.path.isfile(os.path.join(root, name)))
    return [os.path.join(root, name) if prefix else name for name in names]


def iterable_to_str(iterable):
    """
    >>> iterable_to_str(["train", "test"])
    "'train', 'test'"
    """
    return "'" + "', '".join(str(item) for item in iterable) + "'"


def verify_str_arg(value, arg=None, valid_values=None, custom_msg=None):
    """The value, where it is one of those that an argument may have."""
    if not isinstance(value, str):
        raise ValueError(f"Expected type str{'' if arg is None else f' for argument {arg}'}, but got type {type(value)}.")
    if valid_values is not None and value not in valid_values:
        text = f"Unknown value '{value}' for argument {arg}. Valid values are {{{iterable_to_str(valid_values)}}}."
        raise ValueError(text if custom_msg is None else custom_msg)
    return value


def calculate_md5(fpath, chunk_size=1024 * 1024):
    """The MD5 sum of a file."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(fpath, "rb") as file:
        while block := file.read(chunk_size):
            digest.update(block)
    return digest.hexdigest()


def check_md5(fpath, md5, **options):
    """Whether the file has this MD5 sum."""
    return md5 == calculate_md5(fpath, **options)


def check_integrity(fpath, md5=None):
    """Whether the file is there and, where a sum is given, has it."""
    return os.path.isfile(fpath) and (md5 is None or check_md5(fpath, md5))


def download_url(url, root, filename=None, md5=None, max_redirect_hops=3):
    """Download a file into a folder, unless it is there. Where that fails, the error says where to put it."""
    root = os.path.expanduser(root)
    name = filename or os.path.basename(urllib.parse.urlparse(url).path)
    path = os.path.abspath(os.path.join(root, name))
    os.makedirs(root, exist_ok=True)
    if check_integrity(path, md5):
        return
    from wisp.hub import download_url_to_file

    try:
        download_url_to_file(url, path, progress=True)
    except (urllib.error.URLError, OSError) as error:
        raise RuntimeError(f"{name} could not be downloaded from {url} ({error}); get it elsewhere and put it at {path}") from error
    if not check_integrity(path, md5):
        raise RuntimeError(
            f"{path} is not the file that was expected: its MD5 sum is {calculate_md5(path)}, not {md5}. Remove it and try again."
        )


def download_file_from_google_drive(file_id, root, filename=None, md5=None):
    """Download a file of Google Drive that anyone may read into a folder, unless it is there."""
    url = f"https://drive.usercontent.google.com/download?id={urllib.parse.quote(file_id)}&export=download&confirm=t"
    download_url(url, root, filename or file_id, md5)


def _inside(folder, name):
    """The path of a member of an archive, which must not lead out of the folder."""
    path = os.path.realpath(os.path.join(folder, name))
    if not path.startswith(os.path.realpath(folder) + os.sep) and path != os.path.realpath(folder):
        raise RuntimeError(f"the archive has a member that would be written outside of {folder}: {name!r}")
    return path


def extract_archive(from_path, to_path=None, remove_finished=False):
    """Unpack a .zip, .tar, .tar.gz, .tgz, .tar.xz, .tar.bz2 or .gz file; returns where."""
    from_path = os.fspath(from_path)
    to_path = os.path.dirname(from_path) if to_path is None else os.fspath(to_path)
    os.makedirs(to_path, exist_ok=True)
    if zipfile.is_zipfile(from_path):
        with zipfile.ZipFile(from_path) as archive:
            for name in archive.namelist():
                _inside(to_path, name)
            archive.extractall(to_path)
    elif tarfile.is_tarfile(from_path):
        with tarfile.open(from_path) as archive:
            for member in archive.getmembers():
                _inside(to_path, member.name)
            archive.extractall(to_path, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(to_path)
    elif from_path.endswith(".gz"):
        to_path = os.path.join(to_path, os.path.basename(from_path)[:-3])
        with gzip.open(from_path) as source, open(to_path, "wb") as target:
            shutil.copyfileobj(source, target)
    else:
        raise RuntimeError(f"extract_archive: {from_path} is not an archive that Wisp knows (.zip, .tar, .tar.gz, .gz, ...)")
    if remove_finished:
        os.remove(from_path)
    return to_path


def download_and_extract_archive(url, download_root, extract_root=None, filename=None, md5=None, remove_finished=False):
    """Download an archive and unpack it."""
    name = filename or os.path.basename(urllib.parse.urlparse(url).path)
    download_url(url, download_root, name, md5)
    root = os.path.expanduser(download_root)
    extract_archive(os.path.join(root, name), root if extract_root is None else os.path.expanduser(extract_root), remove_finished)
