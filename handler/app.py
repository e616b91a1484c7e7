"""What AWS Lambda calls: `handler.app.handler`, built once, when a process starts cold."""

from handler.adapter import Handler
from kura.settings import Settings

handler = Handler(Settings())
