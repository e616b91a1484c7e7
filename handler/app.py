"""What AWS Lambda calls: `handler.app.handler`, built once, when a process starts cold."""

from kura.vectors.blas import one_blas_thread

one_blas_thread()

from handler.adapter import Handler
from kura.settings import read_settings

handler = Handler(read_settings())
