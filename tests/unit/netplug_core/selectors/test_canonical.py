"""The canonical text of selectors, and the identities that are made of it, as other programs compute them."""

import pytest

from netplug_core.selectors import canonical_text, parse, prefix_labels, selector_uid


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", "all()"),
        (" ( all( ) ) ", "all()"),
        ("global( )", "global()"),
        (" has ( b )", "has(b)"),
        ("a=='v'", 'a == "v"'),
        ("a=='it\"s'", "a == 'it\"s'"),
        ('a!="it\'s"', 'a != "it\'s"'),
        ("a contains ''", 'a contains ""'),
        ("a startswith 'v'", 'a starts with "v"'),
        ("a endswith 'v'", 'a ends with "v"'),
        ("a in { }", "a in {}"),
        ("a notin {'x'}", 'a not in {"x"}'),
        ("!a == 'v'", '!a == "v"'),
        ("!(a == 'v')", '!a == "v"'),
        ("!!a == 'v'", 'a == "v"'),
        ("!(!(a == 'v'))", 'a == "v"'),
        ("has(a)&&has(b)&&has(c)", "(has(a) && has(b) && has(c))"),
        ("has(a)||has(b)&&has(c)", "(has(a) || (has(b) && has(c)))"),
        ("(has(a)&&has(b))&&has(c)", "((has(a) && has(b)) && has(c))"),
    ],
)
def test_all_spellings_share_one(text: str, expected: str) -> None:
    assert canonical_text(parse(text)) == expected
    assert canonical_text(parse(expected)) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ('a in {"z", "z", "x", "y", "x", "a"}', 'a in {"a", "x", "y", "z"}'),
        ("a startswith '\"'", "a starts with '\"'"),
        (
            "!(!(k == 'v' && has(t) || all()) && (a in {'b', 'c'}))",
            '!(!((k == "v" && has(t)) || all()) && a in {"b", "c"})',
        ),
    ],
)
def test_sets_quotes_and_groups_have_their_order(text: str, expected: str) -> None:
    """I-82."""
    assert canonical_text(parse(text)) == expected


@pytest.mark.parametrize(
    "text, expected, name",
    [
        ("all()", "all()", "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug"),
        ("", "all()", "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug"),
        ("! (has( b)||! has(a ))", "!(has(b) || !has(a))", "s:Iss0uCleLYv1GSv_pNm7hAO58kE9jAx1NKyG3Q"),
        ('! (a == "b"&&! c != "d")', '!(a == "b" && !c != "d")', "s:lh3haoY1ikTRkd4UZu0nWSaIBknYLPJLX16d-w"),
    ],
)
def test_identities_are_the_known_ones(text: str, expected: str, name: str) -> None:
    assert canonical_text(parse(text)) == expected
    assert selector_uid(parse(text)) == name


def test_half_a_surrogate_pair_has_an_identity_of_its_own() -> None:
    """JSON can spell one, and what is stored must have a name."""
    names = {selector_uid(parse(f"a == '{literal}'")) for literal in ("\ud800", "\udc00", "?", "\ufffd")}
    assert len(names) == 4
    assert {len(name) for name in names} == {40}


def test_labels_get_a_prefix_wherever_they_stand() -> None:
    text = "all() && has(a) && !(b == 'x' || c not in {'y'})"
    prefixed = prefix_labels(parse(text), "p.")
    assert canonical_text(prefixed) == canonical_text(parse("all() && has(p.a) && !(p.b == 'x' || p.c not in {'y'})"))
