"""Writes docs/coverage.md from the results of the comparison with PyTorch's own databases of operators, modules and optimizers.

    python tools/make_coverage.py ops.json modules.json optimizers.json surface.json
    python tools/make_coverage.py    (only the section on the GPU, from tests/cuda/missing.txt)

Each file is what one of the programs of the comparison wrote with --json. Whatever fails gets its reason from REASONS, the
first line whose patterns fit its name and its failed checks; a failure without a reason is listed as not explained.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parent.parent
PATH = ROOT / "docs" / "coverage.md"
ON_GPU = "## On the GPU"
DIFFERENT_ON_GPU = {
    "`fmod`, `remainder` in bfloat16": "PyTorch's CPU gives NaN for the smallest normal divisor; the exact result is 0",
    "`gather`, `scatter`, `scatter_add`, `multinomial` of bad indices or weights": "told at the next synchronisation and not by the call; "
    "the comparison then meets it in the operator that comes next (`hstack`, `index_select`, `movedim`, `vstack`)",
    "`linalg.eig`, `linalg.eigvals`": "the order of eigenvalues and the phase of vectors are cuSOLVER's, and the comparison's gradient "
    "depends on them; gradients of what does not are the CPU's to 1e-13",
    "`linalg.lstsq`": "drivers other than `gels`, which CUDA has not, as in PyTorch",
    "`linalg.lu`, `lu` of complex64": "other pivots than LAPACK's, which compares |re| + |im|; the factors multiply to the matrix",
    "`nn.functional.conv3d`, `conv_transpose3d` in float32": "TF32, which `backends.cudnn.allow_tf32` turns off, as in PyTorch",
    "`polygamma` in bfloat16": "PyTorch's result is finite at a pole",
    "`pow` and others in place": "rounding; the comparison does not know which result is nearer",
    "`to`": "a copy on the CPU, which the comparison multiplies with numbers of the GPU",
}
THEIRS = "## PyTorch's own tests"

# kind of comparison, name, failed check and its note (all regular expressions) -> reason
REASONS = (
    ("operators", r"^(special\.(airy_ai|bessel_\w+))$", "float64", "PyTorch's result has six or seven digits, Wisp's fifteen"),
    ("operators", r"^linalg\.eig(vals)?$", "float32|complex64|bfloat16", "the last digits of an eigenvalue: another LAPACK library"),
    ("operators", r"^as_strided_scatter$", "gradient", "PyTorch's gradient is not the derivative (checked with differences); Wisp's is"),
    ("operators", r"^matrix_exp$", "bfloat16.* for nan", "PyTorch's result is NaN in bfloat16"),
    (
        "operators",
        r"^(pca|svd)_lowrank$",
        "random",
        "random projections: the comparison ranks draws, which tells the last digit of Wisp's from PyTorch's",
    ),
    ("operators", r"^polygamma/polygamma_n_3$", "^inplace|inf for", "PyTorch's result is finite at a pole (-9); else rounding, as below"),
    (
        "operators",
        r"",
        "^inplace.*elements differ",
        "rounding: for the in-place form the comparison does not know which result "
        "is nearer to the exact one, as it does for the plain form, which passes",
    ),
    (
        "operators",
        r"^nn\.functional\.multi_head_attention_forward$",
        "random values",
        "the weight of an element is 3e-41, and zero in Wisp: softmax in float32 makes zeros of results below 2^-126, "
        "which saves 3 to 8 % of its time",
    ),
    (
        "operators",
        r"",
        "random values",
        "the comparison ranks draws; of an element that takes one or two values that tells the last digit of Wisp's from PyTorch's",
    ),
    (
        "operators",
        r"^cat$",
        "^errors/function/8 ",
        "the comparison does not carry over the memory that out= shares here; Wisp refuses it too",
    ),
    ("operators", r"^sparse\.sampled_addmm$", "gradient", "the gradient of a sparse tensor has its pattern; PyTorch's is dense here"),
    (
        "optimizers",
        r"^optim\.LBFGS$",
        r"H_diag",
        "rounding: the quotient of two differences near the minimum; PyTorch's own is 0.4237 to 0.4240 by the instructions that it uses",
    ),
    ("surface", r"semi_structured|SemiStructured", "", "2:4 sparsity needs the instructions of a GPU"),
    ("surface", r"bsr|bsc", "", "sparse layouts of blocks are not supported"),
    ("surface", r"(int_repr|qscheme)$", "", "there are no quantised dtypes"),
    (
        "surface",
        r"^(AVG|SUM|FatalError|JITException|import_ir\w*|merge_type\w*|parse_\w+|unify_type_list)$",
        "",
        "parts of TorchScript's compiler",
    ),
    ("surface", r"BroadcastingList|boolean_dispatch|handle_torch_function", "", "internals of PyTorch's Python code"),
    ("surface", r"utils\.checkpoint\.", "", "parts of selective checkpointing that PyTorch's compiler uses"),
    (
        "surface",
        r"Tensor\.(frexp|histogram|put)$",
        "signature",
        "PyTorch documents the tensor as an argument of its own method, but does not take it",
    ),
    ("surface", r"Tensor\.to_sparse$", "signature", "PyTorch documents `sparseDims`, but takes `sparse_dim`"),
    ("surface", r"Tensor\.index$", "", "needs first-class dimensions"),
    (
        "surface",
        r"Tensor\.__(annotations|weakref|cuda_array_interface|dlpack_c_exchange_api)__$",
        "",
        "an attribute of how PyTorch's class is made",
    ),
    (
        "surface",
        r"^(Tensor\.(atanh_|round_?)|cholesky_solve)$",
        "signature",
        "PyTorch's documentation names its parameters otherwise than its code takes them",
    ),
    ("surface", r"^(Event|wait|distributed\.set_debug_level)$", "signature", "the names of its parameters are not documented by PyTorch"),
)


def kind_of(result):
    return {"operators": "operators", "api surface": "surface"}.get(result["kind"], result["kind"])


def reason_for(kind, name, failures):
    for where, pattern, check, reason in REASONS:
        if where in kind and re.search(pattern, name):
            if all(re.search(check, f"{failure['check']} {failure['note']}") for failure in failures):
                return reason
    return None


def percent(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "-"


def totals(results):
    yield "| comparison | items | right in everything | checks | right |"
    yield "|---|---|---|---|---|"
    for title, result in results.items():
        verdicts = {name: count for name, count in result["verdicts"].items() if name != "n/a"}
        items, full = sum(verdicts.values()), verdicts.get("full", 0)
        top = [c for name, c in result["categories"].items() if not name.startswith(("forward ", "present ", "strides", "undocumented"))]
        checks, right = sum(c["checks"] for c in top), sum(c["checks_right"] for c in top)
        yield f"| {title} | {items} | {full} ({percent(full, items)}) | {checks} | {percent(right, checks)} |"
        if result["options"].get("second"):
            most = sum(
                1
                for item in result["items"].values()
                if item["verdict"] not in ("n/a", "missing")
                and all(good == whole for kind, (good, whole) in item["right"].items() if kind not in ("gradient, second", "strides"))
            )
            yield f"| the same, first derivatives only | {items} | {most} ({percent(most, items)}) | | |"


def categories(result):
    yield "| check | items | right in all | checks | right |"
    yield "|---|---|---|---|---|"
    for name, c in sorted(result["categories"].items()):
        right, checks = percent(c["items_right"], c["items"]), percent(c["checks_right"], c["checks"])
        yield f"| {name} | {c['items']} | {right} | {c['checks']} | {checks} |"


def short(note):
    text = " ".join(str(note).split()).replace("|", "\\|")
    return text if len(text) <= 110 else text[:107] + "..."


def failing(kind, result):
    """Lines about what fails: by reason where many share one, else one by one."""
    shared, alone = {}, []
    for name, item in sorted(result["items"].items()):
        if item["verdict"] in ("full", "n/a") or not item["failures"]:
            continue
        reason = reason_for(kind, name, item["failures"])
        if "surface" in kind and reason:
            shared.setdefault(reason, []).append(name)
        else:
            first = item["failures"][0]
            wrong = ", ".join(f"{category} {right}/{whole}" for category, (right, whole) in item["right"].items() if right < whole)
            alone.append(f"| `{name}` | {wrong} | {reason or 'not explained: ' + short(first['note'])} |")
    if shared:
        yield "| reason | names |"
        yield "|---|---|"
        for reason, names in sorted(shared.items(), key=lambda entry: -len(entry[1])):
            yield f"| {reason} | {', '.join(f'`{name}`' for name in names)} |"
        yield ""
    if alone:
        yield "| name | right | why |"
        yield "|---|---|---|"
        yield from alone
    if not shared and not alone:
        yield "Nothing."


def page(results):
    yield "# What is covered, and what is not"
    yield ""
    version = next(iter(results.values()))["torch"].split("+")[0]
    yield f"Wisp against PyTorch {version}'s own databases: every operator with its sample inputs, every module, every optimizer and"
    yield "scheduler, and every public name with its parameters. Written by `tools/make_coverage.py` from the results."
    yield ""
    yield from totals(results)
    for title, result in results.items():
        if len(result["categories"]) > 4 and "surface" not in kind_of(result):
            yield from ("", f"## {title[0].upper()}{title[1:]}: by kind of check", "")
            yield from categories(result)
    for title, result in results.items():
        yield from ("", f"## {title[0].upper()}{title[1:]}: what fails", "")
        yield from failing(kind_of(result), result)


def on_gpu():
    """The operators that run on the CPU alone; tests/cuda holds all others to the CPU's results."""
    names = (ROOT / "tests" / "cuda" / "missing.txt").read_text().split()
    yield ON_GPU
    yield ""
    runs = "Every operator runs on CUDA with the CPU's results (`tests/cuda` runs the generated tests and every operator's example there)"
    if names:
        yield runs
        yield "but these, and what is composed of them, which raise `NotImplementedError: ... there is no kernel for tensors on cuda`:"
        yield ", ".join(f"`{name}`" for name in names)
    else:
        yield runs + "."
    yield "PyTorch's database of operators finds 634 of 674 right in everything on an H200, beside PyTorch 2.11 on the CPU; 99.5 % of the"
    yield "checks are. In compiled regions it is 630, as many checks, and five that were mended since (`digamma`, `lgamma` and `mvlgamma`:"
    yield "NVRTC 13.0 died of their programs). What differs there beyond the table above, and why:"
    yield from ("", "| operator | why |", "|---|---|")
    for operator, why in DIFFERENT_ON_GPU.items():
        yield f"| {operator} | {why} |"


def theirs():
    """The last section, on PyTorch's own tests, as it stands: tools/pytorch_tests prints its table."""
    _, title, text = PATH.read_text().partition(THEIRS)
    return "\n" + title + text if title else ""


def main(paths):
    if not paths:
        kept = PATH.read_text().split(ON_GPU)[0].rstrip()
        PATH.write_text(kept + "\n\n" + "\n".join(on_gpu()) + "\n" + theirs())
        return
    results = {}
    for path in paths:
        result = json.loads(pathlib.Path(path).read_text())
        title = {"api surface": "public names"}.get(result["kind"], result["kind"])
        if result["options"].get("second"):
            title += ", with second derivatives"
        results[title] = result
    PATH.write_text("\n".join([*page(results), "", *on_gpu()]) + "\n" + theirs())
    print(f"{PATH}: {sum(1 for _ in page(results))} lines")


if __name__ == "__main__":
    main(sys.argv[1:])
