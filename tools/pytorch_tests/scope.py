"""Which tests are out of scope, by name only (never by outcome), and the groups of causes of a failure."""

import re

# TorchScript, tracing, dynamo/inductor/compile, C++ extensions, mobile, vendor libraries, other devices, the dispatcher,
# meta/fake registrations, functionalization, quantization
_WORDS = (
    "jit|script|scripted|scripting|scriptable|torchscript|trace_module|traced|tracing|dynamo|graph_break|inductor|compile|compiled|torchbind|"
    "mkldnn|onednn|xnnpack|fbgemm|qnnpack|cudnn|cuda|gpu|multigpu|rocm|mps|xpu|hpu|mtia|meta|fake|functionalize|functionalization|"
    "dispatch|dispatcher|dispatch_mode|torch_dispatch|aot|autograd_dispatch|cpp_extension|cpp|nccl|quantized|quantize|qint8|quint8|quantization|"
    "kineto|itt|nvtx|mobile|lite|lazy_backend|symint|symbolic_shapes|unbacked|make_fx|proxy_tensor|triton|vulkan|privateuse1|"
    "python_dispatch|dispatch_key|per_overload|named_tensor|names|onnx|multi_gpu|pinned|pin_memory"
)
_OUT = re.compile(rf"(?i)(?:^|_|\.)(?:{_WORDS})(?=_|\.|$)")
_CLASSES = re.compile(
    r"(?i)(Jit|Script|Quantiz|Meta(?!ta)|FakeTensor|Dispatch|Functionaliz|AOT|Compile|Dynamo|Inductor|CUDA$|MkldnnF|Onnx|ProxyTensor|MAIATensor)"
)


def out_of_scope(identifier):
    parts = identifier.split(".")
    if re.search(r"__?refs_|_prims_|_cxx(_|$)|CxxPytree", identifier):
        return True
    return bool(_OUT.search(parts[-1]) or _CLASSES.search(parts[-2] if len(parts) > 1 else ""))
