"""What a request holds that its model cannot read: a note takes its place, and it is counted."""

from __future__ import annotations

from omlxd.api.ports import ServedModel
from omlxd.errors import RequestInvalid


class Omissions:
    """Of one request."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self.count = 0

    def picture(self, where: str) -> str:
        """The note for a picture; refused for a model that could see it."""
        if self._model.kind != "llm":
            raise RequestInvalid(
                f"{where}: pictures are not in this version; send text.", param=where
            )
        self.count += 1
        return f"[image omitted: {self._model.id} has no vision]"

    def other(self, kind: str) -> str:
        self.count += 1
        return f"[{kind} omitted: {self._model.id} cannot read it]"
