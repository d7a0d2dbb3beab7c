"""A text thread over an engine that does what the test says."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

from omlxd.ipc.messages import (
    FromWorker,
    GenerateRequest,
    LiveSettings,
    Load,
    LoadSettings,
    Stop,
    Submit,
    TokenizerReady,
)
from omlxd.worker.text import TextSide
from tests.fakes.engine_run import FakeEngineFactory
from tests.support.tokenizers import text_model

LIVE = LiveSettings(max_context=48)
LOAD = Load(LoadSettings(model_id="tiny", path="/nowhere", kind="llm"), LIVE)
MODEL = text_model()
LETTER = int(MODEL.tokenizer.encode("a")[0])


class Side:
    """A running text thread; `frame` waits for what it sends."""

    def __init__(self, load_text: Any = lambda _settings: MODEL) -> None:
        self.factory = FakeEngineFactory()
        self.frames: SimpleQueue[FromWorker] = SimpleQueue()
        self.code: int | None = None
        self.text = TextSide(
            self.frames.put,
            engine_factory=self.factory,
            load_text=load_text,
            clock=lambda: 5.0,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.code = self.text.run()

    def start(self) -> None:
        self._thread.start()

    def load(self) -> None:
        self.text.put(LOAD)
        assert self.frame() == TokenizerReady(48)

    def frame(self) -> FromWorker:
        return self.frames.get(timeout=10)

    def submit(self, request_id: str = "r", **fields: Any) -> None:
        request = GenerateRequest(
            request_id=request_id, model="tiny", **({"prompt": [5, 6]} | fields)
        )
        self.text.put(Submit(request))

    def join(self) -> int | None:
        self._thread.join(10)
        return self.code

    def stop(self) -> None:
        if self._thread.ident is not None:
            self.text.put(Stop())
            self._thread.join(10)
