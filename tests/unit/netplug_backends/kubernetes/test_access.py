"""Where access comes from, what is read again, and how each refusal reads; no secret in any of them."""

import base64
import json
import os
from pathlib import Path

import pytest
import yaml

from netplug_backends.kubernetes.access import AccessSource
from netplug_backends.kubernetes.credentials import Access, Pem, Verification
from netplug_core.errors import ConfigurationError
from netplug_core.netconf.model import KubernetesAccess

SECRET = "s3cret-token"  # noqa: S105  # planted, and searched for
CLUSTER: dict[str, object] = {"server": "https://api:6443", "certificate-authority": "ca.pem"}


def kubeconfig(folder: Path, user: dict[str, object], cluster: dict[str, object] | None = None) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "one",
                "contexts": [
                    {"name": "one", "context": {"cluster": "c", "user": "u"}},
                    {"name": "two", "context": {"cluster": "c"}},
                ],
                "clusters": [{"name": "c", "cluster": CLUSTER if cluster is None else cluster}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return path


def access(path: Path, context: str = "") -> Access:
    return AccessSource(KubernetesAccess(kubeconfig=str(path), context=context), {}).current()


def refusal(path: Path, context: str = "") -> str:
    with pytest.raises(ConfigurationError) as refused:
        access(path, context)
    assert refused.value.code == 7
    text = f"{refused.value} {refused.value!r}"
    assert SECRET not in text
    return str(refused.value)


def test_a_kubeconfig_names_server_authority_and_user(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": SECRET, "client-certificate": "c.pem", "client-key": "/k.pem"})
    found = access(path)
    assert found == Access(
        server="https://api:6443",
        authority=Pem(path=str(tmp_path / "ca.pem")),
        token=SECRET,
        certificate=Pem(path=str(tmp_path / "c.pem")),
        key=Pem(path="/k.pem"),
    )
    assert SECRET not in repr(found)


def test_a_kubeconfig_may_hold_everything_itself(tmp_path: Path) -> None:
    encoded = base64.b64encode(b"PEM").decode()
    cluster: dict[str, object] = {
        "server": "https://api",
        "certificate-authority-data": encoded,
        "insecure-skip-tls-verify": True,
        "tls-server-name": "kubernetes",
    }
    user: dict[str, object] = {"client-certificate-data": encoded, "client-key-data": encoded}
    found = access(kubeconfig(tmp_path, user, cluster))
    assert (found.authority, found.certificate, found.key) == (Pem(data=b"PEM"),) * 3
    assert (found.verification, found.server_name) == (Verification.SKIPPED, "kubernetes")
    assert "PEM" not in repr(found.key)


def test_a_context_can_be_chosen_and_may_have_no_user(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": SECRET})
    assert access(path, "one").token == SECRET
    assert access(path, "two").token == ""


def test_json_is_yaml(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": SECRET})
    before = access(path)
    path.write_text(json.dumps(yaml.safe_load(path.read_text())))
    assert access(path) == before


def test_files_are_read_again_when_they_change_and_not_before(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    path = kubeconfig(tmp_path, {"tokenFile": "token"})
    (tmp_path / "ca.pem").write_text("one")
    source = AccessSource(KubernetesAccess(kubeconfig=str(path)), {})
    first, generation = source.current(), source.generation
    assert first.token == "first"  # noqa: S105  # a token of nobody's
    assert source.current() is first
    token.write_text("the second")
    assert source.current().token == "the second"  # noqa: S105  # the same
    assert source.generation is not generation
    generation = source.generation
    (tmp_path / "ca.pem").write_text("another one")
    assert source.current().authority == first.authority
    assert source.generation is not generation, "the content of a file is another one under the same name"
    generation = source.generation
    source.renew()
    source.current()
    assert source.generation is not generation, "whoever was refused wants everything read again"


def test_an_api_root_needs_no_kubeconfig() -> None:
    settings = KubernetesAccess(
        api_root="https://api", token=SECRET, certificate="/c", key="/k", certificate_authority="/ca"
    )
    source = AccessSource(settings, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    assert source.current() == Access(
        server="https://api",
        token=SECRET,
        authority=Pem(path="/ca"),
        certificate=Pem(path="/c"),
        key=Pem(path="/k"),
    )
    assert source.origin == "https://api"
    assert SECRET not in repr(source)


def test_a_kubeconfig_goes_before_an_api_root(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {})
    source = AccessSource(KubernetesAccess(kubeconfig=str(path), api_root="https://other"), {})
    assert source.current().server == "https://api:6443"
    assert source.origin == str(path)


def test_without_settings_the_users_own_kubeconfig_serves(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    os.rename(kubeconfig(tmp_path, {"token": SECRET}), tmp_path / ".kube" / "config")
    source = AccessSource(KubernetesAccess(), {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    assert source.current().token == SECRET


def test_a_pod_without_an_account_is_told_which_file_is_missing(tmp_path: Path) -> None:
    source = AccessSource(KubernetesAccess(), {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "fd00::1"})
    assert source.origin == "the pod's service account"
    with pytest.raises(ConfigurationError, match=r"serviceaccount/token: 'No such file or directory' is not accepted"):
        source.current()


@pytest.mark.parametrize("token", [f"{SECRET}\r\nX-Other: 1", f"{SECRET}ü", f"{SECRET}\0"])
def test_a_token_that_no_header_can_hold_is_refused_and_not_shown(token: str) -> None:
    source = AccessSource(KubernetesAccess(api_root="https://api", token=token), {})
    with pytest.raises(ConfigurationError, match="the token of https://api: '…' is not accepted") as caught:
        source.current()
    assert SECRET not in f"{caught.value!r} {source!r}"


def test_an_address_with_a_password_is_refused_and_not_shown() -> None:
    source = AccessSource(KubernetesAccess(api_root=f"https://root:{SECRET}@api"), {})
    assert source.origin == "k8s_api_root"
    with pytest.raises(ConfigurationError, match=r"kubernetes API: '…' is not accepted; .* without user and password"):
        source.current()
    assert SECRET not in repr(source)


def test_only_an_explicit_wish_skips_verification() -> None:
    for wish, wanted in ((False, Verification.REQUIRED), (True, Verification.SKIPPED)):
        settings = KubernetesAccess(api_root="https://api", skips_verification=wish)
        assert AccessSource(settings, {}).current().verification is wanted


def test_nothing_at_all_says_what_would_do(tmp_path: Path) -> None:
    source = AccessSource(KubernetesAccess(), {"HOME": str(tmp_path)})
    with pytest.raises(ConfigurationError, match="name a kubeconfig or k8s_api_root"):
        source.current()


@pytest.mark.parametrize(
    "text,problem",
    [
        ("token: [" + SECRET, "line 2' is not accepted; YAML is expected"),
        ("- 1", "'list' is not accepted; a kubeconfig is expected"),
        ("{}", "current-context: '' is not accepted; the name of a context is expected"),
        ("current-context: one", "contexts: 'one' is not accepted; an entry of that name is expected"),
        ("current-context: [1]", "current-context: 'list' is not accepted; a text is expected"),
        ("current-context: one\ncontexts: [{name: one, context: 1}]", "contexts: 'one' is not accepted"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    assert refusal(path).startswith(str(path))
    assert problem in refusal(path)


def test_a_file_that_is_no_text_or_is_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    assert "No such file or directory" in refusal(path)
    path.write_bytes(b"\xff\xfe")
    assert "a text file is expected" in refusal(path)


@pytest.mark.parametrize(
    "user,problem",
    [
        ({"token": [SECRET]}, "users[u].token: 'list' is not accepted; a text is expected"),
        ({"client-key-data": SECRET + "!"}, "users[u].client-key-data: '…' is not accepted; base64 is expected"),
        (
            {"client-certificate": "c"},
            "users[u].client-key: '' is not accepted; it is needed beside client-certificate",
        ),
        ({"client-key": "k"}, "users[u].client-certificate: '' is not accepted; it is needed beside client-key"),
        ({"as": "somebody"}, "users[u].as: '…' is not accepted; it is not supported; leave it out"),
        ({"password": SECRET}, "users[u].password: '…' is not accepted; it is not supported; leave it out"),
        ({"tokenFile": "gone"}, "gone: 'No such file or directory' is not accepted"),
    ],
)
def test_trap_26_a_user_that_cannot_be_one_is_refused(tmp_path: Path, user: dict[str, object], problem: str) -> None:
    assert problem in refusal(kubeconfig(tmp_path, user))


def test_a_cluster_without_a_server_is_refused(tmp_path: Path) -> None:
    assert "clusters[c].server: '' is not accepted; the API's URL" in refusal(kubeconfig(tmp_path, {}, {"x": 1}))


def test_a_proxy_is_not_passed_over(tmp_path: Path) -> None:
    cluster = CLUSTER | {"proxy-url": "http://proxy"}
    assert "clusters[c].proxy-url: '…' is not accepted" in refusal(kubeconfig(tmp_path, {}, cluster))


def test_a_program_may_give_the_credentials(tmp_path: Path) -> None:
    """The ``kubernetes`` package runs it; nothing else needs that package."""
    program = tmp_path / "login"
    status = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": SECRET}}
    program.write_text(f"#!/bin/sh\necho '{json.dumps(status)}'\n")
    program.chmod(0o700)
    (tmp_path / "ca.pem").write_text("PEM")
    command = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(program),
        "interactiveMode": "Never",
    }
    assert access(kubeconfig(tmp_path, {"exec": command})).token == SECRET
    command["command"] = str(tmp_path / "nothing")
    said = refusal(kubeconfig(tmp_path, {"exec": command}))
    assert "users[u]: '…' is not accepted; its program or provider gives no credentials: [Errno 2] No such file" in said
    # A program that is named with a folder lies beside the kubeconfig, wherever this process is.
    command["command"] = "./login"
    assert access(kubeconfig(tmp_path, {"exec": command})).token == SECRET


def test_what_a_program_says_when_it_fails_is_not_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ca.pem").write_text("PEM")
    program = tmp_path / "login"
    program.write_text(f"#!/bin/sh\necho '{SECRET}' >&2\nexit 3\n")
    program.chmod(0o700)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program), "interactiveMode": "Never"}
    said = refusal(kubeconfig(tmp_path, {"exec": command}))
    assert said.endswith("its program or provider gives no credentials: exec: process returned 3")
    out, err = capfd.readouterr()
    assert SECRET not in said + out + err
    assert "ERROR" not in err


# --- several files, and none -----------------------------------------------------------------------------------------


def part(path: Path, **members: object) -> str:
    """A file that says something."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(members))
    return str(path)


def cluster(server: str, **more: object) -> list[dict[str, object]]:
    return [{"name": "c", "cluster": {"server": server, **more}}]


def user(**members: object) -> list[dict[str, object]]:
    return [{"name": "u", "user": members}]


CONTEXT = [{"name": "one", "context": {"cluster": "c", "user": "u"}}]


def test_several_files_are_merged_and_the_first_that_says_something_wins(tmp_path: Path) -> None:
    """What one file says of a name is all that is said of it; files are found beside the one that names them."""
    first = part(tmp_path / "a" / "config", clusters=cluster("https://first", **{"certificate-authority": "ca.pem"}))
    second = part(
        tmp_path / "b" / "config",
        **{"current-context": "one"},
        contexts=CONTEXT,
        clusters=cluster("https://second", **{"tls-server-name": "never"}),
        users=user(tokenFile="token"),
    )
    third = part(tmp_path / "c" / "config", **{"current-context": "two"}, users=user(token="never"))  # noqa: S106
    (tmp_path / "b" / "token").write_text(SECRET)
    gone = str(tmp_path / "gone")
    source = AccessSource(KubernetesAccess(kubeconfig=f"{gone}:{first}::{second}:{third}"), {})
    assert source.current() == Access(
        server="https://first", authority=Pem(path=str(tmp_path / "a" / "ca.pem")), token=SECRET
    )
    part(tmp_path / "gone", clusters=cluster("https://new"))
    assert source.current().server == "https://new", "a file that comes later is seen"


def test_of_several_files_at_least_one_is_there_and_each_makes_sense(tmp_path: Path) -> None:
    def refused(*paths: str) -> str:
        with pytest.raises(ConfigurationError) as caught:
            AccessSource(KubernetesAccess(kubeconfig=":".join(paths)), {}).current()
        return str(caught.value)

    good = part(tmp_path / "good", **{"current-context": "one"}, contexts=CONTEXT)
    bad = tmp_path / "bad"
    bad.write_text(f"token: [{SECRET}")
    assert refused("/gone/1", "/gone/2").startswith("/gone/1: 'No such file or directory'")
    assert refused(":") == ":: 'No such file or directory' is not accepted; a readable file is expected"
    assert refused(good, str(bad)) == f"{bad}: 'line 2' is not accepted; YAML is expected"
    assert refused(good, good).startswith(f"{good}:{good} clusters: 'c' is not accepted")


def test_a_path_with_a_colon_is_one_file(tmp_path: Path) -> None:
    path = part(
        tmp_path / "a:b", **{"current-context": "one"}, contexts=CONTEXT, clusters=cluster("https://api"), users=user()
    )
    assert access(Path(path)).server == "https://api"


def test_the_text_of_a_kubeconfig_may_stand_in_for_a_file(tmp_path: Path) -> None:
    text = kubeconfig(tmp_path, {"token": SECRET}, {"server": "https://inline"}).read_text()
    source = AccessSource(KubernetesAccess(kubeconfig_inline=text, kubeconfig="/gone", context="one"), {})
    assert source.current() == Access(server="https://inline", token=SECRET)
    assert source.origin == "kubeconfigInline"
    assert SECRET not in f"{source!r}"
    with pytest.raises(ConfigurationError) as caught:
        AccessSource(KubernetesAccess(kubeconfig_inline=f"{text}\n[{SECRET}"), {}).current()
    assert str(caught.value).startswith("kubeconfigInline: 'line ")
    assert SECRET not in f"{caught.value!r}"
