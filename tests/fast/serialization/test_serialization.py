"""save and load: safety, atomic writes, sharing, mapping."""

import argparse
import concurrent.futures
import copy
import dataclasses
import datetime
import enum
import fcntl
import functools
import io
import os
import pathlib
import pickle
import pickletools
import sys
import types
import typing
import zipfile
import zlib

import numpy
import pytest

import wisp


def round_trip(value, **options):
    buffer = io.BytesIO()
    wisp.save(value, buffer)
    buffer.seek(0)
    return wisp.load(buffer, **options)


def test_views_are_saved_small(tmp_path):
    x = wisp.zeros(1000, 1000)
    for view in (x[5], x[:, 5], x[10:12, 10:12]):
        wisp.save(view, tmp_path / "view.pt")
        assert os.path.getsize(tmp_path / "view.pt") < 20_000
        loaded = wisp.load(tmp_path / "view.pt")
        assert loaded.shape == view.shape and loaded.sum() == 0


def test_sharing_survives():
    x = wisp.arange(10)
    a, b, same = round_trip([x[2:6], x[4:8], x[2:6]])
    assert a.tolist() == [2, 3, 4, 5] and b.tolist() == [4, 5, 6, 7] and same.tolist() == [2, 3, 4, 5]
    a[2] = 100
    assert b[0] == 100 and same[2] == 100
    y, z = round_trip((x, x))
    assert y is z


def test_parts_of_a_storage_that_are_seen_later():
    base = wisp.arange(1000.0)
    parts = {"middle": base[400:500], "start": base[:10], "end": base[990:], "again": base[400:500], "odd": base[1::2]}
    loaded = round_trip(parts)
    assert all(wisp.equal(loaded[name], part) for name, part in parts.items())
    loaded["middle"][0] = -1
    assert loaded["again"][0] == -1 and loaded["start"].untyped_storage().data_ptr() == loaded["end"].untyped_storage().data_ptr()


def test_pickles_name_what_pytorch_has_and_nothing_else():
    file = io.BytesIO()
    wisp.save({"a": wisp.ones(2), "size": wisp.Size([1, 2]), "device": wisp.device("cpu"), "p": wisp.nn.Parameter(wisp.ones(1))}, file)
    data = zipfile.ZipFile(file).read("archive/data.pkl")
    names = {text for opcode, text, _ in pickletools.genops(data) if opcode.name == "GLOBAL"}
    assert names == {
        *("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter", "torch FloatStorage", "torch Size", "torch device"),
        "collections OrderedDict",
    }
    assert not any(name.startswith("wisp-") for name in sys.modules)


@pytest.mark.parametrize("protocol", [-1, 1, 2, 4])
def test_every_protocol_of_pickle(protocol):
    file = io.BytesIO()
    wisp.save({"a": wisp.ones(2), "dtype": wisp.float16}, file, pickle_protocol=protocol)
    file.seek(0)
    loaded = wisp.load(file)
    assert loaded["a"].tolist() == [1, 1] and loaded["dtype"] is wisp.float16


def test_saving_in_threads():
    states = [{f"{i}.{j}": wisp.full((3,), float(i * j)) for j in range(200)} for i in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(round_trip, states * 3))
    assert all(wisp.equal(a[name], b[name]) for a, b in zip(states * 3, results) for name in a)


def test_files_run_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, ("touch " + str(tmp_path / "ran"),)

    for weights_only in (True, False):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(Evil(), 2))
        buffer.seek(0)
        with pytest.raises(pickle.UnpicklingError, match="not an allowed global|is blocked"):
            wisp.load(buffer, weights_only=weights_only)
        with pytest.raises((pickle.UnpicklingError, RuntimeError)):
            wisp.load(io.BytesIO(pickle.dumps(Evil(), 2)), weights_only=weights_only)
    assert not (tmp_path / "ran").exists()


def test_files_cannot_change_functions():
    text = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x09\x00\x00\x00_functionK\x01sb."
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", text)
    buffer.seek(0)
    with pytest.raises((AttributeError, pickle.UnpicklingError)):
        wisp.load(buffer)
    assert round_trip(wisp.ones(1)).item() == 1


def test_tensors_stay_within_their_storage():
    buffer = io.BytesIO()
    wisp.save(wisp.arange(4), buffer)
    text = zipfile.ZipFile(buffer).read("archive/data.pkl")
    assert text.count(b"K\x04") >= 2
    place = text.rindex(b"K\x04")
    bad = io.BytesIO()
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("archive/data.pkl", text[:place] + b"K\x7f" + text[place + 2 :])
        archive.writestr("archive/data/0", bytes(32))
    bad.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="beyond its storage"):
        wisp.load(bad)


def test_save_is_atomic(tmp_path):
    path = tmp_path / "model.pt"
    wisp.save(wisp.ones(3), path)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        wisp.save([wisp.ones(3), lambda: None], path)
    assert wisp.load(path).tolist() == [1, 1, 1] and os.listdir(tmp_path) == ["model.pt"]


class Own:
    pass


def test_safe_globals():
    buffer = io.BytesIO()
    wisp.save(Own(), buffer)
    with pytest.raises(pickle.UnpicklingError):
        wisp.load(io.BytesIO(buffer.getvalue()))
    with wisp.serialization.safe_globals([Own]):
        assert isinstance(wisp.load(io.BytesIO(buffer.getvalue())), Own)
    assert wisp.serialization.get_safe_globals() == []


def test_map_location():
    assert round_trip(wisp.ones(1), map_location="cpu").item() == 1
    assert round_trip(wisp.ones(1), map_location=lambda storage, location: storage).item() == 1
    assert round_trip(wisp.ones(1), map_location={"cuda:0": "cpu"}).item() == 1


def test_damaged_files(tmp_path):
    path = tmp_path / "model.pt"
    wisp.save(wisp.ones(1000), path)
    content = path.read_bytes()
    for damaged in (b"", b"PK\x03\x04", content[: len(content) // 2], b"hello world, this is no checkpoint"):
        path.write_bytes(damaged)
        with pytest.raises((EOFError, RuntimeError, pickle.UnpicklingError)):
            wisp.load(path)


def test_archives_are_valid(tmp_path):
    wisp.save({"a": wisp.arange(1000), "b": wisp.empty(0)}, tmp_path / "model.pt")
    with zipfile.ZipFile(tmp_path / "model.pt") as archive:
        assert archive.testzip() is None
        content = (tmp_path / "model.pt").read_bytes()
        assert content.index(archive.read("model/data/0")) % 64 == 0
    assert wisp.load(tmp_path / "model.pt")["a"].sum() == 499500


class Model(wisp.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = wisp.nn.Sequential(wisp.nn.Linear(2, 3), wisp.nn.BatchNorm1d(3), wisp.nn.ReLU())
        self.activation = wisp.nn.functional.relu

    def forward(self, x):
        return self.activation(self.layers(x))


def test_whole_models():
    model = Model().eval()
    x = wisp.ones(4, 2)
    with pytest.raises(pickle.UnpicklingError, match="Model"):
        round_trip(model)
    again = round_trip(model, weights_only=False)
    assert type(again) is Model and wisp.equal(again(x), model(x))
    assert list(again.state_dict()) == list(model.state_dict())


def test_numbers_of_numpy():
    """They are common in checkpoints (the best loss so far), and nothing can go wrong with numbers."""
    arrays = [
        numpy.float64(2.5),
        numpy.int32(7),
        numpy.bool_(True),
        numpy.arange(6).reshape(2, 3),
        numpy.asfortranarray(numpy.eye(3)),
        numpy.arange(0.0),
        numpy.array(5),
        numpy.arange(3, dtype=">i4"),
        numpy.complex64(1j),
    ]
    shared = [arrays[3], arrays[3]]
    for loaded in (round_trip([arrays, shared]), round_trip([arrays, shared], weights_only=False)):
        for mine, array in zip(loaded[0], arrays):
            assert type(mine) is type(array) and mine.dtype.newbyteorder("=") == array.dtype.newbyteorder("=")
            assert mine.shape == array.shape and (mine == array).all()
        assert loaded[1][0] is loaded[1][1] is loaded[0][3]
    for wrong in (numpy.array([object()]), numpy.array(["a"]), numpy.zeros(2, dtype=[("a", "f4")])):
        with pytest.raises(pickle.UnpicklingError):
            round_trip(wrong, weights_only=False)


def test_what_training_scripts_save():
    value = {
        "args": argparse.Namespace(lr=0.1, layers=[1, 2]),
        "more": types.SimpleNamespace(a=1),
        "when": datetime.datetime(2024, 1, 2),
        "path": pathlib.PurePosixPath("a/b"),
        "took": datetime.timedelta(seconds=5),
    }
    with pytest.raises(pickle.UnpicklingError, match="Namespace"):
        round_trip(value)
    assert round_trip(value, weights_only=False) == value
    model = Model()
    optimizer = wisp.optim.Adam(model.parameters(), lr=0.1)
    scheduler = wisp.optim.lr_scheduler.StepLR(optimizer, 2)
    model(wisp.ones(4, 2)).sum().backward()
    optimizer.step()
    loaded, again, schedule = round_trip((model, optimizer, scheduler), weights_only=False)
    assert again.param_groups[0]["params"][0] is loaded.layers[0].weight and schedule.optimizer is again
    for m, o in ((model, optimizer), (loaded, again)):
        o.zero_grad()
        m(wisp.ones(4, 2)).sum().backward()
        o.step()
    assert all(wisp.equal(a, b) for a, b in zip(model.parameters(), loaded.parameters()))


@pytest.mark.parametrize("size", [100, 1_000_000])
def test_changed_bits_are_noticed(tmp_path, size):
    path = tmp_path / "model.pt"
    wisp.save({"a": wisp.arange(size), "b": wisp.ones(3)}, path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    with pytest.raises(RuntimeError, match="checksum of model/data/0"):
        wisp.load(path)


def test_the_checksum_is_zlibs():
    content = bytes(range(256)) * 20
    for start in (0, 1, 7):
        for length in [*range(200), 1000, 4095, 4096, 5000]:
            part = memoryview(content)[start : start + length]
            assert wisp._core._crc32(part) == zlib.crc32(part)
    assert wisp._core._crc32(bytes(1000)) == zlib.crc32(bytes(1000))


@dataclasses.dataclass
class Settings:
    width: int
    rates: list


class Mode(enum.Enum):
    FAST = "fast"


class Pair(typing.NamedTuple):
    left: int
    right: object


class Watched:
    ran = False

    def __setstate__(self, state):
        Watched.ran = True


class Reached:
    """Pickled as getattr(owner, name)."""

    def __init__(self, owner, name):
        self.call = getattr, (owner, name)

    def __reduce__(self):
        return self.call


def test_members_of_enums_by_name():
    """Python 3.11.0 to 3.11.3 pickle a member as getattr(class, name): that much is read, and no other attribute."""
    assert round_trip(Reached(Mode, "FAST"), weights_only=False) is Mode.FAST
    for owner, name in [(Mode, "__init__"), (Settings, "__init__"), (list, "append")]:
        with pytest.raises(pickle.UnpicklingError):
            round_trip(Reached(owner, name), weights_only=False)
    with pytest.raises(pickle.UnpicklingError, match="getattr"):
        round_trip(Reached(Mode, "FAST"))


def test_plain_classes_of_the_program():
    """With weights_only=False values of the program's own classes are read, as long as none of their code runs by it."""
    value = {"settings": Settings(3, [0.1]), "mode": Mode.FAST, "pair": Pair(1, wisp.ones(2)), "steps": range(3)}
    read = round_trip(value, weights_only=False)
    assert read["settings"] == value["settings"] and read["mode"] is Mode.FAST and read["steps"] == range(3)
    assert type(read["pair"]) is Pair and read["pair"].right.tolist() == [1, 1]
    with pytest.raises(pickle.UnpicklingError, match="Settings"):
        round_trip(value)
    watched = Watched()
    watched.x = 1
    with pytest.raises(pickle.UnpicklingError, match="Watched"):
        round_trip(watched, weights_only=False)
    assert not Watched.ran


def test_properties_are_no_slots():
    class Trap:
        @property
        def x(self):
            raise AssertionError

    with pytest.raises(pickle.UnpicklingError, match="no slot 'x'"):
        wisp.serialization._unpickle._set_state(Trap(), ({}, {"x": 1}))


def test_no_directory(tmp_path):
    with pytest.raises(RuntimeError, match="Parent directory .* does not exist"):
        wisp.save(1, tmp_path / "a" / "b.pt")
    with pytest.raises(AttributeError, match="'write' attribute"):
        wisp.save(1, 3)


def test_leftovers_of_killed_saves_are_cleared(tmp_path):
    path = tmp_path / "model.pt"
    old, young, locked, other = (
        tmp_path / name for name in ("model.pt.11.0123abcd.tmp", "model.pt.12.0123abcd.tmp", "model.pt.13.0123abcd.tmp", "model.pt.tmp")
    )
    for file in (old, young, locked, other):
        file.write_bytes(b"half a checkpoint")
    for file in (old, locked, other):
        os.utime(file, (1, 1))
    with open(locked, "rb") as held:  # a save that goes on
        fcntl.flock(held, fcntl.LOCK_EX)
        wisp.save({"x": wisp.ones(2)}, path)
    assert not old.exists() and young.exists() and locked.exists() and other.exists()
    assert wisp.load(path)["x"].tolist() == [1, 1]


def test_a_file_object_is_flushed(tmp_path):
    path = tmp_path / "model.pt"
    with open(path, "wb") as file:
        wisp.save(wisp.ones(2), file)
        assert wisp.load(path).tolist() == [1, 1]


def test_storages_are_saved_and_pickled():
    x = wisp.arange(6.0)
    kinds = [wisp.FloatStorage([1, 2]), wisp.BoolStorage([True, False]), wisp.UntypedStorage([1, 2, 3])]
    for storage in kinds:
        first, second = round_trip([storage, storage])
        assert first is second and type(first) is type(storage) and first.tolist() == storage.tolist()
        assert pickle.loads(pickle.dumps(storage)).tolist() == copy.deepcopy(storage).tolist() == storage.tolist()
    again = round_trip({"x": x, "storage": x.storage(), "view": x[2:]})
    again["storage"][3] = 9.0  # one memory, as before
    assert again["x"].tolist() == [0.0, 1.0, 2.0, 9.0, 4.0, 5.0] and again["view"].tolist() == [2.0, 9.0, 4.0, 5.0]
    assert isinstance(again["storage"], wisp.FloatStorage) and not isinstance(again["storage"], wisp.DoubleStorage)


def test_the_old_format_is_written_and_the_file_goes_on_behind_it():
    value = {"w": wisp.arange(3.0), "half": wisp.ones(2, dtype=wisp.float16), "unsigned": wisp.ones(2, dtype=wisp.uint16)}
    file = io.BytesIO()
    wisp.save(value, file, _use_new_zipfile_serialization=False)
    file.write(pickle.dumps("behind"))
    file.seek(0)
    assert file.getvalue()[:2] != b"PK"
    again = wisp.load(file)
    assert {name: tensor.tolist() for name, tensor in again.items()} == {name: tensor.tolist() for name, tensor in value.items()}
    assert pickle.load(file) == "behind"


def test_bytes_in_the_other_order_are_turned():
    file, turned = io.BytesIO(), io.BytesIO()
    wisp.save(wisp.tensor([1 + 2j, 3 - 1j]), file)
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(turned, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("/data/0"):
                content = b"".join(content[i : i + 4][::-1] for i in range(0, len(content), 4))
            new.writestr(name, b"big" if name.endswith("byteorder") else content)
    turned.seek(0)
    assert wisp.load(turned).tolist() == [1 + 2j, 3 - 1j]


def test_attributes_of_parameters_are_kept():
    parameter = wisp.nn.Parameter(wisp.ones(2))
    parameter.tag = "kept"
    assert round_trip(parameter).tag == "kept"


class Whole(wisp.nn.Linear):
    pass


def test_a_whole_model_is_refused_with_what_can_be_done():
    buffer = io.BytesIO()
    wisp.save(Whole(2, 3), buffer)
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError, match=r"weights_only=False\) reads whole models.*state_dict") as refused:
        wisp.load(buffer)
    assert f"add_safe_globals([{__name__}.Whole])" in str(refused.value)
    buffer.seek(0)
    assert isinstance(wisp.load(buffer, weights_only=False), Whole)


def test_strings_of_python_2_are_read_in_the_encoding_that_is_asked_for():
    magic, version = 0x1950A86A20F9469CFC6C, 1001
    content = b"\x80\x02U\x02\xc5\xbc."  # a pickle of a string of two bytes
    file = pickle.dumps(magic, 2) + pickle.dumps(version, 2) + pickle.dumps({}, 2) + content + pickle.dumps([], 2)
    assert wisp.load(io.BytesIO(file)) == b"\xc5\xbc".decode() and wisp.load(io.BytesIO(file), encoding="bytes") == b"\xc5\xbc"
    assert wisp.load(io.BytesIO(file), encoding="latin1") == "\xc5\xbc"


class Marked(wisp.Tensor):
    pass


class Nest:
    class Inner:
        pass


def test_subclasses_of_tensor_come_back_as_such():
    x = wisp.arange(3.0).as_subclass(Marked)
    x.note = "kept"
    buffer = io.BytesIO()
    wisp.save({"x": x}, buffer)
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="Marked"):
        wisp.load(buffer)
    for options in ({"weights_only": False}, {}):
        buffer.seek(0)
        with wisp.serialization.safe_globals([] if options else [Marked]):
            loaded = wisp.load(buffer, **options)["x"]
        assert type(loaded) is Marked and loaded.note == "kept" and loaded.tolist() == [0.0, 1.0, 2.0]


def test_what_files_may_reach_and_what_not():
    buffer = io.BytesIO()
    wisp.save({"a": Nest.Inner()}, buffer)
    buffer.seek(0)
    with wisp.serialization.safe_globals([Nest, getattr, Nest.Inner]):
        assert isinstance(wisp.load(buffer)["a"], Nest.Inner)
    with wisp.serialization.safe_globals([os.execv]):
        buffer = io.BytesIO()
        wisp.save(os.execv, buffer)
        buffer.seek(0)
        with pytest.raises(pickle.UnpicklingError, match="posix.execv whose module posix is blocked"):
            wisp.load(buffer)


def test_one_memory_is_saved_as_one_dtype():
    z = wisp.ones(3, dtype=wisp.complex64)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        wisp.save([z, z.imag], io.BytesIO())
    wisp.save([z, z.imag.clone()], io.BytesIO())


def test_data_can_be_left_out():
    state = {"w": wisp.arange(4.0), "b": wisp.ones(2, dtype=wisp.int64)}
    for legacy in (False, True):
        full = io.BytesIO()
        wisp.save(state, full, _use_new_zipfile_serialization=not legacy)
        full.seek(0)
        with wisp.serialization.skip_data():
            loaded = wisp.load(full)
        assert loaded["w"].tolist() == [0.0] * 4 and loaded["b"].tolist() == [0, 0]
        full.seek(0)
        assert wisp.load(full)["w"].tolist() == [0.0, 1.0, 2.0, 3.0]
    empty = io.BytesIO()
    with wisp.serialization.skip_data():
        wisp.save(state, empty)
        with pytest.warns(UserWarning, match="meta device under skip_data"):
            wisp.save(wisp.ones(1, device="meta"), io.BytesIO())
    empty.seek(0)
    assert wisp.load(empty)["b"].tolist() == [0, 0]


class Counted:
    times = 0

    def __reduce__(self):
        Counted.times += 1
        return Counted, ()


def test_values_are_pickled_once_unless_a_part_of_memory_grows():
    base = wisp.arange(10.0)
    for tensors, times in (([wisp.zeros(3), wisp.ones(2)], 1), ([base, base[2:4]], 1), ([base[2:4], base], 2)):
        Counted.times = 0
        buffer = io.BytesIO()
        wisp.save([*tensors, Counted()], buffer)
        buffer.seek(0)
        read = wisp.load(buffer, weights_only=False)
        assert Counted.times == times and [t.tolist() for t in read[:-1]] == [t.tolist() for t in tensors]


def test_a_pickle_module_of_the_program_reads_the_file():
    own = types.SimpleNamespace(Unpickler=pickle.Unpickler)
    shared = wisp.arange(6.0)
    for legacy in (True, False):
        file = io.BytesIO()
        wisp.save({"a": shared.view(2, 3), "b": wisp.nn.Parameter(shared), "c": wisp.float16}, file, _use_new_zipfile_serialization=legacy)
        file.seek(0)
        with pytest.raises(RuntimeError, match="pickle_module"):
            wisp.load(file, pickle_module=own)
        read = wisp.load(file, pickle_module=own, weights_only=False)
        assert read["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and isinstance(read["b"], wisp.nn.Parameter) and read["c"] is wisp.float16
        read["a"][0, 0] = 9
        assert read["b"][0] == 9


def test_files_that_cannot_seek_are_refused():
    class Stream:
        def read(self, n=-1):
            return b""

    with pytest.raises(AttributeError, match="seekable"):
        wisp.load(Stream())


def test_names_that_files_may_use_are_a_list():
    from wisp import _weights_only_unpickler

    file = io.BytesIO()
    wisp.save({"x": wisp.ones(1), "model": wisp.nn.Linear(1, 1)}, file)
    allowed = _weights_only_unpickler._get_allowed_globals()
    assert "torch._utils._rebuild_tensor_v2" in allowed and "torch.float32" in allowed
    assert wisp.serialization.get_unsafe_globals_in_checkpoint(file) == ["torch.nn.modules.linear.Linear"]
    with wisp.serialization.safe_globals([wisp.nn.Linear]):
        assert wisp.serialization.get_unsafe_globals_in_checkpoint(file) == []


def squared(x):
    return x * x


class Holding(wisp.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self._register_state_dict_hook(renamed)


def renamed(module, state, prefix, metadata):
    return state


def test_models_hold_functions_of_the_program():
    """An activation or a hook of a model is a function that the file names and may not call."""
    for function in (squared, wisp.nn.functional.normalize, wisp.nn.functional.relu):
        read = round_trip(Holding(function), weights_only=False)
        assert read.function is function and list(read._state_dict_hooks.values()) == [renamed]
        with pytest.raises(pickle.UnpicklingError):
            round_trip(Holding(function))
    for called in (squared, os.system):
        with pytest.raises(pickle.UnpicklingError):
            round_trip(Called(called), weights_only=False)


def test_models_hold_classes_methods_and_partial_functions():
    """What a model is put together from is named by the file, or tied up, and never called."""
    held = functools.partial(Watched, 1, key=wisp.ones(2))
    read = round_trip(Holding(held), weights_only=False).function
    assert read.func is Watched and read.args == (1,) and read.keywords["key"].tolist() == [1, 1] and not Watched.ran
    assert round_trip(Holding(Watched), weights_only=False).function is Watched
    model = Holding(None)
    model.function = model.train
    read = round_trip(model, weights_only=False)
    assert read.function.__self__ is read and read.function.__func__ is wisp.nn.Module.train
    for refused in (Called(Watched), Reached(model, "training"), Reached(model, "function"), Reached(wisp.ones(1), "numpy")):
        with pytest.raises(pickle.UnpicklingError):
            round_trip(refused, weights_only=False)
    with pytest.raises(pickle.UnpicklingError):
        round_trip(Holding(held))


class Called:
    def __init__(self, function):
        self.function = function

    def __reduce__(self):
        return self.function, (2,)


def test_generators_and_attributes_of_parameters_are_kept():
    generator = wisp.Generator().manual_seed(5)
    wisp.rand(3, generator=generator)
    file = io.BytesIO()
    wisp.save(generator, file)
    file.seek(0)
    again = wisp.load(file, weights_only=False)
    assert wisp.equal(wisp.rand(2, generator=again), wisp.rand(2, generator=generator))
    parameter = wisp.nn.Parameter(wisp.ones(1))
    parameter.kept = {"x": 1}
    assert pickle.loads(pickle.dumps(parameter)).kept == {"x": 1}


@pytest.mark.parametrize("kind", ["UninitializedParameter", "UninitializedBuffer"])
@pytest.mark.parametrize("new", [True, False])
def test_what_has_no_shape_yet_is_saved(kind, new):
    kind, file = getattr(wisp.nn.parameter, kind), io.BytesIO()
    wisp.save({"x": kind(dtype=wisp.float64)}, file, _use_new_zipfile_serialization=new)
    file.seek(0)
    made = wisp.load(file, weights_only=False)["x"]
    assert type(made) is kind and made.data.dtype == wisp.float64
