"""Private interfaces of PyTorch's Dynamo about values that Python reads: constants instead, and checks of finished graphs.

Dynamo ends a graph where a program branches on a tensor. `guess_branches` lets a function choose the branch instead, and
another function wrap the compiled graph, which then returns one result more: the number of the first condition that differs.
"""

from __future__ import annotations

import dis
import inspect
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from typing import Any, ClassVar, NamedTuple

import torch

_STARTS = ("COPY_FREE_VARS", "MAKE_CELL", "NOP", "RESUME")
"""Instructions that may come before the call of a graph: without effects outside of the function."""
_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_GUESSES = "polyhal_guesses"
"""Attribute of a graph that Dynamo traces: its guesses."""


class Branch(NamedTuple):
    """A branch on a tensor that Dynamo is about to take."""

    code: types.CodeType
    instruction: int
    root: types.CodeType
    """Code of the function whose graph is traced; `code` is its own, or of a function that it calls."""
    fake: torch.Tensor
    """The condition as it is traced."""
    earlier: int
    """Number of branches that were guessed in this graph."""
    computed: Callable[[], torch.Tensor]
    """Computes the condition from the arguments of the call that compiles."""


class Guess(NamedTuple):
    """A branch whose condition was replaced by a constant."""

    code: types.CodeType
    instruction: int
    value: bool
    outcome: Variable
    """Dynamo's variable of the condition as a boolean, computed before the program can write to the condition."""


Compiled = Callable[..., Any]
Translator = Any
"""Dynamo's interpreter of one function."""
Instruction = Any
Variable = Any
"""Dynamo's variable: a value of the program that is traced."""
Output = Any
"""A graph that Dynamo traces, with the instructions that replace the function."""
Modules = Any
Choose = Callable[[Branch], bool | None]
Check = Callable[[Compiled, Sequence[Guess]], Compiled]
"""Wraps a compiled graph; the wrapper returns None instead of the results to run the function again."""


def guess_branches(choose: Choose, check: Check, give_up: Callable[[types.CodeType], None]) -> None:
    """Let `choose` decide branches on tensors, and wrap graphs with guesses by `check`. A later call replaces the functions.

    `choose` returns None for a branch that ends the graph. `give_up` receives code whose graph turns out to write to its
    arguments, or to have other effects before its end: it is traced again.
    """
    from torch._dynamo import output_graph, symbolic_convert

    def jump(taken: Callable[[Translator, Instruction], None], tx: Translator, instruction: Instruction) -> None:
        condition = tx.stack[-1].realize()
        guess = _guessed(tx, instruction, condition, choose) if condition.is_tensor() else None
        if guess is None:
            return taken(tx, instruction)
        tx.stack[-1] = constant = _constant(guess)
        taken(tx, instruction)
        if tx.stack and tx.stack[-1] is constant:  # `a or b` goes on with the tensor itself
            tx.stack[-1] = condition
        return None

    for kind in _with_subclasses(symbolic_convert.InstructionTranslatorBase):
        table = kind.dispatch_table
        for opcode, handler in enumerate(table):
            handler = getattr(handler, "unguessed", handler)
            if getattr(handler, "__qualname__", "") == "generic_jump.<locals>.inner":
                table[opcode] = _bound(jump, handler)

    graph: Any = output_graph.OutputGraph
    finish = getattr(graph.compile_and_call_fx_graph, "unguessed", graph.compile_and_call_fx_graph)

    def finish_guessed(self: Output, tx: Translator, rv: list[Variable], root: Modules) -> Any:
        guesses = self.__dict__.get(_GUESSES)
        if not guesses:
            return finish(self, tx, rv, root)
        return _finished(self, finish, tx, rv, root, guesses, check, give_up)

    finish_guessed.unguessed = finish  # type: ignore[attr-defined]
    graph.compile_and_call_fx_graph = finish_guessed


def _bound(
    jump: Callable[..., None], handler: Callable[[Translator, Instruction], None]
) -> Callable[[Translator, Instruction], None]:
    def bound(tx: Translator, instruction: Instruction) -> None:
        jump(handler, tx, instruction)

    bound.unguessed = handler  # type: ignore[attr-defined]
    return bound


def _with_subclasses(kind: Any) -> Iterator[Any]:
    yield kind
    for derived in kind.__subclasses__():
        yield from _with_subclasses(derived)


def _constant(value: Any) -> Any:
    from torch._dynamo import variables

    return variables.ConstantVariable.create(value)


def _guessed(tx: Translator, instruction: Instruction, condition: Variable, choose: Choose) -> bool | None:
    output = tx.output
    node = condition.as_proxy().node
    fake = node.meta.get("example_value")
    if not isinstance(fake, torch.Tensor) or not _may_guess(tx) or _is_in_loop(tx):
        return None
    guesses: list[Guess] = output.__dict__.setdefault(_GUESSES, [])
    code, root = _Repeated.original(tx.f_code), _Repeated.original(output.root_tx.f_code)
    branch = Branch(code, instruction.offset, root, fake, len(guesses), lambda: _computed(output, node))
    value = choose(branch)
    if value is not None:
        outcome = _called(tx, torch.reshape, _called(tx, torch.ne, condition, 0), ())
        guesses.append(Guess(code, branch.instruction, value, outcome))
    return value


def _called(tx: Translator, function: Callable[..., Any], *args: Any) -> Variable:
    """Add a call to the graph, with variables of tensors and with numbers."""
    from torch._dynamo.variables.builder import wrap_fx_proxy

    proxies = tuple(x.as_proxy() if hasattr(x, "as_proxy") else x for x in args)
    return wrap_fx_proxy(tx, tx.output.create_proxy("call_function", function, proxies, {}))


def fold_numbers(number: Callable[[torch.Tensor, Callable[[], torch.Tensor]], bool | float | None]) -> None:
    """Let `number` compute `x.item()` where the traced value of `x` depends on constants only. Replaces an earlier function.

    It receives the traced value, and a function that computes it; None ends the graph.
    """
    from torch._dynamo.variables.tensor import TensorVariable

    traced: Any = TensorVariable
    call = getattr(traced.call_method, "unfolded", traced.call_method)

    def call_method(self: Variable, tx: Translator, name: str, args: Sequence[Variable], kwargs: Any) -> Variable:
        if name == "item" and not args and not kwargs and tx.output.current_tracer.parent is None:
            node = self.as_proxy().node
            fake = node.meta.get("example_value")
            if isinstance(fake, torch.Tensor) and _is_constant(node) and not _enters_autocast(tx.output):
                value = number(fake, lambda: _computed(tx.output, node))
                if value is not None:
                    return _constant(value)
        return call(self, tx, name, args, kwargs)

    call_method.unfolded = call  # type: ignore[attr-defined]
    traced.call_method = call_method


def _is_constant(node: torch.fx.Node) -> bool:
    """Return whether a node depends on constants only, and no other node uses or writes its direct and indirect operands."""
    found: set[torch.fx.Node] = set()
    rest = [node]
    while rest:
        made = rest.pop()
        if made not in found:
            if made.op not in ("call_function", "call_method") or "empty" in str(made.target):
                return False
            # Functions of other libraries may read more than their operands.
            if _library(made) not in (None, "aten", "prims"):
                return False
            found.add(made)
            rest.extend(made.all_input_nodes)
    return all(user in found for made in found for user in made.users)


def _library(node: torch.fx.Node) -> str | None:
    """Return the library of a registered op; None for other functions."""
    is_registered = isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
    return str(node.target).partition(".")[0] if is_registered else None


def _enters_autocast(output: Output) -> bool:
    return any(n.target is torch.amp.autocast_mode._enter_autocast for n in output.graph.nodes)


def _may_guess(tx: Translator) -> bool:
    """Return whether the function can run again, and the program does not require a single graph."""
    output = tx.output
    if output.current_tracer.parent is not None or output.export or output.root_tx.f_code.co_flags & _SUSPENDED:
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None or _is_written(output):
        return False
    while tx is not None:
        if tx.one_graph or tx.error_on_graph_break or tx.is_tracing_resume_prologue:
            return False
        tx = getattr(tx, "parent", None)
    return True


def _is_in_loop(tx: Translator) -> bool:
    """Return whether a later instruction of the same function jumps back before the current one."""
    now = tx.current_instruction.offset
    rest = tx.instructions[tx.instruction_pointer :]
    return any(x.target is not None and x.target.offset is not None and x.target.offset < now for x in rest)


def _is_written(output: Output) -> bool:
    """Return whether the graph has written to an argument so far, or communicated with other processes."""
    if any("c10d" in (_library(n) or "") for n in output.graph.nodes):
        return True
    return bool(output.root_tracer.has_input_mutation().has_mutation)


def _computed(output: Output, node: torch.fx.Node) -> torch.Tensor:
    """Compute a value from the arguments of the call that compiles, in a thread of its own.

    Modes that the graph has entered so far, such as autocast, end with the thread. It begins with the caller's autocast.
    """
    kinds = {"cpu", node.meta["example_value"].device.type}
    autocasts = [(k, torch.get_autocast_dtype(k), torch.is_autocast_enabled(k)) for k in kinds]
    nodes = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    nodes.graph_copy(output.graph, copies)
    nodes.output(copies[node])
    nodes.eliminate_dead_code()
    arguments = [n.meta["grapharg"].example for n in output.graph.nodes if n.op == "placeholder"]
    interpreter = torch.fx.Interpreter(torch.fx.GraphModule(dict(output.nn_modules), nodes))
    found: list[torch.Tensor] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            with torch.no_grad(), ExitStack() as stack:
                for autocast in autocasts:
                    stack.enter_context(torch.autocast(*autocast))
                found.append(interpreter.run(*arguments))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=copy_context().run, args=(run,))
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return found[0]


def _finished(
    output: Output,
    finish: Callable[..., Any],
    tx: Translator,
    results: list[Variable],
    modules: Modules,
    guesses: Sequence[Guess],
    check: Check,
    give_up: Callable[[types.CodeType], None],
) -> Any:
    """Finish a graph with guesses. Its instructions call the function again if the wrapper returns None."""
    from torch._dynamo import bytecode_transformation as bytecode
    from torch._dynamo import codegen, decorators, exc

    root = output.root_tx
    code = root.f_code

    def restart(reason: str) -> None:
        give_up(_Repeated.original(code))
        root.speculation_log.clear()
        raise exc.RestartAnalysis(restart_reason=reason)

    if _is_written(output) or any(x.opname not in _STARTS for x in output.output_instructions):
        restart("a graph with a guess has other effects")
    compiler = output.call_user_compiler

    def compiled(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        made = compiler(graph, inputs)
        metadata = torch._guards.TracingContext.get().fw_metadata
        if metadata is None or any(x.mutates_data or x.mutates_metadata for x in metadata.input_info):
            restart("a graph with a guess writes to its arguments")
        return check(made, guesses)

    output.call_user_compiler = compiled
    try:
        made = finish(output, tx, [*results, _first_difference(root, guesses)], modules)
    finally:
        del output.call_user_compiler
    instructions, *rest = made if isinstance(made, tuple) else (made,)

    again = _Repeated(code, root.f_globals)
    cells, free = set(root.cell_and_freevars()), code.co_freevars
    skipped: Any = decorators.disable
    name = output.install_global("__again", skipped(again.run, recursive=False))
    names = codegen.PyCodegen(root)
    end = bytecode.create_instruction("NOP")
    is_true = next(x for x in ("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_IF_TRUE") if x in dis.opmap)
    loads = [bytecode.create_instruction("LOAD_DEREF" if n in cells else "LOAD_FAST", argval=n) for n in again.names]
    wrapped = [
        *instructions,
        bytecode.create_dup_top(),
        names.create_load_const(None),
        bytecode.create_instruction("IS_OP", arg=1),
        bytecode.create_instruction(is_true, target=end),
        bytecode.create_instruction("POP_TOP"),
        *names.load_function_name(name, True),
        *loads,
        bytecode.create_instruction("BUILD_TUPLE", arg=len(loads)),
        *(names.create_load_closure(n) for n in free),
        bytecode.create_instruction("BUILD_TUPLE", arg=len(free)),
        *bytecode.create_call_function(2, False),
        bytecode.create_instruction("RETURN_VALUE"),
        end,
    ]
    return (wrapped, *rest) if isinstance(made, tuple) else wrapped


def _first_difference(tx: Translator, guesses: Sequence[Guess]) -> Any:
    """Return a node: 1 plus the index of the first condition that differs from its guess, 0 if all are equal."""
    first: Any = 0
    for number, guess in reversed(list(enumerate(guesses, 1))):
        outcomes = (first, number) if guess.value else (number, first)
        first = _called(tx, torch.where, guess.outcome, *outcomes)
    return first


class _Repeated:
    """A function that Dynamo compiles separately: a copy of its code with all arguments by position."""

    _originals: ClassVar[dict[int, tuple[types.CodeType, types.CodeType]]] = {}
    """Copies with the code that they copy, by the identity of the copy: different copies are equal."""

    def __init__(self, code: types.CodeType, names: dict[str, Any]) -> None:
        from torch._dynamo.resume_execution import ContinueExecutionCache

        count = code.co_argcount + code.co_kwonlyargcount + (code.co_flags & _VARIADIC).bit_count()
        self.names = code.co_varnames[:count]
        self._globals = names
        self._code = code.replace(
            co_argcount=count, co_posonlyargcount=count, co_kwonlyargcount=0, co_flags=code.co_flags & ~_VARIADIC
        )
        self._originals[id(self._code)] = self._code, self.original(code)
        resumed = ContinueExecutionCache.generated_code_metadata
        if code in resumed:
            resumed[self._code] = resumed[code]

    @classmethod
    def original(cls, code: types.CodeType) -> types.CodeType:
        """Return the code that was copied, or the given code if it is not a copy."""
        return cls._originals.get(id(code), (code, code))[1]

    def run(self, arguments: tuple[Any, ...], cells: tuple[types.CellType, ...]) -> Any:
        """Call the copy."""
        return types.FunctionType(self._code, self._globals, self._code.co_name, None, cells)(*arguments)
