"""Messages to token ids, through the model's chat template.

Text of a message cannot forge a turn: where it holds the name of a special token (or of a token
that ends a turn) it is tokenised as ordinary text. Everything else is tokenised as one string, so
that no seam changes a token.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import groupby
from typing import Any

from jinja2 import TemplateError

from omlxd.errors import RequestInvalid
from omlxd.worker.output_format import output_format
from omlxd.worker.template_tools import simpler, taught

Message = dict[str, Any]

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_TEMPLATE_FAULTS = (TemplateError, TypeError, ValueError, KeyError, AttributeError, IndexError)


class ChatTemplate:
    """The template of one model. `tokenizer` is a transformers tokenizer with `chat_template`."""

    def __init__(self, tokenizer: Any, *, turn_ends: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self.form = output_format(tokenizer)
        added: Mapping[int, Any] = tokenizer.added_tokens_decoder
        ends = [token.content for index, token in added.items() if index in turn_ends]
        # Markers that are not special, as of reasoning and tool calls, stay tokens in old turns:
        # a reply must be the same tokens when it comes back as history.
        tokenizer.chat_control_tokens = ends
        control = {token.content for token in added.values() if token.special} | set(ends)
        longest_first = sorted(control, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._reserved = frozenset(inspect.signature(tokenizer.apply_chat_template).parameters) - {
            "kwargs",
            "documents",
        } | {"messages"}

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        template_kwargs: Mapping[str, Any],
        continue_final: bool = False,
        check_size: Callable[[str], None] = lambda _text: None,
    ) -> list[int]:
        """Token ids of the prompt. Raises RequestInvalid.

        `check_size` gets the rendered text before it is tokenised, and raises if it is too long.
        """
        self._check(messages, template_kwargs, continue_final=continue_final)
        if self.form.is_taught:
            normal, tools = taught(normalise(messages, decode=False), tools), ()
        else:
            normal = normalise(messages, decode=not self._wants_text_arguments)
        render = partial(
            self._render,
            kwargs=template_kwargs,
            continue_final=continue_final,
            check_size=check_size,
        )
        offers = [tools, simpler(tools)] if tools else [tools]
        return _first_that_renders([self._named(message) for message in normal], offers, render)

    def _check(
        self,
        messages: Sequence[Mapping[str, Any]],
        template_kwargs: Mapping[str, Any],
        *,
        continue_final: bool,
    ) -> None:
        if self._tokenizer.chat_template is None:
            raise RequestInvalid(
                "this model has no chat template: use /v1/completions, or set chat_template"
                " for the model",
                param="messages",
            )
        for name in template_kwargs:
            if name in self._reserved:
                raise RequestInvalid(
                    f"chat_template_kwargs cannot set {name!r}", param="chat_template_kwargs"
                )
        if continue_final and messages and messages[-1].get("role") != "assistant":
            raise RequestInvalid(
                "only an assistant message can be continued, and the last message is one of"
                f" {messages[-1].get('role')!r}",
                param="messages",
            )

    def _render(
        self,
        conversation: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        *,
        kwargs: Mapping[str, Any],
        continue_final: bool,
        check_size: Callable[[str], None],
    ) -> list[int]:
        apply = partial(
            self._tokenizer.apply_chat_template,
            list(conversation),
            tools=list(tools) or None,
            add_generation_prompt=not continue_final,
            continue_final_message=continue_final,
            **kwargs,
        )
        text: str = apply(tokenize=False)
        check_size(text)
        ids: list[int]
        if self._has_control((conversation, tools, kwargs)):
            # The names of tokens are marked before they are rendered, so once more.
            ids = apply(sanitize_control_tokens=True, return_dict=False)
        else:
            ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    @cached_property
    def _wants_text_arguments(self) -> bool:
        """Whether the template writes arguments as they are: then an object would come out in
        Python's notation.
        """
        function = {"name": "f", "arguments": {"argument": "value"}}
        call = {"id": "000000001", "type": "function", "function": function}
        probe = [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "!", "tool_call_id": call["id"], "name": "f"},
        ]
        try:
            text = self._tokenizer.apply_chat_template(probe, tokenize=False)
        except _TEMPLATE_FAULTS:
            return True  # as if it joined texts
        return "{'argument'" in text

    def _named(self, message: Message) -> Message:
        """Reasoning of old turns under the name by which the template asks for it."""
        template = self._tokenizer.chat_template
        if "reasoning_content" not in message or "reasoning_content" in template:
            return message
        rest = {key: value for key, value in message.items() if key != "reasoning_content"}
        if "thinking" in template and not (rest["content"] and rest.get("tool_calls")):
            return {**rest, "thinking": message["reasoning_content"]}
        return rest

    def _has_control(self, value: Any) -> bool:
        if isinstance(value, str):
            return self._control.search(value) is not None
        if isinstance(value, Mapping):
            for key in value:
                if self._control.search(str(key)):  # the library neutralises values only
                    raise RequestInvalid(f"the key {key!r} holds a control token of the model")
            return any(map(self._has_control, value.values()))
        if isinstance(value, list | tuple):
            return any(map(self._has_control, value))
        return False


def normalise(messages: Sequence[Mapping[str, Any]], *, decode: bool = True) -> list[Message]:
    """Roles a template knows, and content that is always a string; arguments of calls as objects
    if `decode`. Raises RequestInvalid.
    """
    if not messages:
        raise RequestInvalid("messages is empty; send at least one message", param="messages")
    return [_normalise(message, index, decode) for index, message in enumerate(messages)]


def _normalise(message: Mapping[str, Any], index: int, decode: bool) -> Message:
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        raise RequestInvalid(
            f"message {index}: role {message.get('role')!r} is not one of {', '.join(_ROLES)}",
            param="messages",
        )
    content = message.get("content")
    if content is None:
        content = ""
    elif isinstance(content, list):
        content = "".join(_part_text(part, index) for part in content)
    elif not isinstance(content, str):
        raise RequestInvalid(
            f"message {index}: content is neither text nor a list of parts", param="messages"
        )
    normal = {**message, "role": role, "content": content}
    if message.get("tool_calls"):
        normal["tool_calls"] = [_call(call, index, decode) for call in message["tool_calls"]]
    return normal


def _call(call: Any, index: int, decode: bool) -> Message:
    """Most templates want the arguments as an object, clients send them as JSON text."""
    if not isinstance(call, Mapping):
        raise RequestInvalid(f"message {index}: a tool call is no object", param="messages")
    if isinstance(call.get("function"), Mapping):
        return {**call, "function": _call(call["function"], index, decode)}
    if not decode:
        return dict(call)
    try:
        arguments = json.loads(call.get("arguments", ""))
    except (TypeError, ValueError):  # an object already, or text that the model got wrong
        return dict(call)
    return {**call, "arguments": arguments} if isinstance(arguments, dict) else dict(call)


def _part_text(part: Any, index: int) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise RequestInvalid(
        f"message {index}: a content part of type {kind!r} holds no text", param="messages"
    )


Render = Callable[[Sequence[Message], Sequence[Mapping[str, Any]]], list[int]]


def _first_that_renders(
    messages: Sequence[Message], offers: Sequence[Sequence[Mapping[str, Any]]], render: Render
) -> list[int]:
    """What was sent goes as it is; only if that is refused in a simpler form."""
    try:
        return render(messages, offers[0])
    except _TEMPLATE_FAULTS as error:
        refusal = error
    for tools in offers:
        for simpler_messages in (messages, *_simpler(messages)):
            try:
                return render(simpler_messages, tools)
            except _TEMPLATE_FAULTS:
                continue  # the refusal of what was sent is the one to report
    # Only the first line: what follows may quote the whole prompt.
    reason = (str(refusal) or type(refusal).__name__).splitlines()[0]
    raise RequestInvalid(
        f"the model's chat template refused {_place(messages, offers[0], render)}: {reason}",
        param="messages",
    ) from refusal


def _place(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], render: Render) -> str:
    """The first message without which what is before it renders, as far as that can be told."""
    low, high = 0, len(messages)  # so many render; so many do not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            render(messages[:middle], tools)
            low = middle
        except _TEMPLATE_FAULTS:
            high = middle
    return f"message {high - 1} (role {messages[high - 1]['role']!r})"


def _simpler(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """For templates that want alternating roles, or the system first only, or know none."""
    flat = _flat(messages)
    if flat != list(messages):
        yield flat
    # What the system says between turns is said by the user then; it stays where it stands.
    late = [m if m["role"] != "system" else {**m, "role": "user"} for m in messages[1:]]
    if late != list(messages[1:]):
        yield [messages[0], *late]
        flat = _flat([messages[0], *late])
        yield flat
    if flat[0]["role"] == "system" and len(flat) > 1 and flat[1]["role"] == "user":
        text = f"{flat[0]['content']}\n\n{flat[1]['content']}"
        yield [{**flat[1], "content": text}, *flat[2:]]


def _flat(messages: Sequence[Message]) -> list[Message]:
    groups = (_merge(list(group)) for _, group in groupby(messages, key=_mergeable_role))
    return [message for group in groups for message in group]


def _mergeable_role(message: Message) -> str | None:
    return None if "tool_calls" in message or message["role"] == "tool" else message["role"]


def _merge(group: list[Message]) -> list[Message]:
    if _mergeable_role(group[0]) is None or len(group) == 1:
        return group
    return [{**group[0], "content": "\n\n".join(message["content"] for message in group)}]
