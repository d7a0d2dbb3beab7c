"""`python -m omlxd.worker --fd N`: one model, served over the socket that is descriptor N."""

from __future__ import annotations

import argparse
import os
from importlib.metadata import version
from typing import NoReturn

_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # a worker reads local folders only
    "TOKENIZERS_PARALLELISM": "false",  # texts come one at a time, so a thread pool is no help
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",  # it misses PyTorch, which is not used here
}


def main() -> NoReturn:
    parser = argparse.ArgumentParser(prog="omlxd.worker", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="a connected Unix stream socket")
    descriptor: int = parser.parse_args().fd
    os.environ |= _ENVIRONMENT
    # The slow imports come before the first frame: a spare worker has them behind it.
    import omlxd.worker.lm
    import omlxd.worker.text_model  # noqa: F401
    from omlxd.worker.host import serve
    from omlxd.worker.sides import make_side

    serve(
        descriptor,
        make_side=make_side,
        versions={name: version(name) for name in ("mlx", "mlx-lm", "transformers")},
    )


if __name__ == "__main__":
    main()
