"""Chat templates: from messages to the text that a model was trained on, by the model's own template.

Templates are written in jinja2 for the environment of transformers: blocks without surrounding line breaks, `raise_exception`,
`strftime_now`, `tojson` without HTML escapes, `break` and `continue`, and `generation` blocks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from polyhal.hal.errors import PolyhalError, message
from polyhal.llm.template_errors import ChatTemplateError

_LARGEST_TEMPLATE = 1 << 20
_LONGEST_FORMAT = 64


class ChatTemplate:
    """The template of a model, compiled. Raises ChatTemplateError, and ImportError without jinja2."""

    def __init__(self, source: str) -> None:
        if len(source) > _LARGEST_TEMPLATE:
            problem = f"the template has {len(source)} characters"
            raise ChatTemplateError(message("chat_template", problem, expected=f"at most {_LARGEST_TEMPLATE}"))
        self.source = source
        """Text of the template."""
        self._template = _compiled(source)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """Return the text of a conversation, by default with the beginning of the answer.

        `variables` are passed to the template, such as `bos_token` or `enable_thinking`. Raises ChatTemplateError with the
        template's own message if it rejects the messages, and TemplateLimitError if it takes too long.
        """
        from jinja2 import TemplateError

        from polyhal.llm.template_limits import budget

        names = {"tools": tools, "documents": documents, "add_generation_prompt": add_generation_prompt}
        try:
            with budget():
                text: str = self._template.render(messages=list(messages), **names, **variables)
        except PolyhalError:
            raise
        except (
            TemplateError,
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
        ) as error:
            problem = "the template calls itself without end" if isinstance(error, RecursionError) else str(error)
            raise ChatTemplateError(message("chat_template", problem or type(error).__name__)) from error
        return text


def _compiled(source: str) -> Any:
    """Parse and compile a template. Raises ChatTemplateError with the line of a mistake."""
    try:
        import jinja2
    except ImportError as error:
        fix = 'pip install "polyhal[llm]"'
        raise ImportError(message("chat_template", "the library `jinja2` is missing", fix=fix)) from error
    from polyhal.llm.template_limits import Measured

    environment = _environment()
    try:
        tree = Measured().visit(environment.parse(source))
        for node in tree.find_all(jinja2.nodes.Node):
            node.set_environment(environment)
            node.set_lineno(1)
        return environment.from_string(tree)
    except jinja2.TemplateSyntaxError as error:
        raise ChatTemplateError(
            message("chat_template", f"line {error.lineno} of the template: {error.message}")
        ) from error
    except (RecursionError, MemoryError, SyntaxError, ValueError, jinja2.TemplateError) as error:
        problem = f"the template cannot be compiled: {str(error) or type(error).__name__}"
        raise ChatTemplateError(message("chat_template", problem)) from error


def _environment() -> Any:
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    from polyhal.llm import template_limits as limits

    class Generation(Extension):
        """Blocks that mark the answers of the model; their content is written as it is."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class Environment(ImmutableSandboxedEnvironment):
        """The sandbox, with limits."""

        intercepted_binops = frozenset({"+", "*", "**", "%"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            limits.check_operator(operator, left, right)
            return super().call_binop(context, operator, left, right)

        def wrap_str_format(self, value: Any) -> Any:
            wrapped = super().wrap_str_format(value)
            if wrapped is not None:
                limits.check_format(value.__self__)
            return wrapped

        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
            receiver = getattr(__obj, "__self__", None)
            if isinstance(receiver, (str, list, tuple)):
                limits.check_call(receiver, args, kwargs)
            limits.spend(iterations=1)
            return super().call(__context, __obj, *args, **kwargs)

    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols], optimized=False, autoescape=False
    )
    environment.globals.pop("lipsum", None)

    def raise_exception(text: str) -> None:
        raise jinja2.TemplateError(text)

    def strftime_now(form: str) -> str:
        if len(form) > _LONGEST_FORMAT:
            raise jinja2.TemplateError(f"a format of {len(form)} characters")
        return datetime.now().strftime(form)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}
    environment.filters["tojson"] = tojson
    environment.filters = {name: limits.limited_filter(f) for name, f in environment.filters.items()}
    environment.filters |= {"counted": limits.counted, "written": limits.written, "joined": limits.joined}
    return environment
