import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kura.text.estimate import estimate_tokens

# Tokens that multilingual-e5-small's tokeniser makes of these texts, two special ones included.
COUNTED = [
    (
        "The quick brown fox jumps over the lazy dog while engineers measure ho"
        "w many tokens a sentence like this one has.",
        29,
    ),
    (
        "知识库把文件切成段落,建立索引,然后由智能体按关键词或语义检索,返回最相关的内容和出处。",
        36,
    ),
    (
        "def encoded(token: str) -> str:\n    return UNSAFE.sub(lambda match: f'_{ord(match.group()):x}_', token)\n",
        49,
    ),
    (
        "| setting | default | meaning |\n| --- | --- | --- |\n| `KURA_DATA_DIR` | platform | where databases live |\n",
        47,
    ),
    (
        '2026-11-30,17.25,"Aachen",50.7766,6.0834,OK\n2026-12-01,16.75,"Köln",50.9413,6.9583,OK\n',
        50,
    ),
    (
        "Международная космическая станция представляет собой пилотируемую орби"
        "тальную станцию, используемую как многоцелевой исследовательский компл"
        "екс. Управление полётом осуществляется из двух центров, расположенных "
        "в Хьюстоне и Королёве.",
        53,
    ),
    (
        "東京は日本の首都であり、世界最大級の都市圏を形成している。江戸幕府が開かれてから政治の中心として発展し、明治維新の後に首都となった。コンピュータやインターネットの産業も盛んである。",
        53,
    ),
    (
        "서울특별시는 대한민국의 수도이자 최대 도시이다. 백제의 첫 수도인 위례성이었고, 고려 때는 "
        "남경이었으며, 조선의 수도가 된 이후로 현재까지 대한민국 정치·경제·사회·문화의 중심지 역할을 하고 있다.",
        54,
    ),
    (
        "Die Donaudampfschifffahrtsgesellschaft war ein österreichisches Untern"
        "ehmen, das auf der Donau Personen und Güter beförderte. Für die Größe "
        "der Flotte gab es zeitweise keine Vergleichsmöglichkeiten in Europa.",
        49,
    ),
    (
        "القاهرة هي عاصمة جمهورية مصر العربية وأكبر مدنها، وتعد أكبر مدينة عربي"
        "ة من حيث عدد السكان والمساحة، وتقع على جانبي نهر النيل في شمال مصر.",
        41,
    ),
    (
        "भारत दक्षिण एशिया में स्थित एक विशाल देश है, जिसकी राजधानी नई दिल्ली ह"
        "ै। यह जनसंख्या के आधार पर विश्व का सबसे बड़ा देश है और इसकी संस्कृति ब"
        "हुत प्राचीन है।",
        36,
    ),
]


@pytest.mark.parametrize(("text", "counted"), COUNTED, ids=[text[:12] for text, _ in COUNTED])
def test_the_estimate_is_a_little_more_than_the_truth(text: str, counted: int):
    assert counted <= estimate_tokens(text) <= 1.8 * counted


@settings(derandomize=True, deadline=None)
@given(st.text(st.characters(exclude_categories=())), st.text())
def test_longer_texts_have_no_fewer_tokens(text: str, more: str):
    assert 0 < estimate_tokens(text) <= estimate_tokens(text + more)


def test_megabytes_take_no_time():
    started = time.process_time()
    assert estimate_tokens("知识 base, " * 500_000) > 500_000
    assert time.process_time() - started < 2
