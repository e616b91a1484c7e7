import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kura.text.tokens import FTS_TOKENIZE, MOST_TERMS, STOP_WORDS, match_expression, tokens

stable = settings(derandomize=True, deadline=None, max_examples=300)

# Besides any text at all: what people write, dense enough that the rules meet.
WRITING = st.text(
    st.sampled_from(
        "aBcS019 .,-_'’&@+#:/\"*()\n知识库の가é\u0301ßİσςйअ\u093fعَ\u0e01\u0e32🎉🇩🇪\U00020000\u200b\ud800\x00"
    )
)
ANYTHING = st.one_of(st.text(), st.text(st.characters(exclude_categories=())), WRITING)


class Index:
    """A small FTS5 table of texts, asked as Kura asks."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute(f'create virtual table texts using fts5 (tokens, tokenize = "{FTS_TOKENIZE}")')
        self.connection.execute("create virtual table terms using fts5vocab (texts, 'instance')")

    def add(self, *texts: str) -> None:
        rows = [(" ".join(tokens(text)),) for text in texts]
        self.connection.executemany("insert into texts (tokens) values (?)", rows)

    def found(self, query: str) -> list[int]:
        """Numbers of the texts that match, best first, in the order of adding from 0."""
        expression = match_expression(query)
        if expression is None:
            return []
        sql = "select rowid - 1 from texts where texts match ? order by rank, rowid"
        return [row[0] for row in self.connection.execute(sql, (expression,))]

    def terms(self) -> list[str]:
        return [row[0] for row in self.connection.execute("select term from terms order by doc, offset")]


@pytest.fixture
def index() -> Iterator[Index]:
    index = Index()
    yield index
    index.connection.close()


def finds(index: Index, query: str, text: str, others: Sequence[str] = ()) -> bool:
    index.add(text, *others)
    return index.found(query)[:1] == [0]


REPORTED: list[tuple[str, str, list[str]]] = [
    ("state-of-the-art", "A state-of-the-art engine.", ["The art of the deal"]),
    ('"unbalanced', "An unbalanced quote", ["A balanced diet"]),
    ("don't", "Birds don't sing here", ["Birds sing"]),
    ("C++", "We write C++ here", ["Vitamin C, or B", "C# is another language"]),
    ("C#", "We write C# here", ["Vitamin C, or B", "C++ is another language"]),
    ("node.js", "Install Node.js first", ["A node in a tree", "js files"]),
    ("38.101", "See 3GPP TS 38.101 for bands", ["38 apples and 101 dogs", "38101"]),
    ("AND", "and", []),
    ("OR x", "the variable x", ["or else"]),
    ("NEAR(", "the near side", ["a far side"]),
    ("a AND", "a or b", []),
    ("a:b", "plan a, plan b", ["plan c"]),
    ("-x", "the variable x", ["the variable y"]),
    ("DEC-0054", "Decision DEC-0054: no", ["DEC-0053 and 0054", "December"]),
    ("gpt-4", "We asked GPT-4", ["gpt and 4 others", "GPT-3"]),
    ("--error-on-warnings", "run with --error-on-warnings set", ["an error, then on to warnings"]),
    ("知识", "这是知识库", ["这是认识"]),
]


@pytest.mark.parametrize(("query", "text", "others"), REPORTED, ids=[query for query, *_ in REPORTED])
def test_what_people_type_finds_where_it_is_written(index: Index, query: str, text: str, others: list[str]):
    assert finds(index, query, text, others)


@pytest.mark.parametrize("query", ["(", "*", "^", "%@#{", "", "   ", "\x00", "\ud800", "\u200b", "。、"])
def test_a_query_without_words_is_legal_and_finds_nothing(index: Index, query: str):
    index.add("some text ( * ^ %@#{")
    assert match_expression(query) is None
    assert tokens(query) == []


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("running", "He runs"),
        ("nodejs", "node.js"),
        ("node js", "Node.js"),
        ("e-mail", "Your email"),
        ("email", "Your e-mails"),
        ("snake_case_names", "def snake_case_names():"),
        ("names", "def snake_case_names():"),
        ("snake case", "def snake_case_names():"),
        ("camelCaseNames", "let camelCaseNames = 1"),
        ("camelcasenames", "let camelCaseNames = 1"),
        ("case", "let camelCaseNames = 1"),
        ("server", "class HTTPServer(TCPServer):"),
        ("URL", "two URLs"),
        ("a@b.co", "Write to a@b.co, please"),
        ("usa", "the U.S.A."),
        ("AT&T", "at&t"),
        ("1000", "1,000 genomes"),
        ("1,000,000", "1000000"),
        ("notepad", "Notepad++"),
        ("c++17", "C++"),
        ("dog", "the dog's bowl"),
        ("don’t", "don't"),
        ("O'Reilly", "O’Reilly"),
        ("reilly", "O’Reilly"),
        ("avion", "l’avion"),
        ("foo", "foo-"),
        ("init", "__init__.py"),
        ("wrap", "line\u00adwrap or wr\u00adap"),
        ("192.168.0.1", "ping 192.168.0.1."),
    ],
)
def test_a_word_is_found_however_it_is_written(index: Index, query: str, text: str):
    assert finds(index, query, text, ["nothing of the kind"])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("café", "cafe"),
        ("café", "cafe\u0301"),
        ("CAFÉ", "café"),
        ("straße", "STRASSE"),
        ("Øresund", "Oresund"),
        ("Łódź", "lodz"),
        ("İstanbul", "istanbul"),
        ("１２３", "123"),
        ("ＧＰＴ－４", "gpt-4"),
        ("ﬁle", "file"),
        ("Ёлка", "елка"),
        ("ΜΆΪΟΣ", "μαιος"),
        ("العَرَبِيَّة", "العربية"),
        ("٣٨", "38"),
        ("שָׁלוֹם", "שלום"),
        ("ﾀﾜｰ", "タワー"),
        ("カ\u3099", "ガ"),
        ("𠮷野家", "𠮷野家"),
        ("हिन्दी", "हिन्दी"),
        ("Привет", "ПРИВЕТ"),
        ("🎉", "done 🎉!"),
        ("👩\u200d💻", "👩"),
        ("❤\ufe0f", "❤"),
        ("🇩🇪", "🇩🇪🇫🇷"),
    ],
)
def test_spellings_meet_both_ways(one: str, other: str):
    for query, text in ((one, other), (other, one)):
        index = Index()
        assert finds(index, query, text, ["nothing of the kind", "か"])
        index.connection.close()


@pytest.mark.parametrize(("one", "other"), [("が", "か"), ("38.101", "38101"), ("🇩🇪", "🇫🇷"), ("हिन्दी", "हद")])
def test_different_words_stay_different(index: Index, one: str, other: str):
    index.add(other)
    assert index.found(one) == []


@pytest.mark.parametrize("text", ["知识库", "须知", "知", "GPT知3", "不知道"])
def test_a_single_character_finds_every_word_that_holds_it(index: Index, text: str):
    assert finds(index, "知", text, ["别的"])


def test_a_single_character_beyond_the_first_plane_is_found_too(index: Index):
    assert finds(index, "𠮷", "去𠮷野家", ["别的"])
    assert index.found("𠮷 x") == [0]


def test_words_of_two_characters_are_not_found_by_their_last_one_alone(index: Index):
    index.add("学习", "习惯", "练习")
    assert index.found("学习") == [0]


@pytest.mark.parametrize("text", ["งานวิจัยภาษาไทย", "東京タワーへ行く", "서울특별시는 대한민국의 수도", "ខ្មែរ", "မြန်မာ"])
def test_unspaced_scripts_are_found_by_a_part(index: Index, text: str):
    assert finds(index, text[2:6], text, ["english"])


def test_words_of_no_meaning_do_not_weigh_beside_others(index: Index):
    index.add("what is the that of it", "an engine")
    assert index.found("what is the engine") == [1]


@pytest.mark.parametrize("query", ["the who", "to be or not to be", "I", "will"])
def test_a_query_of_nothing_but_stop_words_finds_them_among_others(index: Index, query: str):
    assert finds(index, query, f"a band plays {query} tonight", ["a band"])


def test_stop_words_are_tokens_as_they_stand():
    assert {token for word in STOP_WORDS for token in tokens(word)} == STOP_WORDS


def test_the_order_of_tokens_is_that_of_the_text():
    assert tokens("Fast runs on GPT模型 go") == ["fast", "run", "on", "gpt", "模型", "型", "go"]


@stable
@given(ANYTHING)
@example("to_be _2b_ c_2b_ a_b")
@example("\ue000 \U000e0001 \U0010ffff \u0378 \u2c2f \ua7c0 \u1e9e \u0345a \u03f4")
def test_every_token_is_exactly_one_term(text: str):
    index = Index()
    index.add(text)
    assert index.terms() == tokens(text)
    index.connection.close()


def test_the_characters_of_all_scripts_give_whole_terms(index: Index):
    codes = [*range(0x3400), *range(0x3400, 0xA000, 37), *range(0xA000, 0x20000), *range(0x20000, 0x110000, 997)]
    index.add(" ".join(f"{chr(code)}x{chr(code)}" for code in codes))
    assert index.terms() == index.connection.execute("select tokens from texts").fetchone()[0].split()


@stable
@given(ANYTHING)
def test_any_text_that_has_tokens_finds_itself(text: str):
    index = Index()
    index.add(text)
    assert index.found(text) == ([0] if tokens(text) else [])
    index.connection.close()


@stable
@given(ANYTHING, ANYTHING)
def test_texts_on_two_lines_have_the_tokens_of_both(one: str, other: str):
    assert tokens(f"{one}\n{other}") == tokens(one) + tokens(other)


@pytest.mark.parametrize(
    "text",
    [
        letters * (200_000 // len(letters))
        for letters in [
            *(
                "word ",
                "知识库",
                "x",
                "a-",
                "a'",
                "é\u0301",
                "\ufdfa",
                "1,",
                "1,000",
                "aB",
                "\ud800",
                "+#",
                "(",
                " ",
                "c++",
            ),
            *("\u0e01\u0e32", "🇩", "𠮷", "\u0301", "_", "1.", "A", "'s", "n't", ".", "a..", "1,000,"),
        ]
    ],
    ids=lambda text: ascii(text[:6]),
)
def test_a_huge_query_is_bounded_in_terms_and_time(index: Index, text: str):
    index.add(text[:1000])
    started = time.process_time()
    expression = match_expression(text)
    assert time.process_time() - started < 1
    if expression is not None:
        assert len(expression.split(" OR ")) <= MOST_TERMS
        assert index.found(text) == [0]
    tokens(text)
    assert time.process_time() - started < 10


def test_of_a_long_query_the_end_counts_as_much_as_the_beginning(index: Index):
    index.add("aardvark", "zymurgy", "知识", "检索")
    filler = " ".join(f"word{n}" for n in range(MOST_TERMS))
    assert len(str(match_expression(f"aardvark {filler}")).split(" OR ")) == MOST_TERMS
    assert index.found(f"aardvark {filler}") == [0]
    background = "".join(chr(0x4E00 + n) for n in range(MOST_TERMS))
    assert index.found(f"知识库 {background} 检索方法") == [2, 3]


def test_a_word_without_end_becomes_a_token_of_bounded_length():
    assert [len(token) for token in tokens("x" * 1_000_000)] == [64]


def test_terms_are_searched_for_once():
    assert match_expression("run runs Running ran") == '"run" OR "ran"'


def test_threads_get_the_same_tokens():
    words = [
        f"{stem}{ending}" for stem in ("connect", "relat", "argu", "happi") for ending in ("ing", "ed", "ion", "s")
    ]
    texts = [f"{word}{n} {word} {word}ly{'x' * n}" for n in range(50) for word in words]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(tokens, texts))
    assert together == [tokens(text) for text in texts]


def test_stems_are_those_that_stored_tokens_were_made_with():
    # Another stemmer means other tokens: raise TOKENIZER_VERSION when this changes.
    words = "generously relational hopping skies dying agreement conditional organization caresses ponies news"
    stems = "generous relat hop sky die agreement condit organiz caress poni news"
    assert tokens(words) == stems.split()


def test_importing_loads_no_other_language():
    code = "import sys, kura.text.tokens; sys.exit(any('french' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_stemmers_own_package_can_be_imported_afterwards():
    code = "import kura.text.tokens, snowballstemmer; snowballstemmer.stemmer('german').stemWord('autos')"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
