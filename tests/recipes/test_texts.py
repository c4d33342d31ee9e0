import __future__

import ast
from pathlib import Path

from lockstep.recipes.texts import END, SHORTEST, TextSet, _docstrings, shuffled_texts


def test_texts_are_docstrings_of_the_library_each_once_in_an_order_of_no_meaning() -> None:
    texts = shuffled_texts(200)
    assert len(set(texts)) == 200 and all(len(text.encode()) >= SHORTEST for text in texts)
    assert ast.get_docstring(ast.parse(Path(__future__.__file__).read_text())) in texts
    assert list(texts) != sorted(texts)
    shuffled_texts.cache_clear()
    assert shuffled_texts(200) == texts


def test_files_that_cannot_be_parsed_and_tests_are_left_out(tmp_path: Path) -> None:
    for name, text in {
        "b.py": "beyond the others",
        "a.py": "as every file is read",
        "test/c.py": "tested here",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f'"""{text}, with more words."""\ndef f():\n    """Short."""\n')
    (tmp_path / "wrong.py").write_text("def (:\n")
    found = list(_docstrings(tmp_path))
    assert found == ["as every file is read, with more words.", "beyond the others, with more words."]


def test_a_sample_is_the_bytes_between_two_ends_cut_at_the_context() -> None:
    data = TextSet(["abc", "é" * 9], context=6)
    assert data[0].tolist() == [END, 97, 98, 99, END]
    assert data[1].tolist() == [END, *("é" * 3).encode()]
    assert data.sizes == [4, 6]
