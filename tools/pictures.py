"""`python -m tools.pictures` writes the drawings of the documentation, docs/img/*.svg; ``ipam map`` draws one more.

A drawing is boxes, arrows and words at places of a grid. It is light or dark as the browser is set, and uses no font
and no file but its own. ``tests/unit/tools/test_pictures.py`` compares, and looks whether the words fit their boxes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from attrs import define, field, frozen

__all__ = ["FOLDER", "Box", "Picture", "pictures", "text_width"]

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "img"

_STYLE: Final = """
text{font:14px sans-serif;fill:#222}.s{font-size:12px}.m{font:12px monospace}.b{font-weight:bold}
.outer{fill:#f6f8fb;stroke:#9fb3c8}.node{fill:#e4edf7;stroke:#5b7fa6}.plain{fill:#fff;stroke:#5b7fa6}
.store{fill:#fdf1de;stroke:#b8863b}.free{fill:#fff;stroke:#9fb3c8;stroke-dasharray:4 3}.gone{fill:#f1f1f1;stroke:#aaa}
.l{stroke:#333;fill:none;stroke-width:1.5;marker-end:url(#a)}.d{stroke:#888;stroke-dasharray:3 4;fill:none}
@media (prefers-color-scheme:dark){text{fill:#e6e6e6}.outer{fill:#14191f;stroke:#4d6075}
.node{fill:#1d2a3a;stroke:#6f93ba}.plain{fill:#121820;stroke:#6f93ba}.store{fill:#3a2f1b;stroke:#c99a4e}
.free{fill:#121820;stroke:#4d6075}.gone{fill:#222;stroke:#666}.l{stroke:#ddd}.d{stroke:#777}#a path{fill:#ddd}}
"""
_ARROW: Final = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="#333"/></marker></defs>'
)
_LINE_HEIGHT: Final = 18
_WIDTHS: Final = {"": 7.3, "b": 7.9, "s": 6.3, "m": 7.3}  # of a character, not less than browsers draw


def text_width(words: str, style: str) -> float:
    """How wide words are at most, in pixels, in a style: "" usual, ``b`` bold, ``s`` small, ``m`` monospace."""
    return len(words) * _WIDTHS[style]


@frozen
class Box:
    """A box with lines of words, each with its style before a bar: ``b|netplug-node``."""

    x: int
    y: int
    width: int
    height: int
    look: str
    lines: tuple[str, ...]

    @property
    def styled(self) -> Iterator[tuple[str, str]]:
        """Each line: its style, and its words."""
        for line in self.lines:
            style, bar, words = line.partition("|")
            yield (style, words) if bar else ("", line)

    def render(self) -> Iterator[str]:
        """The elements of the box."""
        yield (
            f'<rect class="{self.look}" x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="6"/>'
        )
        for number, (style, words) in enumerate(self.styled):
            yield _text(self.x + 12, self.y + 20 + number * _LINE_HEIGHT, words, style)


@define
class Picture:
    """A drawing: ``title`` says in words what it shows."""

    title: str
    width: int
    height: int
    boxes: list[Box] = field(factory=list)
    parts: list[str] = field(factory=list)

    def box(self, place: tuple[int, int, int, int], look: str, *lines: str) -> None:
        """A box at x, y with a width and a height."""
        made = Box(*place, look, lines)
        self.boxes.append(made)
        self.parts.extend(made.render())

    def arrow(self, path: str) -> None:
        """An arrow along a path in the words of SVG."""
        self.parts.append(f'<path class="l" d="{path}"/>')

    def dashes(self, path: str) -> None:
        """A dashed line."""
        self.parts.append(f'<path class="d" d="{path}"/>')

    def words(self, x: int, y: int, words: str, style: str = "s", anchor: str = "start") -> None:
        """Words beside boxes."""
        self.parts.append(_text(x, y, words, style, anchor))

    def render(self) -> str:
        """The file."""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img"'
        lines = (
            f'{head} aria-labelledby="t">',
            f'<title id="t">{escape(self.title)}</title>',
            f"<style>{_STYLE}</style>",
            _ARROW,
            *self.parts,
            "</svg>",
        )
        return "\n".join(lines) + "\n"


def _text(x: int, y: int, words: str, style: str, anchor: str = "start") -> str:
    shown = f' class="{style}"' if style else ""
    placed = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x}" y="{y}"{shown}{placed}>{escape(words)}</text>'


# --- drawings --------------------------------------------------------------------------------------------------------


def pictures() -> dict[str, Picture]:
    """Every drawing, by the name of its file."""
    return {
        "pool-blocks.svg": _pool_blocks(),
        "add-del.svg": _add_del(),
        "drain.svg": _drain(),
        "kubernetes-parts.svg": _kubernetes_parts(),
        "overview.svg": _overview(),
        "policy-hooks.svg": _policy_hooks(),
        "policy-order.svg": _policy_order(),
    }


def _overview() -> Picture:
    found = Picture("Pods of two nodes get addresses from one pool, and reach each other", 860, 330)
    found.box(
        (250, 10, 360, 62), "store", "b|IPPool main, 10.65.0.0/16", "s|in etcd, the Kubernetes API server, or a file"
    )
    for x, number, block, pods in (
        (10, 1, "10.65.0.64/26", ("10.65.0.64", "10.65.0.65")),
        (450, 2, "10.65.0.128/26", ("10.65.0.128", "10.65.0.129")),
    ):
        found.box((x, 112, 400, 160), "node", f"b|node-{number}")
        found.box((x + 110, 122, 280, 48), "plain", f"m|block {block}", "s|claimed once, used without asking others")
        for at, address in enumerate(pods):
            found.box((x + 14 + at * 190, 200, 176, 52), "plain", "pod", f"m|{address}")
            found.arrow(f"M{x + 150 + at * 140} 170V198")
    found.arrow("M300 72L255 124")
    found.arrow("M560 72L695 124")
    found.arrow("M290 252V300H738V254")
    found.words(514, 318, "packets between nodes: routed directly, or in VXLAN or IPIP", "s", "middle")
    return found


def _policy_hooks() -> Picture:
    found = Picture("Where a node judges a packet from one of its pods to another pod, and one for itself", 860, 356)
    found.box((10, 20, 150, 52), "plain", "b|pod a", "s|sends a packet")
    found.box((240, 8, 270, 76), "node", "b|prerouting", "s|is the source one of pod a?", "s|if not, it is dropped")
    found.arrow("M160 46H238")
    found.box(
        (240, 134, 270, 94),
        "node",
        "b|forward",
        "s|1. may pod a send it? (egress)",
        "s|2. may pod b get it? (ingress)",
        "s|no pod has the address: dropped",
    )
    found.arrow("M375 84V132")
    found.words(387, 112, "for a pod, or for outside")
    found.box(
        (620, 134, 230, 94),
        "plain",
        "b|pod b, or outside",
        "s|outside: only 1. counts;",
        "s|pod b of another node:",
        "s|that node judges 2.",
    )
    found.arrow("M510 181H618")
    found.box((620, 8, 230, 76), "node", "b|input", "s|1. may pod a send it? (egress)", "s|2. endpoint to host action")
    found.arrow("M510 46H618")
    found.words(564, 38, "for the node", "s", "middle")
    found.box((10, 134, 150, 94), "plain", "b|outside", "s|sends a packet", "s|to pod b, or to", "s|the node itself")
    found.arrow("M160 181H238")
    found.words(199, 173, "only 2.", "s", "middle")
    found.box(
        (240, 272, 270, 76),
        "node",
        "b|input, postrouting",
        "s|host endpoints: what the node gets",
        "s|and sends itself, after failsafe ports",
    )
    found.arrow("M85 228V310H238")
    found.box(
        (620, 272, 230, 76),
        "plain",
        "b|the node's own processes",
        "s|reach its own pods at all times:",
        "s|probes of the kubelet are not cut",
    )
    found.arrow("M510 310H618")
    return found


def _policy_order() -> Picture:
    found = Picture("How policies and profiles decide about one direction of a pod", 860, 300)
    found.box((10, 10, 260, 58), "plain", "b|a new connection", "s|known ones pass, invalid ones do not")
    found.box((10, 112, 260, 76), "node", "b|does any policy select the pod", "b|in this direction?")
    found.arrow("M140 68V110")
    found.box(
        (330, 112, 250, 76),
        "node",
        "b|its policies",
        "s|by order, then by name;",
        "s|the first rule that matches decides",
    )
    found.arrow("M270 150H328")
    found.words(299, 142, "yes", "s", "middle")
    found.box(
        (330, 216, 250, 76),
        "node",
        "b|its profiles",
        "s|kns.… of the namespace allows all",
        "s|in both directions",
    )
    found.arrow("M140 188V254H328")
    found.words(152, 212, "no")
    found.box((640, 10, 210, 58), "gone", "b|dropped", "s|no rule or profile matches")
    found.box(
        (640, 112, 210, 76), "store", "b|allowed or denied", "s|as the rule says; Log goes on", "s|to the next rule"
    )
    found.arrow("M580 150H638")
    found.arrow("M560 112V39H638")
    found.words(572, 82, "none matches")
    found.arrow("M580 254H745V190")
    return found


def _pool_blocks() -> Picture:
    found = Picture(
        "A pool is cut into blocks; each node claims blocks; pods get addresses of their node's blocks", 860, 380
    )
    found.box(
        (10, 10, 840, 50), "store", "b|IPPool main: 10.65.0.0/16, blockSize 26", "s|1024 blocks of 64 addresses each"
    )
    blocks = (
        (10, "plain", "10.65.0.0/26", "affine to node-1"),
        (222, "plain", "10.65.0.64/26", "affine to node-2"),
        (434, "plain", "10.65.0.128/26", "affine to node-2"),
        (646, "free", "10.65.0.192/26", "of no node yet"),
    )
    for x, look, cidr, owner in blocks:
        found.box((x, 100, 204, 50), look, f"m|{cidr}", f"s|{owner}")
        found.dashes(f"M{x + 102} 60V100")
    found.box((10, 200, 400, 132), "node")
    found.box((440, 200, 410, 132), "node")
    found.words(24, 322, "node-1: its block is full", "b")
    found.words(454, 322, "node-2", "b")
    for x, address, note in (
        (24, "10.65.0.1", "of its block"),
        (152, "10.65.0.2", "of its block"),
        (280, "10.65.0.77", "borrowed"),
        (454, "10.65.0.64", "of its block"),
        (586, "10.65.0.130", "of its block"),
    ):
        found.box((x, 218, 120, 76), "plain", "pod", f"m|{address}", f"s|{note}")
    found.arrow("M84 150V216")
    found.arrow("M190 150V216")
    found.arrow("M300 150L335 216")
    found.arrow("M360 150L500 216")
    found.arrow("M560 150L635 216")
    found.words(
        430, 362, "A node borrows only if no pool has a block left to claim; strictAffinity forbids it.", "s", "middle"
    )
    return found


_LANES: Final = (
    (70, "runtime"), (250, "netplug"), (430, "netplug-node"), (610, "datastore"), (790, "kernel"),
)  # fmt: skip


def _add_del() -> Picture:
    steps = (
        ("b", "ADD: a pod starts"),
        (0, 1, "ADD, configuration on stdin"),
        (1, 2, "the same, over a socket"),
        (2, 3, "read what is not cached"),
        (2, 2, "decide: pool, block, address"),
        (2, 3, "all in one commit"),
        (2, 4, "veth, address, routes"),
        (2, 1, "the result"),
        (1, 0, "addresses, exit status 0"),
        ("b", "DEL: the pod ends"),
        (0, 1, "DEL"),
        (1, 2, "the same, over a socket"),
        (2, 4, "remove the interface"),
        (2, 3, "release by the handle"),
        (2, 1, "success"),
        (1, 0, "exit status 0"),
    )
    top, pitch = 56, 32
    found = Picture(
        "What happens in sequence when a pod starts (ADD) and when it ends (DEL)", 860, top + len(steps) * pitch + 16
    )
    for x, name in _LANES:
        found.box((x - 62, 8, 124, 32), "node", f"b|{name}")
        found.dashes(f"M{x} 40V{top + len(steps) * pitch}")
    for number, step in enumerate(steps):
        y = top + number * pitch + 20
        match step:
            case (str(), str(words)):
                found.words(12, y, words, "b")
            case (int(begin), int(end), str(words)):
                _message(found, y, (_LANES[begin][0], _LANES[end][0]), words)
    return found


def _message(found: Picture, y: int, between: tuple[int, int], words: str) -> None:
    begin, end = between
    if begin == end:
        found.arrow(f"M{begin} {y - 8}h26v12h-22")
        found.words(begin + 34, y, words)
        return
    found.arrow(f"M{begin + (4 if end > begin else -4)} {y}H{end - (4 if end > begin else -4)}")
    found.words((begin + end) // 2, y - 5, words, "s", "middle")


def _drain() -> Picture:
    found = Picture(
        "Draining a pool: it is disabled, its addresses come back, it is deleted; a successor serves meanwhile",
        860,
        300,
    )
    stages = (
        (10, "1. before", ("store", "IPPool small", "serves; 5 addresses in use"), None),
        (296, "2. netplugctl pool resize", ("free", "IPPool small, disabled", "4, 3, 2 … addresses in use"),
         ("store", "IPPool large", "serves all new pods")),
        (582, "3. the same command again", ("gone", "IPPool small, deleted", "when no address is in use"),
         ("store", "IPPool large", "serves")),
    )  # fmt: skip
    for x, title, old, new in stages:
        found.box((x, 10, 266, 280), "outer", f"b|{title}")
        for y, one in ((50, old), (120, new)):
            if one is not None:
                look, name, text = one
                found.box((x + 16, y, 234, 52), look, f"b|{name}", f"s|{text}")
    for x, pods in (
        (10, ("10.65.0.2", "10.65.0.3")),
        (296, ("10.65.0.2", "10.66.0.128")),
        (582, ("10.66.0.129", "10.66.0.128")),
    ):
        for at, address in enumerate(pods):
            found.box((x + 16 + at * 120, 212, 114, 56), "plain", "pod", f"m|{address}")
    found.arrow("M276 150H294")
    found.arrow("M562 150H580")
    return found


def _kubernetes_parts() -> Picture:
    found = Picture("The parts of netplug in a Kubernetes cluster, and who asks whom", 860, 470)
    found.box((10, 10, 840, 150), "outer", "b|cluster")
    found.box(
        (30, 46, 220, 92),
        "plain",
        "b|netplug-operator",
        "s|a Deployment of one pod",
        "s|makes what the Installation says",
        "s|or: a chart, or a manifest",
    )
    found.box(
        (320, 46, 250, 92),
        "store",
        "b|kube-apiserver",
        "s|Installation, IPPool, …",
        "s|IPAMBlock, BlockAffinity,",
        "s|IPAMHandle: CRDs of netplug",
    )
    found.box((640, 46, 190, 92), "plain", "b|you", "m|kubectl", "m|netplugctl")
    found.arrow("M250 92H318")
    found.arrow("M640 92H572")
    found.box((10, 200, 840, 260), "node", "b|each node")
    found.box((30, 240, 150, 60), "plain", "b|kubelet", "s|asks for a pod")
    found.box((30, 340, 150, 60), "plain", "b|containerd", "s|calls the plugin")
    found.box((240, 340, 170, 60), "plain", "b|netplug", "s|on the host: the client")
    found.box(
        (240, 230, 330, 90),
        "plain",
        "b|netplug-node",
        "s|a pod of the DaemonSet, in the host's network",
        "s|serves calls; makes routes, NAT, tunnels",
        "s|registers the node; renews the plugin's token",
    )
    found.box(
        (640, 230, 190, 90),
        "plain",
        "b|BIRD",
        "s|in the same pod, only where",
        "s|a pool without VXLAN or",
        "s|a BGPPeer needs BGP",
    )
    found.box(
        (470, 350, 360, 90),
        "plain",
        "b|kernel",
        "s|veth pairs of pods, routes, vxlan.netplug,",
        "s|vxlan6.netplug; the tables inet netplug_net",
        "s|and, for port maps, those of portmap",
    )
    found.arrow("M105 300V338")
    found.arrow("M180 370H238")
    found.arrow("M320 340V322")
    found.arrow("M430 230V140")
    found.arrow("M570 276H638")
    found.arrow("M520 320V348")
    found.arrow("M735 320V348")
    return found


def write(folder: Path) -> Iterator[str]:
    """Write the files; yields a line for each that has changed."""
    for name, picture in pictures().items():
        file, text = folder / name, picture.render()
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
            yield f"wrote {file}"


if __name__ == "__main__":
    for change in write(FOLDER):
        print(change)
