"""The templates of jsonpath: what they print, and what is refused, with its position."""

import pytest

from netplug_cli.ctl.outputs import PathError, parse_template

LIST = {
    "items": [
        {"name": "a", "sizes": [1, 2], "spec": {"cidr": "10.0.0.0/16"}},
        {"name": "b", "sizes": [], "spec": {"cidr": "fd00::/48", "disabled": True}},
    ]
}


@pytest.mark.parametrize(
    "template, printed",
    [
        ("{.items[0].name}", "a"),
        ("{ .items[0].name }", "a"),
        ("{.items[*].name}", "a b"),
        ("{.items[*].spec.disabled}|", "true|"),
        ("pools: {$.items[*].name}!", "pools: a b!"),
        ("{.missing}", ""),
        ("}{.items[0].name}}", "}a}"),
        ("{range .items[*]}{.name}={.spec.cidr};{end}", "a=10.0.0.0/16;b=fd00::/48;"),
        (r'{range .items[*]}{.name}{"\t"}{.sizes}{"\n"}{end}', "a\t[1,2]\nb\t[]\n"),
        ("{range .items[*]}{.name}({range .sizes[*]}<{@}>{end}){end}", "a(<1><2>)b()"),
        ("{range .items[*]}{end}", ""),
        ("{.items[0].name|len}", ""),
        (r"""{'it\'s {}'}{"'"}{.items[0].name}""", "it's {}'a"),
        ("{.items[0]['name']}", "a"),
        ('{.items[0]["}"]}{.items[0].name}', "a"),
    ],
)
def test_what_a_template_prints(template: str, printed: str) -> None:
    assert parse_template(template).render(LIST) == printed


@pytest.mark.parametrize(
    "template, problem",
    [
        ("", "position 1: found '', a text without a path"),
        (".metadata.name", "position 1: found '.metadata.name', a text without a path; put the path in braces"),
        ("{.a", "position 1: '{' without its '}'"),
        ("a {.b{.c}}", "position 3: '{' without its '}'"),
        ("a {.b}{ }", "position 8: found ''; in braces stand a path, 'range' with a path, 'end', or a text in quotes"),
        ("{name}", "position 2: found 'name'; in braces stand a path"),
        ("{range}", "position 2: found 'range'; in braces stand a path"),
        ("{end}", "position 2: 'end' without its {range PATH}"),
        ("x{range .a}{.b}", "position 3: 'range' without its {end}"),
        ("{range .a}{range .b}{end}", "position 2: 'range' without its {end}"),
        ("{range .a}{.b}{end}{end}", "position 21: 'end' without its {range PATH}"),
        ("{range .a}{$.b}{end}", "position 12: '$' in a range; a path there begins at the value of the range"),
        ("{range  $..a}{end}", "position 10: '..a' begins a search through all levels"),
        ("{.a}{ .items[?(@.n)] }", "position 13: '[?(@.n)]' begins a filter"),
        ("{.a}{ .items[0:1] }", "position 13: '[0:1]' begins a slice"),
        (r'{"a\x"}{.a}', r"position 4: found \x; accepted are \n, \t, \r, \\, \', \""),
        ("{if .a}x{end}", "position 2: found 'if .a'; in braces stand a path"),
        ("{__import__('os')}", "position 2: found"),
    ],
)
def test_what_a_template_cannot_have(template: str, problem: str) -> None:
    with pytest.raises(PathError) as caught:
        parse_template(template)
    assert str(caught.value).startswith(problem)


def test_ranges_in_ranges_have_a_limit() -> None:
    deep = "{range .items[*]}" * 16 + "{.name}" + "{end}" * 16
    assert parse_template(deep).render(LIST) == ""
    with pytest.raises(PathError, match="there are more than 16 ranges in each other"):
        parse_template("{range .items[*]}" * 17 + "{end}" * 17)


def test_a_long_template_without_its_end_is_refused_at_once() -> None:
    with pytest.raises(PathError, match="without its '}'"):
        parse_template("{" + "'a' \\'" * 10_000)
