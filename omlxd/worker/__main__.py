"""`python -m omlxd.worker --fd N`: one model, served over the socket that is descriptor N."""

from __future__ import annotations

import argparse
import os
from importlib.metadata import version
from typing import NoReturn


def main() -> NoReturn:
    parser = argparse.ArgumentParser(prog="omlxd.worker", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="a connected Unix stream socket")
    descriptor: int = parser.parse_args().fd
    # A worker reads local folders only. Its texts come one at a time, so no thread pool helps.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    # The slow imports come before the first frame: a spare worker has them behind it.
    from omlxd.worker.host import serve
    from omlxd.worker.lm import load_engine
    from omlxd.worker.text_model import load_text_model

    serve(
        descriptor,
        engine_factory=load_engine,
        load_text=load_text_model,
        versions={name: version(name) for name in ("mlx", "mlx-lm", "transformers")},
    )


if __name__ == "__main__":
    main()
