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
from functools import partial
from itertools import groupby
from typing import Any

from jinja2 import TemplateError

from omlxd.errors import RequestInvalid

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
        normal = normalise(messages)
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
        if continue_final and normal[-1]["role"] != "assistant":
            raise RequestInvalid(
                "only an assistant message can be continued, and the last message is one of"
                f" {normal[-1]['role']!r}",
                param="messages",
            )

        def render(conversation: Sequence[Message]) -> list[int]:
            apply = partial(
                self._tokenizer.apply_chat_template,
                list(conversation),
                tools=list(tools) or None,
                add_generation_prompt=not continue_final,
                continue_final_message=continue_final,
                **template_kwargs,
            )
            text: str = apply(tokenize=False)
            check_size(text)
            ids: list[int]
            if self._has_control((conversation, tools, template_kwargs)):
                # The names of tokens are marked before they are rendered, so once more.
                ids = apply(sanitize_control_tokens=True, return_dict=False)
            else:
                ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
            return ids

        return _first_that_renders(normal, render)

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


def normalise(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Roles a template knows, and content that is always a string. Raises RequestInvalid."""
    if not messages:
        raise RequestInvalid("messages is empty; send at least one message", param="messages")
    return [_normalise(message, index) for index, message in enumerate(messages)]


def _normalise(message: Mapping[str, Any], index: int) -> Message:
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
        normal["tool_calls"] = [_decoded_call(call, index) for call in message["tool_calls"]]
    return normal


def _decoded_call(call: Any, index: int) -> Message:
    """Templates want the arguments as an object, clients send them as JSON text."""
    if not isinstance(call, Mapping):
        raise RequestInvalid(f"message {index}: a tool call is no object", param="messages")
    if isinstance(call.get("function"), Mapping):
        return {**call, "function": _decoded_call(call["function"], index)}
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


def _first_that_renders(
    messages: Sequence[Message], render: Callable[[Sequence[Message]], list[int]]
) -> list[int]:
    try:
        return render(messages)
    except _TEMPLATE_FAULTS as error:
        refusal = error
    for simpler in _simpler(messages):
        try:
            return render(simpler)
        except _TEMPLATE_FAULTS:
            continue  # the refusal of what was sent is the one to report
    # Only the first line: what follows may quote the whole prompt.
    reason = (str(refusal) or type(refusal).__name__).splitlines()[0]
    raise RequestInvalid(
        f"the model's chat template refused these messages: {reason}", param="messages"
    ) from refusal


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
