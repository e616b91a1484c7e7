"""What AWS Lambda calls: `handler.app.handler`, built once, when a process starts cold."""

from kura.vectors.blas import one_blas_thread

one_blas_thread()

from handler.adapter import Handler
from handler.telemetry import set_up
from kura.settings import read_settings

settings = read_settings()
handler = Handler(settings, begins=set_up(settings.log_level))
