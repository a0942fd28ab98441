"""The text of a graph module as one reads it: with the lines of the program, what is known of tensors, and the modules inside."""

import re
import textwrap

import wisp

_KINDS = {"bool": "b8", "bfloat16": "bf16", "complex64": "c64", "complex128": "c128", "uint8": "u8"}


def _kind(dtype):
    name = str(dtype).removeprefix("torch.")
    return _KINDS.get(name) or re.sub(r"^(u?)(float|int)(?=\d)", lambda found: found[1] + found[2][0], name)


def _shape(node, include_stride, include_device):
    """Such as `f32[2, 3]`, where a step's result is known."""
    value = next((node.meta[key] for key in ("val", "example_value", "tensor_meta") if node.meta.get(key) is not None), None)
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return None
    text = f"{_kind(value.dtype)}[{', '.join(map(str, value.shape))}]"
    if include_stride:
        stride = value.stride() if isinstance(value, wisp.Tensor) else value.stride
        text += f"[{', '.join(map(str, stride))}]"
    return text + (str(value.device) if include_device and isinstance(value, wisp.Tensor) else "")


def _place(stack_trace):
    """The line of the program in a stack, as a comment."""
    found = re.findall(r'File "(.*?)", line (\d+), in (\S+)\n?\s*(.*)', stack_trace or "")
    return "# No stacktrace found for following nodes" if not found else "# File: {}:{} in {}, code: {}".format(*found[-1])


def readable(module, include_stride=False, include_device=False, additional_meta=None, name=None):
    """A class with the text of `forward`, and one for each graph module inside."""
    made = module.graph.python_code("self")
    nodes, lines, shown = list(module.graph.nodes), [], None
    for number, line in enumerate(made.src.splitlines()[made._prologue_start :], 1):
        node = nodes[made._lineno_map[number]] if number in made._lineno_map else None
        if node is not None and node.op not in ("placeholder", "output") and line.strip():
            place = _place(node.stack_trace)
            notes = ", ".join(f"{key}: {node.meta[key]}" for key in additional_meta or () if key in node.meta)
            if node.meta.get("custom"):
                notes = ", ".join(filter(None, (notes, f"Annotation: {node.meta['custom']}")))
            if (place, notes) != shown:
                lines += ([""] if lines else []) + [f"    {place}"] + ([f"    # {notes}"] if notes else [])
                shown = place, notes
            shape = _shape(node, include_stride, include_device)
            if shape is not None:
                line = re.sub(rf"^(\s*{re.escape(node.name)}) = ", rf'\1: "{shape}" = ', line)
        lines.append(line)
    head = made.src.splitlines()[made._prologue_start - 1]
    for node in nodes:
        shape = _shape(node, include_stride, include_device) if node.op == "placeholder" and node.type is None else None
        if shape is not None:
            head = re.sub(rf"\b{re.escape(str(node.target))}\b(?=[,)])", f'{node.target}: "{shape}"', head)
    text = f"class {name or type(module).__name__}(torch.nn.Module):\n" + textwrap.indent("\n".join([head, *lines]).rstrip() + "\n", "    ")
    for child, inner in module.named_children():
        if hasattr(inner, "graph") and hasattr(inner, "print_readable"):
            text += "\n" + textwrap.indent(readable(inner, include_stride, include_device, additional_meta, child), "    ")
    return text
