"""Tracing of programs with `assert`: the statement is rewritten to a call, which is a step of the graph."""

import ast
import copy
import inspect
import textwrap
import types

from wisp import nn
from wisp._compat import module_of
from wisp.fx._symbolic_trace import Tracer
from wisp.fx.graph import Graph

__all__ = ["AST_Rewriter", "RewritingTracer", "normalize_source_lines"]


def normalize_source_lines(sourcelines):
    """The lines of a function with its own indentation taken away.

    >>> normalize_source_lines(["    def f():", "        pass"])
    ['def f():', '    pass']
    """
    return textwrap.dedent("\n".join(line.rstrip("\n") for line in sourcelines)).split("\n")


def _ours(path):
    """The expression that finds a function of this package, whatever names the program's module has."""
    return ast.parse(f'__import__("wisp.fx.annotate").{path}', mode="eval").body


class AST_Rewriter(ast.NodeTransformer):
    """Makes functions without `assert` and without types of local names that are called."""

    def rewrite(self, fn):
        """The function with its statements rewritten; its module's names, defaults and closure are those of the old one."""
        text = "".join(inspect.getsourcelines(fn)[0])
        tree = ast.parse("if True:\n" + text if text[:1].isspace() else text)  # its own indentation stays, for the texts in it
        tree.body = tree.body[0].body if text[:1].isspace() else tree.body
        tree = self.visit(tree)
        tree, names = ast.fix_missing_locations(tree), dict(fn.__globals__)
        function = tree.body[0]
        function.decorator_list = []
        free = fn.__code__.co_freevars
        if free:  # the names of the closure are arguments of a function around it
            around = ast.parse(f"def _around({', '.join(free)}):\n    return {function.name}").body[0]
            around.body.insert(0, function)
            tree.body = [ast.fix_missing_locations(around)]
        exec(compile(tree, inspect.getfile(fn), "exec"), names)
        made = names["_around"](*[None] * len(free)) if free else names[function.name]
        # globals stay those of the module: functions that the tracer puts there are found
        result = types.FunctionType(made.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
        result.__kwdefaults__, result.__annotations__ = fn.__kwdefaults__, fn.__annotations__
        return result

    def visit_Assert(self, node):
        """`assert test, message` as `torch._assert(test, message)`."""
        message = node.msg or ast.Constant(value="")
        call = ast.Call(func=_ours("_assert"), args=[node.test, message], keywords=[])
        return ast.copy_location(ast.Expr(value=call), node)

    def visit_AnnAssign(self, node):
        """`name: type = value` as `name = annotate(value, type)`."""
        if node.value is None:
            return node
        call = ast.Call(func=_ours("fx.annotate.annotate"), args=[node.value, node.annotation], keywords=[])
        return ast.copy_location(ast.Assign(targets=[node.target], value=call), node)


class RewritingTracer(Tracer):
    """A tracer that sees `assert`.

    >>> [node.op for node in RewritingTracer().trace(wisp.nn.Identity()).nodes]
    ['placeholder', 'output']
    """

    def trace(self, root, concrete_args=None) -> Graph:
        """The graph of a module or function, rewritten."""
        return super().trace(_rewrite(root), concrete_args)


def _rewrite(fn):
    if not isinstance(fn, nn.Module):
        return AST_Rewriter().rewrite(fn)

    def rewritten(module):
        made = copy.copy(module)
        made.__dict__ = dict(module.__dict__)
        if not module_of(type(module)).startswith("wisp."):
            made.__class__ = type(type(module).__name__, (type(module),), {"forward": AST_Rewriter().rewrite(type(module).forward)})
        made.__dict__["_modules"] = dict(module._modules)
        for name, inner in module._modules.items():
            made._modules[name] = inner and rewritten(inner)
            if name in made.__dict__:  # where attributes are found first
                made.__dict__[name] = made._modules[name]
        return made

    return rewritten(fn)
