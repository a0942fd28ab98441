"""The graph that translations write into: nodes, constants, and numbers that follow from the sizes of inputs."""

import wisp
from wisp.onnx import _proto
from wisp.onnx._trace import Value, Varying, int_of
from wisp.onnx.errors import OnnxExporterError


class Graph:
    """Nodes of ONNX. Arguments of `op` are names, values of the trace, tensors, or numbers with a dtype (`number`)."""

    def __init__(self, parameters, sizes):
        self.nodes, self.constants, self.names = [], {}, {}
        self.parameters = parameters  # id of a tensor -> its name in the model
        self.sizes = sizes  # (name of an input, axis, Varying)
        self.numbers, self.count, self.call = {}, 0, None

    # ---- names
    def fresh(self, kind):
        self.count += 1
        return f"{kind.lower()}_{self.count}"

    def name(self, item):
        if item is None:
            return ""
        if isinstance(item, str):
            return item
        if isinstance(item, Value):
            if item not in self.names:
                if item.traced or item.varies:
                    raise OnnxExporterError("onnx.export: a tensor depends on the inputs in a way that no operator shows")
                self.names[item] = self.constant(item.tensor)
            return self.names[item]
        return self.constant(item)

    def constant(self, tensor):
        name = self.parameters.get(id(tensor)) or self.fresh("constant")
        self.constants[name] = tensor.detach() if name in self.parameters.values() else tensor.detach().clone()
        return name

    def number(self, value, dtype):
        """A constant without dimensions; equal ones are one."""
        key = repr(value), dtype
        if key not in self.numbers:
            self.numbers[key] = self.constant(wisp.tensor(value, dtype=dtype))
        return self.numbers[key]

    def ints(self, numbers):
        """A list of ints, some of which may vary, as a vector."""
        numbers = list(numbers)
        if not any(isinstance(n, Varying) for n in numbers):
            key = "ints", tuple(numbers)
            if key not in self.numbers:
                self.numbers[key] = self.constant(wisp.tensor(numbers, dtype=wisp.int64))
            return self.numbers[key]
        parts = [self.size(n) if isinstance(n, Varying) else self.ints([n]) for n in numbers]
        return self.op("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    def size(self, number):
        """A number that varies, as a vector of one element: made from the size of an input."""
        for name, axis, size in self.sizes:
            one, other = size.first, size.second
            whole = self.op("Shape", name, start=axis, end=axis + 1) if (name, axis) not in self.numbers else self.numbers[name, axis]
            self.numbers[name, axis] = whole
            if (number.first, number.second) == (one, other):
                return whole
            if one and other and number.first % one == 0 and number.first // one == number.second / other:
                return self.op("Mul", whole, self.ints([number.first // one]))
            if number.first - one == number.second - other:
                return self.op("Add", whole, self.ints([number.first - one]))
            for divisor in range(2, 65):
                for offset in range(divisor):
                    if (one + offset) // divisor == number.first and (other + offset) // divisor == number.second:
                        total = self.op("Add", whole, self.ints([offset])) if offset else whole
                        return self.op("Div", total, self.ints([divisor]))
        raise OnnxExporterError(
            f"onnx.export: a number was {number.first} for the given inputs and {number.second} for others, and it "
            "could not be found out how it follows from the sizes that vary"
        )

    # ---- nodes
    def op(self, kind, *inputs, outputs=1, **attributes):
        """Add a node; -> the name of its result, or a list of names."""
        results = [self.fresh(kind) for _ in range(outputs)]
        names = [self.name(item) for item in inputs]
        while names and not names[-1]:
            names.pop()
        self.nodes.append((kind, names, results, attributes))
        return results[0] if outputs == 1 else results

    @property
    def result(self):
        """The first result of the call that is translated."""
        return self.call.results[0]

    def cast(self, item, dtype):
        """A value or number in this dtype."""
        if not isinstance(item, Value):
            return self.number(item, dtype) if not isinstance(item, (str, wisp.Tensor)) else item
        return item if item.dtype == dtype else self.op("Cast", item, to=_proto.number_of(dtype))

    def reshape(self, item, shape):
        """Reshape; one size that varies needs no computation."""
        shape = list(shape)
        varying = [i for i, size in enumerate(shape) if isinstance(size, Varying)]
        if len(varying) == 1 and 0 not in shape:
            shape[varying[0]] = -1
        return self.op("Reshape", item, self.ints(shape), allowzero=1 if 0 in shape else None)

    # ---- the file
    def pruned(self, outputs):
        """The nodes that the outputs need."""
        needed, kept = set(outputs), []
        for kind, inputs, results, attributes in reversed(self.nodes):
            if needed.intersection(results):
                needed.update(inputs)
                kept.append((kind, inputs, results, attributes))
        return kept[::-1], {name: tensor for name, tensor in self.constants.items() if name in needed}


def fixed(number, what):
    """A number that has to be the same for all inputs."""
    if isinstance(number, Varying):
        raise OnnxExporterError(f"onnx.export: {what} depends on the size of an input")
    return number


def sizes_of(value):
    return [int_of(size) for size in value.shape]
