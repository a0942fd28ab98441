"""Splits a graph into parts for an accelerator and parts for the CPU."""

import copy
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import wisp
from wisp.fx.graph_module import GraphModule
from wisp.fx.passes._node_events import (  # noqa: F401
    ALL_SUFFIX,
    DUMP_PREFIX,
    ENV_FX_NET_ACC_SPLITTER_TRACKER_DUMP_PATH,
    ENV_FX_NET_ACC_SPLITTER_TRACKER_MODE,
    ENV_FX_NET_ACC_SPLITTER_TRACKER_TRACKED_NODES,
    NODES_SUFFIX,
    TRACKER_MODE,
    NodeEvent,
    NodeEventTracker,
)
from wisp.fx.passes.shape_prop import ShapeProp
from wisp.fx.passes.split_utils import move_non_tensor_nodes_on_boundary, split_by_tags
from wisp.fx.passes.tools_common import CALLABLE_NODE_OPS, FxNetAccFusionsFinder, get_node_target, is_node_output_tensor

__all__ = [
    "FxNetAccNodesFinder",
    "FxNetSplitterInternalError",
    "NodeEvent",
    "NodeEventTracker",
    "SplitResult",
    "Subgraph",
    "generate_inputs_for_submodules",
]


class _SplitterSettingBase:
    """What a splitter does: parts of fewer steps than `min_acc_module_size` go to the CPU, at most `max_acc_splits` parts are made,
    values that are no tensors may go between devices with `allow_non_tensor`, and steps that make them need not stay together with
    `skip_fusion`."""

    def __init__(
        self, min_acc_module_size=1, skip_fusion=False, allow_non_tensor=False, max_acc_splits=-1, move_non_tensor_nodes_on_boundary=False
    ):
        self.min_acc_module_size, self.skip_fusion = min_acc_module_size, skip_fusion
        self.allow_non_tensor, self.max_acc_splits = allow_non_tensor, max_acc_splits
        self.move_non_tensor_nodes_on_boundary = move_non_tensor_nodes_on_boundary


class FxNetAccNodesFinder:
    """The steps that the accelerator runs: those that `operator_support` supports, but (unless `allow_non_tensor`) for those that
    exchange values that are no tensors with the CPU. Calling it returns them as a set."""

    def __init__(self, module, operator_support, allow_non_tensor):
        self.module, self.operator_support, self.allow_non_tensor = module, operator_support, allow_non_tensor
        self.acc_nodes, self.tracker = set(), NodeEventTracker(int(TRACKER_MODE), DUMP_PREFIX)

    def reduce_acc_nodes_non_tensor_input_helper(self, cpu_worklist):
        """Take out what uses these steps of the CPU, and what uses those that make no tensor."""
        while cpu_worklist:
            node = cpu_worklist.pop(0)
            for user in node.users:
                if user not in self.acc_nodes:
                    continue
                self.acc_nodes.remove(user)
                self.tracker.add(user, "acc_del|user_of_new_cpu_node", node)
                if not is_node_output_tensor(user):
                    self.tracker.add(user, "new_cpu_node|non_tensor_output")
                    cpu_worklist.append(user)

    def reduce_acc_nodes_non_tensor_input(self):
        """Take out what the CPU would hand something else than tensors."""
        found = []
        for node in self.module.graph.nodes:
            if node.op in CALLABLE_NODE_OPS and node not in self.acc_nodes and not is_node_output_tensor(node):
                self.tracker.add(node, "new_cpu_node|callable_non_tensor_input")
                found.append(node)
        self.reduce_acc_nodes_non_tensor_input_helper(found)

    def reduce_acc_nodes_non_tensor_output(self):
        """Take out what would hand the CPU something else than tensors."""
        while True:
            found = {}
            for node in self.module.graph.nodes:
                user = next((user for user in node.users if user not in self.acc_nodes), None)
                if node in self.acc_nodes and user is not None and not is_node_output_tensor(node):
                    found[node] = user
            if not found:
                return
            for node, user in found.items():
                self.tracker.add(node, "acc_del|non_tensor_output_with_cpu_user", user)
                self.acc_nodes.remove(node)
            self.reduce_acc_nodes_non_tensor_input_helper(list(found))

    def __call__(self):
        modules = dict(self.module.named_modules())
        self.acc_nodes = set()
        for node in self.module.graph.nodes:
            if node.op not in CALLABLE_NODE_OPS:
                self.tracker.add(node, "init_cpu|not_callable")
            elif not self.operator_support.is_node_supported(modules, node):
                self.tracker.add(node, "init_cpu|operator_support")
            else:
                self.tracker.add(node, "init_acc|callable_and_operator_supported")
                self.acc_nodes.add(node)
        if not self.allow_non_tensor:
            self.reduce_acc_nodes_non_tensor_input()
            self.reduce_acc_nodes_non_tensor_output()
        self.tracker.dump()
        return self.acc_nodes


class FxNetSplitterInternalError(Exception):
    """The graph cannot be split: its steps wait for each other."""


@dataclass
class Subgraph:
    """Steps that become one submodule."""

    is_acc: bool
    nodes: list
    device_ordinal: int | None = None


class SplitResult(NamedTuple):
    """A split module, the inputs of its submodules on the sample inputs, and what the names of those for the CPU begin with."""

    split_module: GraphModule
    submodule_inputs: dict[str, Any]
    non_acc_submodule_prefix: str


def generate_inputs_for_submodules(model, inputs, target_submodules, deepcopy=False):
    """What these submodules are called with when the model is called with `inputs`; copied as they are at that time with `deepcopy`.

    >>> model = wisp.nn.Sequential(wisp.nn.ReLU(), wisp.nn.Tanh())
    >>> generate_inputs_for_submodules(model, [wisp.tensor([-1.0, 2.0])], ["1"])
    {'1': (tensor([0., 2.]),)}
    """
    found, handles = {}, []
    for name, module in model.named_modules():
        if name in target_submodules:

            def note(_, given, name=name):
                found[name] = copy.deepcopy(given) if deepcopy else given

            handles.append(module.register_forward_pre_hook(note))
    try:
        with wisp.no_grad():
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found


class _SplitterBase:
    """Splits `module` into submodules `_run_on_acc_N` of steps that `operator_support` supports and `_run_on_cpu_N` of the others.

    >>> from wisp.fx.passes.operator_support import OperatorSupport
    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(wisp.neg(x)) + x)
    >>> support = OperatorSupport({"torch.relu": None, "torch.neg": None})
    >>> split = _SplitterBase(traced, [wisp.ones(2)], support, _SplitterSettingBase())()
    Got 1 acc subgraphs and 1 non-acc subgraphs
    >>> [name for name, _ in split.named_children()]
    ['_run_on_acc_0', '_run_on_cpu_1']
    """

    PCIe_BW = 100 * 2**30  # bytes a second, of which `split_preview` makes a bound

    def __init__(
        self, module, sample_input, operator_support, settings, non_acc_submodule_name="_run_on_cpu_", return_tuple=False, nodes_finder=None
    ):
        if not isinstance(module, GraphModule):
            raise AssertionError(f"Expected GraphModule, got {type(module)}")
        self.module, self.sample_input = module, sample_input
        self.operator_support, self.settings = operator_support, settings
        ShapeProp(module).propagate(*sample_input)
        self.acc_nodes = (nodes_finder or FxNetAccNodesFinder(module, operator_support, settings.allow_non_tensor))()
        self.fusions = {} if settings.skip_fusion else FxNetAccFusionsFinder(module, self.acc_nodes)()
        self.deps = self.find_deps()
        self.update_deps_for_fusions()
        self.non_acc_submodule_name, self._return_tuple = non_acc_submodule_name, return_tuple
        self._node_submodule_map, self.tags = {}, []

    def get_node_submodule_map(self):
        """The names of submodules by those of the steps in them."""
        return self._node_submodule_map

    def find_deps(self):
        """The calls that each call uses."""
        deps = defaultdict(set)
        for node in self.module.graph.nodes:
            if node.op in CALLABLE_NODE_OPS:
                deps[node] = {used for used in node.all_input_nodes if used.op in CALLABLE_NODE_OPS}
        return deps

    def update_deps_for_fusions(self):
        """Let steps that stay together wait for all that one of them waits for, and what uses one wait for all of them."""
        for group in {id(group): group for group in self.fusions.values()}.values():
            needed = set().union(*(self.deps[node] for node in group)) - group
            for node in group:
                self.deps[node] |= needed
                for user in node.users:
                    if user not in group and user.op in CALLABLE_NODE_OPS:
                        self.deps[user] |= group

    def find_reverse_deps(self, tag_id=None):
        """The calls that use each call; with `tag_id` only those in parts before it."""
        result = defaultdict(set)
        for node in self.module.graph.nodes:
            if node.op in CALLABLE_NODE_OPS:
                users = [user for user in node.users if user.op in CALLABLE_NODE_OPS]
                result[node] = {user for user in users if tag_id is None or int(user.tag.rsplit("_", 1)[-1]) < tag_id}
        return result

    def update_reverse_deps_for_fusions(self, deps):
        """Let steps that stay together be used by all that uses one of them."""
        for group in {id(group): group for group in self.fusions.values()}.values():
            users = set().union(*(deps[node] for node in group)) - group
            for node in group:
                deps[node] = users
                for used in node.all_input_nodes:
                    if used not in group:
                        deps[used] |= group

    def find_parent_nodes_of_subgraph(self, tag):
        """The calls outside of a part that it uses."""
        nodes = [node for node in self.module.graph.nodes if node.op in CALLABLE_NODE_OPS and node.tag == tag]
        return {used for node in nodes for used in node.all_input_nodes if used.op in CALLABLE_NODE_OPS and used.tag != tag}

    def extend_acc_subgraph(self, tag):
        """Move calls that the accelerator supports into a part of its that uses them, if no part before that one does."""
        deps = self.find_reverse_deps(int(tag.rsplit("_", 1)[-1]))
        self.update_reverse_deps_for_fusions(deps)
        near, moved = self.find_parent_nodes_of_subgraph(tag), set()
        while True:
            node = next((n for n in near if n in self.acc_nodes and deps[n] <= moved), None)
            if node is None:
                return
            node.tag = tag
            near.remove(node)
            moved.add(node)
            near |= self.fusions.get(node, set()) - moved
            near |= {used for used in node.all_input_nodes if used.op in CALLABLE_NODE_OPS and used not in moved}

    def _lower_model_to_backend(self, mod, inputs):
        return mod

    def _find_culprit(self, mod, inputs):
        return "Unable to find a culprit because _find_culprit() function is not implemented."

    def put_nodes_into_subgraphs(self):
        """Parts in turn for the CPU and the accelerator, each with all steps that can run when it is its turn."""
        left = [node for node in self.module.graph.nodes if node.op in CALLABLE_NODE_OPS]
        accelerated = not any(not self.deps[node] for node in left if node not in self.acc_nodes)
        done, parts = set(), []
        while left:
            part, found = Subgraph(accelerated, []), True
            while found:  # once through the graph, again while a step that stands earlier has become ready
                found = [n for n in left if (n in self.acc_nodes) == accelerated and self._ready(n, done, part)]
                left = [n for n in left if n not in done]
            if not part.nodes:
                raise FxNetSplitterInternalError("Subgraph can't be empty")
            parts.append(part)
            accelerated = not accelerated
        if not parts:
            raise FxNetSplitterInternalError("Couldn't create subgraphs")
        return parts

    def _ready(self, node, done, part):
        if not self.deps[node] <= done:
            return False
        done.add(node)
        part.nodes.append(node)
        return True

    def remove_small_acc_subgraphs(self, subgraphs):
        """The parts, with those for the accelerator that are too small in the one of the CPU beside them."""
        result = []
        for part in subgraphs:
            size, least = len(part.nodes), self.settings.min_acc_module_size
            if part.is_acc and size < least:
                print(f"Eliminating acc subgraph because it's smaller than the threshold: {size} < {least}")
                part.is_acc = False
            if result and not part.is_acc and not result[-1].is_acc:
                result[-1].nodes.extend(part.nodes)
            else:
                result.append(part)
        return result

    def tag(self, subgraphs):
        """Note on each step which submodule it goes to."""
        self.tags = []
        for number, part in enumerate(subgraphs):
            self.tags.append(f"_run_on_acc_{number}" if part.is_acc else f"{self.non_acc_submodule_name}{number}")
            for node in part.nodes:
                if hasattr(node, "tag"):
                    raise FxNetSplitterInternalError(f"Node {node} was already tagged")
                node.tag = self._node_submodule_map[node.name] = self.tags[-1]

    def split(self, remove_tag=False):
        """The split module, by the notes."""
        made = split_by_tags(self.module, self.tags, return_tuple=self._return_tuple)
        if remove_tag:
            for node in self.module.graph.nodes:
                if hasattr(node, "tag"):
                    del node.tag
        return made

    def __call__(self):
        parts = self.put_nodes_into_subgraphs()
        if self.settings.move_non_tensor_nodes_on_boundary:
            move_non_tensor_nodes_on_boundary(parts)
        parts = self.remove_small_acc_subgraphs(parts)
        accelerated = sum(part.is_acc for part in parts)
        print(f"Got {accelerated} acc subgraphs and {len(parts) - accelerated} non-acc subgraphs")
        self.tag(parts)
        return self.split()

    def generate_split_results(self):
        """The split module with the inputs of its submodules."""
        made = self()
        names = [name for name, _ in made.named_children()]
        if 0 < self.settings.max_acc_splits < len(names):
            raise ValueError(f"Cannot fulfill max_acc_splits limit: {len(names)} submodules are more than {self.settings.max_acc_splits}.")
        return SplitResult(made, generate_inputs_for_submodules(made, self.sample_input, names), self.non_acc_submodule_name)

    def node_support_preview(self, dump_graph=False):
        """A text, also printed, of which targets with arguments of which dtypes are supported; a picture in node_support.dot."""
        modules, supported = dict(self.module.named_modules()), set()
        lines = {True: {}, False: {}}
        for node in self.module.graph.nodes:
            if node.op not in CALLABLE_NODE_OPS:
                continue
            yes = bool(self.operator_support.is_node_supported(modules, node))
            if yes:
                supported.add(node)
            by_place = [_dtype(arg) for arg in node.args]
            while by_place and by_place[-1] is None:
                by_place.pop()
            by_name = {name: _dtype(arg) for name, arg in node.kwargs.items() if isinstance(arg, wisp.fx.Node)}
            lines[yes].setdefault(f"{get_node_target(modules, node)}: ({tuple(by_place)}, {by_name})\n")
        if dump_graph:
            self._draw_support(supported)
        report = "\nSupported node types in the model:\n" + "".join(lines[True])
        report += "\nUnsupported node types in the model:\n" + "".join(lines[False])
        print(report)
        return report

    def _draw_support(self, supported):
        from wisp.fx.passes.graph_drawer import FxGraphDrawer

        class Drawer(FxGraphDrawer):
            def _get_node_style(self, node):
                calls = "chartreuse1" if node in supported else "crimson"
                return {**super()._get_node_style(node), "fillcolor": calls if node.op in CALLABLE_NODE_OPS else "AliceBlue"}

        Drawer(self.module, "node_support", ignore_getattr=True).get_main_dot_graph().write_raw("node_support.dot")

    def split_preview(self, dump_graph=False):
        """A text, also printed, of the submodules that would be made, and of how fast their inputs and outputs can be moved."""
        from wisp.fx.passes.graph_drawer import FxGraphDrawer

        def counted(parts):
            accelerated = sum(part.is_acc for part in parts)
            return f"{len(parts)} subgraphs are created: {accelerated} acc subgraphs and {len(parts) - accelerated} cpu subgraphs.\n"

        parts = self.put_nodes_into_subgraphs()
        report = "Before removing small acc subgraphs, total " + counted(parts)
        parts = self.remove_small_acc_subgraphs(parts)
        report += "After removing small acc subgraphs, total " + counted(parts)
        self.tag(parts)
        report += "".join(f"{tag}: {len(part.nodes)} node(s)\n" for tag, part in zip(self.tags, parts))
        made = self.split(remove_tag=True).eval()
        if dump_graph:
            for name, dot in FxGraphDrawer(made, "preview", ignore_getattr=True).get_all_dot_graphs().items():
                dot.write_raw(f"{name}.dot")
        names = [tag for tag, part in zip(self.tags, parts) if part.is_acc]
        inputs, rates = generate_inputs_for_submodules(made, self.sample_input, names), {}
        for name in names:
            text, rates[name] = self._submodule_report(name, getattr(made, name), inputs[name])
            report += text
        slowest = min(rates, key=rates.get, default="")
        rate = min([self.PCIe_BW, *rates.values()])
        report += f"\nTheoretical max qps (bounds by PCIe bandwidth) for this model is {rate}, bottleneck is submodule {slowest}."
        print(report)
        return report

    def _submodule_report(self, name, module, inputs):
        from wisp.fx.passes.graph_manipulation import get_size_of_node

        ShapeProp(module).propagate(*inputs)
        text, sizes = f"\nProcessing acc submodule {name}\n", []
        output = module.graph.output_node()
        taken = [node for node in module.graph.nodes if node.op == "placeholder"]
        for title, nodes in (("Input", taken), ("Output", output.all_input_nodes)):
            text += f"Checking {title.lower()}s...\n"
            loose = [node for node in nodes if not is_node_output_tensor(node)]
            text += "".join(f"{title} {node.name} is not a tensor, this might cause problems during lowering!\n" for node in loose)
            sizes.append(sum(get_size_of_node(module, node)[0] for node in nodes if node not in loose))
        rate = self.PCIe_BW / max(*sizes, 1)
        text += f"Total input size in bytes is {sizes[0]}, total output size in bytes is {sizes[1]},"
        text += f" theoretical max qps (bounds by PCIe bandwidth) for this submodule is {rate}.\n"
        stage = "lowering"
        try:
            lowered = self._lower_model_to_backend(module, inputs)
            stage = "inference"
            lowered(*inputs)
        except RuntimeError:
            return f"{text}Run into an error during {stage}!\n{self._find_culprit(module, inputs)}", rate
        return text + "Lowering and running succeed!\n", rate


def _dtype(arg):
    return getattr(arg.meta.get("tensor_meta"), "dtype", None) if isinstance(arg, wisp.fx.Node) else None
