"""Where an embeddings endpoint is and what it is asked for; known without asking it anything."""

import hashlib
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint that speaks OpenAI's embeddings API, and how its model wants to be spoken to.

    Attributes:
        url: The base URL, such as `http://127.0.0.1:8000/v1`. It may carry a user, a password and a query, which are
            as secret as the key.
        model: The model that passages are embedded with.
        key: Sent as a bearer token.
        dimensions: Length of the vectors, where it is to be asked for. Otherwise it is what the endpoint sends.
        query_model: The name to ask for when it is a query; some servers tell queries from passages by that.
        query_prefix: Put before every query, such as `query: `.
        passage_prefix: Put before every passage, such as `passage: `.
    """

    url: str = field(repr=False)
    model: str
    key: str | None = field(default=None, repr=False)
    dimensions: int | None = None
    query_model: str | None = None
    query_prefix: str = ""
    passage_prefix: str = ""

    @property
    def name(self) -> str:
        """What vectors are remembered by, together with their length: all that changes a passage's vector.

        Not the host: the same model behind another one is the same. Not what only queries get: no stored vector
        depends on that.
        """
        if not self.passage_prefix:
            return f"openai:{self.model}"
        digest = hashlib.sha256(self.passage_prefix.encode("utf-8", "surrogatepass")).hexdigest()
        return f"openai:{self.model}#{digest[:8]}"

    @property
    def host(self) -> str:
        """Host and port, which may be shown."""
        return urlsplit(self.url).netloc.rpartition("@")[2]
