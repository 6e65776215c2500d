"""Chat templates: the text of conversations, and limits on hostile templates."""

from __future__ import annotations

import pytest

pytest.importorskip("jinja2", reason="needs jinja2: pip install 'polyhal[llm]'")

from polyhal.llm import ChatTemplate, ChatTemplateError, TemplateLimitError

MESSAGES = [{"role": "system", "content": "Be <good>."}, {"role": "user", "content": "Hi "}]
CHATML = (
    "{%- if tools %}\n    {{- 'tools: ' + tools | tojson }}\n{%- endif %}\n"
    "{% for m in messages %}\n{{ '<|im_start|>' + m.role + '\\n' + m.content | trim + '<|im_end|>\\n' }}\n{% endfor %}"
    "{% if add_generation_prompt %}{% generation %}<|im_start|>assistant{{ '\\n' }}{% endgeneration %}{% endif %}"
)
LOOP = "{% for i in range(60) %}"
START = "{% set ns = namespace(x='a', y=[1]) %}"


def test_conversations_are_written_as_their_template_says() -> None:
    """As transformers writes them."""
    first = "<|im_start|>system\nBe <good>.<|im_end|>\n\n<|im_start|>user\nHi<|im_end|>\n\n"
    template = ChatTemplate(CHATML)
    assert template.render(MESSAGES, add_generation_prompt=False) == first
    with_tools = template.render(MESSAGES, tools=[{"name": "f<x>", "text": "ü"}])
    assert with_tools == 'tools: [{"name": "f<x>", "text": "ü"}]' + first + "<|im_start|>assistant\n"
    with pytest.raises(ChatTemplateError, match="roles must alternate"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}").render(MESSAGES)
    with pytest.raises(ChatTemplateError, match="line 2"):
        ChatTemplate("a\n{% for %}")


@pytest.mark.parametrize(
    "text",
    [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{{ 'a' * 10 ** 10 }}",
        "{{ 10 ** 100000 }}",
        START + LOOP + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        START + LOOP + "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.y }}",
        "{{ 'a'.center(10 ** 10) }}",
        "{{ 'a' | center(10 ** 10) }}",
        "{{ '%10000000000d' % 1 }}",
        "{{ '{:{}}'.format(1, 10 ** 10) }}",
        "{% set a = 'a' * 10 ** 6 %}{{ a | replace('a', a) }}",
        "{% set a = 'a' * 10 ** 6 %}{{ ([a] * 10 ** 5) | join }}",
        "{% set a = 'a' * 10 ** 6 %}{% set b %}" + LOOP * 2 + "{{ a }}{% endfor %}{% endfor %}{% endset %}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}{{ cycler.__init__.__globals__ }}",
    ],
)
def test_hostile_templates_are_refused(text: str) -> None:
    with pytest.raises((TemplateLimitError, ChatTemplateError)):
        ChatTemplate(text).render(MESSAGES)
