"""Which reader reads which format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omlxd.worker.output_format import OutputFormat
from omlxd.worker.tool_calls.pieces import CallReader


def call_reader(form: OutputFormat, tools: Sequence[Mapping[str, Any]]) -> CallReader:
    """For one envelope. `tools` are those that were offered, as in `GenerateRequest.tools`."""
    raise NotImplementedError(form.tools)
