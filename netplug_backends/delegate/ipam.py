"""Another IPAM plugin, executed for each call, beside the endpoints in the datastore.

On ADD the program is run before the endpoint is committed, on DEL after it is deleted. It keeps its addresses as it
likes, so its own locks have to keep its calls apart: the host's lock is not held while it runs, only that of the
attachment.

Source: CNI specification, "Section 4: Plugin Delegation".
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress

from attrs import frozen

from netplug_backends.delegate.program import MAX_OUTPUT, DidNotEnd, TooMuchOutput, run_program
from netplug_core.addressing import Family
from netplug_core.clock import Deadline, Pace
from netplug_core.cni.delegation import (
    IPAMPluginFailed,
    IPAMPluginTimeout,
    PluginOutput,
    assignment_of,
    is_unknown_command,
    parse_answer,
    plugin_environment,
)
from netplug_core.cni.dispatch import CNICommand
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.result import CNIResult
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.datastore.transaction import read_pages
from netplug_core.decoding.tables import find_member
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.flows.ipam.service import BlockIPAM, require_ready, settle_endpoint
from netplug_core.hookspecs import IPAMContext
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Attachment, Released, ReleaseRequest
from netplug_core.ipam.model import Pairs
from netplug_core.ipam.protocol import EndpointWrites
from netplug_core.names import container_mac, handle_id
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = ["DelegatedIPAM"]

_CLEANUP_S = 10.0


@frozen
class DelegatedIPAM:
    """See :class:`~netplug_core.ipam.protocol.IPAM`. ``request`` is the call that the program is run for."""

    context: IPAMContext
    request: CNIRequest

    def assign(self, request: AssignRequest, endpoint: EndpointWrites, *, deadline: Deadline) -> Assignment:
        """Run ADD, then commit the endpoint. If anything fails, DEL is run too: an ADD may fail after it assigned.

        What is wanted is not looked at: the program knows the configuration and CNI_ARGS.
        """
        self._find_program()  # without one there is nothing to take back
        with ExitStack() as undo:
            undo.callback(self._take_back, request.owner)
            assignment = assignment_of(self._plugin, self._run(CNICommand.ADD, deadline, request.owner))
            undo.callback(self._delete_endpoint, endpoint)
            settle_endpoint(self.context.datastore, endpoint, assignment, pace=self._pace(deadline))
            undo.pop_all()
        return assignment

    def release(self, request: ReleaseRequest, endpoint: EndpointWrites, *, deadline: Deadline) -> Released:
        """Delete the endpoint, then run DEL.

        DEL is run even if the datastore is away: only this call has the configuration for it. The error of the
        datastore is raised after it, so it says that the program did its part. Addresses of pools that the handle holds
        go with the endpoint: ``ipam.type`` may have been another one when the container was attached.
        """
        half = deadline.capped(deadline.remaining_s / 2)
        try:
            released = self._pools.release(request, endpoint, deadline=half)
        except NetplugError:
            self._delete(request.owner, deadline)
            raise
        self._delete(request.owner, deadline)
        return released

    def held(self, handle: str, *, deadline: Deadline) -> Released | None:  # noqa: ARG002  the program has no such call
        """Not known; CHECK of the program, which ``forward`` runs, compares it."""
        return None

    def probe(self, request: AssignRequest, *, deadline: Deadline) -> tuple[Family, ...]:  # noqa: ARG002  as in assign
        """Run STATUS, and look whether the datastore answers. A program without STATUS counts as ready.

        Which families the program would assign is not known.
        """
        try:
            self._run(CNICommand.STATUS, deadline)
        except NetplugError as error:
            if not is_unknown_command(error):
                raise
        require_ready(self.context.datastore, pace=self._pace(deadline))
        return ()

    def attachments(self, *, node: str, network: str, deadline: Deadline) -> tuple[Attachment, ...]:
        """Every attachment of the network on a node that has an endpoint, or that still holds addresses of pools.

        Where endpoints are objects of pods, they are not looked for: they go with their pods. An endpoint with the
        profiles of a pod does not name its network. Its MAC does, unless an annotation of the pod or the runtime chose
        that: then it is not found, because it may be that of another network.
        """
        of_pools = self._pools.attachments(node=node, network=network, deadline=deadline)
        found = {(one.container_id, one.interface): one for one in self._attached(node, network, deadline)}
        return tuple(sorted({**found, **{(one.container_id, one.interface): one for one in of_pools}}.values()))

    def forward(self, *, deadline: Deadline) -> None:
        """Run the command of the call; a program without GC got a DEL for each attachment."""
        try:
            self._run(self.request.command, deadline)
        except NetplugError as error:
            if self.request.command is not CNICommand.GC or not is_unknown_command(error):
                raise

    # --- parts ------------------------------------------------------------------------------------------------------

    @property
    def _plugin(self) -> str:
        return str(find_member(self.context.netconf, "ipam", "type"))

    @property
    def _pools(self) -> BlockIPAM:
        """The IPAM that the node may have had before."""
        context = self.context
        return BlockIPAM(datastore=context.datastore, clock=context.clock, chance=context.chance)

    def _run(self, command: CNICommand, deadline: Deadline, owner: Pairs = ()) -> CNIResult:
        """The answer of the program; ``owner`` says for which attachment it is run."""
        path, plugin, seconds = self._find_program(), self._plugin, deadline.remaining_s
        problem = ""
        try:
            output = run_program(
                path,
                environ=plugin_environment(self.request, command, plugin, owner),
                stdin=self.request.netconf_text.encode(),
                deadline=deadline,
                on_stderr=self.context.write_stderr or _copy_to_stderr,
            )
        except DidNotEnd:
            raise IPAMPluginTimeout(plugin=plugin, command=command, seconds=seconds) from None
        except TooMuchOutput:
            problem = f"it wrote more than {MAX_OUTPUT} bytes and was killed"
        except OSError as error:
            problem = f"{path} cannot be executed: {error.strerror or error}"
        else:
            answer = PluginOutput(status=output.status, stdout=output.stdout, stderr=output.stderr)
            return parse_answer(plugin, self.request, command, answer)
        raise IPAMPluginFailed(plugin=plugin, command=command, problem=problem)

    def _find_program(self) -> str:
        """The first file of the plugin's name in the folders of CNI_PATH.

        Raises:
            ConfigurationError: there is none.
        """
        for folder in self.request.path:
            path = os.path.join(folder, self._plugin)
            with suppress(OSError):
                if stat.S_ISREG(os.stat(path).st_mode):
                    return path
        accepted = f"the name of a program in CNI_PATH ({':'.join(self.request.path)}) is expected"
        raise ConfigurationError("network configuration.ipam.type", self._plugin, accepted)

    def _delete(self, owner: Pairs, deadline: Deadline) -> None:
        if owner:
            self._run(CNICommand.DEL, deadline, owner)

    def _take_back(self, owner: Pairs) -> None:
        """Run DEL after an ADD that failed. The caller gets its own error, whatever happens here."""
        with suppress(NetplugError):  # the runtime's DEL runs it again
            self._run(CNICommand.DEL, Deadline.after(self.context.clock, _CLEANUP_S), owner)

    def _delete_endpoint(self, endpoint: EndpointWrites) -> None:
        """Delete what a commit without an answer may have stored."""
        deadline = Deadline.after(self.context.clock, _CLEANUP_S)
        with suppress(NetplugError):  # the runtime's DEL deletes it
            settle_endpoint(self.context.datastore, endpoint, None, pace=self._pace(deadline))

    def _attached(self, node: str, network: str, deadline: Deadline) -> Iterator[Attachment]:
        for endpoint in self._endpoints(deadline):
            spec = endpoint.spec
            handle = handle_id(network, spec.container_id, spec.endpoint)
            if spec.node == node and (network in spec.profiles or spec.mac == container_mac(handle)):
                yield Attachment(
                    container_id=spec.container_id,
                    interface=spec.endpoint,
                    handle=handle,
                    namespace=endpoint.metadata.namespace if spec.pod else "",
                    pod=spec.pod,
                )

    def _endpoints(self, deadline: Deadline) -> Iterator[WorkloadEndpoint]:
        if self.context.datastore.description.endpoints is EndpointStorage.RECORDS:
            records = read_pages(self.context.datastore, WORKLOAD_ENDPOINT, deadline=deadline, malformed=[])
            yield from (record.value for record in records)

    def _pace(self, deadline: Deadline) -> Pace:
        return Pace(clock=self.context.clock, deadline=deadline, chance=self.context.chance)


def _copy_to_stderr(text: bytes) -> None:
    """What a program writes there is for the log of the runtime, as what netplug writes there."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):  # it may be closed
            sys.stderr.write(text.decode(errors="backslashreplace"))
            sys.stderr.flush()
