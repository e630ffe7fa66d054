"""The access of a kubeconfig, merging several, and the text of each error; no error has a secret."""

import base64
import json
import sys
from pathlib import Path

import pytest
import yaml

from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.credentials import ApiAccess, Pem, TlsVerification
from netplug_core.errors import ConfigurationError
from netplug_core.settings.model import KubernetesAccess
from tests.harness.kubeconfigs import CLUSTER, SECRET, access, kubeconfig, refusal, soon

NAME_ONE = "name a file that exists, by KUBECONFIG or --config"


def test_a_kubeconfig_names_server_authority_and_user(tmp_path: Path) -> None:
    (tmp_path / "c.pem").touch()
    path = kubeconfig(tmp_path, {"token": SECRET, "client-certificate": "c.pem", "client-key": "/dev/null"})
    found = access(path)
    assert found == ApiAccess(
        server="https://api:6443",
        certificate_authority=Pem(path=str(tmp_path / "ca.pem")),
        token=SECRET,
        certificate=Pem(path=str(tmp_path / "c.pem")),
        key=Pem(path="/dev/null"),
    )
    assert SECRET not in repr(found)


def test_a_kubeconfig_may_contain_all_data_inline(tmp_path: Path) -> None:
    encoded = base64.b64encode(b"PEM").decode()
    cluster: dict[str, object] = {
        "server": "https://api",
        "certificate-authority-data": encoded,
        "insecure-skip-tls-verify": True,
        "tls-server-name": "kubernetes",
    }
    user: dict[str, object] = {"client-certificate-data": encoded, "client-key-data": encoded}
    found = access(kubeconfig(tmp_path, user, cluster))
    assert (found.certificate_authority, found.certificate, found.key) == (Pem(data=b"PEM"),) * 3
    assert (found.verification, found.tls_server_name) == (TlsVerification.SKIPPED, "kubernetes")
    assert "PEM" not in repr(found.key)


@pytest.mark.parametrize("line", ["\n", "\r\n", " \n  "])
def test_base64_may_have_line_breaks(tmp_path: Path, line: str) -> None:
    """Many programs write it so, and ``kubectl`` reads it."""
    pem = bytes(range(256))
    encoded = base64.b64encode(pem).decode()
    folded = line.join(encoded[at : at + 64] for at in range(0, len(encoded), 64)) + line
    cluster: dict[str, object] = {"server": "https://api", "certificate-authority-data": folded}
    assert access(kubeconfig(tmp_path, {}, cluster)).certificate_authority == Pem(data=pem)


@pytest.mark.parametrize("data", ["\n", "=", "====", "ü", "QQ", "Q Q"])
def test_empty_base64_is_refused(tmp_path: Path, data: str) -> None:
    cluster: dict[str, object] = {"server": "https://api", "certificate-authority-data": data}
    text = refusal(kubeconfig(tmp_path, {}, cluster))
    assert text.endswith("clusters[c].certificate-authority-data: '…' is not accepted; base64 is expected")


@pytest.mark.parametrize("user", [{}, {"token": None}, {"token": ""}, {"exec": None, "auth-provider": None}])
def test_a_user_without_credentials_is_anonymous(tmp_path: Path, user: dict[str, object]) -> None:
    """As with ``kubectl``."""
    found = access(kubeconfig(tmp_path, user))
    assert (found.token, found.certificate, found.key) == ("", Pem(), Pem())


def test_a_context_can_be_chosen_and_may_have_no_user(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": SECRET})
    assert access(path, "one").token == SECRET
    assert access(path, "two").token == ""


def test_json_is_yaml(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": SECRET})
    before = access(path)
    path.write_text(json.dumps(yaml.safe_load(path.read_text())))
    assert access(path) == before


@pytest.mark.parametrize(
    "text,problem",
    [
        ("token: [" + SECRET, "line 2' is not accepted; YAML is expected"),
        ("- 1", "'a list' is not accepted; a kubeconfig is expected"),
        (SECRET, "'a text' is not accepted; a kubeconfig is expected"),
        ('"one"', "'a text' is not accepted; a kubeconfig is expected"),
        ("1", "'a number' is not accepted; a kubeconfig is expected"),
        ("2026-01-01", "'a text' is not accepted; a kubeconfig is expected"),
        ("current-context: one\nsince: 0b_", "'…' is not accepted; YAML is expected"),
        pytest.param(f"number: {'1' * 5000}", "'…' is not accepted; YAML is expected", id="digits"),
        ("{}", "current-context: '' is not accepted; the name of a context is expected"),
        pytest.param("[" * 100_000, "'…' is not accepted; it is nested too deeply", id="deep"),
        pytest.param("a: " + "[" * 100_000, "'…' is not accepted; YAML is expected", id="deep in YAML"),
        ("current-context: one", "contexts: 'one' is not accepted; an entry of that name is expected"),
        ("current-context: [1]", "current-context: 'a list' is not accepted; a text is expected"),
        ("current-context: one\ncontexts: [{name: one, context: 1}]", "contexts: 'one' is not accepted"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    assert refusal(path).startswith(str(path))
    assert problem in refusal(path)


def test_a_missing_file_and_one_that_is_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    assert refusal(path) == f"kubeconfig: no such file: '{path}'; {NAME_ONE}"
    path.write_bytes(b"\xff\xfe")
    assert "a text file is expected" in refusal(path)


@pytest.mark.parametrize(
    "user,problem",
    [
        ({"token": [SECRET]}, "users[u].token: 'a list' is not accepted; a text is expected"),
        ({"client-key-data": SECRET + "!"}, "users[u].client-key-data: '…' is not accepted; base64 is expected"),
        (
            {"client-certificate": "c"},
            "users[u].client-key: '' is not accepted; it is needed beside client-certificate",
        ),
        ({"client-key": "k"}, "users[u].client-certificate: '' is not accepted; it is needed beside client-key"),
        ({"as": "somebody"}, "users[u].as: '…' is not accepted; it is not supported; leave it out"),
        ({"password": SECRET}, "users[u].password: '…' is not accepted; it is not supported; leave it out"),
    ],
)
def test_trap_26_a_user_with_invalid_credentials_is_refused(
    tmp_path: Path, user: dict[str, object], problem: str
) -> None:
    assert problem in refusal(kubeconfig(tmp_path, user))


@pytest.mark.parametrize("missing", ["certificate-authority", "tokenFile", "client-certificate", "client-key"])
def test_a_missing_file_is_named_with_its_entry(tmp_path: Path, missing: str) -> None:
    user = {"tokenFile": "tokenFile", "client-certificate": "client-certificate", "client-key": "client-key"}
    cluster: dict[str, object] = {"server": "https://api", "certificate-authority": "certificate-authority"}
    for name in {*user, "certificate-authority"} - {missing}:
        (tmp_path / name).write_text("something")
    entry = f"{'clusters[c]' if missing == 'certificate-authority' else 'users[u]'}.{missing}"
    path = kubeconfig(tmp_path, dict(user), cluster)
    assert refusal(path) == (
        f"{path} {entry}: '{tmp_path}/{missing}' is not accepted; it cannot be read: No such file or directory"
    )


@pytest.mark.parametrize("nothing", ["", " \n"])
def test_an_empty_token_file_is_refused(tmp_path: Path, nothing: str) -> None:
    (tmp_path / "token").write_text(nothing)
    path = kubeconfig(tmp_path, {"tokenFile": "token"})
    expected = f"{path} users[u].tokenFile ({tmp_path}/token): '' is not accepted; a token is expected"
    assert refusal(path) == expected


def test_a_cluster_without_a_server_is_refused(tmp_path: Path) -> None:
    assert "clusters[c].server: '' is not accepted; the API's URL" in refusal(kubeconfig(tmp_path, {}, {"x": 1}))


def test_a_proxy_is_refused(tmp_path: Path) -> None:
    cluster = CLUSTER | {"proxy-url": "http://proxy"}
    assert "clusters[c].proxy-url: '…' is not accepted" in refusal(kubeconfig(tmp_path, {}, cluster))


def test_without_pyyaml_json_works_and_yaml_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kubeconfig(tmp_path, {"token": SECRET})
    as_json = json.dumps(yaml.safe_load(path.read_text()))
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert refusal(path) == (
        f"{path}: '…' is not accepted; the package yaml is not installed; netplug[kubernetes] brings it"
    )
    path.write_text(as_json)
    assert access(path).token == SECRET


# --- several files, and none -----------------------------------------------------------------------------------------


def part(path: Path, **members: object) -> str:
    """A kubeconfig file with some members."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(members))
    return str(path)


def cluster(server: str, **more: object) -> list[dict[str, object]]:
    return [{"name": "c", "cluster": {"server": server, **more}}]


def user(**members: object) -> list[dict[str, object]]:
    return [{"name": "u", "user": members}]


CONTEXT = [{"name": "one", "context": {"cluster": "c", "user": "u"}}]


def test_several_files_are_merged_and_the_first_entry_wins(tmp_path: Path) -> None:
    """The first file with a name defines it completely; paths are relative to the file that has them."""
    first = part(tmp_path / "a" / "config", clusters=cluster("https://first", **{"certificate-authority": "ca.pem"}))
    second = part(
        tmp_path / "b" / "config",
        **{"current-context": "one"},
        contexts=CONTEXT,
        clusters=cluster("https://second", **{"tls-server-name": "never"}),
        users=user(tokenFile="token"),
    )
    third = part(tmp_path / "c" / "config", **{"current-context": "two"}, users=user(token="never"))  # noqa: S106
    (tmp_path / "a" / "ca.pem").touch()
    (tmp_path / "b" / "token").write_text(SECRET)
    gone = str(tmp_path / "gone")
    source = AccessSource(KubernetesAccess(kubeconfig=f"{gone}:{first}::{second}:{third}"), {})
    assert source.current(deadline=soon()) == ApiAccess(
        server="https://first", certificate_authority=Pem(path=str(tmp_path / "a" / "ca.pem")), token=SECRET
    )
    part(tmp_path / "gone", clusters=cluster("https://new"))
    assert source.current(deadline=soon()).server == "https://new", "a file that comes later is seen"


def test_of_several_files_one_must_exist_and_each_must_be_valid(tmp_path: Path) -> None:
    def refused(*paths: str) -> str:
        with pytest.raises(ConfigurationError) as caught:
            AccessSource(KubernetesAccess(kubeconfig=":".join(paths)), {}).current(deadline=soon())
        return str(caught.value)

    good = part(tmp_path / "good", **{"current-context": "one"}, contexts=CONTEXT)
    bad = tmp_path / "bad"
    bad.write_text(f"token: [{SECRET}")
    assert refused("/gone/1", "/gone/2") == f"kubeconfig: no such file: '/gone/1:/gone/2'; {NAME_ONE}"
    assert refused(":") == f"kubeconfig: no such file: ':'; {NAME_ONE}"
    assert refused(good, str(bad)) == f"{bad}: 'line 2' is not accepted; YAML is expected"
    assert refused(good, good).startswith(f"{good}:{good} clusters: 'c' is not accepted")


def test_a_path_with_a_colon_is_one_file(tmp_path: Path) -> None:
    path = part(
        tmp_path / "a:b", **{"current-context": "one"}, contexts=CONTEXT, clusters=cluster("https://api"), users=user()
    )
    assert access(Path(path)).server == "https://api"


def test_the_text_of_a_kubeconfig_may_replace_a_file(tmp_path: Path) -> None:
    text = kubeconfig(tmp_path, {"token": SECRET}, {"server": "https://inline"}).read_text()
    source = AccessSource(KubernetesAccess(kubeconfig_inline=text, kubeconfig="/gone", context="one"), {})
    assert source.current(deadline=soon()) == ApiAccess(server="https://inline", token=SECRET)
    assert source.origin == "kubeconfigInline"
    assert SECRET not in f"{source!r}"
    with pytest.raises(ConfigurationError) as caught:
        AccessSource(KubernetesAccess(kubeconfig_inline=f"{text}\n[{SECRET}"), {}).current(deadline=soon())
    assert str(caught.value).startswith("kubeconfigInline: 'line ")
    assert SECRET not in f"{caught.value!r}"


def test_a_value_that_looks_like_a_time_is_a_text(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": SECRET})
    path.write_text(path.read_text() + "preferences: {since: 2024-99-99, until: 2024-01-01 25:00:00}\n")
    assert access(path).token == SECRET


def test_a_long_kubeconfig_is_read(tmp_path: Path) -> None:
    extension = {"name": "of-others", "extension": {"text": "x" * 20_000}}
    path = kubeconfig(tmp_path, {"token": SECRET}, {"server": "https://api", "extensions": [extension]})
    assert access(path).server == "https://api"


@pytest.mark.parametrize("name", [".foo", "a..b", "x" * 70, "a b", "a\0b"])
def test_an_invalid_tls_server_name_is_refused(tmp_path: Path, name: str) -> None:
    path = kubeconfig(tmp_path, {}, {"server": "https://api", "tls-server-name": name})
    expected = f"clusters[c].tls-server-name: {name!r} is not accepted; the name of a host is expected"
    assert refusal(path) == f"{path} {expected}"


def test_a_path_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"tokenFile": "to\0ken"})
    assert "users[u].tokenFile" in refusal(path)
    assert "embedded null byte" in refusal(path)
    cluster = {"server": "https://api", "certificate-authority": "c\0a.pem"}
    assert "embedded null byte" in refusal(kubeconfig(tmp_path, {}, cluster))


def test_brackets_around_an_ipv4_address_are_taken_off(tmp_path: Path) -> None:
    """Every kubeconfig that a well-known installer writes on a host has them."""
    cluster: dict[str, object] = {"server": "https://[10.96.0.1]:443"}
    assert access(kubeconfig(tmp_path, {"token": SECRET}, cluster)).server == "https://10.96.0.1:443"
    root = AccessSource(KubernetesAccess(api_root="https://[10.96.0.1]"), {})
    assert root.current(deadline=soon()).server == "https://10.96.0.1"
    assert root.server == "https://10.96.0.1"


def test_what_is_written_as_binary_is_its_text(tmp_path: Path) -> None:
    """As for kubectl, which makes JSON of a kubeconfig: base64 of the base64 that the member has."""
    encoded = base64.b64encode(b"PEM")
    cluster: dict[str, object] = {"server": "https://api", "certificate-authority-data": encoded}
    path = kubeconfig(tmp_path, {"token": SECRET.encode()}, cluster)
    assert path.read_text().count("!!binary") == 2
    found = access(path)
    assert (found.certificate_authority, found.token) == (Pem(data=b"PEM"), SECRET)


@pytest.mark.parametrize("value, kind", [("true", "a text"), (1, "a number"), ([], "a list")])
def test_a_switch_of_another_type_is_refused(tmp_path: Path, value: object, kind: str) -> None:
    cluster: dict[str, object] = {"server": "https://api", "insecure-skip-tls-verify": value}
    path = kubeconfig(tmp_path, {"token": SECRET}, cluster)
    where = f"{path} clusters[c].insecure-skip-tls-verify"
    assert refusal(path) == f"{where}: '{kind}' is not accepted; true or false is expected"
    cluster["insecure-skip-tls-verify"] = None
    assert access(kubeconfig(tmp_path, {"token": SECRET}, cluster)).verification is TlsVerification.REQUIRED
