"""ONNX files: the messages that an exporter needs, as Protocol Buffers.

A message is a list of (field number, value): ints become varints, floats four bytes, text, bytes and messages are preceded by their
length. The numbers are those of onnx.proto.
"""

from wisp.utils import _protobuf

FLOAT, INT, STRING, TENSOR, FLOATS, INTS, STRINGS = 1, 2, 3, 4, 6, 7, 8
DTYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "complex64": 14,
    "complex128": 15,
    "bfloat16": 16,
}
_WRITERS = {int: _protobuf.varint, float: _protobuf.single, str: _protobuf.text}


def message(*fields):
    """The bytes of a message; a list repeats its field, and None leaves it away."""
    parts = []
    for number, value in fields:
        for item in value if isinstance(value, list) else [value]:
            if item is not None:
                write = next((_WRITERS[kind] for kind in _WRITERS if isinstance(item, kind)), _protobuf.message)
                parts.append(write(number, item))
    return b"".join(parts)


def number_of(dtype):
    """ONNX's number of a dtype."""
    name = str(dtype).split(".")[-1]
    if name not in DTYPES:
        raise TypeError(f"onnx.export: ONNX has no {dtype}")
    return DTYPES[name]


def raw_bytes(array):
    """The elements of a tensor, one after the other."""
    import wisp

    array = array.detach().cpu().contiguous()
    if array.dtype == wisp.bfloat16:
        array = array.view(wisp.int16)
    return array.numpy().tobytes()


def tensor(array, name=None, external=None):
    """A TensorProto; `external` = (file, offset, length) where its elements are kept apart."""
    fields = [(1, list(array.shape)), (2, number_of(array.dtype)), (8, name)]
    if external is None:
        return message(*fields, (9, raw_bytes(array)))
    entries = zip(("location", "offset", "length"), map(str, external))
    return message(*fields, (13, [message((1, key), (2, value)) for key, value in entries]), (14, 1))


def attribute(name, value):
    """An AttributeProto; its kind follows from the value: int, float, str, list or tuple of one of them, or a tensor."""
    if isinstance(value, (bool, int)):
        return message((1, name), (3, int(value)), (20, INT))
    if isinstance(value, float):
        return message((1, name), (2, value), (20, FLOAT))
    if isinstance(value, str):
        return message((1, name), (4, value), (20, STRING))
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], str):
            return message((1, name), (9, list(value)), (20, STRINGS))
        if any(isinstance(item, float) for item in value):
            return message((1, name), (7, [float(item) for item in value]), (20, FLOATS))
        return message((1, name), (8, [int(item) for item in value]), (20, INTS))
    return message((1, name), (5, tensor(value)), (20, TENSOR))


def node(kind, inputs, outputs, attributes):
    made = [attribute(name, value) for name, value in attributes.items() if value is not None]
    return message((1, list(inputs)), (2, list(outputs)), (3, f"{kind}_{outputs[0]}"), (4, kind), (5, made))


def value_info(name, dtype, shape):
    """A ValueInfoProto; sizes are numbers, or names of those that vary."""
    dims = [message((2, size)) if isinstance(size, str) else message((1, size)) for size in shape]
    return message((1, name), (2, message((1, message((1, number_of(dtype)), (2, message((1, dims))))))))


def model(graph, opset, version):
    return message((1, 8), (2, "wisp"), (3, version), (7, graph), (8, message((1, ""), (2, opset))))
