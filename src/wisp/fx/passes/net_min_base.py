"""Finds the steps of a graph at fault where two ways to run it give different results."""

from dataclasses import dataclass

from wisp.fx.graph_module import GraphModule
from wisp.fx.node import map_arg
from wisp.fx.passes.shape_prop import ShapeProp
from wisp.fx.passes.split_utils import split_by_tags
from wisp.fx.passes.splitter_base import generate_inputs_for_submodules
from wisp.fx.passes.tools_common import CALLABLE_NODE_OPS, FxNetAccFusionsFinder

__all__ = ["FxNetMinimizerBadModuleError", "FxNetMinimizerResultMismatchError", "FxNetMinimizerRunFuncError"]


class FxNetMinimizerBadModuleError(Exception):
    """The steps cannot be taken out of the graph."""


class FxNetMinimizerRunFuncError(Exception):
    """One of the ways to run the steps raised an error."""


class FxNetMinimizerResultMismatchError(Exception):
    """The results are not the same."""


_FAULTS = (FxNetMinimizerRunFuncError, FxNetMinimizerResultMismatchError)


@dataclass
class _MinimizerSettingBase:
    """How to search. `traverse_method`: "sequential" tries each step, "binary" halves, "block" finds the first and last step of a
    block, "accumulate" adds steps one by one, "skip" leaves out named steps, "defined" tries what is given as a whole.

    `find_all` does not stop at the first; `accumulate_error` gives each way its own earlier results; `return_intermediate` lets
    `run_nodes` compare the result of every step, and `all_outputs` all that leave the steps.
    """

    accumulate_error: bool = False
    traverse_method: str = "sequential"
    find_all: bool = False
    return_intermediate: bool = False
    all_outputs: bool = False

    def __str__(self):
        return "FX Minimizer Settings:\n" + "".join(f"\t{name}: {value}\n" for name, value in vars(self).items())


class _MinimizerBase:
    """Runs parts of `module` with `run_a` and `run_b`, which a subclass defines, and has `compare_fn(a, b, names)` say how far their
    results are apart and whether that is near enough. `exclusion_fn(nodes, start, end)` may take steps off a list;
    `module_exporter(inputs, module, name)` gets the parts whose results differ.

    >>> class Minimizer(_MinimizerBase):
    ...     def run_a(self, mod, inputs, report_idx=-1):
    ...         return mod(*inputs)
    ...     def run_b(self, mod, inputs, report_idx=-1):
    ...         return mod(*inputs) + any(node.target is wisp.neg for node in mod.graph.nodes)
    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(wisp.neg(x)))
    >>> minimizer = Minimizer(traced, [wisp.ones(2)], lambda a, b, names: (0, wisp.equal(a, b)), _MinimizerSettingBase())
    >>> minimizer._sequential_traverse(minimizer._collect_nodes(None, None))
    Sequential traverse iteration 1.
     . Visit node: neg
     . Run and compare ...
     . Numerical accuracy = 0
     . Result mismatch for ('neg',)
     . Found culprit from numeric error: neg
    {neg}
    """

    def __init__(self, module, sample_input, compare_fn, settings, module_exporter=None, exclusion_fn=None):
        if not isinstance(module, GraphModule):
            raise AssertionError(f"Expected GraphModule, got {type(module)}")
        self.module, self.sample_input, self.compare_fn, self.settings = module, sample_input, compare_fn, settings
        self.module_exporter, self.exclusion_fn = module_exporter, exclusion_fn
        self.results, self.reports, self.iteration = {}, [], 0
        self.run_shape_prop()
        self.fusions = FxNetAccFusionsFinder(module, {node for node in module.graph.nodes if node.op in CALLABLE_NODE_OPS})()
        names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        if len(names) != len(sample_input):
            raise AssertionError(f"the graph has {len(names)} inputs, got {len(sample_input)} sample inputs")
        self.a_outputs, self.b_outputs = dict(zip(names, sample_input)), dict(zip(names, sample_input))

    def run_shape_prop(self):
        """Note the shapes of all steps."""
        ShapeProp(self.module).propagate(*self.sample_input)

    def run_a(self, mod, inputs, report_idx=-1):
        """The results of a part in one way."""
        raise RuntimeError("run_a() is not implemented.")

    def run_b(self, mod, inputs, report_idx=-1):
        """The results of a part in the other way."""
        raise RuntimeError("run_b() is not implemented.")

    def _store_outputs(self, a_result, b_result, submodule):
        output = submodule.graph.output_node()
        if output.all_input_nodes and output.args[0] is output.all_input_nodes[0]:
            a_result, b_result = (a_result,), (b_result,)
        for i, node in enumerate(output.all_input_nodes):
            self.a_outputs[node.name], self.b_outputs[node.name] = a_result[i], b_result[i]

    def _get_submod_inputs(self, main_module, submod_path):
        submodule = getattr(main_module, submod_path)
        names = [node.name for node in submodule.graph.nodes if node.op == "placeholder"]
        if set(names) <= self.a_outputs.keys():
            a, b = ([stored[name] for name in names] for stored in (self.a_outputs, self.b_outputs))
        else:
            if self.settings.accumulate_error:
                print(f"Can't find previous stored outputs named {names}!")
            a = b = generate_inputs_for_submodules(main_module, self.sample_input, [submod_path])[submod_path]
        return a, (b if self.settings.accumulate_error else a)

    def _tag_nodes(self, selected_nodes):
        for node in self.module.graph.nodes:
            if node.op in CALLABLE_NODE_OPS:
                behind = any(used.tag != "main_0" for used in node.all_input_nodes if used.op in CALLABLE_NODE_OPS)
                node.tag = "minimize" if node in selected_nodes else "main_1" if behind else "main_0"

    def _build_submodule(self, nodes):
        self._tag_nodes(nodes)
        try:
            return split_by_tags(self.module, ["main_0", "minimize", "main_1"]), "minimize"
        except AssertionError as error:
            raise FxNetMinimizerBadModuleError(f"these steps cannot be taken out of the graph: {nodes}") from error

    def _run_and_compare(self, split_module, submod_name, output_names, report_idx=-1):
        submodule = getattr(split_module, submod_name)
        a_input, b_input = self._get_submod_inputs(split_module, submod_name)
        if not self.reports:
            self.reports.append([])
            self.iteration = 1
        report = self.reports[report_idx if report_idx >= 0 else self.iteration - 1]
        report.append("Run and compare ...")
        if output_names and not self.settings.all_outputs:
            submodule.graph.erase_node(submodule.graph.output_node())
            wanted = [node for node in submodule.graph.nodes if node.name in output_names]
            submodule.graph.output(wanted[0] if len(wanted) == 1 else tuple(wanted))
            submodule.graph.lint()
            submodule.recompile()
        key = map_arg(submodule.graph.output_node().args, lambda node: node.name)
        try:
            a_result = self.run_a(submodule, a_input, report_idx)
            b_result = self.run_b(submodule, b_input, report_idx)
            self._store_outputs(a_result, b_result, submodule)
        except Exception as error:
            report.append(f"Exception raised when running {submod_name}: {error}")
            raise FxNetMinimizerRunFuncError(report[-1]) from error
        self.results[key], near = self.compare_fn(a_result, b_result, [str(name) for name in key] if output_names is None else output_names)
        report.append(f"Numerical accuracy = {self.results[key]}")
        if near:
            return
        report.append(f"Result mismatch for {key}")
        if self.module_exporter:
            name = key[-1] if isinstance(key[-1], str) else str(key[-1][0])
            self.module_exporter(a_input, submodule, name + "_cpu")
            self.module_exporter(b_input, submodule, name + "_acc")
        raise FxNetMinimizerResultMismatchError(report[-1])

    def _report(self, title):
        self.reports.append([title])
        self.iteration = len(self.reports)
        return self.reports[-1]

    def _kept(self, nodes, start=-1, end=-1):
        """The steps that are not excluded."""
        nodes = list(nodes)
        if self.exclusion_fn is not None:
            self.exclusion_fn(nodes, start, end)
        return nodes

    def _fault(self, nodes, names, report):
        """The error that shows up with these steps, or None."""
        try:
            split_module, name = self._build_submodule(nodes)
            self._run_and_compare(split_module, name, names, len(self.reports) - 1)
        except _FAULTS as error:
            return error
        report.append("No discrepancy found.")
        return None

    def _binary_search_impl(self, all_nodes, start_idx, end_idx):
        nodes = self._kept(all_nodes[start_idx:end_idx], start_idx, end_idx)
        if not nodes:
            self.reports.append(["All nodes are excluded by user"])
            return set()
        report = self._report(f"Binary search iteration {self.iteration + 1}")
        report.append(f"From node index {start_idx}:{nodes[0].name} to {end_idx - 1}:{nodes[-1].name}.")
        fault = self._fault(set(nodes), [nodes[-1].name], report)
        if fault is not None and len(nodes) == 1:
            report.append(f"Found culprit: {nodes[0]}")
        self.print_report(report)
        if fault is None or len(nodes) == 1:
            return set() if fault is None else set(nodes)
        middle = start_idx + len(nodes) // 2
        found = self._binary_search_impl(all_nodes, start_idx, middle)
        if found and not self.settings.find_all:
            return found
        return found | self._binary_search_impl(all_nodes, middle, end_idx)

    def _binary_traverse(self, nodes):
        return self._binary_search_impl(nodes, 0, len(nodes))

    def _sequential_traverse(self, nodes):
        found = set()
        for node in nodes:
            report = self._report(f"Sequential traverse iteration {self.iteration + 1}.")
            report.append(f"Visit node: {node.name}")
            excluded, fault = not self._kept([node]), None
            if not excluded:
                together = self.fusions.get(node, {node})
                fault = self._fault(together, [node.name], report)
                numeric = isinstance(fault, FxNetMinimizerResultMismatchError)
                if fault is not None:
                    found |= {node} if numeric else together
                    report.append(f"Found culprit from {'numeric' if numeric else 'run'} error: {node}")
            self.print_report(report)
            if not self.settings.find_all and (excluded or fault is not None):
                break
        return found

    def _edge(self, nodes, last):
        """The last of the fewest first steps that show the fault, or the first of the fewest last ones; None where all show none."""
        low, high = 0, len(nodes)  # number of steps: none has no fault
        first = True
        while first or high - low > 1:
            count = high if first else (low + high) // 2
            report = self._report(f"Block search iteration {self.iteration + 1}")
            tried = self._kept(nodes[:count] if last else nodes[-count:])
            report.append(f"Subgraph constructed by {tried[0].name} to {tried[-1].name}")
            fault = self._fault(set(tried), [tried[-1].name], report)
            self.print_report(report)
            if first and fault is None:
                return None
            low, high = (low, count) if fault is not None else (count, high)
            first = False
        return high - 1 if last else len(nodes) - high

    def _block_traverse(self, nodes, find_last_node):
        start, end = 0, len(nodes) - 1
        if find_last_node is not False:
            end = self._edge(nodes, True)
        if end is not None and not find_last_node:
            start = self._edge(nodes[: end + 1], False)
        if start is None or end is None:
            self.print_report(self._report("No culprits found"))
            return set()
        self.print_report(self._report(f"Finish searching, found minimum block ({nodes[start]},{nodes[end]})"))
        return set(nodes[start : end + 1])

    def _defined_traverse(self, nodes):
        nodes = self._kept(nodes)
        if not nodes:
            self.reports.append(["All nodes are excluded by user"])
            return set()
        report = self._report(f"Defined graph from {nodes[0].name} to {nodes[-1].name}")
        fault = self._fault(set(nodes), [nodes[-1].name], report)
        if fault is not None:
            report.append(f"Found culprit {set(nodes)}")
        self.print_report(report)
        return set() if fault is None else set(nodes)

    def _accumulate_traverse(self, nodes):
        if self.settings.find_all:
            print("'Find All' mode is not supported in accumulate traversal.")
            return set()
        tried = set()
        for node in nodes:
            report = self._report(f"Accumulate traverse iteration {self.iteration + 1}.")
            report.append(f"Add node: {node.name}")
            tried.add(node)
            fault = self._fault(tried, [node.name], report)
            if fault is not None:
                report.append(f"Found culprit {node}")
            self.print_report(report)
            if fault is not None:
                return {node}
        return set()

    def _skip_traverse(self, all_nodes, skip_nodes):
        found, start = set(), 0
        for i, node in enumerate([*all_nodes, None]):
            if node is not None and node.name not in skip_nodes:
                continue
            nodes = self._kept(all_nodes[start:i], start, i)
            if nodes:
                report = self._report(f" Nodes block {self.iteration + 1}.")
                together = set(nodes).union(*(self.fusions.get(one, ()) for one in nodes))
                if self._fault(together, [], report) is not None:
                    found |= together
                    report.append(f"Found culprit: {together}")
                self.print_report(report)
            start = i + 1
        return found

    def _collect_nodes(self, start, end):
        """The calls from one name to another, with both."""
        nodes, inside = [], start is None
        for node in self.module.graph.nodes:
            inside = inside or node.name == start
            if inside and node.op in CALLABLE_NODE_OPS:
                nodes.append(node)
            if node.name == end:
                break
        return nodes

    def run_nodes(self, start=None, end=None):
        """Compare the results of the steps from one name to another, and print the error if there is one."""
        nodes = self._collect_nodes(start, end)
        together = set(nodes).union(*(self.fusions.get(node, ()) for node in nodes))
        try:
            split_module, name = self._build_submodule(together)
            self._run_and_compare(split_module, name, [node.name for node in nodes] if self.settings.return_intermediate else [])
        except _FAULTS as error:
            print(error)

    def print_report(self, report):
        """Print the lines of one try."""
        for i, line in enumerate(report):
            print(f" . {line}" if i else line)

    def print_reports(self):
        """Print all tries."""
        for report in self.reports:
            self.print_report(report)

    def minimize(self, start=None, end=None, skip_nodes=None, find_last_node=None):
        """The steps at fault among those from one name to another, as the settings say.

        `skip_nodes` are names that "skip" leaves out; `find_last_node` lets "block" find only the last or only the first step.
        """
        print(self.settings)
        print(self.module.graph)
        method, nodes = self.settings.traverse_method, self._collect_nodes(start, end)
        if method == "skip":
            if skip_nodes is None:
                raise RuntimeError("'skip_nodes' can't be None when 'traverse_method' is 'skip'.")
            return self._skip_traverse(nodes, skip_nodes)
        if method == "block":
            return self._block_traverse(nodes, find_last_node)
        if method not in ("sequential", "binary", "accumulate", "defined"):
            raise RuntimeError(f"Unknown traverse method {method}!")
        return getattr(self, f"_{method}_traverse")(nodes)
